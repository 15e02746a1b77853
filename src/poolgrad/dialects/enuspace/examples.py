"""The page that enuSpace's documentation shows for AvgPool3DGrad, and the same page put right.

The documented page feeds `grad` a tensor of shape [2][2][2][2][2]. The pooling it differentiates, windows 4,3,2 on an input
of [2][1][1][1][2] with SAME, has [2][1][1][1][2] outputs, so there is no such gradient. The values 1, 3, 5, 7 that the
documentation shows are the first four of an unchecked buffer. Put right, `grad` has one value for each output; every
window holds a single input, so each value arrives undivided.
"""

from __future__ import annotations

import numpy as np

from .grammar import Array
from .page import Page

__all__ = ["corrected_page", "documented_page"]


def _page(name: str, grad: Array) -> Page:
    page = Page(name)
    shape = page.add("Const", "shape", at=(120, 120), val=np.array([2, 1, 1, 1, 2], np.int32))
    feed = page.add("Const", "gradient", at=(120, 320), val=grad)
    pool = page.add("AvgPool3DGrad", "pool", at=(420, 200), ksize="1,4,3,2,1", strides="1,4,3,2,1", padding="SAME")
    session = page.add("ClientSession", "session", at=(720, 220))
    page.connect(shape, "output", pool, "orig_input_shape")
    page.connect(feed, "output", pool, "grad")
    page.connect(pool, "output", session, "fetch_outputs")
    return page


def documented_page() -> Page:
    """The page as documented; running it reports the mistake and its mending."""
    return _page("AvgPool3DGrad as documented", np.arange(1, 33, dtype=np.float32).reshape(2, 2, 2, 2, 2))


def corrected_page() -> Page:
    """The same page with a gradient of the right shape.

    >>> from poolgrad.enuspace import Runner
    >>> runner = Runner(corrected_page())
    >>> runner.run().ok
    True
    >>> runner.value("pool", "result_output").ravel()
    array([1., 3., 5., 7.], dtype=float32)
    """
    return _page("AvgPool3DGrad put right", np.array([1, 3, 5, 7], np.float32).reshape(2, 1, 1, 1, 2))

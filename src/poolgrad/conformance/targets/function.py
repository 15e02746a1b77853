"""A function of the user's own, called as `poolgrad.avg_pool_grad` is: `function(dy, input_shape, window=…, stride=…, …)`.

`NotImplementedError` says that it does not serve a call.
"""

from __future__ import annotations

import re

from ...dialects.pooling import NoTranslation, Regular
from ...errors import PoolGradValueError
from ..case import Case
from .base import Target, keywords

__all__ = ["NAMED", "function_target"]

NAMED = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def function_target(name: str) -> Target:
    """The target for `package.module:function`."""
    found = NAMED.fullmatch(name)
    if found is None:
        raise PoolGradValueError(f"a target of your own is named 'package.module:function', got {name!r}")
    module, function = found.groups()

    def source(case: Case) -> str:
        pooling = case.pooling
        if not isinstance(pooling, Regular):
            raise NoTranslation("functions are called with regular windows only")
        given = {
            "window": pooling.window,
            "stride": pooling.stride,
            "padding": pooling.padding,
            "dilation": pooling.dilation or (1,) * len(pooling.window),
            "count": pooling.count,
            "divisor": pooling.divisor,
            "ceil_mode": pooling.ceil_mode,
            "layout": pooling.layout,
        }
        call = f"kernel.{function}(dy, {case.input_shape}, {keywords(given)})"
        return f"import {module} as kernel\n\n\ndef grad(dy):\n    return {call}\n"

    said = f"getattr(__import__({module.split('.')[0]!r}), '__version__', 'no version')"
    imports = (
        f"from {module} import {function}\nif not callable({function}):\n    raise TypeError({f'{name} is no function'!r})\n"
    )
    return Target(name, source, imports, said, ("NotImplementedError",))

"""The windows that the studio shows are those that the blocks compute with: the exact sums over them give the blocks' results."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolgrad import Axis, Pool
from poolgrad_studio.windows import cell_of, input_of
from studio_support import Refused, Tab, find, fresh_block, pin, set_const, wire


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    size = draw(st.integers(1, 9))
    kind = draw(st.sampled_from(["same", "valid", "dilated", "adaptive", "fractional"]))
    if kind == "adaptive":
        return Axis.adaptive(size, draw(st.integers(1, 9)))
    if kind == "fractional":
        edges = sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=4))})
        return Axis.fractional(size, edges, overlapping=draw(st.booleans()))
    window = draw(st.integers(1, size))
    if kind == "dilated":
        return Axis.regular(9, draw(st.integers(1, 3)), stride=draw(st.integers(1, 3)), dilation=draw(st.integers(1, 3)))
    return Axis.regular(size, window, stride=draw(st.integers(1, 4)), padding=kind)


@given(parts=st.lists(axes(), min_size=1, max_size=3), divisor=st.none() | st.integers(1, 9))
def test_cells_and_inputs_tell_the_same_story(parts: list[Axis], divisor: int | None) -> None:
    pool = Pool(tuple(parts), divisor)
    shares: dict[tuple[Any, ...], Fraction] = {}
    for cell in product(*(range(n) for n in pool.output_size)):
        said = cell_of(pool, cell)
        inside = list(product(*(range(b["start"], b["stop"], b["step"]) for b in said["box"])))
        assert said["inputs"] == len(inside)
        assert said["share"] == float(Fraction(said["weight"]))
        for at in inside:
            assert all(0 <= i < n for i, n in zip(at, pool.input_size, strict=True))
            shares[at, cell] = Fraction(said["weight"])
        if divisor is None:
            assert sum([Fraction(said["weight"])] * len(inside)) <= 1
    found = {}
    for at in product(*(range(n) for n in pool.input_size)):
        said = input_of(pool, at)
        assert said["count"] == len(said["cells"])
        assert said["total"] == pytest.approx(sum(said["shares"]))
        found |= {(at, tuple(cell)): Fraction(weight) for cell, weight in zip(said["cells"], said["weights"], strict=True)}
        for cell in said["cells"]:
            assert all(k in range(b["start"], b["stop"], b["step"]) for k, b in zip(cell, said["box"], strict=True))
    assert found == shares


def page_of(tab: Tab, symbol: str, wired: dict[str, Any], texts: dict[str, str]) -> str:
    """A page with one pooling block, fed by constants, run."""
    opened = tab.ask("new")
    page = opened["page"]
    page["blocks"] = [fresh_block(tab, symbol, "pool", **texts), fresh_block(tab, "ClientSession", "s")]
    page["wires"] = [wire("pool", "output", "s", "fetch_outputs")]
    for name, array in wired.items():
        page["blocks"].append(fresh_block(tab, "Const", name))
        set_const(page, name, _typed(array))
        page["wires"].append(wire(name, "output", "pool", name))
    tab.ask("put", doc=opened["doc"], revision=1, page=page)
    assert tab.ran(opened["doc"])["state"] == "done"
    assert find(page, "pool")
    return str(opened["doc"])


def _typed(array: Any) -> dict[str, Any]:
    kind = {"i": "int", "f": "double"}[array.dtype.kind]
    shape, value = "".join(f"[{n}]" for n in array.shape), ";".join(repr(v) for v in array.ravel().tolist())
    return {"symbol": "Const", "pins": {"val": {"type": kind, "shape": shape, "value": value, "data": None}}}


REGULAR = {"ksize": "1,3,2,1", "strides": "1,2,1,1", "padding": "SAME"}
VOLUME = {"ksize": "1,1,2,3,2", "strides": "1,1,2,1,2", "padding": "VALID", "attrs": "data_format_ = NCDHW;"}


@pytest.mark.parametrize(
    ("symbol", "shape", "texts"),
    [("AvgPool", (2, 5, 4, 3), REGULAR), ("AvgPool3D", (2, 2, 4, 5, 6), VOLUME | {"ksize": "1,1,2,3,2"})],
)
def test_means_over_the_shown_inputs_are_the_outputs(
    tab: Tab, symbol: str, shape: tuple[int, ...], texts: dict[str, str]
) -> None:
    x = np.random.default_rng(2).integers(-9, 9, shape).astype(np.float64)
    doc = page_of(tab, symbol, {"value" if symbol == "AvgPool" else "input": x}, texts)
    said = tab.ask("windows", doc=doc, block="pool")
    assert said["direction"] == "forward"
    assert said["input"]["shape"] == list(shape)
    y = values(tab, doc, said["cells"])
    spatial = said["input"]["spatial"]
    for cell in product(*(range(said["cells"]["shape"][p]) for p in spatial)):
        window = tab.ask("window", doc=doc, block="pool", cell=list(cell))
        cut: list[Any] = [slice(None)] * x.ndim
        at: list[Any] = [slice(None)] * x.ndim
        for p, box, k in zip(spatial, window["box"], cell, strict=True):
            cut[p], at[p] = slice(box["start"], box["stop"], box["step"]), k
        np.testing.assert_allclose(x[tuple(cut)].sum(axis=tuple(spatial)) * window["share"], y[tuple(at)], rtol=1e-12)


def values(tab: Tab, doc: str, side: dict[str, Any]) -> Any:
    size = int(np.prod(side["shape"]))
    rows = tab.ask("rows", doc=doc, block=side["block"], pin=side["pin"], start=0, stop=size)["rows"]
    return np.array([float(row[2]) for row in rows]).reshape(side["shape"])


def test_shares_of_the_shown_cells_make_the_gradient(tab: Tab) -> None:
    shape, texts = (2, 5, 4, 3), REGULAR
    dy = np.random.default_rng(3).integers(-9, 9, (2, 3, 4, 3)).astype(np.float64)
    doc = page_of(tab, "AvgPoolGrad", {"orig_input_shape": np.array(shape, np.int32), "grad": dy}, texts)
    said = tab.ask("windows", doc=doc, block="pool")
    assert said["direction"] == "gradient"
    assert (said["cells"]["block"], said["cells"]["pin"]) == ("grad", "val")
    dx = values(tab, doc, said["input"])
    for at in product(range(5), range(4)):
        window = tab.ask("window", doc=doc, block="pool", input=list(at))
        want = sum(share * dy[:, a, b] for (a, b), share in zip(window["cells"], window["shares"], strict=True))
        np.testing.assert_allclose(want, dx[:, at[0], at[1]], rtol=1e-12)


def test_a_fractional_pooling_shows_the_windows_it_drew(tab: Tab) -> None:
    x = np.random.default_rng(4).standard_normal((1, 9, 8, 2))
    texts = {"pooling_ratio": "1.0,1.5,1.3,1.0", "attrs": "deterministic_ = true; seed_ = 7; overlapping_ = true;"}
    doc = page_of(tab, "FractionalAvgPool", {"value": x}, texts)
    said = tab.ask("windows", doc=doc, block="pool")
    y = values(tab, doc, said["cells"])
    for a, b in product(range(y.shape[1]), range(y.shape[2])):
        box = tab.ask("window", doc=doc, block="pool", cell=[a, b])["box"]
        part = x[:, box[0]["start"] : box[0]["stop"], box[1]["start"] : box[1]["stop"]]
        np.testing.assert_allclose(part.mean(axis=(1, 2)), y[:, a, b], rtol=1e-12)


def test_windows_that_cannot_be_are_refused(tab: Tab) -> None:
    opened = tab.ask("example", which="documented")
    for block, said in (("pool", "the pooling has"), ("shape", "only pooling blocks"), ("nobody", "no block")):
        with pytest.raises(Refused, match=said):
            tab.ask("windows", doc=opened["doc"], block=block)
    doc = tab.ask("example", which="corrected")["doc"]
    assert tab.ask("windows", doc=doc, block="pool")["cells"]["block"] == "gradient", "known without a run"
    for fields in ({"cell": [0, 0]}, {"cell": [0, 0, 1]}, {"input": [-1, 0, 0]}, {}, {"cell": [0, 0, 0], "input": [0, 0, 0]}):
        with pytest.raises(Refused):
            tab.ask("window", doc=doc, block="pool", **fields)
    page = tab.ask("attach", doc=doc)["page"]
    pin(page, "pool", "ksize")["value"] = "1,2"
    tab.ask("put", doc=doc, revision=1, page=page)
    with pytest.raises(Refused) as refused:
        tab.ask("windows", doc=doc, block="pool")
    assert "5 integers" in refused.value.legal
    page["wires"] = []
    pin(page, "pool", "ksize")["value"] = "1,4,3,2,1"
    tab.ask("put", doc=doc, revision=2, page=page)
    with pytest.raises(Refused, match="nothing is wired"):
        tab.ask("windows", doc=doc, block="pool")

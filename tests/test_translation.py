"""Translation between every two dialects: equal tables or a reason, and the reason is true.

That a translation is right is checked by results, not by the tables that `translate` itself compares. That there is none is
checked by trying: on small shapes, every call of the target within bounds.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest
import support
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, PoolGradError
from poolgrad.dialects import NAMES, NoTranslation, Pooling, dialect, translate, windows
from poolgrad.dialects.tables import Tables, plain
from poolgrad.dialects.windows import Form, Window, solve

Call = tuple[dict[str, Any], tuple[int, ...]]


@st.composite
def calls(draw: st.DrawFn, name: str) -> Call:
    """Arguments of a dialect, and an input shape that they suit."""
    dims = draw(st.sampled_from([2, 2, 3] if name in ("tensorflow", "enuspace", "directml") else [1, 2, 2, 3]))
    rows = []
    for _ in range(dims):
        k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 1, 2]))
        p, q = draw(st.integers(0, k // 2)), draw(st.integers(0, k - 1))
        rows.append((k, s, d, p, q, draw(st.integers(1, 7))))
    window, stride, dilation, before, after, sizes = zip(*rows, strict=True)
    first, padding = draw(st.booleans()), draw(st.sampled_from(["VALID", "SAME"]))
    yes, also = draw(st.booleans()), draw(st.booleans())
    made = _SAID[name](window, stride, dilation, before, after, padding, first, yes, also, draw(st.integers(0, 3)))
    first = made.pop("first", first)
    shape = (2, 3, *sizes) if first else (2, *sizes, 3)
    try:
        dialect(name).read(made, shape).pool(shape)
    except PoolGradError:
        reject()
    return made, shape


def _torch(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    if odd == 3:
        return {"op": f"adaptive_avg_pool{len(k)}d", "output_size": s, "first": True}
    divisor = {"divisor_override": int(np.prod(k)) + odd} if odd in (1, 2) and len(k) > 1 else {}
    said = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": yes, "count_include_pad": also}
    return {"op": f"avg_pool{len(k)}d", **said, **divisor, "first": True}


def _onnx(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    pads = {"auto_pad": f"{pad}_UPPER" if pad == "SAME" else pad} if odd == 3 else {"pads": [*p, *q]}
    said = {"kernel_shape": list(k), "strides": list(s), **pads, "dilations": list(d)}
    return {**said, "ceil_mode": int(yes), "count_include_pad": int(also), "first": True}


def _jax(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    pairs = tuple(zip(p, q, strict=True))
    if odd < 2:
        return {"window_shape": k, "strides": s, "padding": pad if odd else pairs, "count_include_pad": yes, "first": False}
    around = ((1, 1), ()) if first else ((1,), (1,))
    whole = {name: (*around[0], *column, *around[1]) for name, column in (("window", k), ("stride", s), ("dilation", d))}
    none = tuple((0, 0) for _ in around[0]), tuple((0, 0) for _ in around[1])
    divisor = {"divisor": int(np.prod(k)) * (odd - 1)} if also else {"count_include_pad": yes}
    said = {"window_dimensions": whole["window"], "window_strides": whole["stride"], "window_dilation": whole["dilation"]}
    return {**said, "padding": (*none[0], *pairs, *none[1]), **divisor, "first": first}


def _keras(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    data_format = {"data_format": "channels_first" if first else "channels_last"}
    if odd == 3:
        return {"output_size": s, **data_format}
    return {"pool_size": k, "strides": s, "padding": pad.lower(), **data_format}


def _tensorflow(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    if odd == 3 and len(k) == 2:
        rows = [[0, *np.cumsum([part, step]).tolist()] for part, step in zip(k, s, strict=True)]
        return {"row_pooling_sequence": rows[0], "col_pooling_sequence": rows[1], "overlapping": yes, "first": False}
    ksize, strides = ([1, 1, *k], [1, 1, *s]) if first else ([1, *k, 1], [1, *s, 1])
    space = {2: "HW", 3: "DHW"}[len(k)]
    layout = f"NC{space}" if first else f"N{space}C"
    return {"ksize": ksize, "strides": strides, "padding": pad, "data_format": layout}


def _enuspace(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    said = _tensorflow(k, s, d, p, q, pad, first, yes, also, 0)
    texts = {name: ",".join(map(str, said[name])) for name in ("ksize", "strides")}
    return {**texts, "padding": pad, "attrs": f"data_format_ = {said['data_format']};"}


def _directml(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    said = {"WindowSize": list(k), "Strides": list(s), "StartPadding": list(p), "EndPadding": list(q)}
    return {**said, **({"Dilations": list(d)} if also else {}), "IncludePadding": yes, "first": True}


def _core(k: Any, s: Any, d: Any, p: Any, q: Any, pad: str, first: bool, yes: bool, also: bool, odd: int) -> dict[str, Any]:
    space = {1: "L", 2: "HW", 3: "DHW"}[len(k)]
    layout = {"layout": f"NC{space}" if first else f"N{space}C"}
    if odd == 3:
        return {"sequences": [[0, part, part + step] for part, step in zip(k, s, strict=True)], "overlapping": yes, **layout}
    count = ("inside", "padded", "window")[odd]
    said = {"window": k, "stride": s, "padding": tuple(zip(p, q, strict=True)), "dilation": d}
    return {**said, "count": count, "ceil_mode": yes, **layout}


_SAID = {
    "torch": _torch,
    "onnx": _onnx,
    "jax": _jax,
    "keras": _keras,
    "tensorflow": _tensorflow,
    "enuspace": _enuspace,
    "directml": _directml,
    "poolgrad": _core,
}


ALWAYS = {("directml", "onnx"), ("directml", "jax"), ("tensorflow", "enuspace"), ("enuspace", "tensorflow")}
"""The dashes in the documentation's matrix."""


def attempt(arguments: dict[str, Any], source: str, target: str, shape: tuple[int, ...], **options: bool) -> dict[str, Any] | str:
    """The translation, or why there is none."""
    try:
        return translate(arguments, source, target, shape, **options)
    except NoTranslation as refusal:
        return str(refusal)


def result(pooling: Pooling, x: support.Array) -> support.Array:
    return poolgrad.forward(pooling.pool(x.shape), x, layout=pooling.layout)


@pytest.mark.parametrize("source", NAMES)
@settings(max_examples=12)
@given(data=st.data())
def test_every_pair(source: str, data: st.DataObject) -> None:
    arguments, shape = data.draw(calls(source))
    x = support.random_array(7, shape, np.dtype(np.float64))
    pooling = dialect(source).read(arguments, shape)
    want = result(pooling, x)
    dy = support.random_array(8, want.shape, np.dtype(np.float64))
    gradient = poolgrad.gradient(pooling.pool(shape), dy, layout=pooling.layout)
    for target in NAMES:
        said = attempt(arguments, source, target, shape)
        if isinstance(said, str):
            assert said.startswith(f"{source} to {target}: ")
            assert len(said) > len(f"{source} to {target}: ") + 20
            assert target not in (source, "poolgrad")
            assert (source, target) not in ALWAYS
            continue
        other = dialect(target).read(said, shape)
        support.assert_same_bits(result(other, x), want, (target, said))
        support.assert_same_bits(poolgrad.gradient(other.pool(shape), dy, layout=other.layout), gradient, (target, said))


@pytest.mark.parametrize("source", NAMES)
@settings(max_examples=5)
@given(data=st.data())
def test_every_pair_with_a_transpose(source: str, data: st.DataObject) -> None:
    arguments, shape = data.draw(calls(source))
    x = support.random_array(7, shape, np.dtype(np.float64))
    want = result(dialect(source).read(arguments, shape), x)
    for target in NAMES:
        said = attempt(arguments, source, target, shape, transpose=True)
        if isinstance(said, str):
            continue
        turn = said.pop("transpose", tuple(range(len(shape))))
        turned = np.ascontiguousarray(x.transpose(turn))
        back = result(dialect(target).read(said, turned.shape), turned).transpose(np.argsort(turn))
        support.assert_same_bits(np.ascontiguousarray(back), want, (target, said))


FORMS = [
    Form("valid", "inside"),
    Form("same", "inside"),
    Form("same", "window"),
    Form("same_lower", "inside"),
    *(Form("half", count, ceil) for count in ("padded", "inside") for ceil in (False, True)),
    *(Form("pairs", count, ceil, dilation=True) for count in ("padded", "inside", "window") for ceil in (False, True)),
    *(Form("pairs", count) for count in ("inside", "window")),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_search_misses_nothing(form: Form) -> None:
    """Every table that any numbers within bounds make in this form is found again from the table (and the dilation)."""
    for n in (1, 2, 3):
        pads = {"half": [(p, p) for p in range(4)], "pairs": list(product(range(4), repeat=2))}
        for k, s, d in product(range(1, 7), range(1, 5), (1, 2, 3) if form.dilation else (1,)):
            for padding in pads.get(form.padding, [form.padding]):
                if form.padding == "half" and 2 * padding[0] > k:
                    continue
                try:
                    options = {"stride": s, "padding": padding, "dilation": d, "ceil_mode": form.ceil_mode}
                    axis = plain(Axis.regular(n, k, count=form.count or "inside", **options))
                except PoolGradError:
                    continue
                said = Window(1, 1, (0, 0), d) if d > 1 else None
                assert solve(axis, axis.count, form, said) is not None, (axis, k, s, padding, d)


def test_the_search_keeps_to_its_form() -> None:
    """What it finds for a table from elsewhere obeys the form: PyTorch's padding is alike and at most half the window."""
    half = Form("half", "inside", within=True)
    for n, k, s, p in product((3, 4, 5), (1, 2, 3, 4, 5), (1, 2, 3), (0, 1, 2, 3, 4)):
        with suppress(PoolGradError):
            axis = Axis.regular(n, k, stride=s, padding=p)
            found = solve(axis, axis.count, half, Window(k, s, (p, p)))
            assert found is None or (found.window >= 2 * found.padding[0] and found.window <= n)
            assert found is not None or 2 * p > k or k > n


def small_calls(name: str, dims: int) -> Iterator[dict[str, Any]]:
    """Every call of a dialect with small numbers, channels first."""
    each = list(product(range(1, 5 if dims == 2 else 6), range(1, 4)))
    pairs = list(product(range(2 if dims == 2 else 4), repeat=2))
    steps = range(1, 2 if dims == 2 else 3)
    space = {1: "L", 2: "HW"}[dims]
    for rows in product(each, repeat=dims):
        k, s = zip(*rows, strict=True)
        if name in ("keras", "tensorflow"):
            for padding in ("VALID", "SAME"):
                if name == "keras":
                    yield {"pool_size": k, "strides": s, "padding": padding.lower(), "data_format": "channels_first"}
                else:
                    yield {"ksize": [1, 1, *k], "strides": [1, 1, *s], "padding": padding, "data_format": f"NC{space}"}
            continue
        if name == "torch":
            for p in product(range(3), repeat=dims):
                for ceil, include, divisor in product((False, True), (False, True), (None, 3, 4) if dims == 2 else (None,)):
                    said = {"op": f"avg_pool{dims}d", "kernel_size": k, "stride": s, "padding": p, "ceil_mode": ceil}
                    yield {**said, "count_include_pad": include, **({"divisor_override": divisor} if divisor else {})}
            continue
        for d, padding in product(product(steps, repeat=dims), product(pairs, repeat=dims)):
            p, q = zip(*padding, strict=True)
            for yes in (False, True):
                if name == "directml":
                    fields = {"WindowSize": k, "Strides": s, "StartPadding": p, "EndPadding": q, "IncludePadding": yes}
                    yield {field: list(value) if isinstance(value, tuple) else value for field, value in fields.items()}
                elif name == "onnx":
                    for ceil in (0, 1):
                        said = {"kernel_shape": list(k), "strides": list(s), "pads": [*p, *q], "ceil_mode": ceil}
                        yield {**said, "count_include_pad": int(yes), "dilations": list(d)}
                else:
                    columns = {"window_dimensions": k, "window_strides": s, "window_dilation": d}
                    said = {field: (1, 1, *column) for field, column in columns.items()}
                    yield {**said, "padding": ((0, 0), (0, 0), *padding), "count_include_pad": yes}


def small_tables(name: str, shape: tuple[int, ...]) -> dict[Tables, dict[str, Any]]:
    """What those calls mean on `shape`, each with a call that says so; at random one in a few where there are many."""
    found: dict[Tables, dict[str, Any]] = {}
    every = list(small_calls(name, len(shape) - 2))
    chosen = np.random.default_rng(6).permutation(len(every))[:1500]
    for said in (every[k] for k in chosen):
        with suppress(PoolGradError):
            found.setdefault(Tables.of(dialect(name).read(said, shape), shape), said)
    return found


@pytest.mark.parametrize(
    ("shape", "names"),
    [((2, 2, 4), ("torch", "onnx", "jax", "keras")), ((2, 2, 3, 2), ("torch", "onnx", "jax", "keras", "tensorflow", "directml"))],
    ids=["1-D", "2-D"],
)
def test_a_refusal_is_true(shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    """Whatever one dialect says and another can say too is translated: no `NoTranslation` where arguments exist."""
    tables = {name: small_tables(name, shape) for name in names}
    tried = 0
    for source, target in product(names, repeat=2):
        common = [meaning for meaning in tables[source] if meaning in tables[target]]
        for meaning in common[:: max(1, len(common) // 12)]:
            assert translate(tables[source][meaning], source, target, shape), (source, target)
            tried += 1
        refused = [meaning for meaning in tables[source] if meaning not in tables[target]]
        for meaning in refused[:: max(1, len(refused) // 3)]:
            said = attempt(tables[source][meaning], source, target, shape)
            assert isinstance(said, str) or Tables.of(dialect(target).read(said, shape), shape) == meaning
    assert tried > 5 * len(names)


LAST, FIRST = (1, 9, 8, 3), (1, 3, 9, 8)
KNOWN: list[tuple[str, dict[str, Any], tuple[int, ...], str, dict[str, Any]]] = [
    # SAME that needs no padding is VALID
    ("keras", {"pool_size": (3, 2), "padding": "same"}, LAST, "jax", {"window_shape": (3, 2), "strides": (3, 2)}),
    # an odd SAME is PyTorch's ceil_mode where the stride leaves room
    ("tensorflow", {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"}, FIRST, "torch",
     {"ceil_mode": True}),
    # a ceil overhang is padding after the end
    ("torch", {"kernel_size": 2, "ceil_mode": True}, FIRST, "onnx", {"pads": [0, 0, 1, 0]}),
    ("torch", {"kernel_size": 2, "ceil_mode": True}, FIRST, "directml", {"EndPadding": [1, 0], "IncludePadding": False}),
    # adaptive windows are regular where they divide the input
    ("torch", {"output_size": (3, 4)}, FIRST, "keras", {"output_size": (3, 4), "data_format": "channels_first"}),
    ("torch", {"output_size": (3, 4)}, FIRST, "onnx", {"kernel_shape": [3, 2], "strides": [3, 2]}),
    ("torch", {"output_size": (3, 4)}, FIRST, "tensorflow", {"ksize": [1, 1, 3, 2], "padding": "VALID"}),
    ("torch", {"output_size": 1}, FIRST, "onnx", {"op": "GlobalAveragePool"}),
    ("onnx", {"op": "GlobalAveragePool"}, FIRST, "torch", {"op": "adaptive_avg_pool2d", "output_size": (1, 1)}),
    ("keras", {"pool_size": (9, 8)}, LAST, "jax", {"window_shape": (9, 8)}),
    # a constant divisor may be the window
    ("torch", {"kernel_size": 2, "divisor_override": 4, "padding": 1}, FIRST, "onnx", {"count_include_pad": 1}),
    ("torch", {"kernel_size": 2, "divisor_override": 4}, FIRST, "jax", {"divisor": 4}),
    ("jax", {"window_dimensions": (1, 1, 2, 2), "divisor": 1}, FIRST, "torch", {"divisor_override": 1}),
    # dilation where both have it
    ("onnx", {"kernel_shape": [2, 2], "dilations": [2, 3]}, FIRST, "jax", {"window_dilation": (1, 1, 2, 3)}),
    # an axis that is not pooled may be called anything: H of NHWC, C of NCHW
    ("poolgrad", {"window": (1, 2), "layout": "NHWC"}, (2, 3, 8, 1), "torch", {"op": "avg_pool2d", "kernel_size": (2, 1)}),
    ("poolgrad", {"window": 2, "layout": "CNWH"}, FIRST, "torch", {"op": "avg_pool2d", "kernel_size": (2, 2)}),
    ("torch", {"kernel_size": (2, 3)}, (3, 9, 8), "poolgrad", {"window": (2, 3), "layout": "CHW", "count": "padded"}),
    # so PyTorch takes (N, H, W, C) as an unbatched volume
    ("keras", {"pool_size": 2}, LAST, "torch", {"op": "avg_pool3d", "kernel_size": (2, 2, 1)}),
    # boundaries that happen to be regular
    ("tensorflow", {"row_pooling_sequence": [0, 3, 6, 9], "col_pooling_sequence": [0, 4, 8]}, LAST, "keras",
     {"pool_size": (3, 4), "padding": "valid"}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "arguments", "shape", "target", "said"), KNOWN, ids=lambda value: str(value)[:30])
def test_known(source: str, arguments: dict[str, Any], shape: tuple[int, ...], target: str, said: dict[str, Any]) -> None:
    got = translate(arguments, source, target, shape)
    assert {name: got.get(name) for name in said} == said, got


UNSAID: list[tuple[str, dict[str, Any], tuple[int, ...], str, str]] = [
    ("keras", {"pool_size": 2, "strides": 1, "padding": "same", "data_format": "channels_first"}, FIRST, "torch",
     r"H has window 2, stride 1, padding \(0, 1\); PyTorch pads alike on both sides .*: cell 8 covers 8 .* does not exist"),
    ("onnx", {"kernel_shape": [2, 2], "dilations": [1, 2]}, FIRST, "torch", "on W lie 2 apart; PyTorch has no dilation"),
    ("torch", {"kernel_size": 2, "padding": 1}, FIRST, "keras", "cell 0 covers 0 and divides by 2"),
    ("torch", {"kernel_size": 2, "padding": (0, 1), "stride": (2, 1)}, FIRST, "keras", "W has window 2, stride 1, padding"),
    ("torch", {"kernel_size": 2, "divisor_override": 7}, FIRST, "onnx", "divided by 7; ONNX divides by the inputs in the window"),
    ("torch", {"output_size": (7, 4)}, FIRST, "onnx", "evenly spaced windows do not make H; ONNX knows no others"),
    ("keras", {"pool_size": 2}, LAST, "onnx", r"axis 1 \(H of 'NHWC'\) is pooled, but ONNX pools axes 2 and 3"),
    ("torch", {"kernel_size": 4, "stride": 3, "padding": 1, "ceil_mode": True}, (1, 3, 6, 6), "jax",
     "JAX divides by .*, the windows on H by something else: cell 2 covers 5 and divides by 2"),
    ("torch", {"kernel_size": 2, "stride": (2, 1), "padding": (0, 1), "count_include_pad": False}, FIRST, "keras",
     r"W has window 2, stride 1, padding \(1, 1\); Keras pads 'valid' or 'same'"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "arguments", "shape", "target", "said"), UNSAID, ids=lambda value: str(value)[:30])
def test_why_not(source: str, arguments: dict[str, Any], shape: tuple[int, ...], target: str, said: str) -> None:
    with pytest.raises(NoTranslation, match=f"^{source} to {target}: .*{said}"):
        translate(arguments, source, target, shape)


def test_axes_that_need_different_words() -> None:
    """One padding for all axes: valid on H and same on W cannot be said together."""
    with pytest.raises(NoTranslation, match=r"H needs padding 'valid'.* and W needs padding 'same'.*; Keras has one choice"):
        translate({"window": 2, "stride": 1, "padding": ((0, 0), (0, 1))}, "poolgrad", "keras", LAST)


def test_transpose() -> None:
    got = translate({"pool_size": 2}, "keras", "onnx", LAST, transpose=True)
    assert got == {"op": "AveragePool", "kernel_shape": [2, 2], "strides": [2, 2], "opset": 22, "transpose": (0, 3, 1, 2)}
    assert "transpose" not in translate({"pool_size": 2}, "keras", "tensorflow", LAST, transpose=True)


def test_a_wrong_writer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a dialect writes is read back and compared before it is returned."""
    keras = dialect("keras")
    for wrong in ({"strides": (1, 2)}, {"padding": "same"}, {"data_format": "channels_first"}, {"pool_size": (3, 2)}):
        written = {"pool_size": (2, 2), "strides": (2, 2), "padding": "valid", "data_format": "channels_last", **wrong}
        monkeypatch.setattr(keras, "write", lambda pooling, shape, written=written: written)
        with pytest.raises(NoTranslation, match="poolgrad to keras: cell"):
            translate({"window": 2}, "poolgrad", "keras", LAST)


def test_names() -> None:
    with pytest.raises(PoolGradError, match=r"a dialect must be one of 'poolgrad', 'tensorflow'.* got 'caffe'"):
        translate({"window": 2}, "poolgrad", "caffe", LAST)
    with pytest.raises(PoolGradError, match="avg_pool has no argument 'kernel'"):
        translate({"kernel": 2}, "poolgrad", "torch", LAST)
    with pytest.raises(PoolGradError, match="input_shape"):
        translate({"window": 2}, "poolgrad", "torch", "NHWC")
    assert all(hasattr(dialect(name), "read") and hasattr(dialect(name), "write") for name in NAMES)


GARBAGE = [None, "x", "", 1.5, [], [[1]], {}, -1, 0, 2**70, True, object(), np.array([[1, 2]]), (1,) * 20, float("nan"), b"2"]


@pytest.mark.parametrize("name", NAMES)
def test_garbage_is_refused_by_name(name: str) -> None:
    """Whatever an argument holds, a dialect answers with a pooling or with an error of ours."""
    said = _SAID[name]((2, 3), (1, 2), (1, 1), (0, 1), (1, 0), "SAME", True, False, False, 0)
    shape = (2, 3, 5, 6) if said.pop("first", True) else (2, 5, 6, 3)
    dialect(name).read(said, shape).pool(shape)
    for field, junk in product([*said, "op", "another"], GARBAGE):
        with suppress(PoolGradError):
            dialect(name).read({**said, field: junk}, shape).pool(shape)
    for junk in GARBAGE:
        with pytest.raises(PoolGradError):
            translate(said, name, "poolgrad", junk)
        if not isinstance(junk, dict):
            with pytest.raises(PoolGradError, match="arguments must be a dict"):
                translate(junk, name, "poolgrad", shape)


def test_a_shape_is_not_an_allocation() -> None:
    """Axes that are not pooled may be of any length; nothing is made for them."""
    shape = (2**50, 2**40, 6, 8)
    assert translate({"kernel_size": 2}, "torch", "onnx", shape)["kernel_shape"] == [2, 2]
    with pytest.raises(NoTranslation, match=r"axis 1 \(H of 'NHWC'\) is pooled"):
        translate({"pool_size": 2}, "keras", "onnx", (2**50, 6, 8, 2**40))
    with pytest.raises(PoolGradError, match="input size must be at most"):
        translate({"kernel_size": 2}, "torch", "onnx", (1, 1, 2**50, 8))


@pytest.mark.parametrize("names", [("torch", "foo"), ("foo", "torch"), ("torch", None)])
def test_an_unknown_name_is_no_lack_of_words(names: tuple[Any, Any]) -> None:
    with pytest.raises(poolgrad.PoolGradValueError, match="a dialect must be one of") as refusal:
        translate({"kernel_size": 2}, *names, (1, 3, 8, 8))
    assert not isinstance(refusal.value, NoTranslation)


@pytest.mark.parametrize(
    ("said", "shape"),
    [
        ({"window": 2}, (1, 2**28, 2**28, 3)),
        ({"output_size": 2**28}, (1, 4, 4, 3)),
        ({"window": 2**24, "stride": 1, "padding": 2**24 - 1}, (1, 4, 4, 3)),
    ],
)
def test_tables_too_long_to_compare_are_refused(said: dict[str, Any], shape: tuple[int, ...]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(poolgrad.PoolGradValueError, match="at most 1048576 inputs and output cells"):
            translate(said, "poolgrad", "torch", shape)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["torch", "keras", "tensorflow"])
def test_a_long_dilation_is_refused_without_a_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(windows, "_makes", lambda *given: tried.append(given))
    with pytest.raises(NoTranslation, match="has no dilation"):
        translate({"window": 2, "dilation": 300, "layout": "NCHW"}, "poolgrad", name, (1, 2, 600, 601))
    assert len(tried) < 10_000


@pytest.mark.parametrize("name", ["torch", "onnx", "jax", "keras", "tensorflow"])
@pytest.mark.parametrize("shape", [(0, 3, 8, 9), (2, 0, 8, 9)])
def test_an_empty_batch_is_translated(name: str, shape: tuple[int, ...]) -> None:
    said = {"window": (3, 2), "stride": (2, 1), "layout": "NCHW"}
    assert Tables.of(dialect(name).read(translate(said, "poolgrad", name, shape), shape), shape) == Tables.of(
        dialect("poolgrad").read(said, shape), shape
    )


def test_a_long_axis_that_is_not_pooled_is_no_table() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NoTranslation, match="too long to be compared"):
            translate({"kernel_size": 2}, "torch", "jax", (2**28, 3, 6, 8))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()

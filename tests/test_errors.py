"""Bad calls: each is refused by a PoolGradError that names the argument and the value, and leaves `out` alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poolgrad
from poolgrad import (
    Axis,
    Pool,
    PoolGradError,
    PoolGradMemoryError,
    PoolGradTypeError,
    PoolGradValueError,
    adaptive_avg_pool,
    adaptive_avg_pool_grad,
    avg_pool,
    avg_pool_grad,
    forward,
    fractional_avg_pool,
    fractional_avg_pool_grad,
    gradient,
)

V, T, M = PoolGradValueError, PoolGradTypeError, PoolGradMemoryError
X = np.zeros((1, 4, 4, 1), np.float32)
DY = np.zeros((1, 2, 2, 1), np.float32)
POOL = Pool((Axis.regular(4, 2), Axis.regular(4, 2)))
BIG = 2**62


def wide(*shape: int) -> Any:
    """An array of any size that holds one number."""
    return np.broadcast_to(np.float32(1), shape)


Kind = type[PoolGradError] | tuple[type[PoolGradError], ...]
Row = tuple[str, Callable[[], object], Kind, str]

WINDOWS: list[Row] = [
    ("window 0", lambda: avg_pool(X, 0), V, "window.*0"),
    ("window negative", lambda: avg_pool(X, -3), V, "window.*-3"),
    ("window of one axis 0", lambda: avg_pool(X, (2, 0)), V, "window.*0"),
    ("window too large", lambda: avg_pool(X, 5), V, "window 5.*larger than the padded input 4"),
    ("window hostile", lambda: avg_pool(X, BIG), V, f"window {BIG}"),
    ("window beyond int64", lambda: avg_pool(X, 2**63), V, f"window.*{2**63}"),
    ("window float", lambda: avg_pool(np.zeros((1, 9, 9, 1)), 2.5), T, "window.*2.5"),
    ("window whole float", lambda: avg_pool(np.zeros((1, 9, 9, 1)), 3.0), T, "window.*3.0"),
    ("window bool", lambda: avg_pool(np.zeros((1, 9, 9, 1)), True), T, "window.*True"),
    ("window string", lambda: avg_pool(X, "2"), T, "window.*'2'"),
    ("window bytes", lambda: avg_pool(X, b"22"), T, "window.*b'22'"),
    ("window None", lambda: avg_pool(X, None), T, "window.*None"),
    ("window set", lambda: avg_pool(X, {2}), T, re.escape("{2}")),
    ("window object", lambda: avg_pool(X, object()), T, "window.*object"),
    ("window nested", lambda: avg_pool(X, [[2], [2]]), T, r"window.*\[2\]"),
    ("window array of floats", lambda: avg_pool(np.zeros((1, 9, 9, 1)), np.array([2.5, 2.5])), T, "window.*2.5"),
    ("window too long", lambda: avg_pool(X, (2, 2, 2)), V, r"window.*\(2\).*3.*\(2, 2, 2\)"),
    ("window too short", lambda: avg_pool(X, (2,)), V, "window.*1"),
    ("window empty", lambda: avg_pool(X, ()), V, "window.*0"),
    ("stride 0", lambda: avg_pool(X, 2, stride=0), V, "stride.*0"),
    ("stride negative", lambda: avg_pool(X, 2, stride=(1, -1)), V, "stride.*-1"),
    ("stride float", lambda: avg_pool(X, 2, stride=0.5), T, "stride.*0.5"),
    ("stride too long", lambda: avg_pool(X, 2, stride=(1, 1, 1)), V, "stride.*3"),
    ("stride beyond int64", lambda: avg_pool(X, 2, stride=2**63), V, f"stride.*{2**63}"),
    ("dilation 0", lambda: avg_pool(X, 2, dilation=0), V, "dilation.*0"),
    ("dilation negative", lambda: avg_pool(X, 2, dilation=(-1, 1)), V, "dilation.*-1"),
    ("dilation string", lambda: avg_pool(X, 2, dilation="x"), T, "dilation.*'x'"),
    ("dilation None", lambda: avg_pool(X, 2, dilation=None), T, "dilation.*None"),
    ("dilation too wide", lambda: avg_pool(X, 2, dilation=4), V, "window 2.*dilation 4.*4"),
    ("dilation hostile", lambda: avg_pool(X, 2, dilation=BIG), V, f"dilation {BIG}"),
    ("dilation hostile, same", lambda: avg_pool(X, 2, dilation=BIG, padding="same"), V, f"covers no input|dilation {BIG}"),
    ("window and dilation hostile, same", lambda: avg_pool(X, 2**63 - 1, dilation=BIG, padding="same"), V, "window|dilation"),
]

PADDINGS: list[Row] = [
    ("padding name", lambda: avg_pool(X, 2, padding="SAME"), V, "padding.*'SAME'"),
    ("padding negative", lambda: avg_pool(X, 2, padding=-1), V, "padding.*-1"),
    ("padding of one side negative", lambda: avg_pool(X, 2, padding=((0, 0), (0, -2))), V, "padding.*-2"),
    ("padding float", lambda: avg_pool(X, 2, padding=0.5), T, "padding.*0.5"),
    ("padding float inside", lambda: avg_pool(X, 2, padding=((0, 0.5), (0, 0))), T, "padding.*0.5"),
    ("padding bool", lambda: avg_pool(X, 2, padding=((True, 0), (0, 0))), T, "padding.*True"),
    ("padding None", lambda: avg_pool(X, 2, padding=None), (V, T), "padding.*None"),
    ("padding triple", lambda: avg_pool(X, 2, padding=((0, 0, 0), (0, 0))), V, r"padding.*\(0, 0, 0\)"),
    ("padding flat", lambda: avg_pool(X, 2, padding=(0, 1, 0, 1)), V, r"padding.*4.*\(0, 1, 0, 1\)"),
    ("padding beyond the window", lambda: avg_pool(X, 2, padding=2), V, "cell 0 covers no input"),
    ("padding after beyond the window", lambda: avg_pool(X, 2, padding=((0, 2), (0, 0))), V, "cell 2 covers no input"),
    ("padding hostile", lambda: avg_pool(X, BIG, padding=BIG), V, f"covers no input|{BIG}"),
    ("padding beyond int64", lambda: avg_pool(X, 2, padding=2**64), V, f"padding.*{2**64}"),
    ("padding hostile, counted", lambda: avg_pool(X, 3, padding=(0, 2**63 - 1), stride=BIG, count="padded"), V, "padding|input"),
    ("padding makes hostile tables", lambda: avg_pool(X, 1, padding=2**40), V, str(2**28)),
    ("padding of an empty axis", lambda: avg_pool(np.zeros((1, 0, 4, 1)), 2, padding=1), V, "covers no input"),
    ("ceil_mode with same", lambda: avg_pool(X, 3, padding="same", ceil_mode=True), V, "ceil_mode.*'same'"),
    ("ceil_mode array", lambda: avg_pool(X, 2, ceil_mode=np.array([1, 0])), (V, T), "ceil_mode|argument"),
    ("count name", lambda: avg_pool(X, 2, count="all"), V, "count.*'all'"),
    ("count None", lambda: avg_pool(X, 2, count=None), (V, T), "count.*None"),
    ("count number", lambda: avg_pool(X, 2, count=4), (V, T), "count.*4"),
    ("count array", lambda: avg_pool(X, 2, count=np.array([1, 2])), (V, T), "count"),
    ("divisor 0", lambda: avg_pool(X, 2, divisor=0), V, "divisor.*0"),
    ("divisor float", lambda: avg_pool(X, 2, divisor=4.5), T, "divisor.*4.5"),
    ("divisor string", lambda: avg_pool(X, 2, divisor="4"), T, "divisor.*'4'"),
    ("divisor bool", lambda: avg_pool(X, 2, divisor=True), T, "divisor.*True"),
    ("divisor hostile", lambda: avg_pool(X, 2, divisor=2**63), V, f"divisor.*{2**63}"),
    ("counts beyond int64", lambda: avg_pool(X, 2**50, padding="same", count="window"), V, "product of the window counts"),
]

ARRAYS: list[Row] = [
    ("x None", lambda: avg_pool(None, 2), T, "x.*NoneType"),
    ("x list", lambda: avg_pool([[1.0]], 2), T, "x.*list"),
    ("x scalar", lambda: avg_pool(1.0, 2), T, "x.*float"),
    ("x NumPy scalar", lambda: avg_pool(np.float32(1), 2), T, "x.*float32"),
    ("x integers", lambda: avg_pool(X.astype(np.int32), 2), T, "x.*dtype.*int32"),
    ("x bools", lambda: avg_pool(X.astype(bool), 2), T, "x.*dtype.*bool"),
    ("x complex", lambda: avg_pool(X.astype(complex), 2), T, "x.*dtype.*complex128"),
    ("x objects", lambda: avg_pool(X.astype(object), 2), T, "x.*dtype.*object"),
    ("x strings", lambda: avg_pool(X.astype(str), 2), T, "x.*dtype.*<U"),
    ("x long double", lambda: avg_pool(X.astype(np.longdouble), 2), T, "x.*dtype.*(float128|float64|float96)"),
    ("x swapped", lambda: avg_pool(X.astype(X.dtype.newbyteorder()), 2), T, "x.*byte order"),
    ("x rank 0", lambda: avg_pool(np.array(1.0), 2), V, "rank 0.*layout"),
    ("x rank 2 without layout", lambda: avg_pool(np.zeros((4, 4)), 2), V, "rank 2.*layout"),
    ("x rank 13", lambda: avg_pool(np.zeros((1,) * 13), 1), V, "13"),
    ("dy integers", lambda: avg_pool_grad(DY.astype(int), X.shape, 2), T, "dy.*dtype.*int64"),
    ("dy None", lambda: avg_pool_grad(None, X.shape, 2), T, "dy.*NoneType"),
    ("dy rank", lambda: avg_pool_grad(np.zeros((2, 2)), X.shape, 2), V, r"dy.*\(1, 2, 2, 1\).*\(2, 2\)"),
    ("dy too small", lambda: avg_pool_grad(DY[:, :1], X.shape, 2), V, r"dy.*\(1, 2, 2, 1\).*\(1, 1, 2, 1\)"),
    ("dy too large", lambda: avg_pool_grad(X, X.shape, 2), V, r"dy.*\(1, 2, 2, 1\).*\(1, 4, 4, 1\)"),
    ("dy batch", lambda: avg_pool_grad(np.zeros((3, 2, 2, 1)), X.shape, 2), V, r"dy.*\(3, 2, 2, 1\)"),
    ("dy channels", lambda: avg_pool_grad(np.zeros((1, 2, 2, 6)), X.shape, 2), V, r"dy.*\(1, 2, 2, 6\)"),
    ("dy of an adaptive", lambda: adaptive_avg_pool_grad(np.zeros((3, 2, 2, 1)), X.shape), V, r"dy.*\(3, 2, 2, 1\)"),
    ("input_shape number", lambda: avg_pool_grad(DY, 4, 2), T, "input_shape.*4"),
    ("input_shape None", lambda: avg_pool_grad(DY, None, 2), T, "input_shape.*None"),
    ("input_shape string", lambda: avg_pool_grad(DY, "1441", 2), T, "input_shape.*'1441'"),
    ("input_shape short", lambda: avg_pool_grad(DY, (1, 4, 4), 2), V, r"\(1, 4, 4\)"),
    ("input_shape empty", lambda: avg_pool_grad(DY, (), 2), V, "rank 0"),
    ("input_shape negative", lambda: avg_pool_grad(DY, (1, -4, 4, 1), 2), V, r"input_shape\[1\].*-4"),
    ("input_shape float", lambda: avg_pool_grad(DY, (1, 6.0, 6, 1), 3), T, r"input_shape\[1\].*6.0"),
    ("input_shape strings", lambda: avg_pool_grad(DY, ("1", "4", "4", "1"), 2), T, r"input_shape\[0\].*'1'"),
    ("input_shape beyond int64", lambda: avg_pool_grad(DY, (1, 2**64, 4, 1), 2), V, rf"input_shape\[1\].*{2**64}"),
    ("input_shape axis hostile", lambda: avg_pool_grad(DY, (1, BIG, 4, 1), 2), V, str(BIG)),
    ("input_shape outer hostile", lambda: avg_pool_grad(DY, (BIG, 4, 4, BIG), 2), V, str(BIG)),
    ("layout short", lambda: avg_pool(X, 2, layout="NHW"), V, "layout 'NHW'.*3.*4"),
    ("layout twice", lambda: avg_pool(X, 2, layout="NHHC"), V, "layout.*'NHHC'"),
    ("layout unknown", lambda: avg_pool(X, 2, layout="NXYC"), V, "layout.*'NXYC'"),
    ("layout lower case", lambda: avg_pool(X, 2, layout="nhwc"), V, "layout.*'nhwc'"),
    ("layout mixed", lambda: avg_pool(X, 2, layout="N0HC"), V, "layout.*'N0HC'"),
    ("layout without space", lambda: avg_pool(np.zeros((2, 3)), 2, layout="NC"), V, "layout.*'NC'"),
    ("layout number", lambda: avg_pool(X, 2, layout=4), T, "layout.*4"),
    ("layout list", lambda: avg_pool(X, 2, layout=list("NHWC")), T, "layout"),
    ("layout for another rank", lambda: gradient(POOL, np.zeros((1, 2, 2, 1, 1)), layout="NDHWC"), V, "layout.*3.*2"),
    ("output_size negative", lambda: adaptive_avg_pool(X, -1), V, "output.size.*-1"),
    ("output_size float", lambda: adaptive_avg_pool(X, 1.5), T, "output.size.*1.5"),
    ("output_size string", lambda: adaptive_avg_pool(X, "3"), T, "output.size.*'3'"),
    ("output_size long", lambda: adaptive_avg_pool(X, (1, 2, 3)), V, "output.size.*3"),
    ("output_size hostile", lambda: adaptive_avg_pool(X, BIG), V, f"(output.size|result).*{BIG}"),
    ("output_size of an empty axis", lambda: adaptive_avg_pool(np.zeros((1, 0, 3)), 2), V, "size 0"),
    ("sequences None", lambda: fractional_avg_pool(X, None), V, "sequences.*None"),
    ("sequences one", lambda: fractional_avg_pool(X, [[0, 4]]), V, r"sequences.*\(2\).*\[\[0, 4\]\]"),
    ("sequence short", lambda: fractional_avg_pool(X, [[0], [0, 4]]), V, r"sequence.*\[0\]"),
    ("sequence floats", lambda: fractional_avg_pool(X, [[0, 2.5], [0, 4]]), V, r"sequence.*2\.5"),
    ("sequence bools", lambda: fractional_avg_pool(X, [[False, True], [0, 4]]), V, "sequence.*False"),
    ("sequence None", lambda: fractional_avg_pool(X, [None, None]), V, "sequence.*None"),
    ("sequence ragged", lambda: fractional_avg_pool(X, [[[0], [1, 2]], [0, 4]]), V, "sequence"),
    ("sequence negative", lambda: fractional_avg_pool(X, [[-1, 4], [0, 4]]), V, r"sequence.*\[-1, 4\]"),
    ("sequence decreasing", lambda: fractional_avg_pool(X, [[0, 3, 2], [0, 4]]), V, r"sequence.*\[0, 3, 2\]"),
    ("sequence repeated", lambda: fractional_avg_pool(X, [[0, 2, 2], [0, 4]]), V, "cell 1 covers no input"),
    ("sequence beyond the input", lambda: fractional_avg_pool(X, [[0, 4, 6], [0, 4]]), V, "cell 1 covers no input"),
    ("sequence hostile", lambda: fractional_avg_pool(X, [[0, 2**64], [0, 4]]), V, f"sequence.*{2**64}"),
    ("sequence at 2^63", lambda: fractional_avg_pool(X, [[0, 4, 2**63 - 1], [0, 4]], overlapping=True), V, "sequence|cell"),
    ("cells of sequences", lambda: fractional_avg_pool_grad(DY, X.shape, [[0, 1, 2, 4], [0, 4]]), V, r"dy.*\(1, 3, 1, 1\)"),
    ("num_threads 0", lambda: avg_pool(X, 2, num_threads=0), V, "num_threads.*0"),
    ("num_threads negative", lambda: avg_pool(X, 2, num_threads=-1), V, "num_threads.*-1"),
    ("num_threads float", lambda: avg_pool(X, 2, num_threads=1.0), T, "num_threads.*1.0"),
    ("num_threads bool", lambda: avg_pool(X, 2, num_threads=True), T, "num_threads.*True"),
    ("accumulate without out", lambda: avg_pool_grad(DY, X.shape, 2, accumulate=True), V, "accumulate.*out"),
    ("pool None", lambda: gradient(None, DY), T, "pool.*None"),
    ("pool string", lambda: forward("pool", X), T, "pool.*'pool'"),
    ("x of a pool", lambda: forward(POOL, DY), V, r"x.*\(4, 4\).*\(1, 2, 2, 1\)"),
    ("region number", lambda: gradient(POOL, DY, region=3), (V, T), "region.*3"),
    ("region numbers", lambda: gradient(POOL, DY, region=(1, 2)), (V, T), "region.*1"),
    ("region short", lambda: gradient(POOL, DY, region=[slice(0, 2)]), V, r"region.*\(2\).*1"),
    ("region step", lambda: gradient(POOL, DY, region=[slice(0, 4, 2), None]), V, r"region.*slice\(0, 4, 2\)"),
    ("region letters", lambda: gradient(POOL, DY, region=[slice("a"), None]), (V, T), "region.*'a'"),
    ("dy of a region", lambda: gradient(POOL, DY, region=[slice(0, 2), slice(0, 2)]), V, r"dy.*\(1, 1\).*\(1, 2, 2, 1\)"),
    ("explain None", lambda: poolgrad.explain(None), T, "pool.*None"),
    ("too large to address", lambda: avg_pool_grad(wide(2**30, 1, 2**29), (2**30, 8, 2**29), 8), (V, M), f"input_shape.*{2**30}"),
    ("too large for the machine", lambda: avg_pool_grad(wide(2**20, 1, 2**15), (2**20, 2**8, 2**15), 2**8), M, f"{2**20}"),
    ("forward too large for the machine", lambda: avg_pool(wide(2**20, 4, 2**20), 1), M, "result"),
    ("adaptive too large for the machine", lambda: adaptive_avg_pool(np.ones((1, 1, 1, 1)), 2**20), M, "result"),
]

GEOMETRY: list[Row] = [
    ("Axis strings", lambda: Axis(3, "abc", "abc", "abc"), (V, T), "start"),
    ("Axis None", lambda: Axis(3, None, None, None), (V, T), "start.*None"),
    ("Axis floats", lambda: Axis(3, [0.5], [1.5], [1.2]), (V, T), "start.*0.5"),
    ("Axis NaN", lambda: Axis(3, [float("nan")], [1], [1]), (V, T), "start.*nan"),
    ("Axis hostile", lambda: Axis(3, [2**70], [1], [1]), (V, T), "start"),
    ("Axis scalars", lambda: Axis(3, 0, 1, 1), (V, T), "start"),
    ("Axis lengths", lambda: Axis(3, [0, 1], [1], [1]), V, r"stop.*\(1,\)"),
    ("Axis empty cell", lambda: Axis(3, [1], [1], [1]), V, "cell 0 covers no input"),
    ("Axis start below", lambda: Axis(3, [-1], [1], [1]), V, "-1"),
    ("Axis stop beyond", lambda: Axis(3, [0], [4], [4]), V, r"\[0, 3\]"),
    ("Axis decreasing start", lambda: Axis(3, [1, 0], [2, 2], [1, 1]), V, "never decrease"),
    ("Axis decreasing stop", lambda: Axis(3, [0, 0], [3, 2], [1, 1]), V, "never decrease"),
    ("Axis count 0", lambda: Axis(3, [0], [1], [0]), V, "count.*0"),
    ("Axis size negative", lambda: Axis(-1, [], [], []), V, "size.*-1"),
    ("Axis size float", lambda: Axis(3.0, [0], [1], [1]), T, "size.*3.0"),
    ("Axis size hostile", lambda: Axis(BIG, [0], [1], [1]), V, f"size.*{BIG}"),
    ("Axis step 0", lambda: Axis(3, [0], [1], [1], 0), V, "step.*0"),
    ("regular pads", lambda: Axis.regular(4, 3, padding=(1, 2, 3)), (V, T), r"padding.*\(1, 2, 3\)"),
    ("regular None", lambda: Axis.regular(4, 3, padding=None), (V, T), "padding.*None"),
    ("regular float", lambda: Axis.regular(4, 3, padding=1.5), (V, T), "padding.*1.5"),
    ("Pool None", lambda: Pool(None), (V, T), "axes.*None"),
    ("Pool numbers", lambda: Pool((1, 2)), (V, T), "axes.*1"),
    ("Pool empty", lambda: Pool(()), V, "at least one spatial axis"),
    ("Pool divisor", lambda: Pool((Axis.whole(3),), 1.5), T, "divisor.*1.5"),
    ("Pool negative over nothing", lambda: Pool((Axis.fractional(2, [0, 2, 2], allow_empty=True),), -4), V, "divisor.*-4"),
    ("inputs_for", lambda: POOL.inputs_for([slice(0, 1)]), V, "region"),
    ("cells_for", lambda: POOL.cells_for([slice(0, 4, 2), None]), V, "region"),
]
TABLE = WINDOWS + PADDINGS + ARRAYS + GEOMETRY


@pytest.mark.parametrize(("call", "kind", "message"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_bad_calls(call: Callable[[], object], kind: Kind, message: str) -> None:
    with pytest.raises(kind, match=f"(?s){message}"):
        call()


def test_errors_are_what_users_expect() -> None:
    for kind, builtin in ((V, ValueError), (T, TypeError), (M, MemoryError)):
        assert issubclass(kind, PoolGradError)
        assert issubclass(kind, builtin)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


OUTS: list[tuple[str, Callable[[], Any], Kind, str]] = [
    ("not an array", lambda: [[0.0]], T, "out.*list"),
    ("shape", lambda: np.full((1, 4, 4, 2), 7, np.float32), V, r"out.*\(1, 4, 4, 1\).*\(1, 4, 4, 2\)"),
    ("rank", lambda: np.full((4, 4), 7, np.float32), V, r"out.*\(1, 4, 4, 1\).*\(4, 4\)"),
    ("dtype", lambda: np.full(X.shape, 7, np.float64), T, "out.*float32.*float64"),
    ("byte order", lambda: np.full(X.shape, 7, np.dtype(np.float32).newbyteorder()), T, "out.*float32"),
    ("read-only", lambda: read_only(np.full(X.shape, 7, np.float32)), V, "out.*read-only"),
    ("stride 0", lambda: np.lib.stride_tricks.as_strided(np.full(1, 7, np.float32), X.shape, (0, 0, 0, 0)), V, "out.*overlap"),
    ("overlap", lambda: np.lib.stride_tricks.as_strided(np.full(99, 7, np.float32), X.shape, (4, 8, 4, 4)), V, "out.*overlap"),
]


@pytest.mark.parametrize(("make", "kind", "message"), [row[1:] for row in OUTS], ids=[row[0] for row in OUTS])
def test_bad_out(make: Callable[[], Any], kind: Kind, message: str) -> None:
    out = make()
    with pytest.raises(kind, match=message):
        avg_pool_grad(DY, X.shape, 2, out=out)
    if isinstance(out, np.ndarray):
        assert (out == 7).all()


def test_out_apart_from_the_source() -> None:
    room = np.zeros((1, 8, 4, 1), np.float32)
    with pytest.raises(V, match=r"out.*share"):
        avg_pool(room, 1, out=room)
    with pytest.raises(V, match=r"out.*share"):
        avg_pool(room[:, :4], 1, out=room[:, 3:7])
    avg_pool(room[:, :4], 1, out=room[:, 4:])
    avg_pool(room[:, ::2], 1, out=room[:, 1::2])


@pytest.mark.parametrize("row", WINDOWS + PADDINGS, ids=lambda row: row[0])
def test_out_is_untouched_by_a_refusal(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bad calls with an `out` that would fit the good one."""
    out = np.full((1, 2, 2, 1), 7, np.float32)
    real = avg_pool
    monkeypatch.setitem(globals(), "avg_pool", lambda x, window, **rest: real(x, window, out=out, **rest))
    with pytest.raises(PoolGradError):
        row[1]()
    assert (out == 7).all()


HOSTILE = [
    "avg_pool_grad(DY, (1, 2**28, 4, 1), 1)",
    "avg_pool_grad(DY, (1, 2**27, 2**27, 1), 2**13)",
    "avg_pool_grad(DY, (1, 2**28, 2**28, 1), 2, padding='same')",
    "avg_pool(X, 1, padding=2**27)",
    "avg_pool(X, 2**27, stride=1, padding=2**27 - 1)",
    "adaptive_avg_pool(X, 2**28)",
    "adaptive_avg_pool(X, (2**28, 1))",
]


@pytest.mark.parametrize("call", HOSTILE)
@pytest.mark.skipif(sys.platform != "linux", reason="needs a bound on the address space")
def test_hostile_sizes_are_refused_before_tables_are_made(call: str) -> None:
    """Two gigabytes are room for any refusal, but not for tables of a quarter of a billion cells."""
    script = f"""
import resource, numpy as np, poolgrad
from poolgrad import *
X, DY = np.zeros((1, 4, 4, 1), np.float32), np.zeros((1, 2, 2, 1), np.float32)
avg_pool(X, 2)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
try:
    {call}
except PoolGradError as refusal:
    print("refused:", refusal)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("refused:"), done.stderr[-2000:]


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 6),
    st.sampled_from([2**31, 2**40, BIG, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**70)]),
    st.floats(),
    st.sampled_from(["", "same", "valid", "NHWC", "NCHW", "inside", "window", "é", "0", "\0"]),
    st.binary(max_size=3),
    st.lists(st.integers(-1, 4) | st.none() | st.text(max_size=1), max_size=4),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.tuples(st.integers(0, 2), st.floats())),
    st.builds(object),
    st.builds(lambda: np.array(3)),
    st.builds(lambda: np.array([1, 2])),
    st.builds(lambda: np.array([1.5, np.nan])),
    st.builds(lambda: slice(1, 2)),
    st.dictionaries(st.integers(0, 2), st.integers(0, 2), max_size=2),
)
ARRAYISH = JUNK | st.sampled_from([X, DY, X[::-1], X.astype(int), np.zeros((0, 4, 4, 1)), np.array(1.0), np.zeros((2, 3))])
OPTIONS = ("stride", "padding", "dilation", "count", "divisor", "ceil_mode", "layout", "out", "num_threads")


def survives(call: Callable[[], object]) -> None:
    """A result or a refusal; anything else is ours to mend."""
    with suppress(PoolGradError):
        call()


@given(x=ARRAYISH, window=JUNK, options=st.dictionaries(st.sampled_from(OPTIONS), JUNK, max_size=3))
def test_junk_forward(x: Any, window: Any, options: dict[str, Any]) -> None:
    survives(lambda: avg_pool(x, window, **options))
    survives(lambda: adaptive_avg_pool(x, window, **{k: v for k, v in options.items() if k in ("layout", "out", "num_threads")}))


@given(
    dy=ARRAYISH,
    shape=JUNK | st.just(X.shape),
    window=JUNK,
    options=st.dictionaries(st.sampled_from((*OPTIONS, "accumulate")), JUNK, max_size=3),
)
def test_junk_gradient(dy: Any, shape: Any, window: Any, options: dict[str, Any]) -> None:
    survives(lambda: avg_pool_grad(dy, shape, window, **options))
    few = {k: v for k, v in options.items() if k in ("layout", "out", "num_threads", "accumulate")}
    survives(lambda: adaptive_avg_pool_grad(dy, shape, **few))
    survives(lambda: fractional_avg_pool_grad(dy, shape, window, **few))


@given(size=JUNK, first=JUNK, second=JUNK, third=JUNK, options=st.dictionaries(st.sampled_from(OPTIONS[:4]), JUNK, max_size=3))
def test_junk_geometry(size: Any, first: Any, second: Any, third: Any, options: dict[str, Any]) -> None:
    survives(lambda: Axis(size, first, second, third))
    survives(lambda: Axis.regular(size, first, **options))
    survives(lambda: Axis.adaptive(size, first))
    survives(lambda: Axis.fractional(size, first, overlapping=second is None))
    survives(lambda: Pool(first, second))


@given(region=JUNK | st.tuples(JUNK, JUNK), source=ARRAYISH, layout=JUNK)
def test_junk_pools(region: Any, source: Any, layout: Any) -> None:
    survives(lambda: gradient(POOL, source, region=region, layout=layout))
    survives(lambda: forward(POOL, source, region=region, layout=layout))
    survives(lambda: forward(region, source, layout=layout))

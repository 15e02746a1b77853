"""`poolgrad.torch` beside PyTorch: every argument, dtype, memory format and rank, forward and gradient; and what it adds,
beside the core's own functions, to the bit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import beside
import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dialect_torch import array, calls, tensor

import poolgrad
from poolgrad import PoolGradError, PoolGradTypeError, PoolGradValueError, raw_ops
from poolgrad.dialects import torch as numpy_side

torch = pytest.importorskip("torch")
import poolgrad.torch as pt  # noqa: E402
from poolgrad.torch import kernels  # noqa: E402
from poolgrad.torch.spec import output_size, regular_spec, tables  # noqa: E402

F = torch.nn.functional
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


def both(function: Any, x: Any, dy: Any) -> tuple[support.Array, support.Array]:
    """The output for `x` and the gradient for `dy`, as arrays."""
    leaf = x.detach().requires_grad_()
    y = function(leaf)
    (dx,) = torch.autograd.grad(y, leaf, dy)
    return array(y.detach()), array(dx)


@settings(max_examples=120)
@given(call=calls(), dtype=support.dtypes, seed=support.seeds)
def test_windows_are_pytorchs(call: tuple[int, tuple[int, ...], dict[str, Any]], dtype: np.dtype[Any], seed: int) -> None:
    dims, shape, arguments = call
    name = f"avg_pool{dims}d"
    pooling = numpy_side.read({"op": name, **arguments}, shape)
    x, dy = beside.arrays(pooling, shape, seed, dtype)
    mine = both(lambda leaf: getattr(pt, name)(leaf, **arguments), tensor(x), tensor(dy))
    try:
        theirs = both(lambda leaf: getattr(F, name)(leaf, **arguments), tensor(x), tensor(dy))
    except NotImplementedError:  # float16 and bfloat16 in 3-D
        theirs = None
    beside.check(pooling, x, dy, mine, theirs)
    support.assert_same_bits(mine[0], getattr(numpy_side, name)(x, **arguments))
    module = getattr(pt, f"AvgPool{dims}d")(**arguments)
    support.assert_same_bits(both(module, tensor(x), tensor(dy))[1], mine[1])


@settings(max_examples=60)
@given(data=st.data(), dims=st.sampled_from([1, 2, 3]), dtype=support.dtypes, seed=support.seeds)
def test_adaptive_is_pytorchs(data: st.DataObject, dims: int, dtype: np.dtype[Any], seed: int) -> None:
    sizes = data.draw(st.tuples(*[st.integers(1, 7)] * dims))
    asked = data.draw(st.tuples(*[st.integers(1, 8) | st.none()] * dims))
    shape = (*data.draw(st.sampled_from([(2, 3), (3,)])), *sizes)
    name = f"adaptive_avg_pool{dims}d"
    pooling = numpy_side.read({"op": name, "output_size": asked}, shape)
    x, dy = beside.arrays(pooling, shape, seed, dtype)
    own = asked if dims > 1 else asked[0] or sizes[0]
    mine = both(getattr(pt, f"AdaptiveAvgPool{dims}d")(asked), tensor(x), tensor(dy))
    theirs = both(lambda leaf: getattr(F, name)(leaf, own), tensor(x), tensor(dy))
    beside.check(pooling, x, dy, mine, theirs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("axes", [2, 3])
def test_channels_last_is_kept(axes: int, dtype: Any) -> None:
    shape = (2, 5, 6, 7, 9)[: axes + 2]
    images = torch.randn(shape, generator=torch.Generator().manual_seed(axes)).to(dtype)
    kept = images.contiguous(memory_format=FORMATS[axes])
    for view in (kept, kept[:, :, ::2], kept.flip(2), kept[:, 1:4]):
        leaf, copy = view.detach().requires_grad_(), view.detach().contiguous().requires_grad_()
        y, z = pt.avg_pool(leaf, (3, 2, 2)[:axes], 2), pt.avg_pool(copy, (3, 2, 2)[:axes], 2)
        assert y.is_contiguous(memory_format=FORMATS[axes])
        assert torch.equal(y, z)
        dy = torch.randn_like(y, memory_format=torch.contiguous_format)
        (dx,), (want,) = torch.autograd.grad(y, leaf, dy), torch.autograd.grad(z, copy, dy)
        assert dx.is_contiguous(memory_format=FORMATS[axes])
        assert torch.equal(dx, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_strides(dtype: Any) -> None:
    wide = torch.randn(4, 12, 9, 10, generator=torch.Generator().manual_seed(2)).to(dtype)
    views = [wide[::2, 1::3, :, 1::2], wide.permute(1, 0, 3, 2), wide[:, :1].expand(4, 3, 9, 10), wide.transpose(0, 2)]
    for view in views:
        assert torch.equal(pt.avg_pool2d(view, 2, 1), pt.avg_pool2d(view.contiguous(), 2, 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_marked_tensors(dtype: Any) -> None:
    """A tensor that is negated, or zero, by a mark alone has its values nowhere in memory."""
    x = torch.randn(1, 2, 5, 5).to(dtype)
    for _ in range(2):  # the second time on the short way
        assert torch.equal(pt.avg_pool2d(torch._neg_view(x), 2), pt.avg_pool2d(-x, 2))
        zero = torch._efficientzerotensor((1, 2, 5, 5), dtype=dtype)
        assert torch.equal(pt.avg_pool2d(zero, 2), torch.zeros(1, 2, 2, 2, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_short_way_has_the_same_bits(dtype: Any) -> None:
    """Small calls go by capsules from the second time on, whatever the strides; the first goes by arrays."""
    wide = torch.randn(4, 12, 9, 10, generator=torch.Generator().manual_seed(2)).to(dtype)
    for view in (wide, wide[::2, 1::3, :, 1::2], wide.permute(1, 0, 3, 2), wide[:, :1].expand(4, 3, 9, 10), wide[:0]):
        axes = view.shape[:2], view.shape[2:]
        made = kernels.Bound(regular_spec(2, (3, 2), 1), (*axes[0], *axes[1]), (axes[1][0] - 2, axes[1][1] - 1), True, False)
        first = made(view)
        second = made(view)
        assert torch.equal(first, second)
        assert (second.stride(), second.dtype) == (torch.empty(first.shape).stride(), first.dtype)
        gradient = made.transposed
        assert torch.equal(gradient(first), gradient(second))


def test_capsules_are_checked() -> None:
    """What memory safety rests on is looked at again where the memory is."""
    native = pytest.importorskip("poolgrad.engines.native")
    sums = tables(regular_spec(1, 2), (6,), (3,)).forward_pieces()[0].sums
    run = native.operation(sums, (2,), (1, 2, 6), (1, 2, 3)).run_tensor
    capsule = torch._C._to_dlpack
    good = torch.arange(12.0).reshape(1, 2, 6)
    assert torch.equal(torch.from_dlpack(run(capsule(good))), F.avg_pool1d(good, 2))
    run(capsule(good))  # and never taken out
    for bad in (good.int(), good.to(torch.complex64), good.bool(), torch._efficientzerotensor((1, 2, 6))):
        with pytest.raises(TypeError):
            run(capsule(bad))
    for bad in (good[0], good[:, :1], good[:, :, 1:], good.unsqueeze(0)):
        with pytest.raises(ValueError, match="shape"):
            run(capsule(bad))
    used = capsule(good)
    torch.from_dlpack(used)
    for wrong in (used, good, None, 7):
        with pytest.raises((TypeError, ValueError)):
            run(wrong)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_may_be_changed_in_place(dtype: Any) -> None:
    x = torch.randn(2, 3, 6, 6).to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = pt.avg_pool2d(x, 3).relu_()
    y.backward(torch.randn_like(y))
    want = torch.autograd.grad(F.avg_pool2d(x, 3).relu().sum(), x)[0] != 0
    assert torch.equal(x.grad != 0, want)


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine sees the tensor's own memory."""
    seen: list[int] = []
    own = kernels._array

    def watched(tensor: Any) -> support.Array:
        array = own(tensor)
        seen.append(array.ctypes.data)
        return array

    def exported(tensor: Any) -> Any:
        seen.append(torch.from_dlpack(capsule(tensor)).data_ptr())
        return capsule(tensor)

    capsule = kernels._capsule
    monkeypatch.setattr(kernels, "_array", watched)
    monkeypatch.setattr(kernels, "_capsule", exported)
    for dtype in DTYPES:
        for x in (torch.ones(2, 3, 4, 4, dtype=dtype), torch.ones(2, 3, 4, 4, dtype=dtype)[1:].transpose(2, 3).detach()):
            pt.avg_pool2d(x, 2)
            assert seen.pop() == x.data_ptr()
            y = pt.avg_pool2d(x.requires_grad_(), 2)
            assert seen.pop() == x.data_ptr()
            y.backward(dy := torch.ones_like(y))
            assert seen.pop() == dy.data_ptr()


def test_the_operators_refuse_what_no_engine_takes() -> None:
    spec = regular_spec(2, 2)
    torch.ops.poolgrad.avg_pool(torch.ones(1, 1, 4, 4), (2, 2), spec, False)
    for dtype in (torch.int32, torch.int16, torch.bool, torch.complex64, torch.float8_e5m2):
        with pytest.raises(PoolGradTypeError, match=str(dtype)):
            torch.ops.poolgrad.avg_pool(torch.ones(1, 1, 4, 4).to(dtype), (2, 2), spec, False)
        with pytest.raises(PoolGradTypeError, match=str(dtype)):
            pt.avg_pool2d(torch.ones(1, 1, 4, 4).to(dtype), 2)


def test_what_was_asked_before_does_not_pass_for_numbers() -> None:
    """2.0 and True equal 2 and 1; alone and in tuples they are refused, also after those."""
    x = torch.ones(1, 1, 6, 6)
    for good, bad in ((2, 2.0), (1, True), ((2, 2), (2.0, 2)), ((1, 2), (True, 2))):
        pt.avg_pool2d(x, good)
        with pytest.raises(PoolGradTypeError, match="kernel_size"):
            pt.avg_pool2d(x, bad)


def test_zero_size() -> None:
    for shape in ((0, 3, 8, 8), (2, 0, 8, 8)):
        for function in (lambda x: pt.avg_pool2d(x, 3), lambda x: pt.adaptive_avg_pool2d(x, (2, 5))):
            x = torch.randn(shape, requires_grad=True)
            function(x).sum().backward()
            assert x.grad.shape == shape
    x = torch.randn(2, 3, 5, 4, requires_grad=True)
    pt.adaptive_avg_pool2d(x, (0, 2)).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


SAME = [
    ({"kernel_size": 3, "stride": 2, "padding": "same"}, {"window": 3, "stride": 2, "padding": "same"}),
    ({"kernel_size": (4, 3), "stride": 1, "padding": "same_lower"}, {"window": (4, 3), "stride": 1, "padding": "same_lower"}),
    (
        {"kernel_size": (4, 3), "stride": 2, "padding": ((2, 1), (0, 2))},
        {"window": (4, 3), "stride": 2, "padding": ((2, 1), (0, 2))},
    ),
    ({"kernel_size": 3, "stride": 2, "dilation": (2, 3)}, {"window": 3, "stride": 2, "dilation": (2, 3)}),
    (
        {"kernel_size": (2, 4), "stride": 3, "padding": [[0, 1], [2, 1]], "dilation": 2, "ceil_mode": True},
        {"window": (2, 4), "stride": 3, "padding": ((0, 1), (2, 1)), "dilation": 2, "ceil_mode": True},
    ),
]


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize(("ours", "core"), SAME)
def test_what_pytorch_lacks(ours: dict[str, Any], core: dict[str, Any], include: bool) -> None:
    """Same and asymmetric padding and dilation: the core's functions, to the bit."""
    for dtype in support.DTYPES:
        x = support.random_array(3, (2, 3, 11, 14), dtype)
        want = poolgrad.avg_pool(x, layout="NCHW", count="padded" if include else "inside", **core)
        dy = support.random_array(4, want.shape, dtype)
        y, dx = both(lambda leaf: pt.avg_pool2d(leaf, **ours, count_include_pad=include), tensor(x), tensor(dy))
        support.assert_same_bits(y, want)
        count = "padded" if include else "inside"
        support.assert_same_bits(dx, poolgrad.avg_pool_grad(dy, x.shape, layout="NCHW", count=count, **core))
        module = pt.AvgPool2d(**ours, count_include_pad=include)
        support.assert_same_bits(array(module(tensor(x))), want)


@pytest.mark.parametrize("axes", [1, 2, 4, 5])
def test_any_number_of_axes(axes: int) -> None:
    shape, window = (2, 3, 5, 4, 3, 6, 2)[: axes + 2], (2, 3, 1, 4, 2)[:axes]
    layout = "NC" + "01234"[:axes]
    x = support.random_array(5, shape, np.dtype(np.float32))
    want = poolgrad.avg_pool(x, window, stride=1, layout=layout)
    dy = support.random_array(6, want.shape, x.dtype)
    y, dx = both(pt.AvgPool(window, 1), tensor(x), tensor(dy))
    support.assert_same_bits(y, want)
    support.assert_same_bits(dx, poolgrad.avg_pool_grad(dy, shape, window, stride=1, layout=layout))
    support.assert_same_bits(array(pt.avg_pool(tensor(x), 2)), poolgrad.avg_pool(x, 2, layout=layout))
    support.assert_same_bits(array(pt.AdaptiveAvgPool(2)(tensor(x))), poolgrad.adaptive_avg_pool(x, 2, layout=layout))
    assert torch.equal(pt.avg_pool(tensor(x)[0], window), pt.avg_pool(tensor(x), window)[0])


@settings(max_examples=80)
@given(data=st.data(), size=st.integers(1, 20), window=st.integers(1, 7), stride=st.integers(1, 9), ceil_mode=st.booleans())
def test_sizes_without_tables(data: st.DataObject, size: int, window: int, stride: int, ceil_mode: bool) -> None:
    """The number of cells by arithmetic, which symbolic sizes need, is that of the table."""
    pads = st.integers(0, window - 1)
    named = st.sampled_from(["same", "same_lower", "valid"]) if not ceil_mode else st.just("valid")
    padding = data.draw(st.tuples(st.tuples(pads, pads)) | named)
    spec = regular_spec(1, window, stride, padding, ceil_mode, dilation=data.draw(st.integers(1, 3)))
    try:
        cells = output_size(spec, (size,))
    except PoolGradValueError:
        with pytest.raises(PoolGradValueError):
            tables(spec, (size,), (1,))
        return
    try:
        made = tables(spec, (size,), cells).output_size
    except PoolGradValueError as refusal:
        if "covers no input" not in str(refusal):
            raise
    else:
        assert made == cells


def test_fractional_draws_are_tensorflows() -> None:
    x = torch.randn(2, 3, 11, 14, dtype=torch.float64)
    for options in ({}, {"pseudo_random": True}, {"overlapping": True}):
        seeds = torch.randint(2**32, (2,), generator=torch.Generator().manual_seed(9)).tolist()
        images = x.permute(0, 2, 3, 1).numpy()
        want = raw_ops.FractionalAvgPool(
            value=images, pooling_ratio=[1.0, 1.5, 1.25, 1.0], deterministic=True, seed=seeds[0], seed2=seeds[1], **options
        )
        generator = torch.Generator().manual_seed(9)
        y, rows = pt.fractional_avg_pool(x, (1.5, 1.25), generator=generator, return_sequences=True, **options)
        assert [list(row) for row in rows] == [want.row_pooling_sequence.tolist(), want.col_pooling_sequence.tolist()]
        support.assert_same_bits(y.permute(0, 2, 3, 1).numpy(), want.output)


def test_fractional() -> None:
    x = torch.randn(2, 3, 11, 14, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(4)
    pool = pt.FractionalAvgPool(1.7, overlapping=True, return_sequences=True)
    y, rows = pool(x)
    torch.manual_seed(4)
    again, same = pool(x)
    assert rows == same
    assert torch.equal(y, again)
    assert {pool(x)[1] for _ in range(8)} != {rows}
    dy = torch.randn_like(y)
    y.backward(dy)
    want = poolgrad.fractional_avg_pool_grad(dy.numpy(), x.shape, rows, overlapping=True, layout="NCHW")
    support.assert_same_bits(x.grad.numpy(), want)
    given = pt.FractionalAvgPool(sequences=[torch.tensor(row) for row in rows], overlapping=True)
    assert torch.equal(given(x), y)
    assert torch.equal(pt.fractional_avg_pool(x[0], sequences=[list(row) for row in rows], overlapping=True), y[0])


def test_modules_are_pytorchs() -> None:
    """Attributes, text and type of the modules that they stand in for; nothing to save."""
    for name, arguments in (
        ("AvgPool1d", (3,)),
        ("AvgPool2d", (3, 2, 1)),
        ("AvgPool3d", (2,)),
        ("AdaptiveAvgPool2d", ((2, None),)),
    ):
        mine, theirs = getattr(pt, name)(*arguments), getattr(torch.nn, name)(*arguments)
        assert isinstance(mine, type(theirs))
        assert not mine.state_dict()
        if name != "AvgPool1d":  # PyTorch makes tuples of these
            assert repr(mine) == repr(theirs)
    assert repr(pt.AvgPool2d(3, dilation=2)) == "AvgPool2d(kernel_size=3, stride=3, padding=0, dilation=2)"


def test_threads_do_not_matter() -> None:
    x = torch.randn(8, 16, 40, 41)
    before = torch.get_num_threads()
    try:
        answers = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            answers.append(pt.avg_pool2d(x, 9, 1, 4))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(answers[0], other) for other in answers[1:])


x4 = torch.ones(1, 2, 8, 8)
REFUSED: list[tuple[Any, type[PoolGradError], str]] = [
    (lambda: pt.avg_pool2d(x4.long(), 2), PoolGradTypeError, "input must have dtype.*float32.*got torch.int64"),
    (lambda: pt.avg_pool2d(x4.to(torch.complex64), 2), PoolGradTypeError, "got torch.complex64"),
    (lambda: pt.avg_pool2d(x4.to_sparse(), 2), PoolGradTypeError, "dense tensor.*to_dense"),
    (lambda: pt.avg_pool2d(x4.to_mkldnn(), 2), PoolGradTypeError, "dense tensor"),
    (lambda: pt.avg_pool2d(x4.numpy(), 2), PoolGradTypeError, "torch.Tensor, got numpy.ndarray"),
    (lambda: pt.avg_pool2d(x4[0, 0], 2), PoolGradValueError, r"3 \(without batch\) or 4 dimensions.*\(8, 8\)"),
    (lambda: pt.avg_pool2d(x4, 2.0), PoolGradTypeError, "kernel_size must be an integer, got 2.0"),
    (lambda: pt.avg_pool2d(x4, True), PoolGradTypeError, "kernel_size must be an integer, got True"),
    (lambda: pt.avg_pool2d(x4, 0), PoolGradValueError, "kernel_size must be at least 1"),
    (lambda: pt.avg_pool2d(x4, (2, 2, 2)), PoolGradValueError, "kernel_size must be an integer or 2 of them"),
    (lambda: pt.avg_pool2d(x4, 9), PoolGradValueError, "kernel_size 9.*larger than the padded input 8"),
    (lambda: pt.avg_pool2d(x4, 2, 0), PoolGradValueError, "stride must be at least 1"),
    (lambda: pt.avg_pool2d(x4, 2, padding=-1), PoolGradValueError, "padding must be at least 0"),
    (lambda: pt.avg_pool2d(x4, 2, padding="full"), PoolGradValueError, "'full'"),
    (lambda: pt.avg_pool2d(x4, 2, padding=((1, 2), 3)), PoolGradValueError, "pairs"),
    (lambda: pt.avg_pool2d(x4, 2, padding="same", ceil_mode=True), PoolGradValueError, "ceil_mode"),
    (lambda: pt.avg_pool2d(x4, 2, padding=2, stride=1), PoolGradValueError, "covers no input"),
    (lambda: pt.avg_pool2d(x4, 2, divisor_override=0), PoolGradValueError, "divisor_override must not be 0"),
    (lambda: pt.avg_pool2d(x4, 2, ceil_mode="no"), PoolGradTypeError, "ceil_mode"),
    (lambda: pt.avg_pool2d(x4, 2, dilation=0), PoolGradValueError, "dilation must be at least 1"),
    (lambda: pt.avg_pool(x4[0, 0], 2), PoolGradValueError, "kernel_size must name every axis"),
    (lambda: pt.adaptive_avg_pool2d(x4, -1), PoolGradValueError, "output_size must be at least 0"),
    (lambda: pt.adaptive_avg_pool2d(x4, (1, 2, 3)), PoolGradValueError, "output_size must be an integer or 2"),
    (lambda: pt.adaptive_avg_pool2d(x4[:, :, :0], 2), PoolGradValueError, "needs inputs"),
    (lambda: pt.fractional_avg_pool(x4), PoolGradTypeError, "either pooling_ratio"),
    (lambda: pt.fractional_avg_pool(x4, 0.5), PoolGradValueError, "at least 1"),
    (lambda: pt.fractional_avg_pool(x4, (1.5,) * 4), PoolGradValueError, "without batch"),
    (lambda: pt.fractional_avg_pool(x4, (1.5, "2")), PoolGradTypeError, "pooling_ratio must be a number, got '2'"),
    (lambda: pt.fractional_avg_pool(x4, 1.5, generator=7), PoolGradTypeError, "torch.Generator"),
    (lambda: pt.fractional_avg_pool(x4, sequences=[[0, 3, 8], [0, 8, 2]]), PoolGradValueError, "never decrease"),
    (lambda: pt.fractional_avg_pool(x4, sequences=[[0, 3, 8], [5]]), PoolGradValueError, "two or more"),
    (
        lambda: pt.fractional_avg_pool(x4, sequences=[torch.tensor([0, 3, 8], device="meta")] * 2),
        PoolGradValueError,
        "sequences must be on the CPU.*meta",
    ),
    (lambda: torch.ops.poolgrad.avg_pool(x4[0], (4, 4), regular_spec(2, 2), True), PoolGradValueError, "channels_last needs"),
    (lambda: torch.ops.poolgrad.avg_pool(x4, (3, 3), "window 2", False), PoolGradTypeError, "spec must describe"),
    (
        lambda: torch.ops.poolgrad.avg_pool(x4, (3, 3), regular_spec(2, 2), False),
        PoolGradValueError,
        r"\(4, 4\) cells, not \(3, 3\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(call: Any, kind: type[PoolGradError], words: str) -> None:
    pt.avg_pool2d(x4, 2)  # what is kept from a good call must not let a bad one pass
    pt.avg_pool2d(x4, 1)
    with pytest.raises(kind, match=words):
        call()


def test_importing_costs_little_more_than_pytorch_itself() -> None:
    """PyTorch's compiler and its DTensor take as long to import as PyTorch; they come with what uses them."""
    loaded = "import sys, torch, poolgrad.torch; assert not {'torch._dynamo', 'torch.distributed.tensor'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", loaded], check=True, timeout=300)

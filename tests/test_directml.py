"""DirectML's operators: documented values, every layout that strides can say, windows that meet nothing, nothing copied.

The oracle works on plain windows spelled out tap by tap, so that a mistake in the dialect's tables shows.
"""

from __future__ import annotations

import tracemalloc
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import support
from directml_support import TYPES, cases, gradient, run, spelled_out, strides_in, tensor
from hypothesis import given, settings

from poolgrad import Pool, directml, exact
from poolgrad.engines import engine

GOLDEN = [
    # size, window, stride, start, end, include, dX for dY = 1, 2, 3, …
    (3, 2, 1, 0, 0, False, [0.25, 0.75, 0.5, 1, 2.5, 1.5, 0.75, 1.75, 1]),
    (3, 2, 1, 0, 0, True, [0.25, 0.75, 0.5, 1, 2.5, 1.5, 0.75, 1.75, 1]),
    (3, 2, 2, 0, 1, False, [0.25, 0.25, 1, 0.25, 0.25, 1, 1.5, 1.5, 4]),
    (3, 2, 2, 0, 1, True, [0.25, 0.25, 0.5, 0.25, 0.25, 0.5, 0.75, 0.75, 1]),
    (3, 2, 2, 1, 0, False, [1, 1, 1, 1.5, 1, 1, 1.5, 1, 1]),
    (3, 2, 2, 1, 0, True, [0.25, 0.5, 0.5, 0.75, 1, 1, 0.75, 1, 1]),
]
CUBE = [0.125, 0.125, 0.5, 0.125, 0.125, 0.5, 0.75, 0.75, 2] * 2 + [1.25, 1.25, 3, 1.25, 1.25, 3, 3.5, 3.5, 8]


class TestDocumentedValues:
    @pytest.mark.parametrize(("size", "window", "stride", "start", "end", "include", "want"), GOLDEN)
    @pytest.mark.parametrize("kind", ["FLOAT32", "FLOAT16"])
    def test_gradient(
        self, size: int, window: int, stride: int, start: int, end: int, include: bool, want: Any, kind: str
    ) -> None:
        cells = (size + start + end - window) // stride + 1
        desc = gradient(
            tensor((1, 1, cells, cells), kind),
            tensor((1, 1, size, size), kind),
            WindowSize=(window,) * 2,
            Strides=(stride,) * 2,
            StartPadding=(start,) * 2,
            EndPadding=(end,) * 2,
            IncludePadding=include,
        )
        dy = directml.new_buffer(desc.InputGradientTensor, np.arange(1, cells * cells + 1).reshape(1, 1, cells, cells))
        dx = directml.new_buffer(desc.OutputGradientTensor)
        run(desc, dy, dx)
        assert directml.tensor_view(desc.OutputGradientTensor, dx).ravel().tolist() == want

    def test_gradient_in_three_dimensions(self) -> None:
        desc = gradient((1, 1, 2, 2, 2), (1, 1, 3, 3, 3), WindowSize=(2, 2, 2), Strides=(2, 2, 2), EndPadding=(1, 1, 1))
        dx = np.zeros(27, np.float32)
        run(desc, np.arange(1, 9, dtype=np.float32), dx)
        assert dx.tolist() == CUBE

    def test_forward(self) -> None:
        desc = directml.AveragePoolingOperatorDesc(
            InputTensor=tensor((1, 1, 3, 3)),
            OutputTensor=tensor((1, 1, 2, 2)),
            Strides=(1, 1),
            WindowSize=(2, 2),
            StartPadding=(0, 0),
            EndPadding=(0, 0),
            IncludePadding=False,
        )
        y = np.zeros(4, np.float32)
        run(desc, np.arange(1, 10, dtype=np.float32), y)
        assert y.tolist() == [3, 4, 6, 7]

    def test_dilated_forward(self) -> None:
        desc = directml.AveragePooling1OperatorDesc(
            InputTensor=tensor((1, 1, 4, 4)),
            OutputTensor=tensor((1, 1, 2, 2)),
            Strides=(1, 1),
            WindowSize=(2, 2),
            StartPadding=(0, 0),
            EndPadding=(0, 0),
            Dilations=(2, 2),
            IncludePadding=False,
        )
        y = np.zeros(4, np.float32)
        run(desc, np.arange(16, dtype=np.float32), y)
        assert y.tolist() == [5, 6, 9, 10]

    def test_explicit_output_sizes_round_up(self) -> None:
        """4×4, window 2, strides 3 and 1: the last row of windows has one row of the input, and counts only that."""
        fields: dict[str, Any] = {"Strides": (3, 1), "WindowSize": (2, 2), "StartPadding": (0, 0), "EndPadding": (0, 0)}
        tensors = {"InputTensor": tensor((1, 1, 4, 4)), "OutputTensor": tensor((1, 1, 2, 3))}
        x, y = np.arange(1, 17, dtype=np.float32), np.zeros(6, np.float32)
        for include, want in ((False, [3.5, 4.5, 5.5, 13.5, 14.5, 15.5]), (True, [3.5, 4.5, 5.5, 6.75, 7.25, 7.75])):
            desc = directml.AveragePoolingOperatorDesc(**tensors, **fields, IncludePadding=include)
            with pytest.raises(directml.DirectMLError, match=r"OutputTensor\.Sizes\[2\] must be .* = 1 .*got 2"):
                directml.compile_operator(desc)
            run(desc, x, y, allow_explicit_sizes=True)
            assert y.tolist() == want


class TestRandomOperators:
    @settings(max_examples=500)
    @given(cases())
    def test_equals_the_oracle_and_leaves_the_gaps(self, case: dict[str, Any]) -> None:
        inputs = (*case["outer"], *(row[0] for row in case["rows"]))
        outputs = (*case["outer"], *case["cells"])
        sizes = (inputs, outputs) if case["forwards"] else (outputs, inputs)
        strides = [strides_in(order, gaps, n) for order, gaps, n in zip(case["orders"], case["gaps"], sizes, strict=True)]
        strides[0] = [0 if axis in case["broadcast"] else s for axis, s in enumerate(strides[0])]
        source, result = (tensor(n, case["kind"], Strides=s) for n, s in zip(sizes, strides, strict=True))
        _, window, stride, start, end, dilation = zip(*case["rows"], strict=True)
        fields = {"WindowSize": window, "Strides": stride, "StartPadding": start, "EndPadding": end}
        fields |= {"IncludePadding": case["include"]} | ({"Dilations": dilation} if case["dilated"] else {})
        if case["forwards"]:
            forward = directml.AveragePooling1OperatorDesc if case["dilated"] else directml.AveragePoolingOperatorDesc
            desc = forward(InputTensor=source, OutputTensor=result, **fields)
        else:
            desc = gradient(source, result, **fields)

        rng = np.random.default_rng(case["seed"])
        memory = [rng.integers(0, 256, len(directml.new_buffer(t)) + 32, dtype=np.uint8) for t in (source, result)]
        views = [directml.tensor_view(t, directml.BufferBinding(m, 16)) for t, m in zip((source, result), memory, strict=True)]
        views[0][...] = support.random_array(case["seed"], sizes[0], np.dtype(TYPES[case["kind"]]))
        before = memory[1].copy()
        op = directml.compile_operator(desc, allow_extension_types=True, allow_explicit_sizes=case["explicit"])
        op.execute(
            {desc.input_field: directml.BufferBinding(memory[0], 16), desc.output_field: directml.BufferBinding(memory[1], 16)}
        )

        rows = zip(case["rows"], case["cells"], strict=True)
        pool = Pool(tuple(spelled_out(n, m, k, s, p, d, case["include"]) for (n, k, s, p, _, d), m in rows))
        layout = "NCHW" if len(inputs) == 4 else "NCDHW"
        want = (exact.forward if case["forwards"] else exact.gradient)(pool, np.ascontiguousarray(views[0]), layout)
        got = np.ascontiguousarray(views[1])
        wide = np.abs(np.asarray(views[0], np.float64)).max(initial=1e-30)
        error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
        assert exact.ulps(got, want) <= 4 or error <= 64 * wide * float(ml_dtypes.finfo(got.dtype).eps)

        touched = np.zeros(len(memory[1]), dtype=bool)
        places = tensor(sizes[1], "UINT8", Strides=[s * got.itemsize for s in strides[1]])
        directml.tensor_view(places, touched[16:].view(np.uint8))[...] = 1
        own = np.flatnonzero(touched)
        spread = (own[:, None] + np.arange(got.itemsize)).ravel()
        before[spread] = memory[1][spread]
        assert (before == memory[1]).all()


class TestBuffers:
    desc = gradient((2, 3, 2, 4), (2, 3, 3, 5))

    def test_nhwc_by_strides_is_the_transposed_answer(self) -> None:
        sizes = [(2, 3, 3, 4), (2, 3, 5, 10)]
        fields: dict[str, Any] = {"WindowSize": (3, 2), "Strides": (2, 3), "StartPadding": (1, 0), "EndPadding": (1, 1)}
        nchw = gradient(*sizes, **fields)
        nhwc = gradient(*(tensor(n, Strides=directml.interleaved_channel_strides(n)) for n in sizes), **fields)
        dy = support.random_array(3, sizes[0], np.dtype(np.float32))
        plain, channels_last = np.zeros(sizes[1], np.float32), np.zeros((2, 5, 10, 3), np.float32)
        run(nchw, dy, plain)
        run(nhwc, np.ascontiguousarray(dy.transpose(0, 2, 3, 1)), channels_last)
        support.assert_same_bits(np.ascontiguousarray(channels_last.transpose(0, 3, 1, 2)), plain)

    def test_ndhwc_strides(self) -> None:
        assert directml.interleaved_channel_strides((2, 3, 4, 5, 6)) == (360, 1, 90, 18, 3)

    def test_every_kind_of_buffer(self) -> None:
        dy = support.random_array(1, (2, 3, 2, 4), np.dtype(np.float32))
        want = np.zeros((2, 3, 3, 5), np.float32)
        run(self.desc, dy, want)
        for source in (
            dy.tobytes(),
            bytearray(dy.tobytes()),
            memoryview(dy.tobytes()),
            memoryview(dy),
            dy.ravel(),
            dy.view(np.uint8),
        ):
            for out in (bytearray(360), np.zeros(360, np.uint8), np.zeros(90, np.float32), memoryview(bytearray(360))):
                run(self.desc, source, out)
                assert bytes(out) == want.tobytes()

    def test_offsets_into_one_buffer(self) -> None:
        memory = np.zeros(192 + 16 + 360, np.uint8)
        dy = support.random_array(1, (2, 3, 2, 4), np.dtype(np.float32))
        memory[:192] = dy.reshape(-1).view(np.uint8)
        want = np.zeros((2, 3, 3, 5), np.float32)
        run(self.desc, dy, want)
        run(self.desc, directml.BufferBinding(memory, 0, 192), directml.BufferBinding(memory, 208))
        assert memory[208:].tobytes() == want.tobytes()
        assert not memory[192:208].any()

    def test_tensors_interleaved_in_one_buffer(self) -> None:
        """Input and output in the even and the odd places of one memory: apart, though their ranges overlap."""
        x = directml.AveragePoolingOperatorDesc(
            InputTensor=tensor((1, 1, 2, 4), Strides=(16, 16, 8, 2), GuaranteedBaseOffsetAlignment=4),
            OutputTensor=tensor((1, 1, 1, 2), Strides=(16, 16, 8, 2), GuaranteedBaseOffsetAlignment=4),
            Strides=(2, 2),
            WindowSize=(2, 2),
            StartPadding=(0, 0),
            EndPadding=(0, 0),
            IncludePadding=False,
        )
        memory = np.arange(16, dtype=np.float32)
        run(x, memory, directml.BufferBinding(memory, 4))
        assert memory[[1, 3]].tolist() == [5, 9]

    def test_broadcast_input(self) -> None:
        desc = gradient(tensor((2, 3, 2, 4), Strides=(0, 0, 0, 1)), (2, 3, 3, 5))
        row, dx, want = (
            np.array([1, -2, 4, 8], np.float32),
            np.zeros((2, 3, 3, 5), np.float32),
            np.zeros((2, 3, 3, 5), np.float32),
        )
        run(desc, row, dx)
        run(self.desc, np.ascontiguousarray(np.broadcast_to(row, (2, 3, 2, 4))), want)
        support.assert_same_bits(dx, want)

    def test_owned_by_dml_is_copied_at_initialisation(self) -> None:
        desc = gradient(tensor((2, 3, 2, 4), Flags="OWNED_BY_DML"), (2, 3, 3, 5))
        dy = support.random_array(1, (2, 3, 2, 4), np.dtype(np.float32))
        want, dx = np.zeros((2, 3, 3, 5), np.float32), np.zeros((2, 3, 3, 5), np.float32)
        run(self.desc, dy, want)
        op = directml.compile_operator(desc)
        with pytest.raises(directml.DirectMLError, match="initialize"):
            op.execute({"OutputGradientTensor": dx})
        op.initialize({"InputGradientTensor": dy})
        dy[...] = 0
        op.execute({"OutputGradientTensor": dx})
        support.assert_same_bits(dx, want)
        with pytest.raises(directml.DirectMLError, match="exactly for"):
            op.execute({"InputGradientTensor": dy, "OutputGradientTensor": dx})

    @pytest.mark.parametrize("layout", ["packed", "channels last", "padded rows"])
    def test_nothing_is_copied(self, layout: str) -> None:
        """Memory taken by a run on 40 MB of tensors is a small part of them."""
        if not hasattr(engine(), "operation"):
            pytest.skip("the NumPy engine is the definition, and takes whole intermediates")
        sizes = [(1, 4, 1000, 1000), (1, 4, 2000, 2000)]
        strides = [directml.interleaved_channel_strides(n) if layout == "channels last" else None for n in sizes]
        if layout == "padded rows":
            strides = [(4 * n[2] * (n[3] + 24), n[2] * (n[3] + 24), n[3] + 24, 1) for n in sizes]
        descs = [tensor(n, "FLOAT16", Strides=s) for n, s in zip(sizes, strides, strict=True)]
        op = directml.compile_operator(
            gradient(*descs, WindowSize=(3, 2), Strides=(2, 2), StartPadding=(0, 0), EndPadding=(1, 0))
        )
        dy, dx = (directml.new_buffer(d) for d in descs)
        bindings = {"InputGradientTensor": dy, "OutputGradientTensor": dx}
        op.execute(bindings, num_threads=1)
        tracemalloc.start()
        op.execute(bindings, num_threads=1)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 200_000
        view = directml.tensor_view(descs[1], dx)
        assert view.__array_interface__["data"][0] == dx.__array_interface__["data"][0]


WIDE: dict[str, Any] = {"WindowSize": (2, 3), "Strides": (1, 2), "StartPadding": (2, 0), "EndPadding": (0, 4)}


class TestWindowsWithoutTaps:
    """Padding as wide as the window: the window meets nothing."""

    def test_gives_zero(self) -> None:
        dy = np.full((1, 1, 4, 4), 7, np.float32)
        dx = np.full((1, 1, 3, 5), np.nan, np.float32)
        desc = gradient((1, 1, 4, 4), (1, 1, 3, 5), **WIDE)
        run(desc, dy, dx)
        assert np.isfinite(dx).all()
        dy[:, :, 0, :], dy[:, :, :, 3] = 1e30, -1e30
        again = np.zeros_like(dx)
        run(desc, dy, again)
        assert (again == dx).all()

    def test_forward_gives_zero(self) -> None:
        desc = directml.AveragePoolingOperatorDesc(
            InputTensor=tensor((1, 1, 3, 5)), OutputTensor=tensor((1, 1, 4, 4)), IncludePadding=False, **WIDE
        )
        y = np.full((1, 1, 4, 4), np.nan, np.float32)
        run(desc, np.ones((1, 1, 3, 5), np.float32), y)
        assert y[0, 0].tolist() == [[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0]]

    @pytest.mark.parametrize("include", [False, True])
    def test_strict_refuses(self, include: bool) -> None:
        desc = gradient((1, 1, 4, 4), (1, 1, 3, 5), IncludePadding=include, **WIDE)
        with pytest.raises(directml.DirectMLError, match=r"StartPadding\[0\] must be less than the window \(2 wide\)"):
            directml.compile_operator(desc, strict=True)
        beyond = gradient((1, 1, 3, 9), (1, 1, 3, 5), WindowSize=(1, 1), IncludePadding=include)
        directml.compile_operator(beyond, allow_explicit_sizes=True)
        with pytest.raises(directml.DirectMLError, match=r"WindowSize\[1\] .*window 5 outside"):
            directml.compile_operator(beyond, allow_explicit_sizes=True, strict=True)

    def test_tables_stay_within_the_axis(self) -> None:
        """Engines take positions from the tables as they are; an empty window far outside must not name a far place."""
        fields: dict[str, Any] = {"WindowSize": (2, 2), "Strides": (4, 3), "Dilations": (1, 3)}
        desc = gradient((1, 1, 9, 9), (1, 1, 3, 5), **fields)
        pool = directml.compile_operator(desc, allow_explicit_sizes=True).pool
        assert [int(axis.start.max()) for axis in pool.axes] == [3, 6]

    def test_taps_that_step_over_the_input(self) -> None:
        """Dilation wider than the input: whole residue classes of windows meet nothing, and are written all the same."""
        desc = directml.AveragePooling1OperatorDesc(
            InputTensor=tensor((1, 1, 1, 2)),
            OutputTensor=tensor((1, 1, 1, 6)),
            Strides=(1, 1),
            WindowSize=(1, 2),
            StartPadding=(0, 5),
            EndPadding=(0, 4),
            Dilations=(1, 5),
            IncludePadding=False,
        )
        y = np.full(6, np.nan, np.float32)
        run(desc, np.array([3, 4], np.float32), y)
        assert y.tolist() == [3, 4, 0, 0, 0, 3]


def test_no_window_of_a_dilated_axis_is_left_unwritten() -> None:
    """The core's part of it, for every small dilation, size and padding."""
    for size, dilation, start in product((1, 2, 3), (2, 3, 5), (0, 1, 4)):
        desc = directml.AveragePooling1OperatorDesc(
            InputTensor=tensor((1, 1, 1, size)),
            OutputTensor=tensor((1, 1, 1, size + start + 5 - dilation)),
            Strides=(1, 1),
            WindowSize=(1, 2),
            StartPadding=(0, start),
            EndPadding=(0, 5),
            Dilations=(1, dilation),
            IncludePadding=False,
        )
        y = np.full(size + start + 5 - dilation, np.nan, np.float32)
        x = np.arange(1, size + 1, dtype=np.float32)
        run(desc, x, y)
        want = []
        for o in range(len(y)):
            inside = [x[t] for t in (o - start, o - start + dilation) if 0 <= t < size]
            want.append(sum(inside) / len(inside) if inside else 0)
        assert y.tolist() == want

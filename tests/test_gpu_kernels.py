"""The GPU engine's kernels without a GPU: the same text, compiled as C++, against the bits of the NumPy engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpu_host
import ml_dtypes
import numpy as np
import pytest
import support
from support import DTYPES, assert_same_bits, random_array, result_shape, source_shape

import poolgrad
from poolgrad import Axis, Pool, PoolGradDeviceError, PoolGradTypeError
from poolgrad.arrays import gpu_framework
from poolgrad.engines import engine, gpu
from poolgrad.engines.gpu import driver, general, line, sheet, written
from poolgrad.engines.gpu.pattern import is_regular, pattern, variants
from poolgrad.layout import spatial_positions
from poolgrad.tables import Sums

Array = Any
R = Axis.regular
FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = DTYPES

needs_compiler = pytest.mark.skipif(gpu_host.COMPILER is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> gpu_host.Host:
    return gpu_host.Host(tmp_path_factory.mktemp("kernels"))


LEAST = float(ml_dtypes.finfo(np.float32).smallest_subnormal)


def check(
    host: gpu_host.Host, pool: Pool, layout: str, dtype: Any, *, forwards: bool, accumulate: bool = False, tiny: bool = False
) -> list[str]:
    """Compare bits with the definition, of special numbers or of multiples of the least; the kernels that ran."""
    source = random_array(3, source_shape(pool, layout, 3, 8, forwards=forwards), dtype, "special")
    if tiny:
        rng = np.random.default_rng(3)
        wide = rng.integers(-(2**24), 2**24, source.shape) * 2.0 ** rng.integers(-9, 7, source.shape)
        source = (np.where(rng.random(source.shape) < 0.5, wide, rng.integers(-40, 40, source.shape)) * LEAST).astype(dtype)
    old = random_array(4, result_shape(pool, source.shape, layout, forwards=forwards), dtype)
    want = support.compute("numpy", pool, source, layout, forwards=forwards, out=old.copy(), accumulate=accumulate)
    got, spatial, before = old.copy(), spatial_positions(layout, len(layout)), len(host.launches)
    for piece in pool.forward_pieces() if forwards else pool.gradient_pieces():
        part, place = support.at(source, spatial, piece.take), support.at(got, spatial, piece.put)
        gpu_host.run(host, piece.sums, part, place, spatial, accumulate=accumulate)
    assert_same_bits(got, want)
    return host.launches[before:]


def seed(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, right: str, wrong: str) -> None:
    """A bug in the text `name`, as `module` takes it."""
    text = general.prelude(name)
    assert right in text
    monkeypatch.setattr(module, "prelude", lambda *_: text.replace(right, wrong))


GENERAL = {
    "short": Pool((R(13, 3, stride=2, padding="same"), R(9, 2))),
    "irregular": Pool((Axis.adaptive(13, 5), Axis.fractional(20, [0, 3, 5, 9, 14, 20], overlapping=True))),
    "empty cells": Pool((Axis.fractional(20, [0, 3, 3, 9, 14, 25], allow_empty=True), R(4, 2))),
    "dilated": Pool((R(23, 3, stride=2, dilation=2), R(17, 3, stride=1, dilation=3, padding=2))),
    "long": Pool((R(30, 19, stride=1, padding="same"), R(9, 3, stride=1))),
    "three levels": Pool((R(700, 600, stride=7),)),
    "four axes": Pool((R(4, 2, stride=1), R(5, 3, stride=1, padding="same"), R(4, 2), R(5, 3, stride=2, padding="same"))),
    "negative divisor": Pool((R(13, 3, stride=2), R(12, 4, stride=3)), -7),
}
CHANNELS = {1: ("NLC", "NCL"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW"), 4: ("N0123C", "NC0123")}


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_general_kernels(host: gpu_host.Host, dtype: Any) -> None:
    seen: set[str] = set()
    for pool in GENERAL.values():
        for layout in CHANNELS[len(pool.axes)]:
            seen.update(check(host, pool, layout, dtype, forwards=False))
            seen.update(check(host, pool, layout, dtype, forwards=True))
        check(host, pool, layout, dtype, forwards=False, accumulate=True)
    assert seen == {"gather", "each", "totals", "ladder"}


SAME = {"stride": 1, "padding": "same"}
WRITTEN: list[tuple[Pool, str, Any, set[str]]] = [
    (Pool((R(13, 2), R(12, 2))), "NHWC", FLOAT32, {"tile"}),
    (Pool((R(13, 3, stride=2, padding="same"), R(12, 3, stride=2, padding="same"))), "NHWC", BFLOAT16, {"tile"}),
    (Pool((R(13, 3, stride=2, padding="same"), R(12, 3, stride=2, padding="same"))), "NCHW", FLOAT32, {"tile"}),
    (Pool((R(13, 2, stride=3), R(17, 6, stride=7, padding=(1, 1)))), "NHWC", FLOAT32, {"tile"}),
    (Pool((R(7, 7), R(6, 6))), "NCHW", FLOAT32, {"spread", "sheet"}),
    (Pool((R(8, 2), R(6, 2), R(9, 3))), "NDHWC", FLOAT64, {"tile"}),
    (Pool((R(90, 80, stride=1), R(20, 3))), "NHWC", FLOAT32, {"line", "tile"}),
    (Pool((R(200, 21, **SAME),)), "NLC", FLOAT32, {"line"}),
    (Pool((R(40, 31, **SAME), R(48, 25, **SAME))), "NCHW", BFLOAT16, {"staged", "line"}),
    (Pool((R(40, 15, **SAME), R(37, 13, stride=1, padding=3))), "NHWC", FLOAT32, {"sheet", "line"}),
    (Pool((R(15, 3, **SAME), R(11, 4, **SAME))), "NHWC", FLOAT32, {"sheet"}),
    (Pool((R(15, 3, **SAME), R(11, 4, **SAME))), "NCHW", FLOAT16, {"sheet"}),
    (Pool((R(41, 3, stride=1), R(35, 3, **SAME))), "NCHW", FLOAT64, {"sheet"}),
    (Pool((R(21, 1, **SAME), R(11, 8, stride=1, padding=2))), "NHWC", BFLOAT16, {"sheet"}),
    (Pool((R(9, 3, **SAME), R(13, 4, **SAME), R(7, 2, **SAME))), "NDHWC", BFLOAT16, {"sheet"}),
    (Pool((R(9, 3, **SAME), R(22, 3, **SAME), R(7, 2, **SAME))), "NCDHW", FLOAT32, {"sheet"}),
    (Pool((R(23, 6, **SAME), R(3, 2, stride=1), R(7, 3, **SAME))), "NCDHW", FLOAT16, {"sheet"}),
    (Pool((R(40, 15, **SAME), R(32, 13, **SAME))), "NCHW", BFLOAT16, {"sheet"}),
    (Pool((R(40, 9, **SAME), R(34, 9, **SAME))), "NHWC", FLOAT64, {"sheet"}),
    (Pool((R(40, 3, **SAME), R(32, 13, **SAME))), "NCHW", FLOAT32, {"sheet"}),
    (Pool((R(40, 11, **SAME), R(32, 3, **SAME))), "NHWC", FLOAT16, {"sheet"}),
    (Pool((R(16, 9, **SAME), R(20, 9, **SAME), R(24, 9, **SAME))), "NCDHW", BFLOAT16, {"sheet", "line"}),
    (Pool((R(16, 9, **SAME), R(20, 9, **SAME), R(24, 9, **SAME))), "NDHWC", FLOAT32, {"sheet", "line"}),
]


@needs_compiler
@pytest.mark.parametrize("k", range(len(WRITTEN)))
def test_written_kernels(host: gpu_host.Host, k: int) -> None:
    pool, layout, dtype, kernels = WRITTEN[k]
    with gpu_host.worth_writing(0):
        seen = set(check(host, pool, layout, dtype, forwards=False))
        seen |= set(check(host, pool, layout, dtype, forwards=True))
        if k % 3 == 0:
            check(host, pool, layout, dtype, forwards=False, accumulate=True)
    assert seen == kernels


@needs_compiler
@pytest.mark.parametrize("k", [k for k, row in enumerate(WRITTEN) if row[2] == FLOAT32])
def test_quotients_half_way_between_subnormal_numbers(host: gpu_host.Host, k: int) -> None:
    """In every form of kernel, with infinities among them in the test above."""
    pool, layout, dtype, kernels = WRITTEN[k]
    with gpu_host.worth_writing(0):
        seen = {name for forwards in (False, True) for name in check(host, pool, layout, dtype, forwards=forwards, tiny=True)}
    assert seen == kernels


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("fminf(over.v[k], 3.4e38f)", "over.v[k]"),
        ("2 * fabsf(over.v[k]) != d * LEAST", "true"),
        ("2 * fabsf(over.v[k]) != d * LEAST", "false"),
        ("over.v[k] > 0 ?", "over.v[k] < 0 ?"),
        ("!odd ?", "odd ?"),
        ("copysignf(even, a.v[k])", "even"),
        ("< 0x01000000u", "< 0x00000010u"),
    ],
)
def test_a_wrong_quotient_is_seen(right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(monkeypatch, written, "prelude", right, wrong)
    host, (pool, layout, dtype, _) = gpu_host.Host(tmp_path), WRITTEN[3]

    def every_division() -> None:
        test_every_division_is_correctly_rounded(host)
        with gpu_host.worth_writing(0):
            check(host, pool, layout, dtype, forwards=False, tiny=True)

    with pytest.raises(AssertionError, match="differ"):
        every_division()


@needs_compiler
def test_rolled_and_tiled_agree(host: gpu_host.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the choice of tiles, the bits are the same."""
    pool = Pool((R(14, 3, stride=1, padding="same"), R(9, 2, stride=1, padding="same")))
    monkeypatch.setattr(written, "_choices", lambda steps: [(1, False)])
    for rolls in ([0], [5]):
        monkeypatch.setattr(written, "_rolls", lambda chosen, rolls=rolls: rolls if chosen[0].tile == 1 else [0])
        with gpu_host.worth_writing(0):
            assert set(check(host, pool, "NHWC", FLOAT32, forwards=False)) == {"tile"}


@needs_compiler
def test_every_division_is_correctly_rounded(host: gpu_host.Host) -> None:
    """Dividends of every size, by many divisors: the quick way, and the exact one for what it cannot do."""
    rng = np.random.default_rng(1)
    with np.errstate(over="ignore"):
        dy = random_array(9, (5, 600, 1), FLOAT32, "special") * np.exp2(rng.integers(-140, 120, (5, 600, 1))).astype(np.float32)
    with gpu_host.worth_writing(0):
        dy.reshape(-1)[1800:] = np.arange(-300, 900) * LEAST  # half-way quotients
        for n in (3, 5, 6, 7, 9, 10, 11, 13, 49, 98, 127, 150, 206, 255, 1000, 4095, 4097):
            (piece,) = Pool((R(n, n),)).gradient_pieces()
            want, got = (np.zeros((5, 600, n), np.float32) for _ in range(2))
            engine("numpy").run(piece.sums, dy, want, (2,), accumulate=False, threads=None)
            gpu_host.run(host, piece.sums, dy, got, (2,), accumulate=False)
            assert host.launches[-1] in ("spread", "tile")
            assert_same_bits(got, want, n)


@needs_compiler
def test_a_wrong_order_is_seen(host: gpu_host.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line.Cells, "down", line.Cells.up)
    with gpu_host.worth_writing(0), pytest.raises(AssertionError, match="differ"):
        check(host, Pool((R(40, 15, **SAME), R(8, 2))), "NHWC", FLOAT32, forwards=False)


@needs_compiler
def test_a_sheet_cut_into_pieces(host: gpu_host.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of the first axis, odd numbers of lanes, a device with little shared memory: the bits are the same."""
    monkeypatch.setattr(sheet, "SPREAD", 1 << 20)
    monkeypatch.setattr(sheet, "_pieces", lambda axis, blocks: min(5, axis.positions))
    pools = [Pool((R(61, w, **SAME), R(33, v, **SAME))) for w, v in ((3, 4), (15, 5), (9, 11))]
    pools += [Pool((R(17, 4, **SAME), R(7, 3, **SAME), R(9, 2, **SAME)))]
    with gpu_host.worth_writing(0):
        for pool in pools:
            for layout in CHANNELS[len(pool.axes)]:
                assert set(check(host, pool, layout, FLOAT32, forwards=False, accumulate=layout[1] == "C")) == {"sheet"}
                check(host, pool, layout, BFLOAT16, forwards=True)
        monkeypatch.setattr(host, "shared", 1 << 10)
        for layout in ("NHWC", "NCHW"):
            assert "sheet" not in check(host, pools[1], layout, FLOAT32, forwards=False)


@pytest.mark.parametrize("window", range(9, 25))
def test_only_steady_windows_stream(window: int) -> None:
    """At the ends of an axis the order of additions is the clipped interval's; a window that would add otherwise is refused."""
    for rows in range(window + 1, window + 40):
        (piece,) = Pool((R(rows, window, stride=1, padding="same"),)).gradient_pieces()
        found = sheet.slide(piece.sums.tables[0])
        assert found is not None
        cells = np.exp2(np.random.default_rng(rows).uniform(-20, 20, rows)).astype(np.float32)
        (table,) = piece.sums.tables
        want = np.zeros(table.positions, np.float32)
        engine("numpy").run(Sums((table,), True, 1), cells, want, (0,), accumulate=False, threads=None)
        got = [as_if_endless(cells, i + found.offset, i + found.offset + window) for i in range(table.positions)]
        if sheet.is_steady(found, rows, table.positions):
            assert_same_bits(np.array(got, np.float32), want)


def as_if_endless(cells: Array, lo: int, hi: int) -> Any:
    """Cells lo … hi-1 in the order that they would have in the middle of an axis; those that do not exist are -0.0."""

    def run(numbers: Any) -> Any:
        total = np.float32(-0.0)
        for k in numbers:
            total = total + (cells[k] if 0 <= k < len(cells) else np.float32(-0.0))
        return total

    first, last = -(-lo // 8), hi // 8
    totals = np.float32(-0.0)
    for block in range(first, last):
        totals = totals + run(range(8 * block, 8 * block + 8))
    return (run(range(8 * first - 1, lo - 1, -1)) + totals) + run(range(8 * last, hi))


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("down[0][j] = down[0][j + 1] + term[j]", "down[0][j] = term[j] + down[0][7]"),
        ("sums[j] = sums[j - 1] + term", "sums[j] = sums[j] + term"),
        ("at[0] = lo % 8 ? DOWN + cell_at(lo) : NOTHING", "at[0] = lo % 8 ? cell_at(lo) : NOTHING"),
        ("z1 < sheet.positions1", "z1 < sheet.positions1 - 1"),
        ("const bool inside = row0 < sheet.rows0", "const bool inside = row0 + CHUNK < sheet.rows0"),
        ("lane + v < sheet.lanes", "lane + v < sheet.lanes - 1"),
        ("if (rare) value = by.of<true>(sum, rare);", ""),
    ],
)
def test_a_wrong_sheet_is_seen(right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(monkeypatch, sheet, "sheet", right, wrong)
    host = gpu_host.Host(tmp_path)
    sheets = [(pool, layout, dtype) for pool, layout, dtype, kernels in WRITTEN if kernels == {"sheet"}]
    with gpu_host.worth_writing(0):
        assert any(differs(host, *each, forwards) for each in sheets for forwards in (False, True))


def differs(host: gpu_host.Host, pool: Pool, layout: str, dtype: Any, forwards: bool) -> bool:
    try:
        check(host, pool, layout, dtype, forwards=forwards)
    except AssertionError:
        return True
    return False


def test_patterns() -> None:
    (piece,) = Pool((R(112, 3, stride=2, padding="same"),)).gradient_pieces()
    (table,) = piece.sums.tables
    assert is_regular(table)
    assert pattern(table, 3) is None
    found = pattern(table, 4)
    assert found is not None
    assert (found.advance, found.box) == (2, 3)
    (piece,) = Pool((Axis.fractional(60, [0, 1, 4, 5, 9, 17, 20, 31, 33, 60]),)).gradient_pieces()
    assert not is_regular(piece.sums.tables[0])
    (piece,) = Pool((R(1000, 63, **SAME),)).gradient_pieces()
    cut = variants(piece.sums.tables[0])
    assert cut is not None
    assert len(cut.looks) < len(cut.tiles)


def texts() -> list[str]:
    """One text of every kind of kernel."""
    types = "typedef B16 SRC; typedef B16 DST; typedef float A; enum { V = 8 };\n"
    made = [general.prelude() + types + general.prelude("general")]
    with gpu_host.worth_writing(0):
        for pool, layout, dtype, _ in WRITTEN:
            (piece, *_rest) = pool.gradient_pieces()
            source = gpu_host.record(np.zeros(source_shape(pool, layout, 3, 8, forwards=False), dtype))
            out = gpu_host.record(np.zeros(result_shape(pool, source.shape, layout, forwards=False), dtype))
            spatial = spatial_positions(layout, len(layout))
            made += [launch.source for launch in gpu.plan(piece.sums, source, out, spatial, accumulate=False).launches]
    return made


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_nvrtc_compiles(architecture: str) -> None:
    try:
        driver.nvrtc()
    except PoolGradDeviceError:
        pytest.skip("needs NVRTC (pip install nvidia-cuda-nvrtc)")
    for text in texts():
        assert driver.compile_cubin(text, architecture)[:4] == b"\x7fELF"


def test_missing_runtime_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_load", lambda names: None)
    driver.nvrtc.cache_clear()
    driver._cuda.cache_clear()
    with pytest.raises(PoolGradDeviceError, match="pip install nvidia-cuda-nvrtc"):
        driver.nvrtc()
    with pytest.raises(PoolGradDeviceError, match="install the NVIDIA driver"):
        driver._cuda()


def test_host_arrays_are_not_for_the_gpu() -> None:
    assert gpu_framework(np.zeros(3)) is None
    torch = pytest.importorskip("torch")
    assert gpu_framework(torch.zeros(3)) is None
    with pytest.raises(PoolGradTypeError, match="Tensor"):
        poolgrad.avg_pool(torch.zeros(1, 4, 4, 1), 2)

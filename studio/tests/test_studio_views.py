"""Slices, lines, statistics and downloads, beside NumPy."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolgrad_studio.failure import Failure
from poolgrad_studio.views import grid, heat, line, statistics
from studio_support import Refused, Server, Tab
from test_studio_protocol import built

shapes = st.lists(st.integers(1, 7), min_size=1, max_size=4)


@given(shape=shapes, data=st.data())
def test_a_grid_is_the_slice_along_two_axes(shape: list[int], data: st.DataObject) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    row, column = data.draw(st.permutations(range(-1, len(shape))))[:2]
    if column == -1:
        row, column = column, row
    index = [data.draw(st.integers(0, n - 1)) for n in shape]
    got = grid(array, [row, column], index)
    for i in range(got.shape[0]):
        for j in range(got.shape[1]):
            at = list(index)
            at[column] = j
            if row >= 0:
                at[row] = i
            assert got[i, j] == array[tuple(at)]


@given(
    rows=st.integers(1, 23),
    columns=st.integers(1, 23),
    height=st.integers(1, 25),
    width=st.integers(1, 25),
    seed=st.integers(0, 99),
)
def test_a_heat_map_shrinks_by_means(rows: int, columns: int, height: int, width: int, seed: int) -> None:
    plane = np.random.default_rng(seed).standard_normal((rows, columns))
    head, got = heat(plane, height, width, None)
    down, across = head["step"]
    assert got.shape[0] <= height
    assert got.shape[1] <= width
    assert head["full"] == [rows, columns]
    assert (head["min"], head["max"]) == (plane.min(), plane.max())
    for i in range(got.shape[0]):
        for j in range(got.shape[1]):
            part = plane[i * down : (i + 1) * down, j * across : (j + 1) * across]
            assert got[i, j] == pytest.approx(part.mean(), rel=1e-5, abs=1e-6)


def test_odd_values_show_in_a_heat_map_and_not_in_its_range() -> None:
    plane = np.ones((4, 4), np.float32)
    plane[0, 0], plane[3, 3], plane[0, 3] = np.nan, np.inf, 5
    head, got = heat(plane, 2, 2, None)
    assert np.isnan(got[0, 0])
    assert np.isposinf(got[1, 1])
    assert (head["min"], head["max"]) == (1, 5)
    assert heat(np.full((2, 2), np.nan), 9, 9, None)[0]["min"] is None
    assert heat(plane, 9, 9, [0, 2, 1, 4])[1].tolist() == plane[0:2, 1:4].tolist()


@given(n=st.integers(0, 60), points=st.integers(1, 70), seed=st.integers(0, 99))
def test_a_line_keeps_its_peaks(n: int, points: int, seed: int) -> None:
    row = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    head, got = line(row, -1, [], points, 0, None)
    step = head["step"]
    assert got.shape[1] == -(-n // step) <= points
    for k in range(got.shape[1]):
        assert got[0, k] == row[k * step : (k + 1) * step].min()
        assert got[1, k] == row[k * step : (k + 1) * step].max()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_statistics_are_those_of_the_finite_elements(dtype: Any) -> None:
    array = (np.random.default_rng(1).standard_normal((3, 5, 7)) * 4).astype(dtype)
    if np.dtype(dtype).kind in "fV":
        array[0, 0, :3] = [np.nan, np.inf, 0]
    wide = array.astype(np.float64)
    kept = wide[np.isfinite(wide)]
    got = statistics(array)
    assert (got["min"], got["max"]) == (kept.min(), kept.max())
    assert got["mean"] == pytest.approx(kept.mean())
    assert got["std"] == pytest.approx(kept.std())
    assert got["sum"] == pytest.approx(kept.sum())
    assert (got["nan"], got["infinite"]) == (int(np.isnan(wide).sum()), int(np.isinf(wide).sum()))
    assert got["zeros"] == int((wide == 0).sum())
    assert sum(got["histogram"]["counts"]) == kept.size
    assert len(got["histogram"]["edges"]) == len(got["histogram"]["counts"]) + 1


def test_statistics_of_nothing_and_of_extremes() -> None:
    assert statistics(np.zeros((0, 3)))["mean"] is None
    assert statistics(np.full(3, 7.0))["histogram"]["counts"] == [3]
    huge = statistics(np.array([1.7e308, -1.7e308, 1.7e308]))
    assert huge["histogram"] is None
    assert huge["std"] is None
    assert statistics(np.array([2**62, 2**62 + 1]))["min"] == float(2**62)


@pytest.mark.parametrize(
    ("axes", "index"), [([0], [0, 0]), ([0, 0], [0, 0]), ([0, 2], [0, 0]), ([-2, 0], [0, 0]), ([0, 1], [0]), ([-1, 0], [0, 5])]
)
def test_a_slice_that_is_none_is_refused(axes: list[int], index: list[int]) -> None:
    with pytest.raises(Failure):
        grid(np.zeros((2, 3)), axes, index)


def test_downloads_hold_the_values(server: Server, tab: Tab) -> None:
    from PIL import Image

    opened = built(tab)
    tab.ran(opened["doc"])
    of = f"doc={opened['doc']}&block=pool&pin=result_output"
    said = server.get(f"array.npy?{of}")
    assert 'filename="pool-result_output.npy"' in said.headers["content-disposition"]
    array = np.load(io.BytesIO(said.content))
    assert array.shape == (2, 4, 5, 3)
    rows = list(csv.reader(io.StringIO(server.get(f"array.csv?{of}").text)))
    assert rows[0] == ["axis_0", "axis_1", "axis_2", "axis_3", "value"]
    assert len(rows) == 121
    for row in rows[1:]:
        assert np.float32(row[4]) == array[tuple(int(k) for k in row[:4])]
    plane = list(csv.reader(io.StringIO(server.get(f"array.csv?{of}&axes=2,1&index=1,0,0,2").text)))
    np.testing.assert_array_equal(np.array(plane, np.float32), array[1, :, :, 2].T)
    picture = Image.open(io.BytesIO(server.get(f"array.png?{of}&axes=1,2&index=0,0,0,1").content))
    assert picture.size == (5, 4)
    scale = bytes.fromhex(tab.ask("hello")["palettes"]["sequential"])
    low = np.unravel_index(array[0, :, :, 1].argmin(), (4, 5))
    assert picture.convert("RGB").getpixel((int(low[1]), int(low[0]))) == tuple(scale[:3])
    for path in (
        "array.png?" + of,
        f"array.png?{of}&axes=1,x",
        f"array.png?{of}&axes=1,2&palette=no",
        "array.npy?doc=x&block=y&pin=z",
    ):
        assert server.get(path).status_code == 400


@pytest.mark.filterwarnings("error")
def test_a_picture_of_numbers_beyond_float32() -> None:
    from PIL import Image

    from poolgrad_studio.transfer import _png

    made = Image.open(io.BytesIO(_png(np.array([[np.nan, np.inf], [1e300, -2e300], [3.0, 5.0]]), "sequential")))
    alpha = np.asarray(made)[..., 3]
    np.testing.assert_array_equal(alpha, [[0, 0], [0, 0], [255, 255]])


def test_texts_are_watched_and_not_drawn(server: Server, tab: Tab) -> None:
    from studio_support import fresh_block, pin

    opened = tab.ask("new")
    page = opened["page"]
    page["blocks"] = [fresh_block(tab, "Const", "t")]
    pin(page, "t", "val").update(type="string", shape="[2]", value='a "quote", and more;b')
    tab.ask("put", doc=opened["doc"], revision=1, page=page)
    asked = {"doc": opened["doc"], "block": "t", "pin": "val"}
    assert tab.ask("rows", start=0, stop=2, **asked)["rows"][0] == ["string", "val[0]", 'a "quote", and more']
    for op, fields in (("statistics", {}), ("line", {"axis": -1, "index": [0], "points": 9})):
        with pytest.raises(Refused, match="texts"):
            tab.ask(op, **asked, **fields)
    of = f"doc={opened['doc']}&block=t&pin=val"
    assert list(csv.reader(io.StringIO(server.get(f"array.csv?{of}").text)))[1] == ["0", 'a "quote", and more']
    assert np.load(io.BytesIO(server.get(f"array.npy?{of}").content)).tolist() == ['a "quote", and more', "b"]

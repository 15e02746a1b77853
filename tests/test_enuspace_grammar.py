"""enuSpace's property texts: what is legal means what it says, and what is not is told with the legal form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolgrad.dialects.enuspace.grammar import (
    DATATYPES,
    TEXT,
    as_text,
    format_attrs,
    format_list,
    format_shape,
    format_values,
    parse_attrs,
    parse_bool,
    parse_floats,
    parse_ints,
    parse_shape,
    parse_values,
)
from poolgrad.enuspace import BLOCKS, PropertyError, check_property
from poolgrad.errors import PoolGradValueError

INTS = [
    ("1,2,2,2,1", (1, 2, 2, 2, 1)),
    ("1;2;3", (1, 2, 3)),
    (" 1 ,\t2;{3,4}", (1, 2, 3, 4)),
    ("{1,2},", (1, 2)),
    ("-3,+4", (-3, 4)),
    ("", ()),
    ("2147483647", (2147483647,)),
]
NOT_INTS = ["1,,2", ",1", "a", "1,2.9", "2x", "0x10", "1 2", "2147483648", "9" * 5000, "1,-", "½", "٣"]


@pytest.mark.parametrize(("text", "value"), INTS)
def test_ints(text: str, value: tuple[int, ...]) -> None:
    assert parse_ints(text) == value


@pytest.mark.parametrize("text", NOT_INTS)
def test_not_ints(text: str) -> None:
    with pytest.raises(PropertyError, match=r"item [0-9]") as caught:
        parse_ints(text)
    assert "1,2,2,1" in caught.value.legal
    assert len(str(caught.value)) < 250


FLOATS = [
    ("1.0, 1.44, 1.73, 1.0", (1.0, 1.44, 1.73, 1.0)),
    ("3.f;-2.5F;.5;1e-3;+7", (3.0, -2.5, 0.5, 0.001, 7.0)),
    ("inf,-Infinity", (float("inf"), float("-inf"))),
]


@pytest.mark.parametrize(("text", "value"), FLOATS)
def test_floats(text: str, value: tuple[float, ...]) -> None:
    assert parse_floats(text) == value


@pytest.mark.parametrize("text", ["1,,2", "f", "1.0x", "1..2", "--1", "1e", "e5", "0x1p3", "1_000"])
def test_not_floats(text: str) -> None:
    with pytest.raises(PropertyError):
        parse_floats(text)


SHAPES = [("", ()), ("[2][3]", (2, 3)), (" [ 2 ] ", (2,)), ("{2,3}", (2, 3)), ("{ 4 }", (4,)), ("[0]", (0,))]


@pytest.mark.parametrize(("text", "value"), SHAPES)
def test_shapes(text: str, value: tuple[int, ...]) -> None:
    assert parse_shape(text) == value


@pytest.mark.parametrize("text", ["2,3", "[2", "[-1]", "[a]", "{}", "[2]{3}", "[99999][99999]", "[1]" * 33, "[2.5]"])
def test_not_shapes(text: str) -> None:
    with pytest.raises(PropertyError):
        parse_shape(text)


BOOLS = [("true", True), ("TRUE", True), ("1", True), (" True ", True), ("false", False), ("FALSE", False), ("0", False)]


@pytest.mark.parametrize(("text", "value"), BOOLS)
def test_bools(text: str, value: bool) -> None:
    assert parse_bool(text) is value


@pytest.mark.parametrize("text", ["", "yes", "on", "2", "tRUE"])
def test_not_bools(text: str) -> None:
    with pytest.raises(PropertyError, match="true or false"):
        parse_bool(text)


ATTRS: list[tuple[str, dict[str, str], int]] = [
    ("data_format_ = NDHWC;", {"data_format_": "NDHWC"}, 0),
    ("data_format_=NDHWC", {"data_format_": "NDHWC"}, 0),
    (" data_\r\nformat_\t= N D H W C ;", {"data_format_": "NDHWC"}, 0),
    ("", {}, 0),
    (";;", {}, 0),
    ("data_format_ = ;", {}, 0),
    ("data_format_ = A; data_format_ = B;", {"data_format_": "A"}, 1),
    ("data_format = A; other_ = 1;", {}, 2),
]


@pytest.mark.parametrize(("text", "values", "warnings"), ATTRS)
def test_attrs(text: str, values: dict[str, str], warnings: int) -> None:
    got, said = parse_attrs(text, ["data_format_"])
    assert got == values
    assert len(said) == warnings


def test_a_key_without_its_underscore_is_told() -> None:
    assert "did you mean data_format_?" in parse_attrs("data_format = NCHW;", ["data_format_"])[1][0]


def test_attrs_without_equals() -> None:
    with pytest.raises(PropertyError, match="has no '='"):
        parse_attrs("NHWC", ["data_format_"])


@pytest.mark.parametrize("text", ["1;2;3", "1,2,3,4,5", "", "1;2;;4"])
def test_count_must_be_the_shapes(text: str) -> None:
    with pytest.raises(PropertyError):
        parse_values(text, np.dtype(np.float32), (2, 2))


def test_strings_are_separated_by_semicolons_alone() -> None:
    assert parse_values("a, b; c{d};", TEXT, (2,)).tolist() == ["a, b", "c{d}"]
    assert parse_values("", TEXT, ()).tolist() == ""
    with pytest.raises(PropertyError, match="half a character"):
        parse_values("\ud800", TEXT, ())


NUMBERS = st.floats(width=64, allow_nan=False) | st.sampled_from([0.1, -0.0, 1e300, 5e-324, 65504.0, 3.0])


@given(st.sampled_from([d for d in DATATYPES if d != "DT_STRING"]), st.lists(NUMBERS, min_size=1, max_size=8))
def test_values_read_back_to_the_bit(name: str, numbers: list[float]) -> None:
    dtype = np.dtype(DATATYPES[name])
    with np.errstate(all="ignore"):
        whole = [int(max(-(2**31), min(2**31 - 1, n))) if abs(n) < np.inf else 7 for n in numbers]
        array: Any = np.array(whole if dtype.kind == "i" else numbers).astype(dtype)
    back = parse_values(format_values(array), dtype, array.shape)
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


def test_formats() -> None:
    assert format_list((1, 2.5, 3.0)) == "1,2.5,3"
    assert format_shape((2, 3)) == "[2][3]"
    assert format_attrs({"data_format_": "NCHW"}) == "data_format_ = NCHW;"
    assert as_text(np.True_) == "TRUE"
    assert as_text(ml_dtypes.bfloat16(1.5)) == "1.5"
    assert as_text(np.float32(0.1)) == "0.1"


LEGAL = [
    ("AvgPool3DGrad", "ksize", "1,4,3,2,1"),
    ("AvgPool3DGrad", "attrs", "data_format_ = NCDHW;"),
    ("AvgPool3DGrad", "attrs", ""),
    ("AvgPoolGrad", "padding", "SAME"),
    ("FractionalAvgPool", "pooling_ratio", "1.0,1.44,1.73,1.0"),
    ("FractionalAvgPool", "attrs", "overlapping_ = TRUE; seed_ = -9223372036854775808;"),
    ("FractionalAvgPoolGrad", "attrs", "overlapping_ = 1;"),
    ("Const_ex", "dtype", " DT_INT64 "),
    ("ClientSession", "SHOW_DEBUG", ""),
    ("ClientSession", "device", "/gpu:0"),
]


@pytest.mark.parametrize(("symbol", "pin", "text"), LEGAL)
def test_legal_properties(symbol: str, pin: str, text: str) -> None:
    assert check_property(symbol, pin, text).ok


ILLEGAL = [
    ("AvgPool3DGrad", "ksize", "", "is empty", "1,2,2,2,1"),
    ("AvgPool3DGrad", "ksize", "1,2,2,1", "4 items", "1,2,2,2,1"),
    ("AvgPool", "ksize", "1,2,2,2,1", "5 items", "1,2,2,1"),
    ("AvgPool", "strides", "1,0,1,1", "at least 1", "1,2,2,1"),
    ("AvgPool", "strides", "2,1,1,1", "1 for the batch", "1,2,2,1"),
    ("AvgPool", "padding", "", "is empty", "SAME or VALID"),
    ("AvgPool", "padding", "same", "'same'", "SAME or VALID"),
    ("AvgPool3D", "attrs", "data_format_ = NHWC;", "for images", "data_format_ = NDHWC;"),
    ("AvgPool", "attrs", "data_format_ = NDHWC;", "NDHWC", "data_format_ = NHWC;"),
    ("FractionalAvgPool", "pooling_ratio", "1,2,2,2", "cannot be honoured", "the last 1"),
    ("FractionalAvgPool", "pooling_ratio", "1,0.5,2,1", "cannot be honoured", "at least 1"),
    ("FractionalAvgPool", "pooling_ratio", "1,nan,2,1", "cannot be honoured", "at least 1"),
    ("FractionalAvgPool", "attrs", "overlapping_ = yes;", "neither true nor false", "true or false"),
    ("FractionalAvgPool", "attrs", "seed_ = x;", "not an integer", "int64"),
    ("Const_ex", "dtype", "DT_QINT8", "DT_QINT8", "DT_INT64"),
    ("ClientSession", "INFINITE_LOOP", "maybe", "neither", "true or false"),
]


@pytest.mark.parametrize(("symbol", "pin", "text", "message", "legal"), ILLEGAL)
def test_illegal_properties(symbol: str, pin: str, text: str, message: str, legal: str) -> None:
    verdict = check_property(symbol, pin, text)
    assert not verdict.ok
    assert message in verdict.message
    assert legal in verdict.legal


def test_values_are_judged_by_type_and_shape() -> None:
    assert check_property("Const", "val", "1;2", type="int", shape="[2]").ok
    assert not check_property("Const", "val", "1.5;2", type="int", shape="[2]").ok
    assert "[3]" in check_property("Const", "val", "1;2;3", type="int", shape="[2]").legal
    assert not check_property("Const", "val", "1", type="complex", shape="").ok


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(PoolGradValueError, match="it has ksize, strides, padding, attrs"):
        check_property("AvgPool", "kernel", "2")


def test_every_default_is_legal_or_empty() -> None:
    for block in BLOCKS.values():
        for pin in block.of_kind("const"):
            assert pin.default == "" or check_property(block.name, pin.name, pin.default).ok, (block.name, pin.name)


@given(st.sampled_from(list(BLOCKS)), st.data(), st.text(max_size=30), st.text("[]{},0123", max_size=6))
def test_any_text_is_judged(symbol: str, data: st.DataObject, text: str, shape: str) -> None:
    pins = [pin.name for pin in BLOCKS[symbol].of_kind("const")]
    verdict = check_property(symbol, data.draw(st.sampled_from(pins)), text, shape=shape)
    assert verdict.ok or (verdict.message and verdict.legal)


BEYOND = [("65520", "DT_HALF"), ("1e39", "DT_FLOAT"), ("-4e38", "DT_BFLOAT16"), ("1e400", "DT_DOUBLE")]


@pytest.mark.parametrize(("text", "kind"), BEYOND)
def test_a_number_beyond_its_type_is_not_infinity(text: str, kind: str) -> None:
    with pytest.raises(PropertyError, match=f"item 2 of .* does not fit .*'{text}'"):
        parse_values(f"inf;{text}", DATATYPES[kind], (2,))


@pytest.mark.parametrize("kind", ["DT_HALF", "DT_FLOAT", "DT_BFLOAT16", "DT_DOUBLE"])
def test_the_largest_numbers_and_infinities_are_read_back(kind: str) -> None:
    dtype = DATATYPES[kind]
    values = np.array([ml_dtypes.finfo(dtype).max, ml_dtypes.finfo(dtype).min, np.inf, -np.inf], dtype)
    np.testing.assert_array_equal(parse_values(format_values(values), dtype, (4,)), values)

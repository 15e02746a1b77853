"""The lenient JSON of models, and hostile models: whatever comes in, nothing but a `PoolGradError` goes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolgrad import PoolGradError
from poolgrad.dialects.directml.dxdispatch.lenient import ModelError, parse
from poolgrad.dialects.directml.dxdispatch.model import WriteFile
from poolgrad.directml import dxdispatch

GOOD = (Path(__file__).parent / "cases" / "directml" / "grad_3x3_end_padding.json").read_text(encoding="utf-8")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


class TestLenient:
    @given(documents)
    def test_plain_json_is_read_as_ever(self, value: Any) -> None:
        for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
            assert parse(text) == value

    @given(st.lists(documents, min_size=1, max_size=4), st.text(st.sampled_from('/*\n",]}x'), max_size=12))
    def test_comments_and_trailing_commas(self, value: list[Any], noise: str) -> None:
        block = "/*" + noise.replace("*/", "").rstrip("*") + "*/"
        line = "//" + noise.replace("\n", "") + "\n"
        text = block + line + json.dumps(value)[:-1] + f" {line} , {block} ] {noise}"
        assert parse(text) == value
        assert parse(json.dumps({"a": value})[:-1] + f"{block},{line}}}") == {"a": value}

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('"a // b /* c */ ,]"', "a // b /* c */ ,]"),
            (r'["\"//", "\\",]', ['"//', "\\"]),
            ("18446744073709551615", 2**64 - 1),
            ("18446744073709551616", float(2**64)),
            ("-9223372036854775809", float(-(2**63))),
            ("1" * 300, float("1" * 300)),
            ("0.1", 0.1),
            ('"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
            (" \r\n\t{} trailing {", {}),
            ("[] /* unclosed", []),
        ],
    )
    def test_values(self, text: str, value: Any) -> None:
        assert parse(text) == value
        assert type(parse(text)) is type(value)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "char offset:0, line:1, column:1"),
            ('{\n  "a": 1\n  "b": 2\n}', r'char offset:13, line:3, column:3.*\nSnippet: >>>"b": 2 }<<<'),
            ("[,]", "offset:1,"),
            ("[1,,]", "offset:3,"),
            ("{,}", "offset:1,"),
            ('{"a":,}', "offset:5,"),
            ("[1 /* unclosed", "offset:14,"),
            ('["unclosed', "offset:1,"),
            ('["unclosed\\', "offset:1,"),
            ('["\n"]', "offset:2,"),
            ("[NaN]", 'NaN is not JSON; write the string "nan"'),
            ("[-Infinity]", '"-inf"'),
            ("[1e999]", "too big"),
            ("9" * 400, "too big"),
            ("[" * 200_000, "nested too deeply"),
            ('{"a": 1, "a": 2}', "'a' appears twice"),
            ('["\\ud800"]', "surrogate"),
            ('{"\\udfff": 1}', "surrogate"),
            ("{'a': 1}", "offset:1,"),
        ],
    )
    def test_errors(self, text: str, says: str) -> None:
        with pytest.raises(ModelError, match=says):
            parse(text)

    def test_hostile_text_takes_no_time(self) -> None:
        """Each of these would take hours if any part of it were scanned again for every other part."""
        n = 300_000
        for text in ('"' + '\\"' * n, "/* " * n, "," * n, " " * n + ",", '"a",' * n, "//" * n, "1" + " " * n + "," + " " * n):
            with pytest.raises(ModelError):
                parse("[" + text)


@st.composite
def hostile(draw: st.DrawFn) -> str:
    """The sample model with parts replaced, dropped or exchanged, or its text with characters changed."""
    if draw(st.booleans()):
        text = GOOD
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.text(max_size=3)) + text[at + draw(st.integers(0, 4)) :]
        return text
    model = parse(GOOD)
    small = st.one_of(
        scalars.filter(lambda v: not isinstance(v, int) or abs(v) < 1000 or v > 2**40), documents, st.sampled_from(NAMES)
    )
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PATHS))
        owner = model
        value = draw(small)
        try:
            for name in path[:-1]:
                owner = owner[name]
            owner[path[-1]] = value
        except (LookupError, TypeError):
            continue  # an earlier change took this place away
    return json.dumps(model)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return [found for name, inner in pairs for found in ((*path, name), *_paths(inner, (*path, name)))]


_OP = ("dispatchables", "pool_back")
PATHS = [
    *_paths(parse(GOOD)),
    *(
        (*_OP, "desc", t, f)
        for t in ("InputGradientTensor", "OutputGradientTensor")
        for f in ("Strides", "Flags", "Type", "Desc")
    ),
    *((*_OP, name) for name in ("Desc", "bindings", "executionFlags", "dmlCompileType")),
    *(("resources", "dY", name) for name in ("sizeInBytes", "initialValuesOffsetInBytes", "resampleSize")),
]
NAMES = [
    "dX",
    "dY",
    "FLOAT16",
    "FLOAT64",
    "UNKNOWN",
    "AVERAGE_POOLING",
    "OWNED_BY_DML",
    "print",
    "writeFile",
    "nan",
    "\0",
    ["dX"],
    {"name": "dX"},
]


class TestHostileModels:
    @settings(max_examples=600)
    @given(hostile())
    def test_nothing_but_refusals(self, text: str) -> None:
        quiet = list[str]().append
        options = dxdispatch.Options(allow_extension_types=True, allow_explicit_sizes=True)
        try:
            model = dxdispatch.parse_model(text, allow_extension_types=True)
            commands = [command for command in model.commands if not isinstance(command, WriteFile)]
            dxdispatch.run_model(
                dxdispatch.Model(model.resources, model.dispatchables, commands), options, write=quiet, write_error=quiet
            )
        except PoolGradError:
            pass

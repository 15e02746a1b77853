"""The cases that hold the browser's quick checks to the law: what `poolgrad.enuspace` says about texts and wires.

    python studio/web/scripts/cases.py > studio/web/test/cases.json

Vitest reads the file; a Python test sees that it is what this program writes.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from poolgrad.dialects.enuspace.check import property_value
from poolgrad.dialects.enuspace.rules import ALLOWED, LISTS
from poolgrad.enuspace import BLOCKS, Block, Page, Pin, PropertyError, check_property, refusal

LISTS_OF_INTS = [
    *("1,2,2,1", "1,2,2,2,1", " 1, 2; {3,4},", "1;2;2;1;", "", "  ", ",", "1,,2,1", "1,2.9,2,1", "1,2x,2,1", "1,two,2,1"),
    *("0,2,2,1", "2,2,2,1", "1,-1,2,1", "1,+2,2,1", "1,99999999999,2,1", "1,2147483647,2,1", "1,2147483648,2,1", "1,0,2,1"),
    *("{1,2,2,2,1}", "1 ,2 ,2 ,2 ,1 ,", "1,2,2,1,1,1", "1,2,'2',1", '1,"a\'b",1', "1\t,2,\n2,1", "1,2,2,é", "1 2 2 1", "1\\2"),
    "1,2,2,2,1 and much more text than anybody would type into a field of this kind",
    *("1,2,2,2,00001", "1,123456789012345678901,1,1", "-0,1,1,1"),
]
LISTS_OF_FLOATS = [
    *("1.0,1.44,1.73,1.0", "1, 1.44; 3.f,1", "1,1.5f,2.F,1", "1,inf,2,1", "1,nan,2,1", "1,0.5,2,1", "2,2,2,1", "1,2,2,2"),
    *(
        "1,2,2",
        "",
        "1,.5e1,2.,1",
        "1,1e400,2,1",
        "1,f,2,1",
        "1,1.44ff,2,1",
        "1,0x10,2,1",
        "1,1_0,2,1",
        "1,,2,1",
        "1,-Infinity,2,1",
    ),
]
ATTRIBUTES = [
    *("data_format_ = NHWC;", "data_format_ = NCHW;", "data_format_ = NDHWC;", "data_format_ = NCDHW;", "data_format_=NDHWC", ""),
    *("data_format = NDHWC;", "data_format_ = ;", "data_format_", "data_format_ = NDHWC; data_format_ = NCDHW;", "x = 1;;", "=;"),
    *("data_\nformat_ = ND HWC ;", "data_format_ = ndhwc;", "overlapping_ = true;", "overlapping_ = yes;"),
    *(
        "seed_ = 12; seed2_ = -3",
        "seed_ = 1.5;",
        "seed_ = 1,2;",
        "seed_ = 99999999999999999999;",
        "pseudo_random_ = TRUE; deterministic_ = 0;",
    ),
    *("seed_ = 'a';", "data_format_ = a=b;"),
]
PADDINGS = ["SAME", "VALID", "same", " SAME", "", "EXPLICIT", "VAL'ID"]
SWITCHES = ["TRUE", "false", "1", "0", " True ", "", "yes", "2"]
DATATYPES = ["DT_INT32", " DT_FLOAT ", "DT_HALF", "DT_BFLOAT16", "DT_UINT8", "", "float"]
VALUES = [
    ("1;2;3;4", "float", "[2][2]"),
    ("1,2,3,4,", "int", "{2,2}"),
    ("1;2;3", "float", "[2][2]"),
    ("1;2;3;4;5", "double", "[2][2]"),
    ("5", "double", ""),
    ("", "double", ""),
    ("", "double", "[0]"),
    ("1;;3", "float", "[3]"),
    ("1;x;3", "float", "[3]"),
    ("1;2.5;3", "int", "[3]"),
    ("1e39;1;3", "float", "[3]"),
    ("3.4028235e38;1;-3.4028236e38", "float", "[3]"),
    ("1e400", "double", "[1]"),
    ("inf;-inf;nan", "float", "[3]"),
    ("TRUE;false;1", "bool", "[3]"),
    ("TRUE;maybe;1", "bool", "[3]"),
    ("a,b;c {d};e", "string", "[3]"),
    ("a;b", "string", "[3]"),
    ("", "string", ""),
    ("", "string", "[2]"),
    ("1", "complex", "[1]"),
    ("1", "float", "[1"),
    ("1", "float", "2,3"),
    ("1", "float", "[ 1 ]"),
    ("1", "float", "[99999][99999]"),
    ("1", "float", "[1]" * 33),
    ("2147483648", "int", "[1]"),
    ("1.5f;.5;2.", "float", "[3]"),
    ("1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;x", "float", "[19]"),
]
TYPED = [
    ("1;2", "[2]", "DT_INT64"),
    ("9223372036854775807;-9223372036854775808", "[2]", "DT_INT64"),
    ("9223372036854775808;1", "[2]", "DT_INT64"),
    ("1.5;2", "[2]", "DT_INT32"),
    ("1.5;65519", "[2]", "DT_HALF"),
    ("1.5;65520", "[2]", "DT_HALF"),
    ("1.5;3.39e38", "[2]", "DT_BFLOAT16"),
    ("1.5;3.4e38", "[2]", "DT_BFLOAT16"),
    ("1;2", "[2]", "DT_WRONG"),
    ("1;2", "[2]", ""),
]
FORMS = {"ints": LISTS_OF_INTS, "floats": LISTS_OF_FLOATS, "attrs": ATTRIBUTES, "padding": PADDINGS, "bool": SWITCHES}
FORMS |= {"dtype": DATATYPES, "text": ["/cpu:0", "", "anything"]}


def verdict(symbol: str, pin: str, text: str, **around: str) -> dict[str, Any]:
    said = check_property(symbol, pin, text, **around)
    return {"symbol": symbol, "pin": pin, "text": text, **around, "said": dataclasses.asdict(said)}


def with_dtype(text: str, shape: str, dtype: str) -> dict[str, Any]:
    """A Const_ex, whose dtype property decides; `check_property` alone knows only its default."""
    pins = [Pin("val", "const", type="double", shape=shape, value=text), Pin("dtype", "const", value=dtype)]
    said = {"ok": True, "message": "", "legal": "", "warnings": []}
    try:
        property_value(Block("", "Const_ex", pins=pins), "val")
    except PropertyError as error:
        said = {"ok": False, "message": error.message, "legal": error.legal, "warnings": []}
    around = {"type": "double", "shape": shape, "dtype": dtype}
    return {"symbol": "Const_ex", "pin": "val", "text": text, **around, "said": said}


def properties() -> list[dict[str, Any]]:
    cases = [
        verdict(block.name, pin.name, text)
        for block in BLOCKS.values()
        for pin in block.of_kind("const")
        for text in FORMS.get(pin.form, [])
    ]
    cases += [verdict("Const", "val", text, type=type, shape=shape) for text, type, shape in VALUES]
    return cases + [with_dtype(*case) for case in TYPED]


def example() -> Page:
    """Every block, some wires, and two blocks nobody knows."""
    page = Page("rules")
    for symbol in BLOCKS:
        page.add(symbol, symbol)
    page.add("AvgPool", "second")
    page.blocks.append(Block("odd", "MatMul", pins=[Pin("a", ""), Pin("product", "output", "Output")]))
    page.blocks.append(Block("lists", "Pack", pins=[Pin("values", "input", "InputList"), Pin("many", "output", "OutputList")]))
    page.connect("Const", "output", "AvgPool", "value")
    page.connect("AvgPool", "output", "second", "value")
    page.connect("second", "output", "ClientSession", "fetch_outputs")
    page.connect("Const_ex", "output", "AvgPoolGrad", "orig_input_shape")
    page.connect("FractionalAvgPoolGrad", "output", "AvgPoolGrad", "grad")
    return page


def wires() -> dict[str, Any]:
    page = example()
    ends = [(block.id, pin.name) for block in page.blocks for pin in block.pins] + [("Const", "nothing"), ("nobody", "output")]
    rng = np.random.default_rng(7)
    pairs = [(a, b) for a in ends for b in ends]
    chosen = [pairs[k] for k in sorted(rng.choice(len(pairs), 900, replace=False))]
    chosen += [((wire.source, wire.source_pin), (wire.target, wire.target_pin)) for wire in page.wires]
    chosen += [(("second", "output"), ("AvgPool", "value")), (("second", "output"), ("AvgPool3D", "input"))]
    chosen += [(("AvgPool3D", "output"), ("ClientSession", pin)) for pin in ("fetch_outputs", "run_outputs", "inputs", "device")]
    chosen += [(("AvgPoolGrad", "output"), ("FractionalAvgPoolGrad", "out_backprop"))]
    chosen += [(("lists", "many"), ("lists", "values")), (("lists", "many"), ("ClientSession", "fetch_outputs"))]
    chosen += [(("odd", "product"), ("AvgPool3D", "input")), (("Const", "output"), ("odd", "a"))]
    chosen += [(("odd", "x"), ("AvgPool", "y"))]
    cases = [[*a, *b, refusal(page, *a, *b)] for a, b in chosen]
    plain = page.to_dict()
    blocks = [{key: block[key] for key in ("id", "symbol", "pins")} for block in plain["blocks"]]
    for block in blocks:
        block["pins"] = [{key: pin[key] for key in ("name", "kind", "interface")} for pin in block["pins"]]
    drawn = [{key: w[key] for key in ("source", "source_pin", "target", "target_pin")} for w in plain["wires"]]
    return {"blocks": blocks, "wires": drawn, "cases": cases}


def cases() -> dict[str, Any]:
    catalogue = [dataclasses.asdict(block) for block in BLOCKS.values()]
    return {
        "library": {"blocks": catalogue, "allowed": ALLOWED, "lists": LISTS},
        "properties": properties(),
        "wires": wires(),
    }


def text() -> str:
    """The file: one case a line, so that a change can be read."""
    made = cases()
    lines = [f'"library": {json.dumps(made["library"])}']
    lines.append('"properties": [\n' + ",\n".join(json.dumps(case) for case in made["properties"]) + "\n]")
    drawn = made["wires"]
    rows = ",\n".join(json.dumps(case) for case in drawn["cases"])
    lines.append(f'"page": {json.dumps({key: drawn[key] for key in ("blocks", "wires")})},\n"wires": [\n{rows}\n]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    print(text(), end="")

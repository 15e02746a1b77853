"""A page as a program: Python that calls `poolgrad.raw_ops`, or a DxDispatch model of DirectML's operators.

Texts from the page only ever appear as literals; names are made of letters, digits and underscores.
"""

from __future__ import annotations

import base64
import json
import keyword
import re
import textwrap
import zlib
from typing import Any
from urllib.parse import urlencode

import numpy as np

from poolgrad import directml as dml
from poolgrad.dialects import tensorflow
from poolgrad.dialects.enuspace.check import property_value
from poolgrad.dialects.pooling import NoTranslation
from poolgrad.enuspace import Block, Graph, check_page

from .arrays import Array, constant
from .documents import Document
from .failure import Failure
from .windows import Windows, windows_of

__all__ = ["directml", "python"]

SHORT, LONG = 256, 100_000
"""Elements that stand in the text as numbers; bytes that may stand there packed."""


class _Plan:
    """The blocks that run, in order, each with a name."""

    def __init__(self, document: Document) -> None:
        self.document, self.graph = document, Graph(document.page)
        wrong = [entry for entry in check_page(document.page) if entry.severity == "error"]
        if wrong:
            where = f"{wrong[0].block}: " if wrong[0].block else ""
            raise Failure("value", f"the page cannot be written as code yet: {where}{wrong[0].message}")
        sessions = [id for id, block in self.graph.blocks.items() if block.symbol == "ClientSession"]
        needed = self.graph.upstream(sessions)
        self.order = [id for id in self.graph.order if id in needed and id not in sessions]
        self.fetched = [source for id in sessions for source in self.graph.sources.get((id, "fetch_outputs"), [])]
        self.names = _names(self.order)
        self.files: list[dict[str, str]] = []

    def block(self, id: str) -> Block:
        return self.graph.blocks[id]

    def constants(self) -> list[str]:
        return [id for id in self.order if self.block(id).symbol.startswith("Const")]

    def poolings(self) -> list[str]:
        return [id for id in self.order if not self.block(id).symbol.startswith("Const")]

    def source(self, id: str, pin: str) -> tuple[str, str]:
        return self.graph.sources[id, pin][0]

    def file(self, id: str) -> str:
        """The name of a file with this constant's values, for the user to put beside the program."""
        name = f"{self.names[id]}.npy"
        query = urlencode({"doc": self.document.id, "block": id, "pin": "val"}, errors="surrogatepass")
        self.files.append({"name": name, "url": f"array.npy?{query}"})
        return name

    def notes(self) -> list[str]:
        states = self.document.run.states() if self.document.run else []
        return [f"{state['block']} fails: {state['error']}" for state in states if state["state"] == "failed"]


def _names(ids: list[str]) -> dict[str, str]:
    """A name in a program for each block, like its id."""
    taken = {"np", "raw_ops", "base64", "zlib", "ml_dtypes", "print"}
    names = {}
    for id in ids:
        name = re.sub(r"[^A-Za-z0-9_]+", "_", id).strip("_").lower() or "block"
        name = f"b_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name[:60]
        fresh = next(n for n in (name, *(f"{name}_{k}" for k in range(2, len(ids) + 3))) if n not in taken)
        taken.add(fresh)
        names[id] = fresh
    return names


def python(document: Document) -> dict[str, Any]:
    """A program that computes what the page computes."""
    plan = _Plan(document)
    lines: list[str] = []
    imports = {"import numpy as np"}
    for id in plan.order:
        block = plan.block(id)
        lines.append(_constant(plan, id, imports) if block.symbol.startswith("Const") else _call(plan, block))
    if plan.poolings():
        imports.add("from poolgrad import raw_ops")
    shown = [f"print({_output(plan, *source)})" for source in dict.fromkeys(plan.fetched)]
    head = sorted(imports, key=lambda line: (line.split()[1] in ("ml_dtypes", "numpy", "poolgrad"), line.split()[1]))
    text = "\n".join([f"# {document.page.name!r}", *head, "", *lines, "", *shown]) + "\n"
    notes = plan.notes() + [_unseeded(id) for id in plan.poolings() if _draws(plan.block(id))]
    return {"text": text, "notes": notes, "files": plan.files}


def _draws(block: Block) -> bool:
    if block.symbol != "FractionalAvgPool":
        return False
    said = property_value(block, "attrs")[0]
    return not (said.get("seed") or said.get("seed2"))


def _unseeded(id: str) -> str:
    return f"{id} draws its boundaries anew at every run; set seed_ to have the same ones"


def _output(plan: _Plan, id: str, pin: str) -> str:
    name = plan.names[id]
    return f"{name}.{pin}" if plan.block(id).symbol == "FractionalAvgPool" else name


def _call(plan: _Plan, block: Block) -> str:
    definition = block.definition
    assert definition is not None
    inputs = [pin.name for pin in definition.of_kind("input") if pin.name != "scope"]
    given = [f"{pin}={_output(plan, *plan.source(block.id, pin))}" for pin in inputs]
    arguments = {pin.name: property_value(block, pin.name)[0] for pin in definition.of_kind("const")}
    arguments |= arguments.pop("attrs")
    given += [f"{name}={list(value) if isinstance(value, tuple) else value!r}" for name, value in arguments.items()]
    call = f"{plan.names[block.id]} = raw_ops.{block.symbol}({', '.join(given)})"
    if len(call) <= 100:
        return call
    return f"{plan.names[block.id]} = raw_ops.{block.symbol}(\n" + "".join(f"    {item},\n" for item in given) + ")"


def _constant(plan: _Plan, id: str, imports: set[str]) -> str:
    array, name = constant(plan.block(id), "val"), plan.names[id]
    dtype = _dtype(array, imports)
    reshape = f".reshape({', '.join(map(str, array.shape))})" if array.ndim != 1 else ""
    if array.size <= SHORT or array.dtype.kind == "T":
        values = f"[{', '.join(_literals(array))}]"
        return _wrapped(f"{name} = np.array({values}, {dtype}){reshape}")
    packed = zlib.compress(np.ascontiguousarray(array).view(np.uint8).tobytes(), 9) if array.nbytes <= 8 * LONG else b""
    view = f".view({dtype})" if array.dtype.name == "bfloat16" else ""
    if not packed or len(packed) > LONG:
        return f'{name} = np.load("{plan.file(id)}"){view}'
    imports |= {"import base64", "import zlib"}
    rows = textwrap.wrap(base64.b64encode(packed).decode("ascii"), 100)
    text = "\n".join(f'    "{row}"' for row in rows)
    return f"{name} = np.frombuffer(zlib.decompress(base64.b64decode(\n{text}\n)), {dtype}){reshape}"


def _dtype(array: Array, imports: set[str]) -> str:
    if array.dtype.kind == "T":
        return "np.dtypes.StringDType()"
    if array.dtype.name == "bfloat16":
        imports.add("import ml_dtypes")
        return "ml_dtypes.bfloat16"
    return f"np.{array.dtype.name}" + ("_" if array.dtype.kind == "b" else "")


def _literals(array: Array) -> list[str]:
    """Each element as Python reads it back: short where that gives the same bits."""
    flat = array.reshape(-1)
    if array.dtype.kind in "biT":
        return [repr(value) for value in flat.tolist()]
    short = [str(value) for value in flat]
    same = np.array([float(text) for text in short]).astype(array.dtype)
    whole = bool(((same == flat) | (np.isnan(same) & np.isnan(flat))).all())
    texts = short if whole else [repr(float(value)) for value in flat]
    return [re.sub(r"^(-?)(nan|inf)$", r"\1np.\2", text) for text in texts]


def _wrapped(line: str) -> str:
    if len(line) <= 110 or "'" in line or '"' in line:
        return line
    return textwrap.fill(line, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def directml(document: Document) -> dict[str, Any]:
    """A model for DxDispatch, or for `poolgrad run`, that computes what the page computes."""
    plan = _Plan(document)
    resources: dict[str, Any] = {}
    dispatchables: dict[str, Any] = {}
    commands: list[dict[str, Any]] = []
    for id in plan.poolings():
        made = windows_of(document, id)
        _operator(plan, id, made, resources, dispatchables, commands)
    if not dispatchables:
        raise Failure("value", "the page has no pooling block that runs; a model needs one")
    commands += [
        {"type": "print", "resource": plan.names[id]} for id, _ in dict.fromkeys(plan.fetched) if plan.names[id] in resources
    ]
    model = {"resources": resources, "dispatchables": dispatchables, "commands": commands}
    text = re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), json.dumps(model, indent=2))
    return {"text": text + "\n", "notes": plan.notes(), "files": plan.files}


def _operator(
    plan: _Plan, id: str, made: Windows, resources: dict[str, Any], dispatchables: dict[str, Any], commands: list[dict[str, Any]]
) -> None:
    block = plan.block(id)
    source = made.cells if made.gradient else made.input
    data_type = _data_type(plan, id, source.block, source.pin)
    try:
        arguments = dml.write(_said(block, made), made.input.shape)
    except NoTranslation as reason:
        raise Failure("value", f"{id}: {reason}") from None
    if source.block not in plan.names or plan.names[source.block] not in resources:
        resources[plan.names[source.block]] = _values(plan, source.block, data_type)
    result = made.input.shape if made.gradient else made.cells.shape
    resources[plan.names[id]] = {
        "initialValuesDataType": data_type,
        "initialValues": {"valueCount": int(np.prod(result)), "value": 0},
    }
    fields = ("OutputGradientTensor", "InputGradientTensor") if made.gradient else ("InputTensor", "OutputTensor")
    tensors = {
        field: _tensor(side.shape, made.layout, data_type) for field, side in zip(fields, (made.input, made.cells), strict=True)
    }
    bound = (plan.names[id], plan.names[source.block]) if made.gradient else (plan.names[source.block], plan.names[id])
    kind = "AVERAGE_POOLING_GRAD" if made.gradient else "AVERAGE_POOLING"
    names = sorted(tensors)
    described = {name: tensors[name] for name in names} | {"DimensionCount": len(made.pool.axes), **arguments}
    dispatchables[f"{plan.names[id]}_op"] = {"type": kind, "desc": described}
    bindings = dict(zip(fields, bound, strict=True))
    commands.append({"type": "dispatch", "dispatchable": f"{plan.names[id]}_op", "bindings": {n: bindings[n] for n in names}})


def _said(block: Block, made: Windows) -> Any:
    """The block's arguments as the common record."""
    if block.symbol.startswith("Fractional"):
        raise NoTranslation("DirectML has no fractional pooling")
    definition = block.definition
    assert definition is not None
    arguments = {pin.name: property_value(block, pin.name)[0] for pin in definition.of_kind("const")}
    return tensorflow.read(arguments.pop("attrs") | arguments, made.input.shape)


def _data_type(plan: _Plan, id: str, source: str, pin: str) -> str:
    block = plan.block(source)
    array = constant(block, "val") if block.symbol.startswith("Const") else None
    run = plan.document.run
    if array is None and run is not None:
        array = run.value(source, pin)
    known = {"float32": "FLOAT32", "float16": "FLOAT16"}
    if array is None or array.dtype.name not in known:
        said = "has no value yet: run the page" if array is None else f"is {array.dtype}; DirectML pools float and half"
        raise Failure("value", f"what {id} pools {said}")
    return known[array.dtype.name]


def _values(plan: _Plan, id: str, data_type: str) -> dict[str, Any]:
    array = constant(plan.block(id), "val")
    if array.size > SHORT or not np.isfinite(array).all():
        return {"initialValuesDataType": data_type, "initialValues": {"sourcePath": plan.file(id)}}
    numbers = [int(v) if v.is_integer() and (v or str(v) == "0.0") else float(str(v)) for v in array.reshape(-1)]
    return {"initialValuesDataType": data_type, "initialValues": numbers}


def _tensor(shape: tuple[int, ...], layout: str, data_type: str) -> dict[str, Any]:
    """A tensor in DirectML's order N, C, (D,) H, W; where the page has another, its strides say so."""
    order = [layout.index(letter) for letter in sorted(layout, key="NCDHW".index)]
    strides = [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]
    made: dict[str, Any] = {"DataType": data_type, "Sizes": [shape[k] for k in order]}
    return made if order == sorted(order) else made | {"Strides": [strides[k] for k in order]}

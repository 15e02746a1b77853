"""A DxDispatch model: resources, dispatchables and commands, read from JSON and checked before anything runs.

Names that lead nowhere are errors here. An error says which resource, dispatchable or command it is in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....errors import PoolGradError
from ..descs import (
    AveragePooling1GradOperatorDesc,
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    AveragePoolingOperatorDesc,
    BufferTensorDesc,
    OperatorDesc,
)
from ..enums import ExecutionFlags, TensorDataType, TensorFlags, TensorType
from .fields import boolean, expected, field, flags, int64, listed, member, object_of, string, uint32, uint64
from .lenient import ModelError, parse
from .resources import Resource, parse_resource

__all__ = ["Binding", "Command", "Dispatch", "Dispatchable", "Model", "Print", "WriteFile", "load_model", "parse_model"]

_OPERATORS: dict[str, type[OperatorDesc]] = {
    kind.operator: kind
    for kind in (
        AveragePoolingGradOperatorDesc,
        AveragePoolingOperatorDesc,
        AveragePooling1OperatorDesc,
        AveragePooling1GradOperatorDesc,
    )
}


@dataclass(frozen=True)
class Binding:
    """A resource from an element on. DirectML binds bytes: the offset is counted in elements of this size."""

    resource: str
    element_offset: int = 0
    element_size: int = 0


@dataclass(frozen=True)
class Dispatchable:
    desc: OperatorDesc
    init_bindings: dict[str, list[Binding]]


@dataclass(frozen=True)
class Command:
    text: str
    """The command as JSON, for `print_commands`."""


@dataclass(frozen=True)
class Dispatch(Command):
    dispatchable: str
    bindings: dict[str, list[Binding]]


@dataclass(frozen=True)
class Print(Command):
    resource: str
    verbose: bool


@dataclass(frozen=True)
class WriteFile(Command):
    resource: str
    target: Path
    dimensions: list[int]


@dataclass(frozen=True)
class Model:
    resources: dict[str, Resource]
    dispatchables: dict[str, Dispatchable]
    commands: list[Command]


def load_model(
    path: str | Path,
    *,
    input_path: str | Path | None = None,
    output_path: str | Path | None = None,
    allow_extension_types: bool = False,
) -> Model:
    """The model in a file. Its input files are looked for beside it, or in `input_path`, and then in the current folder."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ModelError(f"Model does not exist. Path given: '{path}'.") from None
    except IsADirectoryError:
        raise ModelError(f"Model must be a JSON file, not a directory. Path given: '{path}'") from None
    except (OSError, ValueError) as problem:
        raise ModelError(f"Model '{path}' could not be read: {problem}") from None
    beside = path.parent if input_path is None else input_path
    return parse_model(text, input_path=beside, output_path=output_path, allow_extension_types=allow_extension_types)


def parse_model(
    model: str | Mapping[str, Any],
    *,
    input_path: str | Path | None = None,
    output_path: str | Path | None = None,
    allow_extension_types: bool = False,
) -> Model:
    """A model from its text, or from the dictionary that `model_for` makes.

    >>> parse_model('{"resources": {}, "dispatchables": {}, "commands": []}')
    Model(resources={}, dispatchables={}, commands=[])
    """
    root = object_of(parse(model) if isinstance(model, str) else model)
    inputs, outputs = (Path("") if path is None else Path(path) for path in (input_path, output_path))

    held = 0

    def resource(owner: Any) -> Resource:
        nonlocal held
        found = parse_resource(owner, inputs, held, allow_extension_types=allow_extension_types)
        held += len(found.values) + found.size
        return found

    def dispatchable(owner: Any) -> Dispatchable:
        return _dispatchable(object_of(owner), allow_extension_types)

    for section, kind in (("resources", dict), ("dispatchables", dict), ("commands", list)):
        if not isinstance(root.get(section), kind):
            raise ModelError(f"Expected an {'object' if kind is dict else 'array'} named '{section}'")
    resources = _section(root["resources"], "resource", resource)
    dispatchables = _section(root["dispatchables"], "dispatchable", dispatchable)
    commands = []
    for k, owner in enumerate(root["commands"]):
        with _within(f"Failed to parse command at index {k}"):
            commands.append(_command(object_of(owner), outputs))
    made = Model(resources, dispatchables, commands)
    _check_names(made)
    return made


@contextmanager
def _within(place: str) -> Iterator[None]:
    try:
        yield
    except PoolGradError as problem:
        raise ModelError(f"{place}: {problem}") from problem


def _section(owners: dict[str, Any], what: str, read: Callable[[Any], Any]) -> dict[str, Any]:
    found = {}
    for name, owner in owners.items():
        with _within(f"Failed to parse {what} {name}"):
            found[name] = read(owner)
    return found


def _dispatchable(owner: dict[str, Any], extension: bool) -> Dispatchable:
    kind = field(owner, "type", string)
    found = _OPERATORS.get(f"DML_OPERATOR_{kind.removeprefix('DML_OPERATOR_')}")
    if found is None or (found.is_extension and not extension):
        ours = ", ".join(name for name, desc in _OPERATORS.items() if not desc.is_extension)
        why = "is an extension; allow extension types to run it" if found else "is not an operator that poolgrad runs"
        raise ModelError(f"Field 'type': '{kind}' {why}. DirectML's own are {ours}.")
    name = "Desc" if "Desc" in owner else "desc"
    desc = field(owner, name, object_of, owner)
    field(owner, "dmlCompileType", _compile_type, None)
    field(owner, "executionFlags", flags(ExecutionFlags), ExecutionFlags.NONE)
    return Dispatchable(_operator(found, desc), _bindings(owner.get("bindings", {})))


def _compile_type(value: Any) -> None:
    if value not in ("DmlCompileOp", "DmlCompileGraph"):
        expected("DmlCompileOp or DmlCompileGraph", value)


def _operator(kind: type[OperatorDesc], desc: dict[str, Any]) -> OperatorDesc:
    arrays = ["Strides", "WindowSize", "StartPadding", "EndPadding", *(["Dilations"] if kind.has_dilations else [])]
    fields: dict[str, Any] = {name: field(desc, name, _tensor) for name in (kind.input_field, kind.output_field)}
    fields["DimensionCount"] = field(desc, "DimensionCount", uint32)
    fields |= {name: field(desc, name, listed(uint32)) for name in arrays}
    return kind(**fields, IncludePadding=field(desc, "IncludePadding", boolean))


def _tensor(value: Any) -> BufferTensorDesc:
    owner = object_of(value)
    if field(owner, "Type", member(TensorType), TensorType.BUFFER) is not TensorType.BUFFER:
        expected("BUFFER as Type", owner["Type"])
    owner = field(owner, "Desc", object_of, owner)
    sizes = field(owner, "Sizes", listed(uint32))
    return BufferTensorDesc(
        DataType=field(owner, "DataType", member(TensorDataType)),
        Flags=field(owner, "Flags", flags(TensorFlags), TensorFlags.NONE),
        DimensionCount=field(owner, "DimensionCount", uint32, len(sizes)),
        Sizes=sizes,
        Strides=field(owner, "Strides", _strides, None) or None,
        TotalTensorSizeInBytes=field(owner, "TotalTensorSizeInBytes", uint64, 0) or None,
        GuaranteedBaseOffsetAlignment=field(owner, "GuaranteedBaseOffsetAlignment", uint32, 0),
    )


def _strides(value: Any) -> list[int] | None:
    return None if value is None else listed(uint32)(value)


def _command(owner: dict[str, Any], output_path: Path) -> Command:
    kind, text = field(owner, "type", string), json.dumps(owner, separators=(",", ":"))
    if kind.lower() == "dispatch":
        if "threadGroupCount" in owner and len(field(owner, "threadGroupCount", listed(uint32))) != 3:
            expected("three integers as threadGroupCount", owner["threadGroupCount"])
        return Dispatch(text, field(owner, "dispatchable", string), field(owner, "bindings", _bindings))
    if kind.lower() == "print":
        return Print(text, field(owner, "resource", string), field(owner, "verbose", boolean, False))
    if kind.lower() == "writefile":
        target = output_path / field(owner, "targetPath", string)
        return WriteFile(text, field(owner, "resource", string), target, field(owner, "dimensions", listed(uint32), []))
    raise ModelError(f"Unrecognized command '{kind}'; there are dispatch, print and writeFile")


def _bindings(value: Any) -> dict[str, list[Binding]]:
    found = {}
    for point, sources in object_of(value).items():
        with _within(f"Binding '{point}'"):
            found[point] = [_binding(source) for source in (sources if isinstance(sources, list) else [sources])]
    return found


def _binding(value: Any) -> Binding:
    if isinstance(value, str):
        return Binding(value)
    owner = object_of(value)
    for name, read in (("elementCount", uint64), ("counterOffsetBytes", uint64), ("shape", listed(int64)), ("format", string)):
        field(owner, name, read, None)  # typed, and of no effect on DirectML's operators
    return Binding(
        field(owner, "name", string), field(owner, "elementOffset", uint64, 0), field(owner, "elementSizeInBytes", uint64, 0)
    )


def _check_names(model: Model) -> None:
    for name, dispatchable in model.dispatchables.items():
        _check_bindings(model, dispatchable.init_bindings, f"Dispatchable '{name}'")
    for command in model.commands:
        if isinstance(command, Dispatch):
            if command.dispatchable not in model.dispatchables:
                raise ModelError(f"Command attempts to dispatch '{command.dispatchable}', which does not exist in the model")
            _check_bindings(model, command.bindings, "Command")
        elif isinstance(command, (Print, WriteFile)) and command.resource not in model.resources:
            verb = "print" if isinstance(command, Print) else "write to a file"
            raise ModelError(f"Command attempts to {verb} the resource '{command.resource}', which does not exist in the model")


def _check_bindings(model: Model, bindings: dict[str, list[Binding]], who: str) -> None:
    for source in (source for sources in bindings.values() for source in sources):
        if source.resource not in model.resources:
            raise ModelError(f"{who} attempts to bind resource '{source.resource}', which does not exist in the model")

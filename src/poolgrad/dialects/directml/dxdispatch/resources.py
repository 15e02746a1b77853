"""Resources: buffers with the values they begin with, in every form DxDispatch has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....arrays import check_fits
from ..enums import NUMPY_TYPES, TensorDataType
from .fields import expected, field, listed, member, object_of, scalar_reader, string, uint32, uint64
from .files import IMAGES, Resample, read_bytes, read_image, read_npy
from .lenient import ModelError

__all__ = ["Resource", "parse_resource"]

Array = npt.NDArray[Any]
_FORMS = ("value", "valueStart", "sourcePath")


class Resource(NamedTuple):
    """A buffer of `size` bytes that begins with the bytes `values`; `kind` is UNKNOWN for a mixed list.

    `values_offset` is what the model asks for. DxDispatch checks its range and puts the values at byte 0; so do we.
    """

    kind: TensorDataType
    values: Array
    size: int
    values_offset: int

    def new_buffer(self) -> Array:
        buffer = np.zeros(self.size, dtype=np.uint8)
        buffer[: len(self.values)] = self.values
        return buffer

    def typed(self, buffer: Array, *, whole: bool = False) -> Array:
        """What lies in `buffer`, in the type of the initial values; as many of them, or the `whole` buffer."""
        if self.kind is TensorDataType.UNKNOWN:
            return buffer
        dtype = NUMPY_TYPES[self.kind]
        end = len(buffer) if whole else len(self.values)
        return buffer[: end // dtype.itemsize * dtype.itemsize].view(dtype)


def parse_resource(owner: Any, input_path: Path, held: int, *, allow_extension_types: bool) -> Resource:
    """The resource that this JSON object describes; files are looked for in `input_path`, then here.

    `held` bytes are taken by the resources before it: all of them, with the buffers they will fill, must fit in memory.
    """
    owner = object_of(owner)
    kind = field(owner, "initialValuesDataType", member(TensorDataType), TensorDataType.UNKNOWN)
    if kind is TensorDataType.BFLOAT16 and not allow_extension_types:
        raise ModelError("Field 'initialValuesDataType': BFLOAT16 is an extension; allow extension types to use it")
    if kind is not TensorDataType.UNKNOWN and kind not in NUMPY_TYPES:
        raise ModelError(f"Field 'initialValuesDataType': {kind.name} values are not supported")
    given = field(owner, "initialValues", lambda value: value)
    if isinstance(given, list):
        values = _mixed(given) if kind is TensorDataType.UNKNOWN else _listed(given, kind)
    elif isinstance(given, dict):
        values, kind = _generated(owner, given, kind, input_path, held)
    elif given == "deferred":
        raise ModelError("'deferred' values are for the outputs of ONNX dispatchables, which are not run here")
    else:
        raise ModelError("Field 'initialValues' must be an array of numbers, an object, or deferred.")
    values = values.reshape(-1).view(np.uint8)
    if not len(values):
        raise ModelError("'initialValues' must be non-empty.")
    size = field(owner, "sizeInBytes", uint64, -(-len(values) // 4) * 4)
    offset = field(owner, "initialValuesOffsetInBytes", uint64, 0)
    if len(values) + offset > size:
        raise ModelError(
            f"The buffer size ({size} bytes) is too small for the initialValues ({len(values)} bytes) at offset {offset} bytes."
        )
    _check_room(held + len(values) + size)
    return Resource(kind, values, size, offset)


def _check_room(size: int) -> None:
    check_fits("the values and buffers of the model in bytes", (size,), np.dtype(np.uint8))


def _as_type(values: Any, kind: TensorDataType) -> Array:
    """Numbers in the type; half types by way of float32, as DxDispatch rounds them."""
    dtype = NUMPY_TYPES[kind]
    with np.errstate(over="ignore"):
        if dtype.kind in "iu":
            return np.array(values, dtype=dtype)
        wide = np.array(values, dtype=np.float64)
        return wide if dtype == np.float64 else wide.astype(np.float32).astype(dtype)


def _listed(given: list[Any], kind: TensorDataType) -> Array:
    return _as_type(listed(scalar_reader(kind))(given), kind)


def _mixed(given: list[Any]) -> Array:
    """A list of {type, value}, laid end to end."""
    parts = []
    for entry in given:
        owner = object_of(entry)
        kind = field(owner, "type", member(TensorDataType))
        if kind in (TensorDataType.FLOAT16, TensorDataType.BFLOAT16):
            raise ModelError(f"Data type {kind.name} is not supported in a mixed list.")
        parts.append(_as_type(field(owner, "value", scalar_reader(kind)), kind).tobytes())
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def _generated(
    owner: dict[str, Any], given: dict[str, Any], kind: TensorDataType, input_path: Path, held: int
) -> tuple[Array, TensorDataType]:
    forms = [form for form in _FORMS if form in given]
    if not forms:
        raise ModelError("Error parsing 'initialValues' object: unknown generator type.")
    if len(forms) > 1:
        raise ModelError("'initialValues' may contain a value, valueStart, or sourcePath, but they are mutually exclusive.")
    if forms == ["sourcePath"]:
        return _from_file(owner, _resolved(field(given, "sourcePath", string), input_path), kind)
    if kind is TensorDataType.UNKNOWN:
        raise ModelError("Field 'initialValuesDataType' is required.")
    count = field(given, "valueCount", uint32)
    _check_room(held + 2 * count * NUMPY_TYPES[kind].itemsize)
    read = scalar_reader(kind)
    if forms == ["value"]:
        return np.full(count, _as_type(field(given, "value", read), kind)), kind
    values = np.full(count, _as_type(field(given, "valueDelta", read), kind))
    values[:1] = _as_type(field(given, "valueStart", read), kind)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.accumulate(values, out=values)  # one rounding a step, in the type itself
    return values, kind


def _resolved(name: str, input_path: Path) -> Path:
    beside = input_path / name
    try:
        return beside if beside.exists() else Path(name)
    except (OSError, ValueError) as problem:
        raise ModelError(f"Field 'sourcePath': {name!r} is no path: {problem}") from None


def _from_file(owner: dict[str, Any], path: Path, kind: TensorDataType) -> tuple[Array, TensorDataType]:
    found, suffix = kind, path.suffix.lower()
    if suffix == ".npy":
        values, found = read_npy(path, kind)
    elif suffix in IMAGES:
        if field(owner, "resampleMode", string, "scale") != "scale":
            expected("'scale' as resampleMode", owner["resampleMode"])
        values = read_image(path, Resample(field(owner, "resampleSize", listed(uint32), []), kind))
    else:
        values = read_bytes(path)
    if kind not in (TensorDataType.UNKNOWN, found):
        raise ModelError(f"Data type {found.name} from file '{path}' does not match field 'initialValuesDataType' ({kind.name}).")
    if found is TensorDataType.UNKNOWN:
        raise ModelError("Field 'initialValuesDataType' is required.")
    return values, found

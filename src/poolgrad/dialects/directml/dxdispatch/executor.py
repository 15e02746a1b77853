"""Running a model: buffers are filled, operators compiled and initialised, then the commands follow in order.

What is in a buffer stays there from one command to the next. A file that cannot be written is reported and the commands go
on, as in DxDispatch; any other failure ends the run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import PoolGradError
from ....geometry import integer
from ..enums import NUMPY_TYPES, TensorDataType
from ..errors import E_INVALIDARG
from ..run import BufferBinding, CompiledOperator, compile_operator
from .files import IMAGES, write_image, write_npy
from .lenient import ModelError
from .model import Binding, Command, Dispatch, Model, Print, WriteFile
from .timing import report

__all__ = ["Executor", "Options"]

Array = npt.NDArray[Any]
Write = Callable[[str], None]


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass(frozen=True)
class Options:
    """DxDispatch's options by their long names, and our two: other types, and sizes that differ from the formula."""

    dispatch_iterations: int = 1
    dispatch_repeat: int = 1
    milliseconds_to_run: int = 0
    dispatch_interval: int = 0
    warmup_samples: int = 1
    timing_verbosity: int = 0
    print_commands: bool = False
    debug: bool = False
    """DirectML's debug layer: refuse what is accepted but unspecified, such as a window with no tap inside the input."""
    allow_extension_types: bool = False
    allow_explicit_sizes: bool = False

    def __post_init__(self) -> None:
        for option in fields(self):
            if option.type == "int":
                integer(option.name, getattr(self, option.name), int(option.name in ("dispatch_iterations", "dispatch_repeat")))


class Executor:
    """A model's buffers and operators, ready for its commands."""

    def __init__(self, model: Model, options: Options, write: Write, write_error: Write) -> None:
        self.model, self.options, self.write, self.write_error = model, options, write, write_error
        self.failed_files = 0
        self.buffers = {name: resource.new_buffer() for name, resource in model.resources.items()}
        for name, resource in model.resources.items():
            if resource.values_offset:
                write_error(f"Resource '{name}': DxDispatch ignores initialValuesOffsetInBytes; the values begin at byte 0")
        self.operators = {name: self._created(name) for name in model.dispatchables}

    def run(self) -> dict[str, Array]:
        """Run every command; what the resources hold then, by name."""
        for index, command in enumerate(self.model.commands):
            if not self.options.print_commands:
                self._run(command)
                continue
            self.write(f"[StartCmd][{index:04}]\t: {command.text}")
            try:
                self._run(command)
            except PoolGradError as problem:
                hresult = getattr(problem.__cause__, "hresult", E_INVALIDARG)
                self.write(f"[EndCmd][{index:04}]\t: hr=0x{hresult:08x} {problem}")
                raise
            self.write(f"[EndCmd][{index:04}]\t: hr=0x00000000 ")
        return {name: resource.typed(self.buffers[name]) for name, resource in self.model.resources.items()}

    def _run(self, command: Command) -> None:
        if isinstance(command, Dispatch):
            self._dispatch(command)
        elif isinstance(command, Print):
            self._print(command)
        elif isinstance(command, WriteFile):
            self._write_file(command)

    def _created(self, name: str) -> CompiledOperator:
        dispatchable = self.model.dispatchables[name]
        began = time.perf_counter()
        try:
            made = compile_operator(
                dispatchable.desc,
                allow_extension_types=self.options.allow_extension_types,
                allow_explicit_sizes=self.options.allow_explicit_sizes,
                strict=self.options.debug,
            )
            if made.plan.source.owned_by_dml:
                made.initialize(self._resolved(made, dispatchable.init_bindings, {made.plan.source.field}))
        except PoolGradError as problem:
            raise ModelError(f"ERROR creating dispatchable '{name}': {problem}") from problem
        if self.options.timing_verbosity:
            self.write(f"Initialize '{name}': {1000 * (time.perf_counter() - began):.4f} ms")
        return made

    def _dispatch(self, command: Dispatch) -> None:
        made, options = self.operators[command.dispatchable], self.options
        source, result = made.plan.source, made.plan.result
        points = {result.field} if source.owned_by_dml else {source.field, result.field}
        samples: list[float] = []
        until = time.perf_counter() + options.milliseconds_to_run / 1000
        try:
            bindings = self._resolved(made, command.bindings, points)
            while len(samples) < options.dispatch_iterations or time.perf_counter() < until:
                start = time.perf_counter()
                for _ in range(options.dispatch_repeat):
                    made.execute(bindings)
                spent = time.perf_counter() - start
                samples.append(1000 * spent / options.dispatch_repeat)
                if options.dispatch_interval:
                    time.sleep(max(0.0, options.dispatch_interval / 1000 - spent))
        except PoolGradError as problem:
            raise ModelError(f"Failed to execute dispatchable '{command.dispatchable}': {problem}") from problem
        report(command.dispatchable, samples, options.warmup_samples, options.timing_verbosity, self.write)

    def _resolved(
        self, made: CompiledOperator, bindings: Mapping[str, list[Binding]], points: set[str]
    ) -> dict[str, BufferBinding]:
        """The buffers of the bind points; DxDispatch passes over names that are none, here they are reported."""
        for point in sorted(set(bindings) - points):
            self.write_error(f"Bind point '{point}' is not one of {sorted(points)} and is ignored.")
        resolved = {}
        for point in sorted(points):
            sources = bindings.get(point)
            if sources is None:
                raise ModelError(f"Nothing bound for required tensor '{point}'.")
            if len(sources) != 1:
                raise ModelError(f"Bind point '{point}' requires 1 resources, but {len(sources)} were bound.")
            resolved[point] = self._range(sources[0])
        return resolved

    def _range(self, source: Binding) -> BufferBinding:
        kind = self.model.resources[source.resource].kind
        size = source.element_size or (0 if kind is TensorDataType.UNKNOWN else NUMPY_TYPES[kind].itemsize)
        if source.element_offset and not size:
            raise ModelError(f"elementOffset into '{source.resource}', which has no one type, needs an elementSizeInBytes")
        return BufferBinding(self.buffers[source.resource], source.element_offset * size)

    def _print(self, command: Print) -> None:
        resource = self.model.resources[command.resource]
        if resource.kind is TensorDataType.UNKNOWN:
            raise ModelError(f"Failed to print resource: '{command.resource}' is a mixed list, which has no one data type")
        values = resource.typed(self.buffers[command.resource])
        texts = [_text(value) for value in values]
        if command.verbose:
            bits = values.view(np.dtype(f"u{values.itemsize}"))
            width, digits = len(str(len(values))), 2 * values.itemsize
            rows = (f"[{k:{width}}] {text} (0x{bits[k]:{digits}X})\n" for k, text in enumerate(texts))
            self.write(f"Resource '{command.resource}':\n{''.join(rows)}")
        else:
            self.write(f"Resource '{command.resource}': {', '.join(texts)}")

    def _write_file(self, command: WriteFile) -> None:
        resource, buffer, target = self.model.resources[command.resource], self.buffers[command.resource], command.target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.suffix.lower() not in (".npy", *IMAGES):
                target.write_bytes(buffer.tobytes())
            elif resource.kind is TensorDataType.UNKNOWN:
                raise ModelError("a mixed list has no one data type; write it raw")
            else:
                write = write_npy if target.suffix.lower() == ".npy" else write_image
                write(target, resource.typed(buffer, whole=True), command.dimensions)
        except (PoolGradError, OSError, ValueError) as problem:
            self.failed_files += 1
            self.write_error(f"Failed to write resource to file '{target}': {problem}")
        else:
            self.write(f"Resource '{command.resource}' written to '{target}'")


def _text(value: Any) -> str:
    """A number as C++ streams print it: six significant digits."""
    return str(value) if isinstance(value, np.integer) else f"{float(value):g}"

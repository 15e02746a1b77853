"""DxDispatch on any machine: models of DirectML's three average-pooling operators, run by poolgrad.

`run_file` is the program: it prints what DxDispatch prints and returns an exit code. `run_model` is the same for programs:
it returns what the resources hold. `model_for` writes a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ....engines import engine
from ....errors import PoolGradError
from .emit import model_for
from .executor import Executor, Options, Write, to_stderr
from .lenient import ModelError
from .model import Model, load_model, parse_model

__all__ = ["Model", "ModelError", "Options", "load_model", "model_for", "parse_model", "run_file", "run_model"]

Array = npt.NDArray[Any]


def run_model(
    model: Model | str | Mapping[str, Any],
    options: Options | None = None,
    *,
    write: Write = print,
    write_error: Write = to_stderr,
) -> dict[str, Array]:
    """Run a model, its text or its dictionary; what its resources hold afterwards, by name, in the type of their values.

    >>> model = '''{"resources": {"a": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2.5, 0.1,]}},
    ...   "dispatchables": {}, "commands": [{"type": "print", "resource": "a"}]} // lenient, as DxDispatch is'''
    >>> run_model(model)
    Resource 'a': 1, 2.5, 0.1
    {'a': array([1. , 2.5, 0.1], dtype=float32)}
    """
    options = options or Options()
    if not isinstance(model, Model):
        model = parse_model(model, allow_extension_types=options.allow_extension_types)
    return Executor(model, options, write, write_error).run()


def run_file(
    path: str | Path,
    options: Options | None = None,
    *,
    input_path: str | Path | None = None,
    output_path: str | Path | None = None,
    write: Write = print,
    write_error: Write = to_stderr,
) -> int:
    """Run the model in a file as DxDispatch would and return an exit code: 0, or 2 where anything was refused or failed.

    `input_path` is where its input files are (default: beside the model), `output_path` where its output files go (default:
    the current folder).
    """
    options = options or Options()
    types = options.allow_extension_types
    try:
        model = load_model(path, input_path=input_path, output_path=output_path, allow_extension_types=types)
    except PoolGradError as problem:
        write_error(f"Failed to parse the model: {problem}")
        return 2
    write(f"Running on 'poolgrad, {engine().__name__.rpartition('.')[2]} engine'")
    try:
        executor = Executor(model, options, write, write_error)
        executor.run()
    except PoolGradError as problem:
        write_error(f"Failed to execute the model: {problem}")
        return 2
    return 2 if executor.failed_files else 0

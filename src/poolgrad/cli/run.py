"""`poolgrad run`: a file of another system, run here: a DxDispatch model, an enuSpace page or project."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..dialects.directml.dxdispatch import Options, load_model, run_file
from ..dialects.directml.dxdispatch.executor import Executor, to_stderr
from ..errors import PoolGradValueError
from .guard import say_json
from .tables import print_table

__all__ = ["run"]


EXISTING: dict[str, Any] = {"exists": True, "dir_okay": False}


def _for_models(text: str, *names: str, **bounds: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="DxDispatch models", **bounds)


def _for_pages(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="enuSpace pages", min=1)


def run(
    file: Annotated[Path | None, typer.Argument(**EXISTING, help="A DxDispatch model; an enuSpace page or project.")] = None,
    model: Annotated[Path | None, _for_models("The model, said as DxDispatch has it.", "--model", "-m", **EXISTING)] = None,
    input_path: Annotated[Path | None, _for_models("Where input files are; beside the model by default.", "--input_path")] = None,
    output_path: Annotated[Path | None, _for_models("Where output files go; here by default.", "--output_path")] = None,
    iterations: Annotated[int, _for_models("Samples of every dispatch.", "--dispatch_iterations", "-i", min=1)] = 1,
    repeat: Annotated[int, _for_models("Dispatches in a sample.", "--dispatch_repeat", "-r", min=1)] = 1,
    milliseconds: Annotated[int, _for_models("Take samples for so long.", "--milliseconds_to_run", "-t", min=0)] = 0,
    interval: Annotated[int, _for_models("Milliseconds from one sample to the next.", "--dispatch_interval", min=0)] = 0,
    warmup: Annotated[int, _for_models("Samples that count as cold.", "--warmup_samples", "-w", min=0)] = 1,
    verbosity: Annotated[int, _for_models("How much to say about times.", "--timing_verbosity", "-v", min=0, max=2)] = 0,
    print_commands: Annotated[bool, _for_models("Say every command as it begins and ends.", "--print_commands", "-c")] = False,
    debug: Annotated[bool, _for_models("Refuse what DirectML accepts but leaves unspecified.", "--debug", "-d")] = False,
    extension_types: Annotated[bool, _for_models("Serve types that DirectML does not.", "--allow-extension-types")] = False,
    explicit_sizes: Annotated[bool, _for_models("Take sizes that differ from the formula.", "--allow-explicit-sizes")] = False,
    cycles: Annotated[int, _for_pages("Cycles of a session with INFINITE_LOOP.")] = 1,
    elements: Annotated[int, _for_pages("Rows of the watch table for one array.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="What it holds or shows in the end, as JSON.")] = False,
) -> int:
    """Run a DxDispatch model of DirectML's average-pooling operators, or an enuSpace page.

    poolgrad run model.json
    """
    if (file is None) == (model is None):
        raise PoolGradValueError("say which one file to run: FILE, or --model FILE as for DxDispatch")
    chosen = file or model
    assert chosen is not None
    if model is None and not _is_model(chosen):
        return _page(chosen, cycles, elements, as_json)
    options = Options(
        dispatch_iterations=iterations,
        dispatch_repeat=repeat,
        milliseconds_to_run=milliseconds,
        dispatch_interval=interval,
        warmup_samples=warmup,
        timing_verbosity=verbosity,
        print_commands=print_commands,
        debug=debug,
        allow_extension_types=extension_types,
        allow_explicit_sizes=explicit_sizes,
    )
    return _model(chosen, input_path, output_path, options, as_json)


def _is_model(file: Path) -> bool:
    """Whether a file is a DxDispatch model rather than an enuSpace page; both may end in .json."""
    ending = file.suffix.lower()
    if ending in (".svg", ".enup"):
        return False
    if ending != ".json":
        raise PoolGradValueError(f"{file}: a DxDispatch model ends in .json, an enuSpace page in .svg, .json or .enup")
    data = file.read_bytes()

    def has(word: str) -> bool:
        return any(f'"{word}"'.encode(code) in data for code in ("utf-8", "utf-16-le", "utf-16-be"))

    if has("dispatchables"):
        return True
    if not has("object") and not has("blocks"):
        raise PoolGradValueError(f"{file} is neither a DxDispatch model (it has no dispatchables) nor an enuSpace page")
    return False


def _model(file: Path, input_path: Path | None, output_path: Path | None, options: Options, as_json: bool) -> int:
    if not as_json:
        return run_file(file, options, input_path=input_path, output_path=output_path)
    types = options.allow_extension_types
    model = load_model(file, input_path=input_path, output_path=output_path, allow_extension_types=types)
    executor = Executor(model, options, to_stderr, to_stderr)
    held = executor.run()
    say_json({"resources": {name: {"dtype": array.dtype.name, "values": _numbers(array)} for name, array in held.items()}})
    return 2 if executor.failed_files else 0


def _numbers(array: Any) -> list[Any]:
    """Values as JSON can hold them: NaN and the infinities as words."""
    values = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    return [value if np.isfinite(value) else str(value) for value in values.tolist()]


def _page(file: Path, cycles: int, elements: int, as_json: bool) -> int:
    """The watch table and the log; 2 where a block failed."""
    from ..dialects import enuspace

    report = enuspace.run_file(file, cycles=cycles, elements=elements)
    if as_json:
        say_json(asdict(report))
    else:
        rows = [(row.block, row.type, row.name, row.value) for row in report.watch]
        print_table(f"{report.page}: {report.cycles} cycle{'s' * (report.cycles != 1)}", ["Block", "Type", "Name", "Value"], rows)
        for entry in report.log:
            place = f" {entry.block}" + (f".{entry.pin}" if entry.pin else "") if entry.block else ""
            print(f"{entry.severity}{place}: {entry.message}", file=sys.stdout if entry.severity == "info" else sys.stderr)
    return 0 if report.ok else 2

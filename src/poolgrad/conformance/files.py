"""Cases and answers as files, for kernels that no Python can call: C++, HLSL, anything.

`emit` writes a directory, `grade` judges the answers found in it. A case's files are named after it; what `grade` reads is
the index and the answers, and every path comes from a case's name, never from the index.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..dialects.pooling import NoTranslation
from ..errors import PoolGradValueError
from .case import Array, Case, dtype_of, from_json
from .directml import OpenPoint, model, open_points
from .judge import Verdict, allowed, judge
from .report import Report, Result
from .runner import Answer
from .suite import suite
from .worker import packed

__all__ = ["FORMAT", "emit", "grade"]

FORMAT = 1
"""The version of the directory; docs/conformance.md describes it."""

INDEX = "cases.json"
UNREADABLE = (OSError, EOFError, ValueError)
README = """\
Cases of average pooling's gradient, written by `poolgrad check --emit`.

cases.json        every case: the pooling in poolgrad's terms, the shapes, the dtype
dy/NAME.npy       the gradient of the output, row-major in the case's layout (bfloat16 as uint16)
exact/NAME.npy    the exact answer, rounded once
dx/NAME.npy       YOUR answer, in the same form; leave out what your kernel does not serve
dxdispatch/*.json the same cases as models for DirectML's DxDispatch; run them in this directory, each once:
                  dxdispatch -m dxdispatch/NAME.json
                  Those named open-*.json ask what DirectML's documentation does not say.

Then: poolgrad check --judge .
"""


def emit(
    directory: str | os.PathLike[str], *, groups: Sequence[str] | None = None, seed: int = 0, limit: int | None = None
) -> list[Case]:
    """Write the cases that have an answer into a new or empty directory, and return them."""
    root = Path(directory)
    cases = [case for case in suite(groups, seed=seed, limit=limit) if case.pool is not None]
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise PoolGradValueError(f"cases are written into a new or empty directory; {root} is not one")
    for name in ("dy", "exact", "dx", "dxdispatch"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for case in cases:
        want = case.want()
        assert want is not None
        (root / "dy" / f"{_stem(case)}.npy").write_bytes(packed(case.dy()))
        (root / "exact" / f"{_stem(case)}.npy").write_bytes(packed(want))
    models = _emit_models(root, cases)
    for point in open_points().values():
        np.save(root / "dy" / f"open-{point.name}.npy", point.given)
        _write_json(root / "dxdispatch" / f"open-{point.name}.json", point.model(*_paths(f"open-{point.name}")))
    rows = [{**case.to_json(), **_extra(case, models)} for case in cases]
    _write_json(root / INDEX, {"format": FORMAT, "seed": seed, "cases": rows})
    (root / "README.txt").write_text(README, encoding="utf-8")
    return cases


def _extra(case: Case, models: set[str]) -> dict[str, Any]:
    """What the index says for its readers' sake; `grade` works it out again."""
    return {"file": _stem(case), "allowed_ulps": allowed(case), "dxdispatch": _stem(case) in models}


def _emit_models(root: Path, cases: Sequence[Case]) -> set[str]:
    """Models of the cases that DirectML can express, named."""
    written = set()
    for case in cases:
        try:
            made = model(case, *_paths(_stem(case)))
        except NoTranslation:
            continue
        _write_json(root / "dxdispatch" / f"{_stem(case)}.json", made)
        written.add(_stem(case))
    return written


def _paths(stem: str) -> tuple[str, str]:
    """DxDispatch looks for inputs beside the model and puts outputs into the current folder."""
    return f"../dy/{stem}.npy", f"dx/{stem}.npy"


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _stem(case: Case) -> str:
    """
    >>> _stem(suite(["overlap 1-D"])[3])
    'overlap-1-D-003'
    """
    group, _, number = case.name.rpartition("/")
    return re.sub(r"[^A-Za-z0-9-]", "-", group) + "-" + number.zfill(3)


def grade(directory: str | os.PathLike[str]) -> Report:
    """Judge the answers in a directory that `emit` wrote; a case without an answer is unsupported."""
    root = Path(directory)
    seed, cases = _index(root)
    results = [Result(case, _graded(root / "dx" / f"{_stem(case)}.npy", case)) for case in cases]
    answered = [(point, root / "dx" / f"open-{name}.npy") for name, point in open_points().items()]
    notes = tuple(f"{point.question} {_settled(point, path)}" for point, path in answered if path.exists())
    return Report(os.fspath(directory), "answers in files", "", seed, tuple(results), notes=notes)


def _index(root: Path) -> tuple[int, list[Case]]:
    path = root / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise PoolGradValueError(f"{root} holds no cases: {path} cannot be read ({wrong})") from None
    if not isinstance(index, dict) or index.get("format") != FORMAT or not isinstance(index.get("cases"), list):
        raise PoolGradValueError(f"{path} is not an index of format {FORMAT}; write it with poolgrad check --emit")
    return int(index.get("seed", 0)), [_case(path, row) for row in index["cases"]]


def _case(path: Path, row: Any) -> Case:
    if not isinstance(row, dict):
        raise PoolGradValueError(f"{path}: a case must be an object, got {row!r}")
    case = from_json({key: value for key, value in row.items() if key not in ("file", "allowed_ulps", "dxdispatch")})
    try:
        legal = case.pool is not None
    except (TypeError, ValueError, AttributeError) as wrong:
        raise PoolGradValueError(f"{path}: case {case.name!r} is not a pooling: {wrong}") from None
    if not legal:
        raise PoolGradValueError(f"{path}: case {case.name!r} has no answer; its shapes do not agree with its pooling")
    return case


def _graded(path: Path, case: Case) -> Verdict:
    if not path.exists():
        return Verdict("unsupported", note="no answer was given")
    try:
        answer = _loaded(path, case.dtype)
    except UNREADABLE as wrong:
        return Verdict("wrong", note=f"{path.name} is not an array: {wrong}")
    if answer.ndim == 1 and answer.size == int(np.prod(case.input_shape)):
        answer = answer.reshape(case.input_shape)
    return judge(case, Answer((answer,), 0.0), ())


def _loaded(path: Path, dtype: str) -> Array:
    """The array in a `.npy` file, without reading more than the file holds."""
    array = np.load(path, mmap_mode="r" if path.stat().st_size else None, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it is an archive of several")
    if dtype == "bfloat16" and array.dtype == np.uint16:
        array = array.view(dtype_of("bfloat16"))
    return np.asarray(array)


def _settled(point: OpenPoint, path: Path) -> str:
    try:
        return point.reading_of(_loaded(path, "float32"))
    except UNREADABLE as wrong:
        return f"the answer is not an array: {wrong}"

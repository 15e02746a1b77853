"""`poolgrad.torch` on DTensors, in four real processes that talk over loopback: `dtensor_ranks.py` says what each checks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch is built without torch.distributed", allow_module_level=True)
import dtensor_ranks  # noqa: E402

Said = list[dict[str, str]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What every rank found, by check: empty if it holds."""
    folder = tmp_path_factory.mktemp("ranks")
    files = [folder / f"{rank}.json" for rank in range(dtensor_ranks.RANKS)]
    program, store = str(Path(dtensor_ranks.__file__)), str(folder / "store")
    commands = [[sys.executable, program, str(rank), str(len(files)), store, str(file)] for rank, file in enumerate(files)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        for process in started:
            _, errors = process.communicate(timeout=500)
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


@pytest.mark.parametrize("name", dtensor_ranks.CHECKS)
def test_on_every_rank(ranks: Said, name: str) -> None:
    failures = [f"rank {rank}:\n{said[name]}" for rank, said in enumerate(ranks) if said[name]]
    assert not failures, "\n".join(failures)

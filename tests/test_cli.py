"""The command line: every command, its exit codes and its JSON; what a real process and a real pipe see."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from cli_support import blocked, environment, picture, process, refused, said

import poolgrad
from poolgrad.cli import main


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


CASES = Path(__file__).parent / "cases"
FRAMEWORKS = ("torch", "tensorflow", "jax", "onnxruntime", "matplotlib")


def test_without_the_extra_one_line_says_what_to_install() -> None:
    for missing in ("typer", "rich"):
        done = process("--help", script=("-c", blocked(missing)))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "pip install 'poolgrad[cli]'" in done.stderr


def test_without_matplotlib_one_line_says_what_to_install() -> None:
    done = process("explain", "--input-shape", "5", "--window", "2", "--plot", "a.png", script=("-c", blocked("matplotlib")))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'poolgrad[plot]'" in done.stderr


def test_without_the_core_the_benchmark_says_so() -> None:
    done = process("bench", "--quick", script=("-c", blocked("poolgrad.engines._native")))
    assert (done.returncode, done.stdout) == (2, "")
    assert "compiled core" in done.stderr


def test_help_imports_no_framework() -> None:
    probe = f"from poolgrad.cli import main\nimport sys\nmain(['--help'])\nprint([m for m in {FRAMEWORKS!r} if m in sys.modules])"
    done = process(script=("-c", probe))
    assert done.stdout.strip().endswith("[]")
    for command in ("grad", "pool", "explain", "translate", "run", "check", "bench", "demo", "studio"):
        assert command in done.stdout


def test_import_poolgrad_imports_no_command_line() -> None:
    probe = "import sys, poolgrad\nprint([m for m in ('typer', 'rich', 'poolgrad.cli', 'poolgrad.bench') if m in sys.modules])"
    assert process(script=("-c", probe)).stdout == "[]\n"


@pytest.mark.parametrize("command", ["grad", "pool", "explain", "translate", "run", "check", "bench", "demo", "studio"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage: poolgrad " + command in said(capsys, command, "--help")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == f"poolgrad {poolgrad.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [["no"], ["grad"], ["grad", "no.npy", "-o", "a.npy", "--input-shape", "1"], ["pool", "--no"], ["bench", "--rounds", "0"]],
    ids=" ".join,
)
def test_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, *arguments, code=2) == ""


def test_completion() -> None:
    done = process(_POOLGRAD_COMPLETE="complete_bash", COMP_WORDS="poolgrad tr", COMP_CWORD="1")
    assert done.stdout.split() == ["translate"]
    done = process(_POOLGRAD_COMPLETE="complete_bash", COMP_WORDS="poolgrad pool --dialect t", COMP_CWORD="3")
    assert done.stdout.split() == ["tensorflow", "torch"]


def test_nobody_reads_any_more() -> None:
    command = [sys.executable, "-m", "poolgrad", "explain", "--input-shape", "90,80", "--window", "1", "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 141


@pytest.mark.parametrize(("closed", "window", "code"), [("1", 2, 0), ("2", 2, 0), ("2", 0, 2)])
def test_a_closed_stream(closed: str, window: int, code: int) -> None:
    call = f"{sys.executable} -m poolgrad explain --input-shape 5 --window {window} {closed}>&-"
    done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (closed == "2" and code == 0)


MODEL: dict[str, Any] = {
    "resources": {
        "dY": {"initialValuesDataType": "FLOAT32", "initialValues": [3, 1, 4, 1]},
        "dX": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 9, "value": 0}},
    },
    "dispatchables": {
        "back": {
            "type": "DML_OPERATOR_AVERAGE_POOLING_GRAD",
            "desc": {
                "InputGradientTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 2, 2]},
                "OutputGradientTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 3]},
                "DimensionCount": 2,
                "Strides": [2, 2],
                "WindowSize": [2, 2],
                "StartPadding": [0, 0],
                "EndPadding": [1, 1],
                "IncludePadding": False,
            },
        }
    },
    "commands": [
        {"type": "dispatch", "dispatchable": "back", "bindings": {"InputGradientTensor": "dY", "OutputGradientTensor": "dX"}},
        {"type": "print", "resource": "dX"},
        {"type": "writeFile", "resource": "dX", "targetPath": "dx.npy", "dimensions": [1, 1, 3, 3]},
    ],
}
DX = [0.75, 0.75, 0.5, 0.75, 0.75, 0.5, 2, 2, 1]


def test_run_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.json").write_text(json.dumps(MODEL))
    Path("out").mkdir()
    text = said(capsys, "run", "model.json", "--output_path", "out", "-i", "5")
    assert "Dispatch 'back': 5 iterations" in text
    assert "Resource 'dX': 0.75, 0.75, 0.5, 0.75, 0.75, 0.5, 2, 2, 1" in text
    assert np.load("out/dx.npy").ravel().tolist() == DX
    assert json.loads(said(capsys, "run", "model.json", "--json"))["resources"]["dX"] == {"dtype": "float32", "values": DX}
    assert text.splitlines()[2] in said(capsys, "run", "-m", "model.json", "--dispatch_interval", "1")
    assert "one file" in refused(capsys, "run", "model.json", "--model", "model.json")
    assert "one file" in refused(capsys, "run")


def test_run_ends_in_2_when_a_file_was_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.json").write_text(json.dumps(MODEL))
    Path("dx.npy").mkdir()
    assert "Resource 'dX'" in said(capsys, "run", "model.json", code=2)
    assert json.loads(said(capsys, "run", "model.json", "--json", code=2))["resources"]["dX"]["values"] == DX


def test_run_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.json").write_text(json.dumps(MODEL).replace("AVERAGE_POOLING_GRAD", "GEMM"))
    assert "GEMM" in refused(capsys, "run", "model.json")
    assert "GEMM" in refused(capsys, "run", "model.json", "--json")
    Path("other.json").write_text("{}")
    assert "neither a DxDispatch model" in refused(capsys, "run", "other.json")
    Path("page.txt").write_text("")
    assert "ends in .json" in refused(capsys, "run", "page.txt")
    Path("page.svg").write_text("<svg")
    assert "page" in refused(capsys, "run", "page.svg")


def test_run_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    from poolgrad import enuspace

    for name in ("page.svg", "page.json"):
        enuspace.save_page(enuspace.corrected_page(), name)
        text = said(capsys, "run", name, "--elements", "3")
        assert "result_output[2][1][1][1][2]" in text
        report = json.loads(said(capsys, "run", name, "--json"))
        assert report["ok"]
        assert {"page", "watch", "log", "blocks"} <= set(report)


@pytest.mark.parametrize("name", ["basic.svg", "basic.json"])
def test_run_names_the_block_that_cannot_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(CASES / "enuspace" / name)]) == 2
    told = capsys.readouterr()
    assert "Value" in told.out
    assert "cannot run here" in told.err


def test_interrupted() -> None:
    Path("model.json").write_text(json.dumps(MODEL))
    command = [sys.executable, "-u", "-m", "poolgrad", "run", "model.json", "-t", "60000"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    # A shell's background jobs, and what they start, ignore interrupts.
    with subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert "Running" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert "Traceback" not in running.stderr.read()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_on_a_terminal_when_it_is_long(terminal: bool) -> None:
    pty = pytest.importorskip("pty")
    np.save("x.npy", np.ones((64, 64), np.float32))
    small = "s.BOX_BYTES = 64\np._candidates = lambda shape, target, item: [(1, 32)]\n"
    names = "import sys, poolgrad.cli.stream as s, poolgrad.volumes.plan as p\nfrom poolgrad.cli import main\n"
    script = f"{names}{small}sys.exit(main())"
    command = [sys.executable, "-c", script, "pool", "x.npy", "--window", "2", "-o", "y.npy"]
    shown, end = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, env=environment(TERM="xterm", COLUMNS="90")) as running:
        os.close(end)
        seen = b""
        while True:
            try:
                got = os.read(shown, 65536)
            except OSError:
                break
            if not got:
                break
            seen += got
        assert running.wait(60) == 0
    os.close(shown)
    assert (b"y.npy" in seen and b"/s" in seen) if terminal else seen == b""


def test_bench() -> None:
    pytest.importorskip("poolgrad.engines._native")
    done = process("bench", "--quick", "--cases", "2x2,fractional", "--no-peers", "--threads", "1", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    rows = report["tables"]["gradient-float32"]
    assert len(rows) == 4
    assert report["command"].startswith("poolgrad bench --quick --cases 2x2,fractional")
    for row in rows:
        assert [time > 0 for who in ("floor", "poolgrad") for time in row["rounds_ms"][who]] == [True, True]
        assert 0 <= row["ulps"] < 4
    assert "× floor" in done.stderr


def test_bench_beside_a_peer_and_into_a_folder() -> None:
    for needed in ("poolgrad.engines._native", "torch", "matplotlib"):
        pytest.importorskip(needed)
    arguments = ["--quick", "--cases", "2x2", "--dtype", "float16", "--peers", "torch", "--threads", "1", "--rounds", "1"]
    done = process("bench", *arguments, "--output", "kept")
    assert done.returncode == 0, done.stderr
    assert "PyTorch" in done.stdout
    [row, _] = json.loads(Path("kept/gradient-float16.json").read_text())["rows"]
    assert row["rounds_ms"]["PyTorch"][0] > 0
    assert row["peers_ulps"]["PyTorch"] >= 0
    assert picture("kept/gradient-float16.png")[0] > 600


@pytest.mark.parametrize(
    ("option", "value"), [("--cases", "9x9"), ("--dtype", "float8"), ("--direction", "sideways"), ("--peers", "caffe")]
)
def test_bench_refuses_what_it_does_not_know(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{value!r}" in refused(capsys, "bench", option, value)


def test_bench_writes_documentation_only_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("poolgrad.engines._native", "matplotlib"):
        pytest.importorskip(needed)
    assert "docs/performance.md" in refused(capsys, "bench", "--docs").replace("\\", "/")


KERNEL = """
import poolgrad
def right(dy, input_shape, window, **options):
    return poolgrad.avg_pool_grad(dy, input_shape, window, **options)
def wrong(dy, input_shape, window, **options):
    return right(dy, input_shape, window, **options) * dy.dtype.type(1.25)
"""


def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("kernel_of_mine.py").write_text(KERNEL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(poolgrad.__file__).parents[1])]))
    few = ["--group", "ceil", "--limit", "3"]
    assert "nothing wrong" in said(capsys, "check", "kernel_of_mine:right", *few)
    report = json.loads(said(capsys, "check", "kernel_of_mine:wrong", *few, "--html", "report.html", "--json", code=1))
    assert not report["ok"]
    assert "kernel_of_mine" in Path("report.html").read_text()
    assert said(capsys, "check", "kernel_of_mine:absent", *few, code=2) == ""
    told = said(capsys, "check", "kernel_of_mine:wrong", *few, code=1)
    assert f"\n{report['reproducers'][0]['script']}\n" in told, "it is there to be pasted"
    assert max(map(len, told.splitlines())) < 1000


def test_check_by_files(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(said(capsys, "check", "--emit", "cases", "--group", "ceil", "--limit", "2", "--json"))
    assert told == {"folder": "cases", "cases": 2}
    assert "no case has an answer" in refused(capsys, "check", "--judge", "cases")
    answers = [Path(shutil.copy(exact, "cases/dx")) for exact in sorted(Path("cases/exact").iterdir())]
    assert "nothing wrong" in said(capsys, "check", "--judge", "cases", "--html", "report.html")
    assert Path("report.html").stat().st_size > 1000
    np.save(answers[1], np.load(answers[1]) * 2)
    report = json.loads(said(capsys, "check", "--judge", "cases", "--json", code=1))
    assert [(row["right"], row["wrong"]) for row in report["groups"]] == [(1, 1), (1, 1)]
    assert "absent" in refused(capsys, "check", "--judge", "absent")
    assert "--python does not go" in refused(capsys, "check", "--emit", "more", "--python", sys.executable)


def test_check_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "one thing" in refused(capsys, "check")
    assert "one thing" in refused(capsys, "check", "torch", "--emit", "cases")
    assert "'caffe'" in refused(capsys, "check", "caffe")


def test_demo() -> None:
    pytest.importorskip("matplotlib")
    done = process("demo")
    assert done.returncode == 0, done.stderr
    assert "2.5" in done.stdout
    assert "41/9" in done.stdout
    assert picture("demo/gradient.png")[:2] == (1488, 1032)

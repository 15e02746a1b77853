"""The command line: every command, its exit codes, its JSON and its pictures; what a real process and a real pipe see."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support
from hypothesis import given, settings

pytest.importorskip("typer")
pytest.importorskip("rich")

import poolgrad
from poolgrad import Axis, Pool, dialects
from poolgrad.cli import main
from poolgrad.cli.describe import described
from poolgrad.cli.options import as_value, named_values
from poolgrad.cli.translate import as_text

CASES = Path(__file__).parent / "cases"
FRAMEWORKS = ("torch", "tensorflow", "jax", "onnxruntime", "matplotlib")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    return complaint


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POOLGRAD_")}
    return {**kept, "PYTHONPATH": str(Path(poolgrad.__file__).parents[1]), "NO_COLOR": "1", **more}


def process(*arguments: str, script: Sequence[str] = ("-m", "poolgrad"), **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(**more))


def blocked(*modules: str) -> str:
    """A program that is the command line where these modules are not installed."""
    return f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\nfrom poolgrad.cli import main\nsys.exit(main())"


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
    for command in ("grad", "pool", "explain", "translate", "run", "check", "bench", "demo"):
        assert command in done.stdout


def test_import_poolgrad_imports_no_command_line() -> None:
    probe = "import sys, poolgrad\nprint([m for m in ('typer', 'rich', 'poolgrad.cli', 'poolgrad.bench') if m in sys.modules])"
    assert process(script=("-c", probe)).stdout == "[]\n"


@pytest.mark.parametrize("command", ["grad", "pool", "explain", "translate", "run", "check", "bench", "demo"])
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
    script = "import sys, poolgrad.cli.stream as s\ns.BOX_BYTES = 64\nfrom poolgrad.cli import main\nsys.exit(main())"
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


@given(pool=support.pools(signed=False))
@settings(max_examples=60)
def test_the_description_is_the_pooling(pool: Pool) -> None:
    """The gradient rebuilt from the JSON's weights is the exact one."""
    axes = json.loads(json.dumps(described(pool)))["axes"]
    dy = support.random_array(3, pool.output_size, np.dtype(np.float64), "whole") * 2.0**20
    dx = np.zeros(pool.input_size)
    for at in product(*(range(n) for n in pool.input_size)):
        total = Fraction(0)
        for terms in product(*(axis["inputs"][i]["gets"] for axis, i in zip(axes, at, strict=True))):
            share = Fraction(1, pool.divisor or 1)
            for term in terms:
                share *= Fraction(term["weight"] or 1)
            total += share * int(dy[tuple(term["cell"] for term in terms)])
        dx[at] = total
    layout = "0123"[: len(pool.axes)]
    support.assert_same_bits(dx, poolgrad.exact.gradient(pool, dy, layout) + 0.0)
    for axis, table in zip(axes, pool.axes, strict=True):
        for cell in axis["cells"]:
            assert cell["divides_by"] == (None if pool.divisor else int(table.count[cell["cell"]]))


def test_explain_lists_every_window(capsys: pytest.CaptureFixture[str]) -> None:
    pooling = ["--input-shape", "5,4,6", "--layout", "DHW", "--window", "2,3,2", "--stride", "1,2,3", "--padding", "same"]
    text = said(capsys, "explain", *pooling)
    assert "20 windows\n" in text
    pool = Pool(tuple(Axis.regular(n, k, stride=s, padding="same") for n, k, s in ((5, 2, 1), (4, 3, 2), (6, 2, 3))))
    rows = [line for line in text.splitlines() if line.startswith("(")]
    assert len(rows) == np.prod(pool.output_size)
    last = rows[-1].replace(" ", "")
    divisor = int(np.prod([axis.count[-1] for axis in pool.axes]))
    assert last.startswith("(4,1,1)4")
    assert last.endswith(f"1/{divisor}·dy[4,1,1]") or divisor == 1
    many = ["--input-shape", "9,10", "--window", "1"]
    assert "90 windows; --all lists every one" in said(capsys, "explain", *many)
    assert said(capsys, "explain", *many, "--all").count("\n(") == 90


def test_explain_a_constant_divisor(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "explain", "--input-shape", "5,4", "--window", "2", "--divisor", "-7")
    assert "every window divides by -7" in text
    assert "-1/7·dy[1, 1]" in text


KINDS = {
    "one axis": ["--input-shape", "20", "--window", "5", "--stride", "2", "--padding", "same"],
    "same": ["--input-shape", "12,17", "--window", "3", "--stride", "2", "--padding", "same"],
    "adaptive": ["--input-shape", "9,14", "--output-size", "4,5"],
    "global": ["--input-shape", "7,7", "--output-size", "1"],
    "fractional": ["--input-shape", "8,5", "--sequence", "0,2,5,8", "--sequence", "0,2,4", "--overlapping"],
    "dilated": ["--input-shape", "10,13", "--window", "3,2", "--stride", "2,1", "--dilation", "2,3", "--padding", "1,0"],
    "volume": ["--input-shape", "6,9,7", "--layout", "DHW", "--window", "2,3,3", "--padding", "same", "--axes", "D,W"],
    "single axis of a volume": ["--input-shape", "6,9,7", "--layout", "DHW", "--window", "2", "--axes", "H"],
    "dialect": ["--input-shape", "1,2,9,8", "--dialect", "torch", "kernel_size=3,2", "divisor_override=5"],
    "large": ["--input-shape", "64,80", "--window", "3", "--stride", "2"],
}


def picture(path: str) -> tuple[int, int, Any]:
    """Width, height and the pixels of a PNG."""
    from matplotlib.image import imread

    width, height = struct.unpack(">II", Path(path).read_bytes()[16:24])
    return width, height, imread(path)


@pytest.mark.parametrize("kind", KINDS)
def test_pictures(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert said(capsys, "explain", *KINDS[kind], "--plot", "a.png") == "wrote a.png\n"
    width, height, pixels = picture("a.png")
    assert 600 <= width <= 2000
    assert 400 <= height <= 2000
    assert pixels.std() > 0.05
    border = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
    assert all((edge == 1).all() for edge in border), "something runs over the edge"


def test_pictures_show_the_chosen_axes(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    base = ["explain", *KINDS["volume"][:-2]]
    said(capsys, *base, "--plot", "hw.png")
    said(capsys, *base, "--plot", "dw.png", "--axes", "D,W")
    said(capsys, *base, "--plot", "hw2.svg", "--axes", "H,W")
    assert picture("hw.png")[:2] != picture("dw.png")[:2]
    said(capsys, *base, "--plot", "DW.SVG", "--axes", "D,W")
    drawn = {name: [f"axis {letter}:" in Path(name).read_text() for letter in "DHW"] for name in ("hw2.svg", "DW.SVG")}
    assert drawn == {"hw2.svg": [False, True, True], "DW.SVG": [True, False, True]}
    assert "every divisor times 2 along D" in Path("hw2.svg").read_text()
    report = json.loads(said(capsys, *base, "--plot", "hw.png", "--json"))
    assert report["plot"] == "hw.png"
    assert [axis["name"] for axis in report["axes"]] == ["D", "H", "W"]


EXPLAINED_WRONG = {
    "axes without a picture": (["--input-shape", "5,5", "--window", "2", "--axes", "H"], "--plot"),
    "unknown axis": (["--input-shape", "5,5", "--window", "2", "--axes", "D,W", "--plot", "a.png"], "'D,W'"),
    "one axis twice": (["--input-shape", "5,5", "--window", "2", "--axes", "H,H", "--plot", "a.png"], "'H,H'"),
    "no picture": (["--input-shape", "5,5", "--window", "2", "--plot", "a.npy"], "a.npy"),
    "picture too large": (["--input-shape", "5,5000", "--window", "2", "--plot", "a.png"], "512"),
    "empty picture": (["--input-shape", "5,5", "--output-size", "0,2", "--plot", "a.png"], "cells, got 0"),
    "too long": (["--input-shape", f"{2**27}", "--window", "1"], "1048576"),
    "too many meetings": (["--input-shape", "30000", "--window", "5000", "--stride", "1"], "1048576"),
    "too many windows": (["--input-shape", "2000,2000", "--window", "1", "--all"], "--all lists at most"),
    "too much padding": (["--input-shape", "5", "--window", "3", "--padding", f"{2**27}"], "1048576"),
}


@pytest.mark.parametrize("name", EXPLAINED_WRONG)
def test_explanations_that_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    arguments, reason = EXPLAINED_WRONG[name]
    assert reason in refused(capsys, "explain", *arguments)


TORCH = {"kernel_size": (3, 2), "stride": (2, 2), "padding": (1, 0)}
WORDS = ["kernel_size=3,2", "stride=2,2", "padding=1,0"]


@pytest.mark.parametrize("target", ["onnx", "directml", "poolgrad", "torch"])
def test_translate(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed can be typed, and means the same."""
    shape = (2, 3, 9, 8)
    common = ["translate", "torch", target, "--input-shape", "2,3,9,8", *WORDS]
    typed = named_values(shlex.split(said(capsys, *common)))
    assert dialects.dialect(target).read(typed, shape).pool(shape) == dialects.dialect("torch").read(TORCH, shape).pool(shape)
    want = dialects.translate(TORCH, "torch", target, shape)
    assert json.loads(said(capsys, *common, "--json"))["arguments"] == json.loads(json.dumps(want))


SAME = ["kernel_size=3,2", "stride=2,2", "padding=1,0", "count_include_pad=false"]


@pytest.mark.parametrize("target", dialects.NAMES)
def test_what_is_printed_can_be_typed(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--input-shape", "2,3,9,8"]
    want = json.loads(said(capsys, "explain", *shape, "--dialect", "torch", *SAME, "--json"))
    printed = said(capsys, "translate", "torch", target, *shape, *SAME)
    assert json.loads(said(capsys, "explain", *shape, "--dialect", target, *shlex.split(printed), "--json")) == want
    back = said(capsys, "translate", target, "torch", *shape, *shlex.split(printed))
    assert set(SAME) <= set(shlex.split(back))


def test_translate_into_another_layout(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["translate", "keras", "onnx", "--input-shape", "2,9,8,3", "pool_size=3,2", "strides=2"]
    assert "transpose" in said(capsys, *common, code=1)
    assert json.loads(said(capsys, *common, "--transpose", "--json"))["arguments"]["transpose"] == [0, 3, 1, 2]


def test_no_translation_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["translate", "torch", "keras", "--input-shape", "2,3,9,8", *WORDS]
    assert said(capsys, *common, code=1).startswith("none: ")
    report = json.loads(said(capsys, *common, "--json", code=1))
    assert report["arguments"] is None
    assert report["reason"]
    assert "'caffe'" in refused(capsys, "translate", "torch", "caffe", "--input-shape", "2,3,9,8", *WORDS)
    assert "kernel" in refused(capsys, "translate", "torch", "onnx", "--input-shape", "2,3,9,8", "stride=2")


@pytest.mark.parametrize("value", [3, -1, 2.5, True, False, None, "SAME", (3,), (3, 2), ((0, 1), (1, 1)), (1.0, 1.44), ()])
def test_values_are_read_as_they_are_written(value: Any) -> None:
    assert as_value(as_text(value)) == value
    assert type(as_value(as_text(value))) is type(value)


def test_words_in_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert as_value("3,none") == (3, None)
    assert as_value("(True,NULL),false") == ((True, None), False)
    assert as_value("'none'") == "none"
    kept = ["translate", "torch", "torch", "--input-shape", "2,3,10,12", "output_size=3,none"]
    assert said(capsys, *kept) == "op=adaptive_avg_pool2d output_size=3,12\n"
    assert "output_size 'three'" in refused(capsys, *kept[:-1], "output_size=three", "--input-shape", "2,3")
    assert "op='avg_pool2d'" in refused(capsys, "explain", "--dialect", "torch", "--input-shape", "5,6", "kernel_size=2")


def test_bench() -> None:
    pytest.importorskip("poolgrad.engines._native")
    done = process("bench", "--quick", "--cases", "2x2,fractional", "--no-peers", "--threads", "1", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    rows = report["tables"]["gradient-float32"]
    assert len(rows) == 4
    assert report["command"].startswith("poolgrad bench --quick --cases 2x2,fractional")
    for row in rows:
        assert row["floor_ms"] > 0
        assert row["ours_ms"] > 0
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
    assert row["peers_ms"]["PyTorch"] > 0
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

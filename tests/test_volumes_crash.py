"""Jobs that end early: killed at random moments and at every step, full disks, changed sources, ceilings. Real processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support
from cli_support import environment
from support import Array

pytest.importorskip("zarr")
pytest.importorskip("h5py")
pytest.importorskip("typer")
pytest.importorskip("rich")

import h5py
import zarr

import poolgrad
from poolgrad import PoolGradValueError, volumes
from poolgrad.volumes import journal, run, store

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and processes of POSIX")

SHAPE = (96, 34, 38, 40)
ARGUMENTS: dict[str, Any] = {"window": 3, "stride": 2, "padding": "same", "layout": "NDHW"}
OPTIONS = ["--window", "3", "--stride", "2", "--padding", "same", "--layout", "NDHW", "--input-shape", "96,34,38,40"]
KINDS = ("zarr", "npy", "h5")
SMALL_BOXES = """
import sys
import poolgrad.volumes.plan as plan, poolgrad.volumes.run as run
plan._candidates = lambda shape, target, item: [target.chunks or (1, *shape[1:])]
plan.SHARED_BYTES = run.WORTH_KEEPING = 0
from poolgrad.cli import main
"""
"""The command line, with a box for each image or chunk, every one of them worth keeping."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def volume() -> tuple[Array, Array]:
    """`dy`, in dy.zarr and dy.npy, and the gradient."""
    dy = support.random_array(7, (96, 17, 19, 20), np.dtype(np.float32))
    zarr.create_array("dy.zarr", data=dy, chunks=(4, 9, 10, 20), compressors=None)
    np.save("dy.npy", dy)
    return dy, poolgrad.avg_pool_grad(dy, SHAPE, **ARGUMENTS)


def load(kind: str) -> Array:
    if kind == "zarr":
        return np.asarray(zarr.open_array("dx.zarr", mode="r")[...])
    if kind == "h5":
        with h5py.File("dx.h5") as file:
            return np.asarray(file["dx"][...])
    return np.asarray(np.load("dx.npy"))


def command(kind: str, *more: str, before: str = "", source: str = "dy.zarr") -> list[str]:
    chunks = ["--chunks", "1,34,38,40"] if kind != "npy" else []
    said = ["grad", source, "-o", f"dx.{kind}", *OPTIONS, *chunks, "--threads", "2", "--json", *more]
    return [sys.executable, "-c", f"{SMALL_BOXES}{before}sys.exit(main())", *said]


def finished(kind: str, *more: str, **options: Any) -> dict[str, Any]:
    """What a run to the end says."""
    done = subprocess.run(command(kind, *more, **options), env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def recorded(kind: str) -> set[int]:
    """Boxes that the journal of a killed run holds; a line that was cut short is none."""
    path = Path(f".dx.{kind}.journal")
    text = path.read_bytes() if path.exists() else b""
    lines = [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]
    return {line["done"] for line in lines if "done" in line}


def leftovers() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.name.startswith("."))


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments(kind: str) -> None:
    """The same command goes on where it was: no box is made again, and the bits are those of one call."""
    _, want = volume()
    slow = "import time\nread = run.Call.__call__\nrun.Call.__call__ = lambda *a: (time.sleep(0.01), read(*a))[1]\n"
    rng, before = random.Random(kind), 0
    for _ in range(3):
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        running = subprocess.Popen(command(kind, before=slow), env=environment(), **quiet)
        deadline, wanted = time.monotonic() + 240, before + rng.randrange(1, 20)
        while len(recorded(kind)) < wanted and running.poll() is None and time.monotonic() < deadline:
            time.sleep(rng.random() * 0.01)
        running.kill()
        assert running.wait() == -signal.SIGKILL, running.stderr.read() if running.stderr else ""
        if running.stderr:
            running.stderr.close()
        assert not Path(f"dx.{kind}").exists()
        now = len(recorded(kind))
        assert now >= wanted
        before = now
    said = finished(kind)
    assert (said["boxes"], said["resumed"]) == (96, before)
    support.assert_same_bits(load(kind), want)
    assert leftovers() == []
    assert not list(Path().rglob("*.partial"))


EVERY_STEP = """
import os, signal, shutil
from pathlib import Path
import poolgrad.cli.app, poolgrad.volumes.zarr, poolgrad.volumes.hdf5
kind, folder = sys.argv[1], Path.cwd()
arguments = sys.argv[2:]
steps = ["write", "pwrite", "replace", "rename", "fsync", "ftruncate", "unlink", "open", "mkdir", "rmdir"]
plain = {name: getattr(os, name) for name in steps}
whole = {}

def child(kill_at):
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    left = [kill_at]
    def stepping(name):
        def step(*args, **kwargs):
            changes = name != "open" or bool(args[1] & (os.O_WRONLY | os.O_RDWR))
            left[0] -= changes
            if changes and left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return None if name == "fsync" else plain[name](*args, **kwargs)  # a kill does not need the disk
        return step
    for name in steps:
        setattr(os, name, stepping(name))
    sink = plain["open"](os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os._exit(main(arguments))

def content(path):
    if path.is_dir():
        return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    return path.read_bytes() if path.exists() else None

main(["explain", "--input-shape", "4", "--window", "2", "--json"])  # imports what every child needs
target, old = Path(f"dx.{kind}"), Path(f"old.{kind}")
assert child(0) == 0
right, before, killed = content(target), content(old), 0
while True:
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    (shutil.copytree if old.is_dir() else shutil.copy)(old, target)
    code, seen = child(killed + 1), content(target)
    moved = kind == "zarr" and seen is None
    assert seen in (before, right) or moved, f"half a result after step {killed}"
    if code == 0:
        break
    assert code == -signal.SIGKILL, code
    killed += 1
    assert child(0) == 0, f"did not go on after step {killed}"
    assert content(target) == right, f"wrong after step {killed}"
    left = [p.name for p in folder.iterdir() if p.name.startswith(".")]
    assert not left, f"{left} after step {killed}"
print(killed)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_step(kind: str) -> None:
    """Before each write, rename, removal and flush of a whole job that replaces an older result."""
    dy = support.random_array(2, (2, 4, 6), np.dtype(np.float32))
    zarr.create_array("dy.zarr", data=dy, chunks=(1, 4, 6), compressors=None)
    older = support.random_array(3, (2, 5), np.dtype(np.float32))
    if kind == "zarr":
        zarr.create_array("old.zarr", data=older)
    elif kind == "h5":
        h5py.File("old.h5", "w").create_dataset("dx", data=older)
    else:
        np.save("old.npy", older)
    options = ["--input-shape", "2,8,12", "--window", "2", "--layout", "NHW", "--threads", "1"]
    said = ["grad", "dy.zarr", "-o", f"dx.{kind}", *options]
    chunks = [] if kind == "npy" else ["--chunks", "1,8,12"]
    script = f"{SMALL_BOXES}{EVERY_STEP}"
    command = [sys.executable, "-c", script, kind, *said, *chunks]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.splitlines()[-1]) > 15


def stopped_after(kind: str, boxes: int, *more: str) -> None:
    """A run that is killed when so many boxes are done."""
    stop = (
        "import os, signal\nfrom poolgrad.volumes.journal import Journal\nrecord = Journal.record\n"
        "def counted(self, box):\n    record(self, box)\n"
        f"    len(self.done) >= {boxes} and os.kill(os.getpid(), signal.SIGKILL)\nJournal.record = counted\n"
    )
    done = subprocess.run(command(kind, *more, before=stop), env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr


def failed(kind: str, *more: str, **options: Any) -> str:
    """The one line of a refusal."""
    done = subprocess.run(command(kind, *more, **options), env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    return done.stderr


def test_other_arguments_or_a_changed_source_are_refused_until_restarted() -> None:
    _, want = volume()
    stopped_after("zarr", 40)
    said = failed("zarr", "--count", "window")
    assert "with another pooling" in said
    assert "--restart" in said
    assert len(recorded("zarr")) >= 40
    os.utime("dy.zarr/c/0/0/0/0", ns=(1, 1))
    assert "with another state of the source" in failed("zarr")
    said_by = finished("zarr", "--restart")
    assert said_by["resumed"] == 0
    support.assert_same_bits(load("zarr"), want)
    assert leftovers() == []


@pytest.mark.parametrize("source", ["dy.zarr", "dy.npy"])
def test_a_source_that_changes_under_the_job(source: str) -> None:
    volume()
    touched = "dy.zarr/c/0/0/0/0" if source == "dy.zarr" else "dy.npy"
    change = (
        "from poolgrad.volumes.journal import Journal\nimport os\nrecord = Journal.record\n"
        f"def changing(self, box):\n    record(self, box)\n    len(self.done) == 50 and os.utime({touched!r}, ns=(1, 1))\n"
        "Journal.record = changing\n"
    )
    said = failed("npy", before=change, source=source)
    assert f"{source} changed while it was read" in said
    assert not Path("dx.npy").exists()
    assert "another state of the source" in failed("npy", source=source)
    finished("npy", "--restart", source=source)


def test_a_source_cut_short_under_the_job() -> None:
    volume()
    cut = (
        "from poolgrad.volumes.journal import Journal\nimport os\nrecord = Journal.record\n"
        "def cutting(self, box):\n    record(self, box)\n    len(self.done) == 50 and os.truncate('dy.npy', 9999)\n"
        "Journal.record = cutting\n"
    )
    assert "cut short while it was read" in failed("npy", before=cut, source="dy.npy")
    assert not Path("dx.npy").exists()


def test_two_runs_never_write_one_result() -> None:
    volume()
    wait = "import time\nread = run.Call.__call__\nrun.Call.__call__ = lambda *a: (time.sleep(0.05), read(*a))[1]\n"
    with subprocess.Popen(command("zarr", before=wait), env=environment(), stdout=subprocess.PIPE, text=True) as first:
        deadline = time.monotonic() + 240
        while not recorded("zarr") and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "another run is writing this result" in failed("zarr")
        first.kill()


def test_interrupted_runs_go_on() -> None:
    _, want = volume()
    slow = "import time\nread = run.Call.__call__\nrun.Call.__call__ = lambda *a: (time.sleep(0.03), read(*a))[1]\n"
    listening: Any = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True, "env": environment()}
    quiet: Any = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(command("npy", before=slow), **listening, **quiet) as running:
        deadline = time.monotonic() + 240
        while len(recorded("npy")) < 5 and time.monotonic() < deadline:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr is not None
        assert "the same command goes on from here" in running.stderr.read()
    before = len(recorded("npy"))
    assert finished("npy")["resumed"] == before >= 5
    support.assert_same_bits(load("npy"), want)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk(kind: str, tmp_path: Path) -> None:
    """A file system with too little room: a clear error; with more room the same command goes on."""
    _, want = volume()
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        blind = "import shutil\nshutil.disk_usage = lambda path: type('U', (), {'free': 1 << 60})\n"
        there = [*command(kind, before=blind)]
        there[there.index(f"dx.{kind}")] = f"disk/dx.{kind}"
        done = subprocess.run(there, env=environment(), capture_output=True, text=True, timeout=300)
        assert done.returncode == 2
        assert "No space left on device, after" in done.stderr
        assert "the same command goes on from there" in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (disk / f"dx.{kind}").exists()
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        done = subprocess.run(there, env=environment(), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["resumed"] > 10
        shutil.move(disk / f"dx.{kind}", f"dx.{kind}")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    support.assert_same_bits(load(kind), want)


def test_a_file_that_may_not_grow() -> None:
    volume()
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
    said = failed("npy", before=limit)
    assert "dx.npy cannot be written: File too large" in said
    limit = limit.replace("1 << 20", "150_000")
    assert "File too large, after 0 of" in failed("zarr", before=limit)
    assert not Path("dx.npy").exists()
    assert not Path("dx.zarr").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="drops the rights of root")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    volume()
    drop = (
        "import os\nJournal = run.Journal\n"
        "def unprivileged(path, **how):\n    os.setgid(65534), os.setuid(65534)\n    return Journal(path, **how)\n"
        "run.Journal = unprivileged\n"
    )
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    for kind in KINDS[:2]:
        assert f"dx.{kind} cannot be written: Permission denied" in failed(kind, before=drop)
    assert leftovers() == []


def peak(script: str) -> int:
    """Bytes of memory that a program held at most."""
    ask = "print([int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')][0])"
    command = [sys.executable, "-c", f"{script}\n{ask}"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks the kernel of Linux")
@pytest.mark.parametrize(("source", "kind"), [("dy.zarr", "zarr"), ("dy.npy", "npy"), ("dy.npy", "h5"), ("dy.zarr", "npy")])
def test_the_ceiling_holds(source: str, kind: str) -> None:
    """A result of 256 MiB in 224 MiB, of which the interpreter and its libraries take half."""
    dy = np.random.default_rng(0).standard_normal((128, 256, 256), dtype=np.float32)
    np.save("dy.npy", dy)
    zarr.create_array("dy.zarr", data=dy, chunks=(32, 64, 64), compressors=None)
    options = ["--input-shape", "256,512,512", "--window", "2", "--layout", "DHW", "--memory", "224MiB"]
    said = ["grad", source, "-o", f"dx.{kind}", *options]
    held = peak(f"from poolgrad.cli import main\nassert main({said}) == 0")
    assert held <= 224 << 20
    support.assert_same_bits(load(kind), dy.repeat(2, 0).repeat(2, 1).repeat(2, 2) / np.float32(8))


def test_a_ceiling_below_one_chunk_names_one_that_works() -> None:
    dy = np.random.default_rng(0).standard_normal((64, 128, 128), dtype=np.float32)
    zarr.create_array("dy.zarr", data=dy, chunks=(64, 128, 128), compressors=None)
    options = ["--window", "2", "--layout", "DHW", "--input-shape", "128,256,256"]
    base = [sys.executable, "-m", "poolgrad", "grad", "dy.zarr", "-o", "dx.zarr", *options]
    done = subprocess.run([*base, "--memory", "130MiB"], env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert "do not fit 130MiB: give a memory of at least " in done.stderr
    assert leftovers() == []
    least = int(done.stderr.split("at least ")[1].split("MiB")[0])
    said = ["grad", "dy.zarr", "-o", "dx.zarr", *options, "--memory", f"{least + 8}MiB"]
    assert peak(f"from poolgrad.cli import main\nassert main({said}) == 0") <= (least + 8) << 20


def test_the_journal() -> None:
    path = Path("j")
    first = journal.Journal(path)
    first.begin({"a": 1}, (2, 3))
    for box in (0, 1, 5, 7):
        first.record(box)
    first.record_synced({0, 1})
    with pytest.raises(store.StoreError, match="another run"):
        journal.Journal(path)
    first.close()
    with open(path, "ab") as file:
        file.write(b'{"done": 8}\n{"done": 9')
    again = journal.Journal(path)
    assert (again.job, again.boxes, again.done, again.synced) == ({"a": 1}, (2, 3), {0, 1, 5, 7, 8}, {0, 1})
    again.resume()
    again.record(9)
    again.close()
    assert json.loads(path.read_text().splitlines()[-1]) == {"done": 9}


def test_after_a_crash_of_the_machine_only_what_reached_the_disk_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = journal.Journal(Path("j"))
    first.begin({}, (1,))
    first.record(0)
    first.record_synced({0})
    first.record(1)
    first.close()
    monkeypatch.setattr(journal, "_boot", lambda: "another start")
    second = journal.Journal(Path("j"))
    assert second.done == {0}
    second.resume()
    second.record(2)
    second.close()
    third = journal.Journal(Path("j"))
    assert third.done == {0, 2}
    third.close()
    monkeypatch.setattr(journal, "_boot", lambda: None)
    fourth = journal.Journal(Path("j"))
    assert fourth.done == {0}
    fourth.close()


@pytest.mark.parametrize("text", ["x\n", "[]\n", '{"poolgrad": 9, "job": {}, "boxes": [1]}\n', '{"poolgrad": 1}\n'])
def test_a_journal_of_something_else(text: str) -> None:
    Path("j").write_text(text)
    with pytest.raises(PoolGradValueError, match="remove it to begin anew"):
        journal.Journal(Path("j"))
    assert Path("j").read_text() == text


def test_a_part_that_was_taken_away_is_made_anew() -> None:
    _, want = volume()
    for kind in KINDS:
        stopped_after(kind, 30)
        part = Path(f".dx.{kind}.part")
        shutil.rmtree(part) if part.is_dir() else part.unlink()
        assert finished(kind)["resumed"] == 0
        support.assert_same_bits(load(kind), want)


def test_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the function reports, and that an exception of the caller's own ends a job that can be resumed."""
    _, want = volume()
    monkeypatch.setattr(run, "WORTH_KEEPING", 0)
    seen: list[int] = []

    def progress(done: int, size: int) -> None:
        assert size == want.nbytes
        seen.append(done)
        if done > size // 2:
            raise RuntimeError("enough")

    options: dict[str, Any] = {"chunks": (4, 34, 38, 40), **ARGUMENTS}
    with pytest.raises(RuntimeError, match="enough"):
        volumes.grad("dy.npy", "dx.zarr", SHAPE, progress=progress, memory="96MiB", **options)
    assert seen == sorted(seen)
    report = volumes.grad("dy.npy", "dx.zarr", SHAPE, **options)
    assert 0 < report.resumed <= report.boxes
    support.assert_same_bits(load("zarr"), want)

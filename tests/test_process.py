"""What a process sees: imports, the absent core, environment variables, forks, threads, and the bound on scratch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support

import poolgrad
from poolgrad import Axis, Pool, far
from poolgrad.layout import spatial_positions

PACKAGE = Path(poolgrad.__file__).parent
NATIVE = any(PACKAGE.glob("engines/_native*.so")) or any(PACKAGE.glob("engines/_native*.pyd"))
needs_core = pytest.mark.skipif(not NATIVE, reason="the compiled core is not beside the package")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PROBE = """
import hashlib, numpy as np, poolgrad
def digest(threads=None):
    made = hashlib.sha256()
    for dtype in (np.float16, np.float32, np.float64):
        x = np.random.default_rng(1).standard_normal((2, 61, 67, 9)).astype(dtype)
        y = poolgrad.avg_pool(x, 15, stride=2, padding="same", num_threads=threads)
        made.update(y.tobytes())
        made.update(poolgrad.avg_pool_grad(y, x.shape, 15, stride=2, padding="same", num_threads=threads).tobytes())
    return made.hexdigest()
"""


def run(script: str, root: Path = PACKAGE.parent, options: Sequence[str] = ("-c",), **environment: str) -> Any:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("POOLGRAD_", "PYTHONWARNINGS"))}
    env = {**kept, "PYTHONPATH": str(root), **environment}
    return subprocess.run([sys.executable, *options, script], capture_output=True, text=True, timeout=120, env=env)


def answer(script: str, **more: Any) -> str:
    done = run(script, **more)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def digest() -> str:
    return answer(PROBE + "print(digest())")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without its compiled core."""
    root = tmp_path_factory.mktemp("bare")
    shutil.copytree(PACKAGE, root / "poolgrad", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    return root


FRAMEWORKS = ("torch", "tensorflow", "jax", "scipy", "matplotlib", "cupy", "dask", "onnxruntime", "pandas")


def test_import_brings_in_no_framework() -> None:
    loaded = answer("import poolgrad, sys; print(' '.join(sorted(sys.modules)))").split()
    assert not {name.split(".")[0] for name in loaded} & set(FRAMEWORKS)
    assert "poolgrad.exact" not in loaded


def test_first_use_brings_in_no_framework() -> None:
    loaded = answer(PROBE + "import sys; digest(); print(' '.join(sorted(sys.modules)))").split()
    assert not {name.split(".")[0] for name in loaded} & set(FRAMEWORKS)


def test_the_oracle_is_a_submodule() -> None:
    assert answer("from poolgrad import exact; print(exact.__name__)") == "poolgrad.exact"


@needs_core
@pytest.mark.skipif(not any(PACKAGE.parent.glob("poolgrad-*.dist-info")), reason="this core is not one to install")
def test_the_wheel_is_small(tmp_path: Path) -> None:
    """Its files, packed as a wheel packs them, take less than 2 MB."""
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for file in PACKAGE.rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                packed.write(file, file.relative_to(PACKAGE))
    assert (tmp_path / "wheel.zip").stat().st_size < 2_000_000


def test_everything_public_is_there() -> None:
    for name in poolgrad.__all__:
        assert getattr(poolgrad, name).__doc__, f"{name} says nothing about itself"


def test_absent_core_warns_once_and_gives_the_same_bits(bare: Path, digest: str) -> None:
    script = PROBE + "import warnings\nwith warnings.catch_warnings(record=True) as caught:\n"
    script += "    warnings.simplefilter('always')\n    print(digest())\n    digest()\n"
    script += "print([(w.category.__name__, 'compiled core is absent' in str(w.message)) for w in caught])"
    got, warned = answer(script, root=bare).split("\n")
    assert got == digest
    assert warned == "[('RuntimeWarning', True)]"


def test_absent_core_imports_in_silence(bare: Path) -> None:
    answer("import poolgrad", root=bare, options=["-W", "error", "-c"])


def test_absent_core_does_not_warn_who_asked_for_numpy(bare: Path, digest: str) -> None:
    got = answer(PROBE + "print(digest())", root=bare, options=["-W", "error", "-c"], POOLGRAD_ENGINE="numpy")
    assert got == digest


def test_absent_core_refuses_who_asked_for_native(bare: Path) -> None:
    done = run(PROBE + "digest()", root=bare, POOLGRAD_ENGINE="native")
    assert done.returncode != 0
    assert "_native" in done.stderr


@needs_core
def test_engine_from_the_environment(digest: str) -> None:
    script = PROBE + "import sys\nprint(digest(), 'poolgrad.engines._native' in sys.modules)"
    assert answer(script, POOLGRAD_ENGINE="numpy") == f"{digest} False"
    assert answer(script, POOLGRAD_ENGINE="native") == f"{digest} True"
    assert answer(script, POOLGRAD_ENGINE="") == f"{digest} True"


@needs_core
def test_isa_from_the_environment(digest: str, isa: str) -> None:
    script = PROBE + "from poolgrad.engines import _native\nprint(digest(), _native.isa())"
    assert answer(script, POOLGRAD_ISA=isa) == f"{digest} {isa}"


@needs_core
@pytest.mark.parametrize("threads", ["1", "2", "7", "1024"])
def test_threads_from_the_environment(digest: str, threads: str) -> None:
    script = PROBE + "from poolgrad.engines import native\nprint(digest(), native.default_threads())"
    assert answer(script, POOLGRAD_NUM_THREADS=threads) == f"{digest} {threads}"


BAD = [
    ("POOLGRAD_ENGINE", "cuda"),
    ("POOLGRAD_ISA", "sse9"),
    ("POOLGRAD_NUM_THREADS", "0"),
    ("POOLGRAD_NUM_THREADS", "-1"),
    ("POOLGRAD_NUM_THREADS", "many"),
    ("POOLGRAD_NUM_THREADS", "1025"),
    ("POOLGRAD_NUM_THREADS", "²"),
    ("POOLGRAD_NUM_THREADS", "9" * 50),
]


@needs_core
@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_environment_is_refused_by_name(name: str, value: str) -> None:
    """At each use, never at import; and the second use says the same as the first."""
    script = PROBE + "for _ in (1, 2):\n    try: digest()\n    except poolgrad.PoolGradValueError as e: print(e)"
    lines = answer(script, **{name: value}).split("\n")
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert name in lines[0]
    assert repr(value) in lines[0]


@needs_core
@needs_fork
def test_fork_after_use(digest: str) -> None:
    """The pool's threads do not survive a fork; the child starts its own."""
    script = PROBE + """
import os
before = digest(3)
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if digest() == digest(3) == digest(2) == before else 9)
    assert os.waitpid(child, 0)[1] == 0
    assert digest(3) == before
print(before)
"""
    assert answer(script) == digest


@needs_core
@needs_fork
def test_fork_while_another_thread_computes(digest: str) -> None:
    """A fork takes only its own thread along: locks held by others must not be waited for."""
    script = PROBE + """
import os, threading
digest(2)
stop = threading.Event()
def work():
    while not stop.is_set():
        digest(2)
worker = threading.Thread(target=work)
worker.start()
codes = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if digest(2) == digest(1) else 9)
    codes.append(os.waitpid(child, 0)[1])
stop.set()
worker.join()
print(codes == [0] * 5, digest())
"""
    assert answer(script) == f"True {digest}"


@needs_core
@needs_fork
def test_a_pool_of_processes_keeps_to_one_thread_each(digest: str) -> None:
    script = PROBE + """
import multiprocessing, os
def work(_):
    from poolgrad.engines import native
    return digest(), digest(2), str(native.default_threads())
digest(2)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(*sorted(set(sum(map(list, pool.map(work, range(4))), []))))
"""
    assert answer(script) == f"1 {digest}"


@needs_core
def test_a_spawned_worker_keeps_to_one_thread(tmp_path: Path, digest: str) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        PROBE
        + """
import multiprocessing
def work(_):
    from poolgrad.engines import native
    return digest(), native.default_threads()
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(*pool.map(work, [0])[0])
"""
    )
    assert answer(str(script), options=()) == f"{digest} 1"


@needs_core
@needs_fork
def test_a_child_told_how_many_threads_obeys() -> None:
    script = "import os\nfrom poolgrad.engines import native\nchild = os.fork()\n"
    script += "if child == 0: os._exit(native.default_threads())\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    assert answer(script, POOLGRAD_NUM_THREADS="5") == "5"
    assert answer(script) == "1"


@pytest.mark.parametrize("num_threads", [None, 1, 2, 3])
def test_calls_from_several_threads_agree(num_threads: int | None) -> None:
    """One pool of workers serves one caller at a time; the others compute by themselves."""
    pool = Pool((Axis.regular(61, 15, stride=1, padding="same"), Axis.regular(67, 3, stride=2)))
    dy = support.random_array(1, (2, *pool.output_size, 9), np.dtype(np.float32))
    want = support.compute("numpy", pool, dy, "NHWC", forwards=False)
    failures: list[str] = []

    def work() -> None:
        for _ in range(20):
            got = poolgrad.gradient(pool, dy, num_threads=num_threads)
            if not support.same_bits(got, want):
                failures.append("other bits")

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_plans_of_several_threads_agree() -> None:
    """Kept plans come and go while calls with ever other strides, dtypes and thread counts use them."""
    pool = Pool((Axis.regular(40, 3, stride=2), Axis.regular(50, 9, stride=1)))
    sources = [support.random_array(1, (3, *pool.output_size, 5), dtype) for dtype in support.DTYPES]
    views = [[support.in_memory(source, view) for view in support.VIEWS[:4]] for source in sources]
    wanted = [support.compute("numpy", pool, source, "NHWC", forwards=False) for source in sources]
    failures: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            kind, view, threads = int(rng.integers(4)), int(rng.integers(4)), int(rng.integers(1, 4))
            if not support.same_bits(poolgrad.gradient(pool, views[kind][view], num_threads=threads), wanted[kind]):
                failures.append((kind, view, threads))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


MIB = 1 << 20
SCRATCH: list[tuple[str, tuple[int, ...], tuple[int, ...], Any, Any]] = [
    (layout, sizes, outer, window, stride)
    for layout, sizes in [
        ("NHWC", (112, 112)),
        ("NCHW", (112, 112)),
        ("NHWC", (4096, 64)),
        ("NHWC", (64, 4096)),
        ("NCHW", (4096, 4096)),
        ("HWNC", (256, 4096)),
        ("CWHN", (4096, 37)),
        ("NDHWC", (32, 64, 64)),
        ("NCDHW", (128, 128, 128)),
        ("NLC", (4096,)),
        ("NCL", (4096,)),
    ]
    for outer in [(1, 1), (1, 3), (2, 64), (3, 513), (64, 2048)]
    for window, stride in [(2, 2), (3, 1), (3, 2), (15, 1), (63, 1), (127, 1), (127, 64), ("whole", None)]
]


def plan_of(case: Any, forwards: bool, dtype: Any) -> tuple[int, int]:
    """Scratch per thread and size of the result, in bytes; the arrays are made but never touched."""
    from poolgrad.engines import native

    layout, sizes, outer, window, stride = case
    if window == "whole":
        pool = Pool(tuple(Axis.whole(n) for n in sizes))
    else:
        pool = Pool(tuple(Axis.regular(n, min(window, n), stride=stride, padding="same") for n in sizes))
    shape = support.source_shape(pool, layout, *outer, forwards=forwards)
    result = support.result_shape(pool, shape, layout, forwards=forwards)
    (piece,) = pool.forward_pieces() if forwards else pool.gradient_pieces()
    bound = native.operation(piece.sums, spatial_positions(layout, len(shape)), shape, result)
    source, out = np.empty(shape, dtype), np.empty(result, dtype)
    return bound.plan(source, out, 2)["scratch"], out.nbytes


@needs_core
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
def test_scratch_is_bounded(forwards: bool, dtype: Any) -> None:
    """Eight MiB a thread for windows up to 127 and axes up to 4,096; never an eighth of the result more than that."""
    for case in SCRATCH:
        if np.prod(case[1]) * np.prod(case[2]) * np.dtype(dtype).itemsize > 2 << 30:
            continue
        scratch, result = plan_of(case, forwards, dtype)
        note = f"{case}: {scratch / MIB:.2f} MiB of scratch for a result of {result / MIB:.2f} MiB"
        assert scratch <= result / 8 + 8 * MIB, note
        assert scratch <= 8 * MIB or (case[3] == "whole" and max(case[1]) > 127), note


@needs_core
def test_scratch_of_longer_axes() -> None:
    """Beyond those sizes the other bound still holds (windows above `far.FAR` never reach the engine whole: test_far.py)."""
    long: list[Any] = [
        ("L", (1_000_000,), (1, 1), 1001, 1),
        ("NLC", (100_000,), (1, 8), 5001, 1),
        ("NCL", (50_000,), (2, 3), far.FAR, 1),
        ("HW", (20_000, 300), (1, 1), 255, 1),
        ("HWC", (300, 20_000), (1, 5), 299, 2),
    ]
    for case in long:
        for forwards in (False, True):
            scratch, result = plan_of(case, forwards, np.float32)
            assert scratch <= result / 8 + 8 * MIB, f"{case}: {scratch / MIB:.2f} MiB for a result of {result / MIB:.2f} MiB"

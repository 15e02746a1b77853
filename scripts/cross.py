"""Compile the C++ core, but for its Python binding, for systems and processors other than this one.

The handler for XLA is compiled where jaxlib, which carries the headers, is installed.

Nothing is linked or run: this shows that every source is portable C++17. The compiler is the `ziglang` package, which
brings the headers of every system with it. MSVC is no part of it, so its way through the sources is checked by hiding
what marks GCC and Clang: then only the portable twins are left.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "native"
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-psabi"]
TARGETS = ("aarch64-linux-gnu", "aarch64-macos", "aarch64-windows-gnu", "x86_64-windows-gnu", "x86_64-macos")
WIDE = {
    "avx2": ["-mavx2", "-mf16c"],
    "avx512": ["-mf16c", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"],
}
HIDE_COMPILER = """
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#undef __GNUC__
#undef __clang__
"""


def xla_headers() -> list[str]:
    found = importlib.util.find_spec("jaxlib")
    return ["-isystem", str(Path(found.origin).parent / "include")] if found and found.origin else []


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        hide = Path(folder, "hide_compiler.h")
        hide.write_text(HIDE_COMPILER)
        jobs: list[tuple[str, str, str, list[str]]] = []
        for target in TARGETS:
            x86 = target.startswith("x86_64")
            base = ["-DPOOLGRAD_X86"] if x86 else []
            special = ("module.cpp", "kernel.cpp", "xla.cpp")
            others = [source.name for source in sorted(NATIVE.glob("*.cpp")) if source.name not in special]
            jobs += [(target, source, "", base) for source in others]
            if headers := xla_headers():
                jobs.append((target, "xla.cpp", "", [*base, *headers]))
            jobs.append((target, "kernel.cpp", "baseline", [*base, "-DPG_ISA=baseline"]))
            jobs += [(target, "kernel.cpp", isa, [*base, f"-DPG_ISA={isa}", *flags]) for isa, flags in WIDE.items() if x86]
        for isa, flags in {"baseline": [], "avx2": WIDE["avx2"]}.items():
            hidden = ["-DPOOLGRAD_X86", f"-DPG_ISA={isa}", *flags, "-include", str(hide)]
            jobs.append(("x86_64-windows-gnu", "kernel.cpp", f"{isa}, as MSVC reads it", hidden))
        with ThreadPoolExecutor(os.cpu_count()) as at_once:
            good = list(at_once.map(lambda job: compiles(folder, *job), jobs))
    print(f"{sum(good)} of {len(jobs)} compile")
    return 0 if all(good) else 1


def compiles(folder: str, target: str, source: str, kind: str, flags: list[str]) -> bool:
    handle, out = tempfile.mkstemp(suffix=".o", dir=folder)
    os.close(handle)
    command = [sys.executable, "-m", "ziglang", "c++", "-target", target, *FLAGS, *flags, "-c", str(NATIVE / source), "-o", out]
    # The compiler's caches are made for linking; kept, they would only grow.
    caches = {"ZIG_LOCAL_CACHE_DIR": folder, "ZIG_GLOBAL_CACHE_DIR": folder}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **caches}, check=False)
    said = "\n".join(done.stderr.splitlines()[:30])
    name = f"{target:20} {source} {f'({kind})' if kind else ''}"
    print(f"{'FAILED' if done.returncode else 'ok':6} {name}\n{said}".rstrip(), flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

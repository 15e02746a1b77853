#!/usr/bin/env bash
# The C++ core under the sanitizers of GCC or Clang on Linux: the test suite under AddressSanitizer and
# UndefinedBehaviorSanitizer, then the thread tests under ThreadSanitizer. Takes the Python to use; everything is built
# in .sanitize. What follows the Python is handed to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath --no-symlinks "${1:-.venv/bin/python}")
shift || true
compiler=${CXX:-g++}
export PATH="$(dirname "$python"):$PATH"  # cmake and ninja of that environment

# The interpreter is not built with the sanitizer, so its run-time library must be loaded first, and the C++ library with
# it: the interceptor of exceptions looks for it when it starts.
library() { "$compiler" -print-file-name="$1"; }

# A copy of the package with a core built under the sanitizer named: build NAME FLAGS
build() {
    local tree=.sanitize/$1
    mkdir -p "$tree/package"
    cmake -S . -B "$tree/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
        -DPOOLGRAD_SANITIZE="$2" -DPython_EXECUTABLE="$python" -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" >"$tree/configure.log" \
        || { cat "$tree/configure.log"; return 1; }
    cmake --build "$tree/build"
    rm -rf "$tree/package/poolgrad"
    cp -R src/poolgrad "$tree/package/"
    rm -f "$tree"/package/poolgrad/engines/_native*.so
    cp "$tree"/build/_native*.so "$tree/package/poolgrad/engines/"
}

# The frameworks are not built for this and take minutes to load: here they are as good as absent.
mkdir -p .sanitize/absent
for framework in torch tensorflow jax flax keras onnx onnxruntime; do
    echo "raise ModuleNotFoundError('left out under the sanitizers', name='$framework')" >".sanitize/absent/$framework.py"
done

# Tests that reach the core only through a framework or a program of their own.
left_out=(--ignore-glob='tests/test_cli*' --ignore-glob='tests/test_conformance*' --ignore-glob='tests/test_dialect_*'
    --ignore-glob='tests/test_*_live.py' --ignore=tests/test_translation.py --ignore-glob='tests/test_torch*' --ignore-glob='tests/test_tf_*' --ignore-glob='tests/test_jax*' --ignore=tests/test_docs.py)

# run NAME LIBRARIES ARGUMENTS...: the tests on that build. Leaks are the interpreter's own. Fewer random examples keep it
# within minutes. Addresses are fixed since ThreadSanitizer's shadow does not fit every random layout. Reports go into a
# file: the tests catch what is written to the terminal.
run() {
    local name=$1 libraries=$2
    shift 2
    local log=$PWD/.sanitize/$name/report
    rm -f "$log".*
    echo "== $name =="
    setarch "$(uname -m)" -R env \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path="$log" \
        UBSAN_OPTIONS=print_stacktrace=1:log_path="$log" \
        TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:suppressions="$PWD/scripts/tsan.supp":log_path="$log" \
        POOLGRAD_TEST_EXAMPLES="${POOLGRAD_TEST_EXAMPLES:-40}" \
        PYTHONPATH=".sanitize/$name/package:.sanitize/absent" LD_PRELOAD="$libraries" \
        "$python" -m pytest -p no:cacheprovider -q tests "${left_out[@]}" "$@" || { cat "$log".* 2>/dev/null; return 1; }
}

status=0
build address address,undefined
run address "$(library libasan.so) $(library libstdc++.so)" "$@" || status=1
build thread thread
run thread "$(library libtsan.so) $(library libstdc++.so)" -k "thread or fork or process" "$@" || status=1
exit $status

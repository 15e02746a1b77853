"""The custom call for CUDA devices, in real programs on the host: the bits of the core, scratch given back, nothing believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpu_host
import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool
from poolgrad.layout import spatial_positions

jax = pytest.importorskip("jax", minversion="0.8")
if gpu_host.COMPILER is None:
    pytest.skip("needs a C++ compiler", allow_module_level=True)

import jax_host  # noqa: E402
from jax import export  # noqa: E402

import poolgrad.jax as pj  # noqa: E402
from poolgrad.jax import device, frame, local  # noqa: E402
from poolgrad.jax.decode import decode  # noqa: E402
from poolgrad.jax.parts import encode, uncut  # noqa: E402
from poolgrad.jax.primitive import linear  # noqa: E402

jnp = jax.numpy
FLOAT32 = np.dtype(np.float32)
R = Axis.regular


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> jax_host.Bridge:
    return jax_host.Bridge(tmp_path_factory.mktemp("bridge"))


@pytest.fixture(autouse=True)
def _here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Doubles, and, for the tests that use the bridge, `poolgrad.jax` behind it; nothing of what they took stays taken."""
    with jax.enable_x64(True):
        if "bridge" not in request.fixturenames:
            yield
            return
        bridge = request.getfixturevalue("bridge")
        with bridge.instead():
            yield
        assert bridge.library.bytes_held() == 0
        assert bridge.device.streams <= {jax_host.STREAM}


C_NAMES = {
    frame.Extension: ("XLA_FFI_Extension_Base", {}),
    frame.Version: ("XLA_FFI_Api_Version", {}),
    frame.Metadata: ("XLA_FFI_Metadata", {}),
    frame.MetadataExtension: ("XLA_FFI_Metadata_Extension", {}),
    frame.Buffer: ("XLA_FFI_Buffer", {}),
    frame.Buffers: ("XLA_FFI_Args", {"buffers": "args"}),
    frame.Text: ("XLA_FFI_ByteSpan", {}),
    frame.Numbers: ("XLA_FFI_Array", {}),
    frame.Attributes: ("XLA_FFI_Attrs", {}),
    frame.ErrorCreate: ("XLA_FFI_Error_Create_Args", {}),
    frame.StreamGet: ("XLA_FFI_Stream_Get_Args", {}),
    frame.MemoryAllocate: ("XLA_FFI_DeviceMemory_Allocate_Args", {}),
    frame.MemoryFree: ("XLA_FFI_DeviceMemory_Free_Args", {}),
    frame.CallFrame: ("XLA_FFI_CallFrame", {}),
    frame.Api: (
        "XLA_FFI_Api",
        {
            "error_create": "XLA_FFI_Error_Create",
            "error_get_message": "XLA_FFI_Error_GetMessage",
            "error_destroy": "XLA_FFI_Error_Destroy",
            "handler_register": "XLA_FFI_Handler_Register",
            "stream_get": "XLA_FFI_Stream_Get",
            "type_register": None,  # it has had two names
            "execution_context_get": "XLA_FFI_ExecutionContext_Get",
            "state_set": "XLA_FFI_State_Set",
            "state_get": "XLA_FFI_State_Get",
            "memory_allocate": "XLA_FFI_DeviceMemory_Allocate",
            "memory_free": "XLA_FFI_DeviceMemory_Free",
        },
    ),
}
CODES = {
    "XLA_FFI_Extension_Metadata": frame.METADATA,
    "XLA_FFI_ExecutionStage_EXECUTE": frame.EXECUTE,
    "XLA_FFI_ArgType_BUFFER": frame.BUFFER,
    "XLA_FFI_RetType_BUFFER": frame.BUFFER,
    "XLA_FFI_AttrType_ARRAY": frame.ARRAY,
    "XLA_FFI_DataType_S64": frame.INT64,
    "XLA_FFI_Error_Code_INVALID_ARGUMENT": frame.INVALID_ARGUMENT,
    "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED": frame.RESOURCE_EXHAUSTED,
    "XLA_FFI_Error_Code_INTERNAL": frame.INTERNAL,
    "XLA_FFI_API_MAJOR": frame.MAJOR,
    **{f"XLA_FFI_DataType_{name}": code for code, name in zip(frame.DTYPES, ("F16", "F32", "F64", "BF16"), strict=True)},
}


def test_the_structures_are_those_of_the_header(tmp_path: Path) -> None:
    wanted = dict(CODES)
    for ours, (name, renamed) in C_NAMES.items():
        for field, *_ in ours._fields_:
            if (theirs := renamed.get(field, field)) is not None:
                wanted[f"offsetof({name}, {theirs})"] = getattr(ours, field).offset
    lines = "".join(f'std::printf("%lld\\n", (long long)({expression}));' for expression in wanted)
    text = f'#include <cstdio>\n#include "xla/ffi/api/c_api.h"\nint main() {{ {lines} }}'
    done = subprocess.run([str(jax_host.compiled(text, tmp_path, "offsets"))], capture_output=True, text=True, check=True)
    assert dict(zip(wanted, map(int, done.stdout.split()), strict=True)) == wanted


ROWS = [[0, 2, 3, 7], [0, 1, 4, 6]]
CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "window": ("avg_pool", ((3, 2),), {"stride": (2, 3), "padding": ((1, 0), (0, 1))}, "NHWC"),
    "dilated": ("avg_pool", ((2, 3),), {"stride": 1, "padding": "same", "dilation": (3, 2)}, "NCHW"),
    "divisor": ("avg_pool", ((2, 2),), {"stride": 1, "divisor": -7}, "HWC"),
    "volume": ("avg_pool", ((2, 3, 2),), {"stride": (1, 2, 2), "padding": "same"}, "NDHWC"),
    "long": ("avg_pool", ((13, 3),), {"stride": 1, "padding": "same"}, "NHDC"),
    "adaptive": ("adaptive_avg_pool", ((3, None),), {}, "NCHW"),
    "fractional": ("fractional_avg_pool", (ROWS,), {"overlapping": True}, "NHWC"),
}
EXTENTS = {"N": 2, "C": 3, "D": 15, "H": 7, "W": 6}


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_functions_give_the_bits_of_the_core(bridge: jax_host.Bridge, name: str, dtype: np.dtype[Any]) -> None:
    function, arguments, options, layout = CALLS[name]
    launched, taken = len(bridge.device.launches), bridge.library.times_taken()
    x = support.random_array(1, [EXTENTS[letter] for letter in layout], dtype, "special")
    y = getattr(pj, function)(jnp.asarray(x), *arguments, layout=layout, **options)
    support.assert_same_bits(np.asarray(y), getattr(poolgrad, function)(x, *arguments, layout=layout, **options))
    dy = support.random_array(2, y.shape, dtype, "special")
    rest = arguments if function != "adaptive_avg_pool" else ()
    dx = getattr(pj, f"{function}_grad")(jnp.asarray(dy), x.shape, *rest, layout=layout, **options)
    support.assert_same_bits(np.asarray(dx), getattr(poolgrad, f"{function}_grad")(dy, x.shape, *rest, layout=layout, **options))
    assert len(bridge.device.launches) > launched, "another lowering answered"
    assert (bridge.library.times_taken() > taken) == (name == "long"), "only long windows need scratch"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_pooling_gives_the_bits_of_the_core(bridge: jax_host.Bridge, data: st.DataObject) -> None:
    pool, forwards = data.draw(support.pools(most_axes=3, sizes=support.SMALL)), data.draw(st.booleans())
    layout = data.draw(support.layouts(len(pool.axes)))
    shape = support.source_shape(pool, layout, 2, data.draw(st.sampled_from([1, 3, 8])), forwards=forwards)
    source = support.random_array(data.draw(support.seeds), shape, data.draw(support.dtypes))
    spatial = spatial_positions(layout, source.ndim)
    got = jax.jit(lambda s: linear(s, pool, spatial, forwards))(source)
    support.assert_same_bits(np.asarray(got), support.compute("numpy", pool, source, layout, forwards=forwards), pool)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_kernels_written_for_their_tables(bridge: jax_host.Bridge, layout: str) -> None:
    pool = Pool((R(40, 15, stride=1, padding="same"), R(32, 3, stride=2, padding="same")))
    dy = support.random_array(3, support.source_shape(pool, layout, 3, 8, forwards=False), FLOAT32)
    device._pieces.cache_clear()
    with gpu_host.worth_writing(0):
        got = jax.jit(lambda s: linear(s, pool, spatial_positions(layout, 4), False))(dy)
        support.assert_same_bits(np.asarray(got), support.compute("numpy", pool, dy, layout, forwards=False))
    device._pieces.cache_clear()
    assert {"tile", "line"} & set(bridge.device.launches)


def test_intervals_of_any_length(bridge: jax_host.Bridge) -> None:
    """Too long for the kernel of the CPU; the device has no such limit."""
    pool = Pool((R(40000, 30000, stride=9000),))
    x = support.random_array(6, (2, 40000), FLOAT32)
    got = np.asarray(jax.jit(lambda x: linear(x, pool, (1,), True))(x))
    support.assert_same_bits(got, poolgrad.forward(pool, x, layout="NL"))


def ours(x: Any) -> Any:
    return pj.avg_pool(x, (3, 2), stride=(2, 3), padding=((1, 0), (1, 1)))


def cubed(x: Any) -> Any:
    return (ours(x) ** 3).sum()


SHAPE = (2, 7, 6, 3)
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "vjp": lambda x: jax.vjp(ours, x)[1](ours(x) * 2)[0],
    "grad of grad": jax.grad(lambda x: (jax.grad(cubed)(x) ** 2).sum()),
    "forward over reverse": lambda x: jax.jvp(jax.grad(cubed), (x,), (x * 2,))[1],
    "vmap of grad": jax.vmap(jax.grad(lambda x: cubed(x[None]))),
    "vmap over the last axis": jax.vmap(lambda x: ours(x[..., None]), in_axes=3, out_axes=1),
    "scan": lambda x: jax.lax.scan(lambda carry, image: (carry + 1, ours(image[None])), 0, x)[1],
    "remat": jax.grad(lambda x: (jax.checkpoint(ours)(x) ** 3).sum()),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_give_the_bits_of_the_kernel_of_the_cpu(bridge: jax_host.Bridge, name: str) -> None:
    x = support.random_array(3, SHAPE, np.dtype(np.float64))
    before = len(bridge.device.launches)
    got = np.asarray(jax.jit(TRANSFORMS[name])(x))
    assert len(bridge.device.launches) > before
    jax.clear_caches()
    jax_host.mlir.register_lowering(
        local.local_p, jax_host.mlir.lower_fun(local._on_cpu, multiple_results=False), platform="cpu"
    )
    support.assert_same_bits(got, np.asarray(jax.jit(TRANSFORMS[name])(x)))


def test_export(bridge: jax_host.Bridge) -> None:
    """The tables travel in the program: it runs although nothing is remembered of how it was made."""
    n, c = export.symbolic_shape("n, c")
    trusted = [export.DisabledSafetyCheck.custom_call(jax_host.TARGET)]
    given = jax.ShapeDtypeStruct((n, 7, 6, c), np.float32)
    saved = export.export(jax.jit(ours), disabled_checks=trusted)(given).serialize(vjp_order=1)
    device._pieces.cache_clear()
    encode.cache_clear()
    program, x = export.deserialize(saved), support.random_array(7, SHAPE, FLOAT32)
    options = {"stride": (2, 3), "padding": ((1, 0), (1, 1))}
    y = np.asarray(program.call(x))
    support.assert_same_bits(y, poolgrad.avg_pool(x, (3, 2), **options))
    support.assert_same_bits(np.asarray(program.vjp().call(x, y)[0]), poolgrad.avg_pool_grad(y, SHAPE, (3, 2), **options))


def test_a_program_for_cuda_holds_the_call_where_the_engine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    x = support.random_array(9, SHAPE, FLOAT32)
    trusted = [export.DisabledSafetyCheck.custom_call(local.TARGET)]
    for here in (True, False):
        monkeypatch.setattr(local, "has_engine", lambda here=here: here)
        jax.clear_caches()
        text = export.export(jax.jit(ours), platforms=("cuda",), disabled_checks=trusted)(x).mlir_module()
        assert ("@poolgrad_avg_pool(" in text) == here
    monkeypatch.setattr(local, "has_engine", lambda: True)
    jax.clear_caches()
    mapped: Any = ours
    for _ in range(9):
        mapped = jax.vmap(mapped)
    deep = export.export(jax.jit(mapped), platforms=("cuda",))(np.zeros((1,) * 9 + SHAPE, np.float32))
    assert "@poolgrad_avg_pool(" not in deep.mlir_module(), "more dimensions than the kernels take"
    jax.clear_caches()


def test_nothing_to_sum_and_nothing_to_make(bridge: jax_host.Bridge) -> None:
    none = pj.avg_pool(np.zeros((0, 7, 6, 3), np.float32), 2)
    assert none.shape == (0, 3, 3, 3)
    pool = Pool((R(5, 2), R(4, 2)))
    dy = np.zeros((2, 2, 2, 0), np.float32)
    assert jax.jit(lambda s: linear(s, pool, (1, 2), False))(dy).shape == (2, 5, 4, 0)


def called(tables: Any, x: Any, shape: tuple[int, ...], *, dtype: Any = None, given: Any = None, **other: Any) -> Any:
    call = jax.ffi.ffi_call(jax_host.TARGET, jax.ShapeDtypeStruct(shape, x.dtype if dtype is None else dtype))
    given = (x,) if given is None else given
    attributes = other or {"tables": tables if isinstance(tables, (str, np.ndarray)) else np.asarray(tables, dtype=np.int64)}
    return jax.block_until_ready(jax.jit(lambda *given: call(*given, **attributes))(*given))


REFUSALS = (jax.errors.JaxRuntimeError, ValueError)
"""What JAX raises: at the call, or when the result is waited for."""


def refused(words: str = "poolgrad") -> Any:
    return pytest.raises(REFUSALS, match=words)


def test_memory_that_is_not_there(bridge: jax_host.Bridge) -> None:
    x = support.random_array(4, (2, 40, 30, 3), FLOAT32)
    call = jax.jit(lambda x: pj.avg_pool(x, (13, 11), stride=1, padding="same"))
    want = np.asarray(call(x))
    try:
        for allowed in (0, x.nbytes + 100):
            bridge.library.allow(allowed)
            with refused("no memory is left"):
                jax.block_until_ready(call(x))
            assert bridge.library.bytes_held() == 0
    finally:
        bridge.library.allow(1 << 60)
    support.assert_same_bits(np.asarray(call(x)), want)


@pytest.mark.parametrize("failure", [RuntimeError("the device is gone"), KeyboardInterrupt(), MemoryError("all of it")])
def test_an_exception_becomes_an_error_of_xla(bridge: jax_host.Bridge, failure: BaseException) -> None:
    bridge.failure = failure
    try:
        with refused(f"poolgrad: {failure or type(failure).__name__}"):
            jax.block_until_ready(ours(support.random_array(5, SHAPE, FLOAT32)))
    finally:
        bridge.failure = None


def test_frames_that_are_no_pooling(bridge: jax_host.Bridge) -> None:
    pool = Pool((R(9, 3, stride=2),))
    tables = encode(pool, (1,), True, uncut(pool, True))
    x = jnp.asarray(support.random_array(8, (2, 9, 3), FLOAT32))
    assert called(tables, x, (2, 4, 3)).shape == (2, 4, 3)
    for words, how in {
        "1 operands, got 2": {"given": (x, x)},
        "1 operands, got 0": {"given": ()},
        "float64, got type 4": {"given": (x.astype(jnp.int32),), "dtype": jnp.int32},
        "must be float32 like its operand, got float16": {"dtype": jnp.float16},
        "an attribute 'tables'": {"numbers": tables},
        "must not be empty": {"given": (jnp.zeros((2, 0, 3), jnp.float32),)},
    }.items():
        with refused(words):
            called(tables, x, (2, 4, 3), **how)
    for other in (tables.astype(np.int32), "1"):
        with refused("an attribute 'tables'"):
            called(other, x, (2, 4, 3))
    with refused("end too soon"):
        called(tables[:0], x, (2, 4, 3))
    for shape in ((2, 3, 3), (2, 4, 4), (2, 4), (2, 5, 3)):
        with refused():
            called(tables, x, shape)


def test_no_table_is_believed(bridge: jax_host.Bridge) -> None:
    """Whatever its numbers say, nothing outside the buffers is touched."""
    pools = [Pool((R(9, 3, stride=2, dilation=2),)), Pool((R(30, 21, stride=1, padding="same"),))]
    rng, refusals = np.random.default_rng(0), []
    for pool in pools:
        tables = encode(pool, (1,), True, uncut(pool, True))
        x = jnp.asarray(support.random_array(8, (2, pool.input_size[0], 3), FLOAT32))
        shape = (2, pool.output_size[0], 3)
        for _ in range(60):
            bad = tables.copy()
            bad[rng.integers(len(bad))] = rng.choice([-1, 0, 1, 2, 3, 5, 9, 10, 2**31, 2**62, -(2**62)])
            try:
                called(bad[: rng.integers(len(bad) + 1)] if rng.random() < 0.3 else bad, x, shape)
            except REFUSALS as refusal:
                refusals.append(str(refusal))
    assert len(refusals) > 50
    assert all("poolgrad" in refusal for refusal in refusals)


def column(*numbers: int) -> list[int]:
    return [len(numbers), *(n for number in numbers for n in (number, 0, 1, 1))]


def one_class(rows: int, lo: list[int], hi: list[int], counts: list[int], reach: tuple[int, ...] = (4,)) -> list[int]:
    return [0, 1, rows, 0, 1, len(lo), 0, len(reach), *reach, *column(*lo), *column(*hi), *counts]


def test_the_classes_of_an_axis_make_every_position_once(bridge: jax_host.Bridge) -> None:
    x = jnp.ones(2, jnp.float32)
    first, both = (one_class(2, [0] * n, [1] * n, column(*[1] * n)) for n in (1, 2))
    assert called([1, 0, 1, 1, 1, 0, 1, 1, *both], x, (2,)).tolist() == [1, 1]
    for classes, words in [((), "out"), ((first,), "out"), ((first, first), "share"), ((both, both), "share")]:
        with refused(rf"poolgrad.*{words}"):
            called([1, 0, 1, 1, 1, 0, 1, len(classes), *(n for numbers in classes for n in numbers)], x, (2,))
    for start, words in {(1, 0, 1, 0, 1): "divisor", (2, 0, 1, 1, 1): "between", (1, 0, 1, 1, 2): "between"}.items():
        with refused(rf"poolgrad.*{words}"):
            called([*start, 0, 1, 1, *both], x, (2,))
    with refused(r"poolgrad.*between 1 and 1"):
        called([1, 0, 1, 1, 1, 0, 2, 1, *both, 1, *both], x, (2,))
    with refused(r"poolgrad.*once"):
        called([1, 0, 1, 1, 2, 0, 1, 1, *both, 0, 1, 1, *both], x[None] * x[:, None], (2, 2))


@pytest.mark.parametrize(("first", "last"), [(3, 1), (3, 3 - 2**32), (2**63 - 1, 0), (2**62, 2**62), (3, 5), (0, 4)])
def test_no_interval_is_believed(bridge: jax_host.Bridge, first: int, last: int) -> None:
    x = jnp.ones((64, 4, 8), jnp.float32)
    for lo, hi in ([first] * 4, [last] * 4), ([0, 1, 2, first], [1, 2, 3, last]):
        if (first, last) == (0, 4) and lo[0] == lo[3]:
            continue
        with refused():
            called([1, 0, 1, 1, 1, 1, 1, 1, *one_class(4, lo, hi, column(1, 1, 1, 1))], x, x.shape)


def test_an_empty_interval_may_lie_anywhere(bridge: jax_host.Bridge) -> None:
    """The kernels for long windows fetch rows ahead: they must not be led to where there are none."""
    x = jnp.ones((1, 20, 1), jnp.float32)
    lo, hi = [0, 1, 10**6], [19, 20, 10**6]
    tables = [1, 0, 1, 1, 1, 1, 1, 1, *one_class(20, lo, hi, column(1, 1, 1), (19, 2))]
    _, (work,) = decode(np.array(tables, dtype=np.int64).tobytes(), x.shape, (1, 3, 1))
    assert (work.sums.tables[0].lo.max(), work.sums.tables[0].hi.max()) == (20, 20)
    for least in (0, 1 << 15):
        device._pieces.cache_clear()
        with gpu_host.worth_writing(least):
            assert called(tables, x, (1, 3, 1)).ravel().tolist() == [19, 19, 0]
    device._pieces.cache_clear()


def test_callers_do_not_meet(bridge: jax_host.Bridge) -> None:
    """Several Python threads in programs at once, each called back into Python."""
    x = support.random_array(7, (2, 19, 17, 5), FLOAT32)
    want = poolgrad.avg_pool(x, 9, stride=1, padding="same")
    call = jax.jit(lambda x: pj.avg_pool(x, 9, stride=1, padding="same"))
    for answer in support.in_threads(lambda: np.asarray(call(x))):
        support.assert_same_bits(answer, want)


LEAVE = """
import sys, time
from pathlib import Path
import jax, jax_host, numpy as np, poolgrad.jax as pj

class Slow(jax_host.Bridge):
    def _holder(self, pointer):
        time.sleep(0.2)
        return self.device

bridge = Slow(Path(sys.argv[1]))
with bridge.instead():
    for _ in range(4):
        y = jax.jit(lambda x: pj.avg_pool(x, 2))(np.ones((64, 64, 64, 8), np.float32))
"""


def test_a_process_may_end_while_a_program_runs(tmp_path: Path) -> None:
    """The program calls Python, which waits for it before it goes."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", LEAVE, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_benchmark_for_gpus(tmp_path: Path) -> None:
    chosen = ["--case", "3x3s1,global", "--dtype", "float32", "--output", str(tmp_path)]
    command = [sys.executable, "-m", "poolgrad.bench.jax_gpu", "--quick", *chosen]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found = json.loads((tmp_path / "jax_gpu.json").read_text())
    assert [row["layout"] for row in found["rows"]] == ["NHWC", "NCHW"] * 2
    assert all({"engine", "composition", "JAX"} <= set(row) for row in found["rows"])
    assert set(found["tiny µs"]) == {"engine", "composition", "JAX"}


def test_a_seeded_bug_is_seen(bridge: jax_host.Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_packed", lambda shape: tuple(np.cumprod([1, *shape[:-1]]).tolist()))
    device._pieces.cache_clear()
    x = support.random_array(1, SHAPE, FLOAT32)
    with pytest.raises(AssertionError):
        support.assert_same_bits(np.asarray(ours(x)), poolgrad.avg_pool(x, (3, 2), stride=(2, 3), padding=((1, 0), (1, 1))))
    device._pieces.cache_clear()

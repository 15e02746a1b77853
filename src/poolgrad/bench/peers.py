"""The frameworks we are measured beside, one small adapter each, all of the same shape.

Requirements: a framework is imported only when it is asked for and may be absent; converting to and from its arrays is
never timed; it gets every call it has for the job (its own `out=`, its shortcut for global pooling) and the best one
counts; a job it cannot do is `Unsupported`, with its reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..geometry import Axis
from .cases import Row

__all__ = ["PEERS", "Peer", "Unsupported", "Way", "limit_threads", "load"]

Array = npt.NDArray[Any]


class Unsupported(Exception):
    """The framework has no call for this job."""


class Way(NamedTuple):
    """One call that does the job, and how to read its answer in the row's layout."""

    name: str
    call: Callable[[], Any]
    read: Callable[[Any], Array]
    allocates: bool = True


def limit_threads(threads: int) -> None:
    """Hold every framework to so many threads; must run before any of them is imported."""
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[name] = str(threads)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # XLA has no switch for its number of threads: it takes the cores it may run on.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class PyTorch:
    """The aten ops behind `torch.nn.functional.avg_pool2d/3d`, on contiguous and channels-last tensors."""

    name = "PyTorch"

    def __init__(self, threads: int) -> None:
        import torch

        self.torch: Any = torch
        self.version = str(torch.__version__)
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def ways(self, row: Row, source: Array) -> list[Way]:
        given = self._tensor(row, source)
        result = self._empty(row, row.result_shape)
        operands = (given,) if row.forward else (given, self._empty(row, row.input_shape))
        name = f"avg_pool{len(row.case.size)}d" + ("" if row.forward else "_backward")
        op, keyword = getattr(self.torch.ops.aten, name), "out" if row.forward else "grad_input"
        arguments = (*operands, *self._arguments(row))
        try:
            op.default(*(t[:1] for t in operands), *arguments[len(operands) :])
        except NotImplementedError as refusal:
            raise Unsupported(str(refusal)) from None
        found = [
            Way(name, lambda: op.default(*arguments), self._reader(row)),
            Way(f"{name}.out", lambda: getattr(op, keyword)(*arguments, **{keyword: result}), self._reader(row), False),
        ]
        return found + (self._global_ways(row, given, result) if row.case.is_global else [])

    def _global_ways(self, row: Row, given: Any, result: Any) -> list[Way]:
        """What PyTorch itself turns `adaptive_avg_pool2d(x, 1)` and its backward into: a mean, and an even spread."""
        if row.forward:
            return [Way("mean", lambda: given.mean(dim=(2, 3), keepdim=True), self._reader(row))]
        cells = float(np.prod(row.case.size))
        whole = given.expand(result.shape)
        return [
            Way("mean_backward", lambda: whole / cells, self._reader(row)),
            Way("mean_backward.out", lambda: self.torch.div(whole, cells, out=result), self._reader(row), False),
        ]

    def _arguments(self, row: Row) -> tuple[Any, ...]:
        """PyTorch's arguments for the very same windows; its padding is symmetric, so some need `ceil_mode`."""
        case = row.case
        if case.window is None:
            raise Unsupported("no fractional average pooling")
        axes = case.pool().axes
        rows = list(zip(case.size, case.window, case.stride, axes, strict=True))
        before = [max(0, k - int(axis.stop[0])) for _, k, _, axis in rows]
        for ceil in (False, True):
            made = [Axis.regular(n, k, stride=s, padding=p, ceil_mode=ceil) for (n, k, s, _), p in zip(rows, before, strict=True)]
            if tuple(made) == axes:
                return list(case.window), list(case.stride), before, ceil, False, None
        raise Unsupported("no arguments give the same windows")

    def _tensor(self, row: Row, array: Array) -> Any:
        if array.dtype == ml_dtypes.bfloat16:
            tensor = self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(array)
        return self._channels_second(tensor) if row.channels_last else tensor

    def _empty(self, row: Row, shape: tuple[int, ...]) -> Any:
        tensor = self.torch.empty(shape, dtype=getattr(self.torch, row.dtype))
        return self._channels_second(tensor) if row.channels_last else tensor

    def _channels_second(self, tensor: Any) -> Any:
        return tensor.permute(0, tensor.ndim - 1, *range(1, tensor.ndim - 1))

    def _reader(self, row: Row) -> Callable[[Any], Array]:
        def read(tensor: Any) -> Array:
            if row.channels_last:
                tensor = tensor.permute(0, *range(2, tensor.ndim), 1)
            return np.asarray(tensor.to(self.torch.float64).numpy())

        return read


class TensorFlow:
    """The raw ops, eager; oneDNN serves float32 and bfloat16, TensorFlow's own loops the rest."""

    name = "TensorFlow"

    def __init__(self, threads: int) -> None:
        import tensorflow as tf

        self.tf: Any = tf
        self.version = str(tf.__version__)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)

    def ways(self, row: Row, source: Array) -> list[Way]:
        call = self._fractional(row, source) if row.case.window is None else self._regular(row, source)
        return [Way(call.__name__, call, lambda tensor: np.asarray(tensor.numpy(), dtype=np.float64))]

    def _regular(self, row: Row, source: Array) -> Callable[[], Any]:
        case, ops = row.case, self.tf.raw_ops
        assert case.window is not None
        kwargs = {
            "ksize": list(row.arrange(1, 1, case.window)),
            "strides": list(row.arrange(1, 1, case.stride)),
            "padding": case.padding.upper(),
            "data_format": row.layout,
        }
        given = self.tf.constant(source)
        volume = len(case.size) == 3
        if row.forward:

            def forward() -> Any:
                return ops.AvgPool3D(input=given, **kwargs) if volume else ops.AvgPool(value=given, **kwargs)

            return self._tried(forward)
        shape = self.tf.constant(row.input_shape, dtype=self.tf.int32)
        op = ops.AvgPool3DGrad if volume else ops.AvgPoolGrad

        def gradient() -> Any:
            return op(orig_input_shape=shape, grad=given, **kwargs)

        return self._tried(gradient)

    def _fractional(self, row: Row, source: Array) -> Callable[[], Any]:
        if row.forward:
            raise Unsupported("its forward draws its own sequences")
        if not row.channels_last:
            raise Unsupported("fractional pooling is NHWC only")
        rows, columns = (self.tf.constant(s, dtype=self.tf.int64) for s in row.case.sequences)
        shape, given = self.tf.constant(row.input_shape, dtype=self.tf.int64), self.tf.constant(source)

        def fractional() -> Any:
            return self.tf.raw_ops.FractionalAvgPoolGrad(
                orig_input_tensor_shape=shape,
                out_backprop=given,
                row_pooling_sequence=rows,
                col_pooling_sequence=columns,
                overlapping=True,
            )

        return self._tried(fractional)

    def _tried(self, call: Callable[[], Any]) -> Callable[[], Any]:
        errors = self.tf.errors
        try:
            call()
        except (errors.InvalidArgumentError, errors.NotFoundError, errors.UnimplementedError) as refusal:
            raise Unsupported(str(refusal).splitlines()[0]) from None
        return call


class Jax:
    """`lax.reduce_window` and its transpose, jitted: what Flax and everyone else in JAX use."""

    name = "JAX"

    def __init__(self, threads: int) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax: Any = jax
        self.version = str(jax.__version__)

    def ways(self, row: Row, source: Array) -> list[Way]:
        case, jax, jnp, lax = row.case, self.jax, self.jax.numpy, self.jax.lax
        if case.window is None:
            raise Unsupported("no fractional average pooling")
        pool = case.pool()
        window, stride = row.arrange(1, 1, case.window), row.arrange(1, 1, case.stride)
        counts = np.ones((), dtype=np.int64)
        for axis in pool.axes:
            counts = np.multiply.outer(counts, axis.count)
        divisor = counts.reshape(row.arrange(1, 1, pool.output_size)).astype(source.dtype)

        def forward(x: Any) -> Any:
            return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, window, stride, case.padding.upper()) / divisor

        given = jnp.asarray(source)
        spatial = tuple(k for k, letter in enumerate(row.layout) if letter not in "NC")
        if row.forward:
            calls = {"reduce_window": jax.jit(forward)}
            if case.is_global:
                calls["mean"] = jax.jit(lambda x: jnp.mean(x, axis=spatial, keepdims=True))
        else:
            struct = jax.ShapeDtypeStruct(row.input_shape, source.dtype)
            transposed = jax.linear_transpose(forward, struct)
            calls = {"reduce_window transposed": jax.jit(lambda dy: transposed(dy)[0])}
            if case.is_global:
                calls["broadcast"] = jax.jit(lambda dy: jnp.broadcast_to(dy / divisor, row.input_shape))

        def read(y: Any) -> Array:
            return np.asarray(y, dtype=np.float64)

        return [Way(name, self._call(f, given), read) for name, f in calls.items()]

    @staticmethod
    def _call(function: Any, given: Any) -> Callable[[], Any]:
        """Compiled before it is timed; a tiny call keeps the jitted function, whose dispatch is quicker."""
        compiled = function.lower(given).compile() if given.nbytes > 2**20 else function
        return lambda: compiled(given).block_until_ready()


Peer = PyTorch | TensorFlow | Jax

PEERS: dict[str, tuple[str, type[PyTorch] | type[TensorFlow] | type[Jax]]] = {
    "torch": ("torch", PyTorch),
    "tensorflow": ("tensorflow-cpu", TensorFlow),
    "jax": ("jax", Jax),
}


def load(names: list[str], threads: int) -> list[Peer]:
    """The named frameworks that are installed here."""
    found: list[Peer] = []
    for name in names:
        package, adapter = PEERS[name]
        try:
            version(package)
            found.append(adapter(threads))
        except (PackageNotFoundError, ImportError) as missing:
            print(f"{name}: not measured ({missing})")
    return found

"""Random calls, and the real TensorFlow's answers to them from a process of its own.

`calls(seed, count)` is the same list on both sides. Run as a script, this file answers it with TensorFlow's eager ops and
pickles what came out; the environment of that process says which of its CPU kernels answer (TF_ENABLE_ONEDNN_OPTS).
"""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
FRACTIONAL = [np.dtype(t) for t in (np.float32, np.float64, np.int32, np.int64)]
OPS = ("AvgPool", "AvgPool3D", "AvgPoolGrad", "AvgPool3DGrad", "FractionalAvgPool", "FractionalAvgPoolGrad")
SEEDS = [(None, 7), (None, -3), (None, 2**35 + 9), (0, 2**31 - 1), (0, 5), (5, 7), (2**31 - 1, 7), (-7, 11), (2**40, 1)]

Call = tuple[str, dict[str, Any]]


def calls(seed: int, count: int) -> list[Call]:
    """A third each: regular ops, drawn sequences, gradients of any sequences."""
    rng = np.random.default_rng(seed)
    makers = (regular, drawn, spread)
    return [makers[k % 3](rng) for k in range(3 * count)]


def numbers(rng: np.random.Generator, shape: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind == "i":
        most = np.iinfo(dtype).max >> int(rng.integers(0, 24))
        return rng.integers(-most - 1, most, shape, dtype=dtype)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-4, 5, shape))).astype(dtype)


def regular(rng: np.random.Generator) -> Call:
    rank = int(rng.integers(2, 4))
    sizes, strides = rng.integers(1, 9, rank), rng.integers(1, 4, rank)
    padding = str(rng.choice(["SAME", "VALID"]))
    windows = [int(rng.integers(1, n + 1 + 3 * (padding == "SAME"))) for n in sizes]
    dtype = FLOATS[int(rng.integers(4))] if rank == 2 else FLOATS[1 + int(rng.integers(2))]
    first = bool(rng.random() < 0.4) and dtype in FLOATS[1:3]
    cells = [-(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in zip(sizes, windows, strides, strict=True)]

    def placed(outer: tuple[int, int], inner: Any) -> list[int]:
        return [outer[0], *([outer[1], *inner] if first else [*inner, outer[1]])]

    given: dict[str, Any] = {
        "ksize": [int(k) for k in placed((1, 1), windows)],
        "strides": [int(s) for s in placed((1, 1), strides)],
        "padding": padding,
        "data_format": ("NC" if first else "N") + "DHW"[3 - rank :] + ("" if first else "C"),
    }
    shape = [int(n) for n in placed((2, 3), sizes)]
    suffix = "3D" if rank == 3 else ""
    if rng.random() < 0.4:
        return f"AvgPool{suffix}", {"input" if suffix else "value": numbers(rng, shape, dtype), **given}
    return f"AvgPool{suffix}Grad", {"orig_input_shape": shape, "grad": numbers(rng, placed((2, 3), cells), dtype), **given}


def drawn(rng: np.random.Generator) -> Call:
    sizes = rng.integers(1, 60, 2)
    ratios = [float(rng.uniform(1, min(n, 6)) if rng.random() < 0.8 else n / rng.integers(1, n + 1)) for n in sizes]
    seeds = [int(rng.integers(-(2**63), 2**63 - 1)) if rng.random() < 0.7 else int(rng.integers(0, 5)) for _ in range(2)]
    return "FractionalAvgPool", {
        "value": numbers(rng, (2, *sizes, 3), FRACTIONAL[int(rng.integers(4))]),
        "pooling_ratio": [1.0, *ratios, 1.0],
        "pseudo_random": bool(rng.random() < 0.5),
        "overlapping": bool(rng.random() < 0.5),
        "deterministic": True,
        "seed": seeds[0],
        "seed2": seeds[1] or 1,
    }


def spread(rng: np.random.Generator) -> Call:
    """Sequences that begin late, end early or late, and repeat themselves; never from 0 to 0, which TensorFlow refuses."""
    overlapping = bool(rng.random() < 0.5)
    sizes, edges = rng.integers(1, 12, 2), []
    for n in sizes:
        row = np.sort(rng.integers(0, n + 3, rng.integers(2, 7)))
        row[1:] = np.maximum(row[1:], 1)
        edges.append(row.tolist())
    shape = (2, *(len(row) - 1 for row in edges), 3)
    return "FractionalAvgPoolGrad", {
        "orig_input_tensor_shape": [2, *sizes.tolist(), 3],
        "out_backprop": numbers(rng, shape, FRACTIONAL[int(rng.integers(4))]),
        "row_pooling_sequence": edges[0],
        "col_pooling_sequence": edges[1],
        "overlapping": overlapping,
    }


def answers(seed: int, count: int, onednn: bool, folder: Path) -> dict[str, Any]:
    """What TensorFlow says to `calls(seed, count)`: a refusal is a string."""
    target = folder / f"answers-{onednn}.pickle"
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(onednn)), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, str(seed), str(count), str(target)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(pickle.loads(target.read_bytes()))


def main(seed: int, count: int, target: Path) -> None:
    import tensorflow as tf

    def answered(op: str, given: dict[str, Any]) -> Any:
        try:
            said = getattr(tf.raw_ops, op)(**given)
        except (tf.errors.OpError, ValueError) as refusal:
            return str(refusal)
        return tuple(part.numpy() for part in said) if isinstance(said, tuple) else said.numpy()

    def seeded(given: tuple[int | None, int]) -> Any:
        if given[0] is not None:
            tf.random.set_seed(given[0])
        said = tf.nn.fractional_avg_pool(np.zeros((1, 40, 41, 1), np.float32), [1, 1.3, 1.7, 1], seed=given[1])
        return said.row_pooling_sequence.numpy(), said.col_pooling_sequence.numpy()

    found = {
        "answers": [answered(*call) for call in calls(seed, count)],
        "seeded": [seeded(given) for given in SEEDS],
        "signatures": {
            op: [(p.name, p.default) for p in inspect.signature(getattr(tf.raw_ops, op)).parameters.values()] for op in OPS
        },
        "fields": tf.nn.fractional_avg_pool(np.zeros((1, 2, 2, 1), np.float32), [1, 1, 1, 1])._fields,
    }
    target.write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

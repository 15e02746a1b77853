"""Super-resolution: a volume from its binned copies, each with other cells.

A detector whose cells are larger than the detail sees averages alone. Moved by a part of a cell, or read with cells of
another size, it sees other averages, and together they determine the volume. Every reading is an `AvgPoolOperator`; all
of them under each other are one operator, and SciPy's solvers want nothing but its products. With matplotlib installed, a
slice is drawn into super_resolution.png.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import eye_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg, lsmr

import poolgrad
from poolgrad.scipy import AvgPoolOperator

Array = npt.NDArray[np.float64]
SHAPE = (18, 40, 36)
NOISE = 0.002
DAMP = 0.02


def phantom() -> Array:
    """Something to see: a soft ball, a hollow box, and plates one and two voxels thick."""
    d, h, w = np.meshgrid(*(np.arange(n) for n in SHAPE), indexing="ij")
    volume = np.exp(-((d - 9) ** 2 + (h - 13) ** 2 + (w - 20) ** 2) / 60.0)
    box = (abs(d - 8) < 7) & (abs(h - 28) < 8) & (abs(w - 18) < 13)
    inside = (abs(d - 8) < 5) & (abs(h - 28) < 6) & (abs(w - 18) < 11)
    volume[box & ~inside] += 0.6
    volume[inside & (w % 4 < 2)] += 0.8
    volume[inside & (w % 4 == 3) & (h % 3 == 0)] += 0.5
    return volume


def reading(cell: int, offset: tuple[int, ...]) -> AvgPoolOperator:
    """Cells of `cell` voxels a side, moved by `offset`: padding in front moves them, ceil_mode keeps the last ones."""
    return AvgPoolOperator(SHAPE, cell, padding=[(o, 0) for o in offset], ceil_mode=True, layout="DHW")


def stacked(operators: list[AvgPoolOperator]) -> LinearOperator:
    """All readings under each other; PyLops users write `pylops.VStack(operators)`."""
    ends = np.cumsum([operator.shape[0] for operator in operators])

    def forward(x: Array) -> Array:
        return np.concatenate([operator.matvec(x) for operator in operators])

    def adjoint(y: Array) -> Array:
        parts = np.split(y.ravel(), ends[:-1])
        x = np.zeros(operators[0].shape[1])
        for operator, part in zip(operators, parts, strict=True):
            x += operator.rmatvec(part)
        return x

    return LinearOperator((ends[-1], operators[0].shape[1]), matvec=forward, rmatvec=adjoint, dtype=np.float64)


def error(found: Array, volume: Array) -> float:
    return float(np.linalg.norm(found.ravel() - volume.ravel()) / np.linalg.norm(volume))


def draw(pictures: dict[str, Array]) -> None:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure, axes = plt.subplots(1, len(pictures), figsize=(4 * len(pictures), 4.4), layout="constrained")
    for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
        axis.imshow(picture[8], cmap="magma", vmin=0, vmax=1.4)
        axis.set_title(title)
        axis.axis("off")
    figure.savefig("super_resolution.png", dpi=80)
    plt.close(figure)


volume = phantom()
operators = [reading(2, offset) for offset in itertools.product(range(2), repeat=3)]
operators += [reading(3, offset) for offset in itertools.product(range(3), repeat=3)]
A = stacked(operators)
clean = A @ volume.ravel()
b = clean + NOISE * np.random.default_rng(7).standard_normal(clean.shape)

first = b[: operators[0].shape[0]].reshape(operators[0].dimsd)
before = poolgrad.avg_pool_grad(first, SHAPE, 2, divisor=1, layout="DHW")  # every voxel gets its cell's value
print(f"{len(operators)} readings of {SHAPE}: {A.shape[0]} averages of {A.shape[1]} voxels")
print(f"one reading, enlarged:  relative error {error(before, volume):.3f}")

normal = A.H @ A + DAMP**2 * aslinearoperator(eye_array(A.shape[1]))
solvers: dict[str, Callable[[], Any]] = {
    "lsmr": lambda: lsmr(A, b, damp=DAMP, atol=1e-4, btol=1e-4)[0],
    "cg": lambda: cg(normal, A.H @ b, rtol=1e-3)[0],
}
pictures = {"the volume": volume, "one reading, enlarged": before}
for name, solve in solvers.items():
    begun = time.perf_counter()
    pictures[name] = solve().reshape(SHAPE)
    took = time.perf_counter() - begun
    print(f"all of them, by {name}:{' ' * (5 - len(name))}relative error {error(pictures[name], volume):.3f}  ({took:.1f} s)")
print("the detail is there:", all(error(pictures[name], volume) < error(before, volume) / 3 for name in solvers))
draw(pictures)

"""`poolgrad demo`: two gradients that other systems document, explained, and a picture of a larger one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from ..explain import explain
from ..geometry import Axis, Pool
from ..ops import avg_pool_grad, fractional_avg_pool, fractional_avg_pool_grad, gradient

__all__ = ["demo"]

Array = npt.NDArray[np.float32]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the picture goes.")] = Path("demo", "gradient.png"),
) -> None:
    """Two documented gradients, explained, and a picture of a larger one."""
    directml()
    tensorflow()
    picture(output)


def directml() -> None:
    """The 3×3 example of DirectML's documentation: window 2, stride 1, no padding."""
    dy = np.array([[1, 2], [3, 4]], dtype=np.float32)
    dx = avg_pool_grad(dy, (3, 3), 2, stride=1, layout="HW")
    heading("DirectML's example: a 2×2 gradient under a 2×2 window, stride 1, on a 3×3 input")
    print(f"dy =\n{dy}\n\ndx =\n{dx}\n")
    axis = Axis.regular(3, 2, stride=1)
    print(explain(Pool((axis, axis))))
    print("\nThe middle element lies in all four windows: (1 + 2 + 3 + 4) / 4 = 2.5.")


def tensorflow() -> None:
    """The example of TensorFlow's fractional pooling: boundaries 0, 2, 4, each shared by the cells beside it."""
    x = np.array([20, 5, 16, 3, 7], dtype=np.float32)
    sequences = [[0, 2, 4]]
    y = fractional_avg_pool(x, sequences, overlapping=True, layout="L")
    dx = fractional_avg_pool_grad(y, x.shape, sequences, overlapping=True, layout="L")
    heading("TensorFlow's example: fractional pooling of 20 5 16 3 7, boundaries 0, 2, 4, overlapping")
    print(f"y  = {y}   (41/3 and 26/3)\ndx = {dx}   for dy = y: 41/9, 41/9, 67/9, 26/9, 26/9\n")
    print(explain(Pool((Axis.fractional(5, sequences[0], overlapping=True),))))


def picture(path: Path) -> None:
    """A 3×3 window with stride 2 and SAME padding on a 12×17 image: where every element's gradient comes from."""
    pool = Pool(tuple(Axis.regular(n, 3, stride=2, padding="same") for n in (12, 17)))
    dy = np.random.default_rng(3).uniform(0.2, 1, pool.output_size).astype(np.float32)
    dx = gradient(pool, dy, layout="HW")
    heading("A larger one: 3×3, stride 2, SAME, on a 12×17 image")
    try:
        draw(pool, dy, dx, path)
    except ImportError as missing:
        print(f"no picture: {missing} (pip install 'poolgrad[plot]')")
    else:
        print(f"picture: {path}")


MARKED = {(0, 0): "#e4572e", (2, 4): "#1b7f8c", (5, 8): "#b5179e"}
"""Windows drawn in colour: a corner, one in the middle, the opposite corner."""


def draw(pool: Pool, dy: Array, dx: Array, path: Path) -> None:
    from .picture import COOL, WARM, frame, heat, new_figure, save

    share = gradient(pool, np.ones_like(dy), layout="HW")
    figure = new_figure(12.4, 8.6)
    grid = figure.add_gridspec(2, 2, width_ratios=[10, 16])
    heat(figure.add_subplot(grid[0, 0]), dy, "dy: the gradient of the 6×9 output", COOL)
    heat(figure.add_subplot(grid[0, 1]), dx, "dx: the gradient of the 12×17 input", COOL)
    heat(figure.add_subplot(grid[1, 1]), share, "the weight each input has in all outputs together", WARM)
    legend(figure.add_subplot(grid[1, 0]), pool, dy)
    for (i, j), colour in MARKED.items():
        figure.axes[0].add_patch(frame(i - 0.5, j - 0.5, 1, 1, edgecolor=colour, linewidth=2.6))
    for ax in figure.axes[1:3]:
        outline(ax, pool, frame)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def outline(ax: Any, pool: Pool, frame: Any) -> None:
    """The marked windows; the part of one that hangs over the edge is dotted."""
    rows, columns = pool.axes
    for (i, j), colour in MARKED.items():
        top, bottom, left, right = rows.start[i], rows.stop[i], columns.start[j], columns.stop[j]
        begins = (bottom - 3 if top == 0 else top, right - 3 if left == 0 else left)
        ax.add_patch(frame(begins[0] - 0.5, begins[1] - 0.5, 3, 3, edgecolor=colour, linewidth=1.6, linestyle=":"))
        ax.add_patch(frame(top - 0.5, left - 0.5, bottom - top, right - left, edgecolor=colour, linewidth=2.6))
    ax.set_xlim(-1.6, columns.size + 0.6)
    ax.set_ylim(rows.size + 0.6, -0.6)


def legend(ax: Any, pool: Pool, dy: Array) -> None:
    ax.axis("off")
    rows, columns = pool.axes
    above = "Every output cell is the mean of its window,\nso its gradient goes back in equal shares."
    below = "Where windows overlap, the shares add up.\nDotted: padding, which counts for nothing."
    ax.text(0, 0.88, above, fontsize=11, va="top")
    ax.text(0, 0.27, below, fontsize=11, va="top")
    for k, ((i, j), colour) in enumerate(MARKED.items()):
        count = int(rows.count[i] * columns.count[j])
        lines = (
            f"cell ({i}, {j}): rows {rows.start[i]}..{rows.stop[i] - 1}, columns {columns.start[j]}..{columns.stop[j] - 1}\n"
            f"{rows.count[i]}×{columns.count[j]} inputs inside, each gets {dy[i, j]:.2f} / {count} = {dy[i, j] / count:.3f}"
        )
        ax.text(0, 0.70 - 0.14 * k, lines, fontsize=10.5, va="top", color=colour)


def heading(text: str) -> None:
    print(f"\n{text}\n{'─' * len(text)}")

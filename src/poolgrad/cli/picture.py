"""Pictures of poolings: what every window covers and divides by, and what every input's gradient gets.

Two axes at a time, since the windows of all axes are products. Three windows (two corners and the middle) are picked out in
colour in every panel. Sizes follow the number of cells; where numbers would not be legible, colours alone remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PoolGradValueError
from ..geometry import Axis, Pool
from .describe import names, span

__all__ = ["COLOURS", "draw_pool", "frame", "heat", "new_figure", "save"]

Array = npt.NDArray[Any]

COLOURS = ("#e4572e", "#1b7f8c", "#b5179e")
INK, FAINT, BAR = "#222222", "#8a8f98", "#cfd8e3"
WARM, COOL = ("#fffaf0", "#f3d9a4"), ("#f6fafd", "#8fc4e8")
"""Grounds from least to most, light enough for dark numbers."""

MOST = 512
"""Inputs or cells of an axis that a picture can show."""

LEGIBLE = 26
"""Cells along an axis that can carry a number each."""


def draw_pool(pool: Pool, axes: Sequence[int], path: Path) -> None:
    """Draw these one or two axes of `pool` into a file."""
    shown = [pool.axes[k] for k in axes]
    sizes = [n for axis in shown for n in (axis.size, axis.cells)]
    if not all(1 <= n <= MOST for n in sizes):
        got = next(n for n in sizes if not 1 <= n <= MOST)
        raise PoolGradValueError(f"a picture shows axes of 1 to {MOST} inputs and cells, got {got}; choose another input")
    letters = [names(pool)[k] for k in axes]
    figure = (_one_axis if len(shown) == 1 else _two_axes)(pool, shown, letters)
    _title(figure, pool, axes)
    save(figure, path)


def _one_axis(pool: Pool, axes: list[Axis], letters: list[str]) -> Any:
    """Every cell's inputs above, the weight of every input below."""
    [axis] = axes
    width, height = _inches(axis.size, 0.34, 6, 15), _inches(axis.cells, 0.24, 1.4, 9)
    figure = new_figure(width, height + 2.9)
    grid = figure.add_gridspec(2, 1, height_ratios=[height, 1.5])
    marked = _marked([axis.cells])
    chart = figure.add_subplot(grid[0])
    intervals(chart, axis, letters[0], {at[0]: colour for at, colour in marked.items()}, pool.divisor is None)
    bars = figure.add_subplot(grid[1], sharex=chart)
    values = weights(axis, pool.divisor is None) / (pool.divisor or 1)
    bars.bar(range(axis.size), values, color=BAR, width=0.86)
    if axis.size <= LEGIBLE:
        for i, value in enumerate(values):
            bars.text(i, value, number(value), ha="center", va="bottom" if value >= 0 else "top", fontsize=7.5, color=INK)
    bars.set_title("the weight each input has in all outputs together", fontsize=10, loc="left", color=INK)
    bars.margins(y=0.2)
    _plain(bars)
    bars.set_yticks([])
    _legend(figure, pool, [axis], letters, marked)
    return figure


def _two_axes(pool: Pool, axes: list[Axis], letters: list[str]) -> Any:
    """Cells and inputs as grids above, each axis's windows below."""
    rows, columns = axes
    marked = _marked([rows.cells, columns.cells])
    left, right = _inches(columns.cells, 0.36, 3.6, 6), _inches(columns.size, 0.36, 4.6, 8)
    scale = min(left / columns.cells, right / columns.size)
    top = min(max(scale * max(rows.size, rows.cells), 2.2), 8.5)
    bottom = _inches(max(rows.cells, columns.cells), 0.22, 1.6, 5)
    figure = new_figure(left + right + 1, top + bottom + 2.6)
    grid = figure.add_gridspec(2, 2, width_ratios=[left, right], height_ratios=[top, bottom])
    divisors = figure.add_subplot(grid[0, 0])
    heat(divisors, _divisors(pool, rows, columns), f"{rows.cells}×{columns.cells} cells: what each divides by", WARM)
    for (i, j), colour in marked.items():
        divisors.add_patch(frame(i - 0.5, j - 0.5, 1, 1, edgecolor=colour, linewidth=2.4))
    inputs = figure.add_subplot(grid[0, 1])
    counted = pool.divisor is None
    share = np.outer(weights(rows, counted), weights(columns, counted)) / (pool.divisor or 1)
    heat(inputs, share, f"{rows.size}×{columns.size} inputs: the weight each has in all outputs together", COOL)
    _outline(inputs, rows, columns, marked)
    for k, axis in enumerate((rows, columns)):
        chart = figure.add_subplot(grid[1, k])
        colours = {at[k]: colour for at, colour in marked.items()}
        intervals(chart, axis, letters[k], colours, counted)
    _legend(figure, pool, [rows, columns], letters, marked)
    return figure


def intervals(ax: Any, axis: Axis, letter: str, colours: dict[int, str], counted: bool) -> None:
    """One line per cell: the inputs it covers, and what it divides by."""
    thick = max(1.0, min(9.0, 300 / axis.cells))
    for o, (start, stop) in enumerate(_spans(axis)):
        colour = colours.get(o, BAR)
        taps = range(start, stop, axis.step)
        if not taps:
            continue
        if axis.step > 1:
            ax.plot([taps[0], taps[-1]], [o, o], color=colour, lw=1, zorder=1)
            ax.scatter(taps, [o] * len(taps), s=thick * 5, color=colour, zorder=2)
        else:
            ax.barh(o, len(taps), left=start - 0.5, height=0.62, color=colour, zorder=2)
        if counted and axis.cells <= LEGIBLE:
            ax.text(taps[-1] + 0.7, o, f"÷{axis.count[o]}", va="center", fontsize=7.5, color=INK)
    ax.set_title(f"axis {letter}: the inputs (across) of every cell (down)", fontsize=10, loc="left", color=INK)
    ax.set_xlim(-0.8, axis.size + 0.6)
    ax.set_ylim(axis.cells - 0.4, -0.6)
    _ticks(ax.set_xticks, axis.size)
    _ticks(ax.set_yticks, axis.cells)
    ax.grid(axis="x", color="#eef0f2", zorder=0)
    ax.set_axisbelow(True)
    _plain(ax)


def heat(ax: Any, values: Array, title: str, ground: tuple[str, str]) -> None:
    """A grid of numbers on a light ground; a scale beside it where they would be too small."""
    from matplotlib.colors import LinearSegmentedColormap

    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    image = ax.imshow(values, cmap=LinearSegmentedColormap.from_list("ground", ground), vmin=low, vmax=high or 1)
    if max(values.shape) <= LEGIBLE:
        for (i, j), value in np.ndenumerate(values):
            ax.text(j, i, number(value), ha="center", va="center", fontsize=7.5, color=INK)
        for k in range(1, values.shape[0]):
            ax.axhline(k - 0.5, color="white", lw=1)
        for k in range(1, values.shape[1]):
            ax.axvline(k - 0.5, color="white", lw=1)
    else:
        scale = ax.figure.colorbar(image, ax=ax, shrink=0.5, aspect=25, anchor=(0, 1))
        scale.outline.set_visible(False)
        scale.ax.tick_params(length=0, labelsize=7, colors=FAINT)
    ax.set_title(title, fontsize=10, loc="left", color=INK)
    ax.set_anchor("NW")
    _ticks(ax.set_xticks, values.shape[1])
    _ticks(ax.set_yticks, values.shape[0])
    _plain(ax)


def number(value: float) -> str:
    """Two decimals at most, one digit where that would leave none; without the zero before the point.

    >>> number(0.25), number(1 / 3), number(-0.5), number(12.0), number(-0.0), number(1 / 204), number(1e-9)
    ('.25', '.33', '-.5', '12', '0', '.005', '1e-09')
    """
    if value and abs(value) < 0.0095:
        return f"{value:.1g}".replace("0.", ".", 1)
    text = f"{value + 0.0:.2f}".rstrip("0").rstrip(".")
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def weights(axis: Axis, counted: bool) -> Array:
    """Per input, the sum of what its cells give it along this axis: shares, or how often it is covered."""
    total = np.zeros(axis.size)
    for o, (start, stop) in enumerate(_spans(axis)):
        total[start:stop:axis.step] += 1 / axis.count[o] if counted else 1
    return total


def _divisors(pool: Pool, rows: Axis, columns: Axis) -> Array:
    if pool.divisor is not None:
        return np.full((rows.cells, columns.cells), float(pool.divisor))
    return np.outer(rows.count, columns.count).astype(float)


def _spans(axis: Axis) -> Iterator[tuple[int, int]]:
    return ((start, max(start, stop)) for start, stop in zip(axis.start.tolist(), axis.stop.tolist(), strict=True))


def _marked(cells: Sequence[int]) -> dict[tuple[int, ...], str]:
    """A corner, the middle and the opposite corner, each in its colour; fewer where they coincide."""
    places = [tuple(0 for _ in cells), tuple(n // 2 for n in cells), tuple(n - 1 for n in cells)]
    found: dict[tuple[int, ...], str] = {}
    for at, colour in zip(places, COLOURS, strict=True):
        found.setdefault(at, colour)
    return found


def _outline(ax: Any, rows: Axis, columns: Axis, marked: dict[tuple[int, ...], str]) -> None:
    """The marked windows over the inputs: a frame, or dots where a dilated window skips inputs."""
    high, wide = list(_spans(rows)), list(_spans(columns))
    for (i, j), colour in marked.items():
        (top, bottom), (left, right) = high[i], wide[j]
        if bottom <= top or right <= left:
            continue
        ax.add_patch(frame(top - 0.5, left - 0.5, bottom - top, right - left, edgecolor=colour, linewidth=2.4))
        if rows.step > 1 or columns.step > 1:
            taps = [(y, x) for y in range(top, bottom, rows.step) for x in range(left, right, columns.step)]
            for y, x in taps:
                ax.add_patch(frame(y - 0.42, x - 0.42, 0.84, 0.84, edgecolor=colour, linewidth=1.2))


def _legend(figure: Any, pool: Pool, axes: list[Axis], letters: list[str], marked: dict[tuple[int, ...], str]) -> None:
    from matplotlib.lines import Line2D

    lines = []
    for at in marked:
        parts = [span(list(range(*_window(axis, o)))) for axis, o in zip(axes, at, strict=True)]
        divisor = pool.divisor or int(np.prod([int(axis.count[o]) for axis, o in zip(axes, at, strict=True)]))
        place = ", ".join(map(str, at))
        covers = " × ".join(f"{letter} {part}" for letter, part in zip(letters, parts, strict=True))
        lines.append(f"cell ({place}): {covers}; each gets dy/{divisor}")
    handles = [Line2D([], [], color=colour, lw=3) for colour in marked.values()]
    figure.legend(handles, lines, loc="outside lower left", frameon=False, fontsize=9, ncols=1, labelcolor=INK)


def _window(axis: Axis, o: int) -> tuple[int, int, int]:
    return int(axis.start[o]), max(int(axis.stop[o]), int(axis.start[o])), axis.step


def _title(figure: Any, pool: Pool, axes: Sequence[int]) -> None:
    sizes = [f"{'×'.join(map(str, part))}" for part in (pool.input_size, pool.output_size)]
    text = f"Average pooling of {sizes[0]} inputs to {sizes[1]} cells"
    if len(axes) < len(pool.axes):
        others = [k for k in range(len(pool.axes)) if k not in axes]
        drawn = f"drawn: {' and '.join(names(pool)[k] for k in axes)}"
        along = "".join(f"; every divisor times {_divides(pool.axes[k])} along {names(pool)[k]}" for k in others)
        text += f" ({drawn}{along if pool.divisor is None else ''})"
    figure.suptitle(text, fontsize=12, x=0.1 / figure.get_figwidth(), ha="left", color=INK)


def _divides(axis: Axis) -> str:
    least, most = int(axis.count.min()), int(axis.count.max())
    return f"{least}" if least == most else f"{least} to {most}"


def _inches(cells: int, each: float, least: float, most: float) -> float:
    return min(max(cells * each, least), most)


def _ticks(set_ticks: Any, n: int) -> None:
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if n / s <= 20)
    set_ticks(range(0, n, step))


def _plain(ax: Any) -> None:
    ax.tick_params(length=0, labelsize=7, colors=FAINT)
    for side in ax.spines.values():
        side.set_visible(False)


def new_figure(width: float, height: float) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    return figure


def frame(top: float, left: float, height: float, width: float, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, top), width, height, fill=False, clip_on=False, zorder=5, **style)


def save(figure: Any, path: Path) -> None:
    """Write the picture in the format its name says."""
    import matplotlib.pyplot as plt

    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise PoolGradValueError(f"a picture ends in .png, .svg or .pdf, got {path}")
    figure.savefig(path, dpi=120)
    plt.close(figure)

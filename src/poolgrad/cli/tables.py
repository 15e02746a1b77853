"""Tables for people. Off a terminal nothing is wrapped, cut or padded, so that what is piped can be searched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["print_rich", "print_table"]


def print_rich(write: Callable[[Console], None]) -> None:
    """What `write` puts on a Rich console, printed as `print` does: a closed pipe is the caller's to notice."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 10_000, highlight=False)
    with console.capture() as captured:
        write(console)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> None:
    """A light table under its title; the columns in `numbers` are set to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for k, head in enumerate(heads):
        table.add_column(head, justify="right" if k in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))

    def write(console: Console) -> None:
        if title:
            console.print(Text(title, "bold"))
        console.print(table)
        console.print()

    print_rich(write)

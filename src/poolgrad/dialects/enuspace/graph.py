"""The wires of a page as a graph: who feeds whom, in which order blocks can run, and what lies up- or downstream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .page import Block, Page

__all__ = ["Graph"]


class Graph:
    """A page's graph. Wires whose ends do not exist are left out; blocks in or behind a loop have no place in `order`.

    >>> page = Page()
    >>> shape, pool = page.add("Const", "shape"), page.add("AvgPoolGrad", "pool")
    >>> wire = page.connect(shape, "output", pool, "orig_input_shape")
    >>> Graph(page).order
    ['shape', 'pool']
    """

    def __init__(self, page: Page) -> None:
        self.blocks: dict[str, Block] = {block.id: block for block in page.blocks}
        self.sources: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.before: dict[str, list[str]] = {id: [] for id in self.blocks}
        self.after: dict[str, list[str]] = {id: [] for id in self.blocks}
        for wire in page.wires:
            if wire.source in self.blocks and wire.target in self.blocks:
                self.sources.setdefault((wire.target, wire.target_pin), []).append((wire.source, wire.source_pin))
                self.before[wire.target].append(wire.source)
                self.after[wire.source].append(wire.target)
        self.order = self._order()

    def _order(self) -> list[str]:
        """Blocks such that each comes after those that feed it; otherwise as on the page."""
        place = {id: k for k, id in enumerate(self.blocks)}
        waiting = {id: len(feeding) for id, feeding in self.before.items()}
        ready = [id for id in self.blocks if not waiting[id]]
        order: list[str] = []
        while ready:
            freed = []
            for id in ready:
                order.append(id)
                for following in self.after[id]:
                    waiting[following] -= 1
                    if not waiting[following]:
                        freed.append(following)
            ready = sorted(freed, key=place.__getitem__)
        return order

    @property
    def looped(self) -> list[str]:
        """Blocks that a loop keeps from ever running."""
        placed = set(self.order)
        return [id for id in self.blocks if id not in placed]

    def upstream(self, ids: Iterable[str]) -> set[str]:
        """These blocks and everything that feeds them."""
        return _closure(ids, self.before)

    def downstream(self, ids: Iterable[str]) -> set[str]:
        """These blocks and everything they feed."""
        return _closure(ids, self.after)


def _closure(ids: Iterable[str], following: Mapping[str, list[str]]) -> set[str]:
    seen = set(ids)
    todo = list(seen)
    while todo:
        fresh = set(following[todo.pop()]) - seen
        seen |= fresh
        todo += fresh
    return seen

"""A plugin for Dask's scheduler that holds every task of ours to the worker that has most of its input.

Dask's scheduler moves a chunk where it expects to save time by that, and an idle worker takes tasks from a busy one with all
their input. With this plugin nothing but halos travels between the workers; a worker with more chunks than the others then has
more to do. A task whose worker is lost goes where the scheduler likes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributed import stealing
from distributed.diagnostics.plugin import SchedulerPlugin

__all__ = ["StayHome"]


class StayHome(SchedulerPlugin):  # type: ignore[misc]  # Dask is not typed here
    """``client.register_plugin(StayHome())``: tasks of poolgrad run where most of their input lies."""

    name = "poolgrad-stay-home"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        self._tasks = scheduler.tasks

    def update_graph(self, scheduler: Any, *, tasks: Iterable[Any], **_: Any) -> None:
        """A new graph: some of its tasks may have all their input already."""
        for key in tasks:
            self._hold(scheduler.tasks[key])

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """A new result: the tasks that waited for it alone are placed next."""
        if finish == "memory":
            for task in self._tasks[key].dependents:
                self._hold(task)

    def _hold(self, task: Any) -> None:
        inputs = task.dependencies
        if task.prefix.name.startswith("poolgrad-") and inputs and all(given.who_has for given in inputs):
            home = max(inputs, key=lambda given: given.get_nbytes())
            task.worker_restrictions, task.loose_restrictions = {worker.address for worker in home.who_has}, True
            stealing.fast_tasks.add(task.prefix.name)  # what is listed there is never stolen

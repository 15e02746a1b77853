"""Every task of ours runs on the worker that has most of its input, so that nothing but halos travels.

Dask's scheduler moves a chunk where it expects to save time by that, and an idle worker takes tasks from a busy one with all
their input. Pooling a chunk takes less time than moving it, so both lose time, and more of it than the scheduler knows before
it has seen a task of the kind. A scheduler that is sent a graph of ours (`tasks.py`) therefore gets a plugin that holds our
tasks, and no others, to their home. A worker with more chunks than the others has more to do; a task whose worker is lost goes
where the scheduler likes, and so does a gradient with far more elements than its source, which costs little to move.

A task that Dask has fused with others has all their names, ours among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from distributed import Scheduler, stealing
from distributed.diagnostics.plugin import SchedulerPlugin

__all__ = ["StayHome", "stay_home"]

HELD = ("poolgrad-halo", "poolgrad-forward", "poolgrad-gradient")


def stay_home() -> None:
    """Have the schedulers of this process, if it has any, hold our tasks from now on."""
    for scheduler in Scheduler._instances:
        if StayHome.name not in scheduler.plugins:
            scheduler.add_plugin(StayHome(scheduler))


class StayHome(SchedulerPlugin):  # type: ignore[misc]  # Dask is not typed here
    """Tasks of poolgrad run where most of their input lies."""

    name = "poolgrad-stay-home"

    def __init__(self, scheduler: Any):
        self._tasks = scheduler.tasks

    def update_graph(self, scheduler: Any, *, tasks: Iterable[Any], **_: Any) -> None:
        """A new graph: some of its tasks may have all their input already."""
        for key in tasks:
            _hold(self._tasks[key])

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """A new result: the tasks that waited for it alone are placed next."""
        if finish == "memory":
            for task in self._tasks[key].dependents:
                _hold(task)


@lru_cache(maxsize=1024)
def _is_ours(name: str) -> bool:
    return any(held in name for held in HELD)


def _hold(task: Any) -> None:
    inputs, name = task.dependencies, task.prefix.name
    if _is_ours(name) and inputs and all(given.who_has for given in inputs):
        stealing.fast_tasks.add(name)  # what is listed there is never stolen
        home = max(inputs, key=lambda given: given.get_nbytes())
        task.worker_restrictions, task.loose_restrictions = {worker.address for worker in home.who_has}, True

"""The whole run: every case of the suite to the worker, every outcome to the judge, every failure made small."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from math import inf

from .. import ops
from ..dialects.pooling import NoTranslation
from ..errors import PoolGradValueError
from .case import Case
from .judge import Verdict, judge
from .report import Report, Reproducer, Result
from .reproducer import reproducer
from .runner import Answer, Runner
from .shrink import shrink
from .suite import suite
from .targets import Target, target_named
from .worker import repeated

__all__ = ["check"]

Progress = Callable[[int, int, str], None]

SHRINKING = 45.0
"""Most seconds spent on making one failure smaller; a crash costs a new worker each time."""


def check(
    target: str,
    *,
    python: str | os.PathLike[str] | None = None,
    groups: Sequence[str] | None = None,
    seed: int = 0,
    limit: int | None = None,
    timeout: float | None = None,
    shrinking: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Test an average-pool gradient against the exact one.

    Parameters
    ----------
    target
        A name from `poolgrad.conformance.TARGETS`, or ``package.module:function`` for a function of your own.
    python
        The interpreter that has the target; this one by default. It needs NumPy, and not poolgrad.
    groups
        Names from `poolgrad.conformance.GROUPS`; all by default.
    seed
        Another seed draws other shapes and numbers of the same kinds.
    limit
        At most so many cases of each group. Without one, a target that takes seconds a case (`torch.compile`) is given
        a few minutes, and the report's notes say what was left out.
    timeout
        Seconds for one call, after which it counts as hung.
    shrinking
        Make the smallest failure of every group smaller, and a reproducer of it.
    progress
        Called with the cases done, the number of them, and what is being done.

    Raises
    ------
    NoTarget
        If the target cannot be run at all.

    Examples
    --------
    >>> report = check("poolgrad:avg_pool_grad", groups=["overlap 2-D", "hostile"])
    >>> report.ok, [(row.group, row.right, row.wrong) for row in report.groups]
    (True, [('overlap 2-D', 12, 0), ('hostile', 60, 0)])
    """
    chosen = target_named(target)
    if timeout is not None and not timeout > 0:
        raise PoolGradValueError(f"timeout must be more than 0 seconds, got {timeout}")
    cases = suite(groups, seed=seed, limit=chosen.limit if limit is None else limit)
    budget = chosen.budget if limit is None else inf
    began = time.perf_counter()
    with Runner(python, chosen.environment, chosen.imports) as runner:
        version = runner.version(chosen.version)
        if timeout is not None:
            chosen = replace(chosen, timeout=timeout)
        results = _results(chosen, runner, cases, budget, progress)
        found = _reproducers(chosen, version, runner, results, budget / 2, progress) if shrinking else []
        notes = _left_out(suite(groups, seed=seed), results) if limit is None else ()
        return Report(target, version, runner.python, seed, tuple(results), tuple(found), time.perf_counter() - began, notes)


def _results(target: Target, runner: Runner, cases: Sequence[Case], budget: float, progress: Progress | None) -> list[Result]:
    """Every case in turn; with a budget one of every group, then the next of every group, until the seconds are spent."""
    end = time.monotonic() + budget
    groups = [list(members) for _, members in groupby(cases, key=lambda case: case.group)]
    rounds = [case for row in zip_longest(*groups) for case in row if case is not None]
    results = []
    for k, case in enumerate(cases if budget == inf else rounds):
        if time.monotonic() > end:
            break
        if progress is not None:
            progress(k, len(cases), case.name)
        results.append(_result(target, runner, case))
    return results


def _left_out(whole: Sequence[Case], results: Sequence[Result]) -> tuple[str, ...]:
    tried = [result.case.group for result in results]
    if len(tried) == len(whole):
        return ()
    untouched = [group for group in dict.fromkeys(case.group for case in whole) if group not in tried]
    said = f"; of {', '.join(untouched)} none was tried" if untouched else ""
    few = f"Left out: {len(whole) - len(tried)} of {len(whole)} cases, since a case takes seconds{said}."
    return (f"{few} --limit N tries N of every group, however long it takes.",)


def _verdict(target: Target, runner: Runner, case: Case, *, timed: bool) -> tuple[Verdict, float | None]:
    """The verdict on a case, and the seconds the call took if it returned."""
    try:
        source = target.source(case)
    except NoTranslation as why:
        return Verdict("unsupported", note=str(why)), None
    outcome = runner.call(source, case.dy(), target.timeout, timed=timed)
    return judge(case, outcome, target.refusals), outcome.seconds if isinstance(outcome, Answer) else None


def _result(target: Target, runner: Runner, case: Case) -> Result:
    verdict, seconds = _verdict(target, runner, case, timed=True)
    ours = _seconds(case) if seconds is not None and case.pool is not None else None
    return Result(case, verdict, seconds if ours is not None else None, ours)


def _seconds(case: Case) -> float:
    """What our own gradient takes, timed as the worker times theirs."""
    pool, dy, layout = case.pool, case.dy(), case.pooling.layout
    return repeated(lambda: ops.gradient(pool, dy, layout=layout))[1]  # type: ignore[arg-type]  # a case with an answer


def _reproducers(
    target: Target, version: str, runner: Runner, results: Sequence[Result], budget: float, progress: Progress | None
) -> list[Reproducer]:
    """The smallest failure of every group, made smaller, and none twice; the smallest first, hostile calls last."""
    smallest: dict[tuple[str, str], Result] = {}
    for result in sorted(results, key=lambda result: result.case.size):
        if result.verdict.outcome in ("wrong", "crashed"):
            smallest.setdefault((result.case.group, result.verdict.outcome), result)
    found: dict[str, Reproducer] = {}
    end = time.monotonic() + budget
    for k, result in enumerate(smallest.values()):
        if progress is not None:
            progress(k, len(smallest), f"shrinking {result.case.name}")
        made = _reproducer(target, version, runner, result, min(SHRINKING, end - time.monotonic()))
        found.setdefault(made.script, made)
    return sorted(found.values(), key=lambda made: (made.case.pool is None, made.case.size))


def _reproducer(target: Target, version: str, runner: Runner, result: Result, seconds: float) -> Reproducer:
    outcome, verdicts = result.verdict.outcome, {result.case: result.verdict}

    def fails(candidate: Case) -> bool:
        verdicts[candidate] = _verdict(target, runner, candidate, timed=False)[0]
        return verdicts[candidate].outcome == outcome

    case = shrink(result.case, fails, seconds)
    script = reproducer(target.source(case), case, f"{target.name} {version}", verdicts[case])
    return Reproducer(result.case.group, outcome, case, verdicts[case].note, script)

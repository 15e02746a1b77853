"""DxDispatch's timing lines: the median of the samples after the warm-up ones, or all of it when asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["report"]


def report(name: str, samples: Sequence[float], warmup_samples: int, verbosity: int, write: Callable[[str], None]) -> None:
    """Write what the times in milliseconds of a dispatch come to; at least one sample counts as hot.

    >>> report("pool", [9.0, 1.0, 3.0, 2.0], 1, 0, print)
    Dispatch 'pool': 4 iterations, 2.0000 ms median (CPU)
    """
    cold = min(len(samples) - 1, warmup_samples)
    if verbosity == 0:
        write(f"Dispatch '{name}': {len(samples)} iterations, {_median(samples[cold:]):.4f} ms median (CPU)")
        return
    write(f"Dispatch '{name}': {len(samples)} iterations")
    for label, part in (("(Cold) ", samples[:cold]), ("(Hot)  ", samples[cold:])):
        if part:
            mean = sum(part) / len(part)
            write(
                f"CPU Timings {label}: {len(part)} samples, {mean:.4f} ms average, {min(part):.4f} ms min, "
                f"{_median(part):.4f} ms median, {max(part):.4f} ms max"
            )
    if verbosity > 1:
        write("The timings of each iteration: ")
        for k, sample in enumerate(samples):
            write(f"iteration {k}: {sample:.4f} ms (CPU)")


def _median(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]

"""A request that cannot be honoured: what kind of trouble, a sentence, and the legal form where there is one."""

from __future__ import annotations

from typing import Any

from poolgrad.enuspace import FileError, PropertyError
from poolgrad.errors import PoolGradError, PoolGradMemoryError

__all__ = ["Failure", "as_failure"]

STATUS = {"protocol": 400, "value": 400, "limit": 413, "conflict": 409, "exists": 409, "file": 400, "busy": 409, "internal": 500}


class Failure(PoolGradError):
    """An answer that says no."""

    def __init__(self, kind: str, message: str, legal: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.legal = kind, message, legal

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "message": self.message, **({"legal": self.legal} if self.legal else {})}


def as_failure(error: Exception) -> Failure:
    """Any refusal of the library or the system as an answer; what nobody foresaw is `internal`, named but not shown."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, PropertyError):
        return Failure("value", error.message, error.legal)
    if isinstance(error, FileError):
        return Failure("file", str(error))
    if isinstance(error, (PoolGradMemoryError, MemoryError)):
        return Failure("limit", str(error) or "this machine has not enough memory for that")
    if isinstance(error, PoolGradError):
        return Failure("value", str(error))
    if isinstance(error, RecursionError):
        return Failure("limit", "this is nested more deeply than any page")
    if isinstance(error, OSError):
        return Failure("file", error.strerror or type(error).__name__)
    return Failure("internal", f"the studio made a mistake ({type(error).__name__}); the terminal it runs in says more")

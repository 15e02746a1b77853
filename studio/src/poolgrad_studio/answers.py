"""The registry of operations: a name, the record its request must be, and the function that answers.

A quick operation answers at once, in the order of the requests. A `slow` one works in a thread, so that the server goes on
answering; it must not change a document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .decode import decode
from .failure import Failure
from .studio import Session

__all__ = ["OPERATIONS", "Binary", "Nothing", "Operation", "answers", "find"]


class Binary(NamedTuple):
    """An answer that carries an array after its head."""

    head: dict[str, Any]
    payload: npt.NDArray[np.float32]


Result = dict[str, Any] | Binary


class Operation(NamedTuple):
    kind: Any
    answer: Callable[[Session, Any], Result]
    slow: bool


@dataclass
class Nothing:
    """A request without fields."""


OPERATIONS: dict[str, Operation] = {}


def answers(kind: Any, *, slow: bool = False) -> Callable[[Callable[[Session, Any], Result]], Callable[[Session, Any], Result]]:
    """Register a function as the operation of its own name."""

    def register(answer: Callable[[Session, Any], Result]) -> Callable[[Session, Any], Result]:
        OPERATIONS[answer.__name__.rstrip("_")] = Operation(kind, answer, slow)
        return answer

    return register


def find(message: dict[str, Any]) -> tuple[Operation, Any]:
    """The operation a message asks for and its request as a record."""
    name = message.get("op")
    if not isinstance(name, str) or name not in OPERATIONS:
        raise Failure("protocol", f"there is no operation {str(name)[:40]!r}; there are {', '.join(sorted(OPERATIONS))}")
    operation = OPERATIONS[name]
    return operation, decode(operation.kind, {key: value for key, value in message.items() if key not in ("id", "op")})

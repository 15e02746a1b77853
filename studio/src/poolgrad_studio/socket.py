"""One tab's connection: requests in, answers and events out.

Requests are answered in their order, except that a slow one does not hold up the next. A tab that does not read its answers
is not read either; one that lets events pile up is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import struct
from typing import Any

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from .answers import Binary, Operation, find
from .decode import load
from .failure import Failure, as_failure
from .limits import LIMITS, MOST_PENDING
from .studio import Session, Studio

__all__ = ["Connection", "packed"]

MOST_QUEUED = 10_000
ID = re.compile(r'\s*\{\s*"id"\s*:\s*([0-9]{1,15})\b')
log = logging.getLogger(__name__)


def packed(id: int, answer: Binary) -> bytes:
    """A binary frame: the length of the head, the head, the array.

    >>> frame = packed(3, Binary({"shape": [1]}, np.float32([2])))
    >>> len(frame) % 8, frame[-4:] == np.float32(2).tobytes()
    (4, True)
    """
    head = json.dumps({"id": id, "ok": True, "result": answer.head}).encode("ascii")
    head += b" " * (-(len(head) + 4) % 8)
    return struct.pack("<I", len(head)) + head + np.ascontiguousarray(answer.payload, "<f4").tobytes()


class Connection:
    """A WebSocket and its session."""

    def __init__(self, studio: Studio, socket: WebSocket) -> None:
        self._socket = socket
        self._out: asyncio.Queue[tuple[bytes | str, bool]] = asyncio.Queue()
        self._room = asyncio.Semaphore(MOST_PENDING)
        self._tasks: set[asyncio.Task[None]] = set()
        self.session = Session(studio, self._event)
        self._studio = studio

    def _event(self, message: dict[str, Any]) -> None:
        if self._out.qsize() < MOST_QUEUED:
            self._out.put_nowait((json.dumps(message, allow_nan=False), False))
        else:
            self._studio.sessions.discard(self.session)

    async def serve(self) -> None:
        await self._socket.accept()
        self._studio.sessions.add(self.session)
        sender = asyncio.create_task(self._send_all())
        try:
            while await self._receive():
                pass
        except (WebSocketDisconnect, RuntimeError):
            pass  # the tab is gone; its documents stay
        finally:
            self._studio.sessions.discard(self.session)
            for task in self._tasks:
                task.cancel()
            sender.cancel()

    async def _send_all(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                frame, answers = await self._out.get()
                await (self._socket.send_text(frame) if isinstance(frame, str) else self._socket.send_bytes(frame))
                if answers:
                    self._room.release()
                if self.session not in self._studio.sessions:
                    await self._close(1013, "the tab did not keep up: open it again")

    async def _receive(self) -> bool:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return False
        text = message.get("text")
        if text is None:
            await self._close(1003, "only text is taken here; files are uploaded")
            return False
        await self._room.acquire()  # given back when the one answer that follows is sent
        id, operation, request = self._understood(text)
        if operation is not None and operation.slow:
            task = asyncio.create_task(self._answer_slowly(id, operation, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif operation is not None:
            self._answer(id, operation, request)
        return True

    async def _close(self, code: int, reason: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            await self._socket.close(code, reason)

    def _understood(self, text: str) -> tuple[int, Operation | None, Any]:
        id = -1
        try:
            if len(text) > LIMITS["message"]:
                found = ID.match(text)
                id = int(found[1]) if found else -1
                raise Failure("limit", f"a message has at most {LIMITS['message']} characters; put big values into a file")
            message = load(text)
            if not isinstance(message, dict):
                raise Failure("protocol", "a message is an object")
            given = message.get("id")
            if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**53:
                raise Failure("protocol", f"id must be a whole number of at least 0, got {str(given)[:40]}")
            id = given
            return id, *find(message)
        except Exception as error:
            self._fail(id, error)
            return id, None, None

    def _fail(self, id: int, error: Exception) -> None:
        failure = as_failure(error)
        if failure.kind == "internal":
            log.error("an operation failed", exc_info=error)
        self._out.put_nowait((json.dumps({"id": id, "ok": False, "error": failure.plain()}), True))

    def _reply(self, id: int, answer: dict[str, Any] | Binary) -> None:
        if isinstance(answer, Binary):
            frame: bytes | str = packed(id, answer)
        else:
            frame = json.dumps({"id": id, "ok": True, "result": answer}, allow_nan=False)
        self._out.put_nowait((frame, True))

    def _answer(self, id: int, operation: Operation, request: Any) -> None:
        try:
            self._reply(id, operation.answer(self.session, request))
        except Exception as error:
            self._fail(id, error)

    async def _answer_slowly(self, id: int, operation: Operation, request: Any) -> None:
        try:
            self._reply(id, await asyncio.to_thread(operation.answer, self.session, request))
        except Exception as error:
            self._fail(id, error)

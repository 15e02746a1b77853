"""The addresses below the token: static files, the socket, uploads and downloads."""

from __future__ import annotations

import logging
import mimetypes
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from . import operations as _operations  # noqa: F401  # registers every operation
from .failure import as_failure
from .limits import MOST_CONNECTIONS
from .safety import Guard
from .socket import Connection
from .studio import Studio
from .transfer import download_array, download_page, upload

__all__ = ["make_app"]

STATIC = Path(str(files(__package__))) / "static"
log = logging.getLogger(__name__)


def make_app(studio: Studio, token: str, port: int) -> Guard:
    """The whole server as an ASGI application."""

    async def socket(websocket: WebSocket) -> None:
        if len(studio.sessions) >= MOST_CONNECTIONS:
            await websocket.close(1013, f"{MOST_CONNECTIONS} tabs are open")
            return
        await Connection(studio, websocket).serve()

    def answered(handle: Callable[[Studio, Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return await handle(studio, request)
            except Exception as error:
                return _said(error)

        return endpoint

    routes = [
        Route("/", static, methods=["GET"]),
        WebSocketRoute("/ws", socket),
        Route("/upload", answered(upload), methods=["POST"]),
        Route("/array.{form}", answered(download_array), methods=["GET"]),
        Route("/page.json", answered(download_page), methods=["GET"]),
        Route("/{path:path}", static, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    return Guard(app, token, port)


def _said(error: Exception) -> JSONResponse:
    failure = as_failure(error)
    if failure.kind == "internal":
        log.error("a request failed", exc_info=error)
    return JSONResponse({"error": failure.plain()}, failure.status)


async def _no_route(request: Request, error: Any) -> Response:
    said = "there is nothing at this address" if error.status_code == 404 else "this address is not served that way"
    return JSONResponse({"error": {"kind": "protocol", "message": said}}, error.status_code)


async def static(request: Request) -> Response:
    """A file of the client, by its exact name."""
    name = request.path_params.get("path") or "index.html"
    known = {place.relative_to(STATIC).as_posix(): place for place in STATIC.rglob("*") if place.is_file()}
    if not known:
        return PlainTextResponse("The client has not been built: run `make studio` in the source tree.\n", 503)
    if name not in known:
        raise HTTPException(404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(known[name].read_bytes(), media_type="text/javascript" if kind.endswith("javascript") else kind)

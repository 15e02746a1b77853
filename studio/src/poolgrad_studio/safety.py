"""Who may talk to the studio: this computer's browser, on a page that the studio itself served.

Every request must carry the token in its path, name this server as its Host (so a foreign name that was made to resolve to
this computer is refused), and, where a browser says which page it comes from, come from ours. WebSockets and POSTs must
say so. Nothing else is looked at before these hold. Every answer carries headers that forbid inline scripts, other sites,
frames and guessing of types.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

METHODS = ("GET", "HEAD", "POST")


class Guard:
    """The only way in. `port` is where the server listens."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app = app
        self._token = token.encode("ascii")
        self._hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
        # The grammar of policies has no IPv6 addresses; there 'self' must do.
        sockets = " ".join(f"ws://{host}" for host in self._hosts if not host.startswith("["))
        policy = [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob: data:",
            "font-src 'self'",
            f"connect-src 'self' {sockets}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
        self._headers = [
            (b"content-security-policy", "; ".join(policy).encode("ascii")),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        why = self._refusal(scope)
        if why is not None:
            await (_refuse_socket(receive, send) if scope["type"] == "websocket" else self._refuse(send, *why))
            return
        prefix = "/" + self._token.decode("ascii")
        inner = {**scope, "root_path": prefix}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        await self.app(inner, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why this request goes no further: a status and a sentence."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(bytes(name).lower(), []).append(bytes(value))
        hosts = headers.get(b"host", [])
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if host not in self._hosts:
            return 403, "this server answers only under its own name; open the address that poolgrad studio printed"
        origins = headers.get(b"origin", [])
        socket = scope["type"] == "websocket"
        if (socket or scope["method"] == "POST") and not origins:
            return 403, "a request that changes something must say which page it comes from"
        if any(origin.decode("latin-1").lower() != f"http://{host}" for origin in origins):
            return 403, "requests from other pages are refused"
        first = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(first.encode("utf-8", "replace"), self._token):
            return 403, "the address lacks the studio's token; open the address that poolgrad studio printed"
        site = headers.get(b"sec-fetch-site", [b"none"])[0]
        if site not in (b"same-origin", b"none") and headers.get(b"sec-fetch-mode", [b""])[0] != b"navigate":
            return 403, "requests from other pages are refused"
        if not socket and scope["method"] not in METHODS:
            return 405, f"{scope['method'][:20]} is not served here; there are {', '.join(METHODS)}"
        return None

    async def _refuse(self, send: Send, status: int, message: str) -> None:
        body = json.dumps({"error": {"kind": "protocol", "message": message}}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *self._headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _refuse_socket(receive: Receive, send: Send) -> Any:
    await receive()
    await send({"type": "websocket.close", "code": 1008, "reason": "refused"})

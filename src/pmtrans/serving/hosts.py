"""Which names the server answers to: a page of another site must not reach it through a browser.

An IP address in ``Host`` is always fine, as DNS rebinding needs a name. A name must be the server's own. A request
that changes something or costs something, and says which page sent it, must come from a page of this server.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pmtrans.errors import one_line


class OwnNames:
    """Middleware: refuses a foreign ``Host`` or ``Origin`` with 403; headers of proxies are not believed."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self.app = app
        self.names = frozenset(name.lower() for name in (*names, "localhost"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (reason := self.refusal(scope)):
            await JSONResponse({"detail": reason}, 403, {"Connection": "close"})(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def refusal(self, scope: Scope) -> str | None:
        given: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.lower(), []).append(value.decode("latin-1"))
        hosts, origins = given.get(b"host", []), given.get(b"origin", [])
        if len(hosts) != 1 or not self.is_own(_name(f"//{hosts[0]}")):
            return f"Host {one_line(', '.join(hosts), 80)!r} is not this server's: start it with --allow-host NAME"
        if scope["method"] in ("GET", "HEAD", "OPTIONS") or not origins:
            return None
        if len(origins) == 1 and _place(origins[0]) == hosts[0].lower():
            return None
        return f"Origin {one_line(', '.join(origins), 80)!r} is another site"

    def is_own(self, name: str) -> bool:
        if "*" in self.names or name in self.names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _place(url: str) -> str:
    """Name and port, as they stand there."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:  # an unclosed bracket
        return ""


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # an unclosed bracket
        return ""

"""API keys: read from a file, compared in constant time, asked for before the body of a request is read."""

from __future__ import annotations

import hmac
import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pmtrans.errors import ConfigError, one_line
from pmtrans.texts import TextError, read_bytes

OPEN = frozenset({"/", "/docs", "/openapi.json", "/health", "/ready"})  # static, or for those who watch the service
_BYTES = 1_000_000
_SHORT = 16  # characters: fewer can be guessed


@dataclass(frozen=True)
class ApiKeys:
    """The digests of the keys that are accepted; the keys themselves are not kept."""

    digests: tuple[bytes, ...]

    def accept(self, given: bytes) -> bool:
        """Compares with every key, so that the time says neither which one nor how much of it was right."""
        digest = sha256(given).digest()
        return sum(hmac.compare_digest(digest, known) for known in self.digests) > 0


def read_keys(path: Path) -> tuple[ApiKeys, list[str]]:
    """The keys of a file (one per line; empty lines and ``#`` comments are skipped), and what to warn of."""
    shown = one_line(path)
    try:
        lines = read_bytes(path, _BYTES).splitlines()
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"--api-keys {shown}: {one_line(error.strerror or error)}.") from None
    except TextError as error:
        raise ConfigError(f"--api-keys {shown}: {error}.") from None
    keys = []
    for number, line in enumerate(lines, 1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if not all(33 <= byte <= 126 for byte in key):  # the key itself is not repeated: it may be a real one
            raise ConfigError(f"--api-keys {shown}: line {number} has a space or a character that is not ASCII.")
        keys.append(key)
    if not keys:
        raise ConfigError(f"--api-keys {shown} has no key: write one per line.")
    warnings = []
    if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.append(f"other users can read the API keys: chmod 600 {shown}")
    if min(map(len, keys)) < _SHORT:
        warnings.append(f"{shown} has a key of fewer than {_SHORT} characters, which can be guessed")
    return ApiKeys(tuple(sha256(key).digest() for key in keys)), warnings


class RequireKey:
    """Middleware: 401 to every request without a key, but for the pages, ``/health`` and ``/ready``."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _given(scope)
        if scope["type"] != "http" or scope["path"] in OPEN or any(self.keys.accept(key) for key in given):
            await self.app(scope, receive, send)
            return
        detail = "wrong API key" if given else "an API key is needed: Authorization: Bearer KEY, or X-API-Key: KEY"
        headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
        await JSONResponse({"detail": detail}, 401, headers)(scope, receive, send)


def _given(scope: Scope) -> list[bytes]:
    """The keys in the headers of a request."""
    found = []
    for name, value in scope.get("headers", ()):
        scheme, _, rest = value.partition(b" ")
        if name == b"x-api-key":
            found.append(value.strip())
        elif name == b"authorization" and scheme.lower() == b"bearer":
            found.append(rest.strip())
    return found

"""How many requests are worked on at a time, and who waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

from pmtrans.serving.connections import Turns


class Client:
    """One request to the application, whose last bytes arrive when the test says so."""

    def __init__(self, turns: Turns, path: str = "/predict") -> None:
        self.last_bytes = asyncio.Event()
        scope = {"type": "http", "path": path}
        self.task = asyncio.create_task(turns(scope, self._receive, self._send))
        self._pieces = 0

    async def _receive(self) -> dict[str, Any]:
        self._pieces += 1
        if self._pieces == 1:
            return {"type": "http.request", "body": b"a", "more_body": True}
        await self.last_bytes.wait()
        return {"type": "http.request", "body": b"b", "more_body": False}

    async def _send(self, message: Any) -> None: ...


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_request_waits_for_its_turn_with_its_last_bytes_and_a_slow_client_holds_none() -> None:
    async def scenario() -> None:
        working: list[str] = []
        may_end = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            while (await receive())["more_body"]:
                pass
            working.append(scope["path"])
            await may_end.wait()

        turns = Turns(app, 1)
        slow, first, second, health = (Client(turns, path) for path in ("/slow", "/first", "/second", "/health"))
        for client in (first, second, health):
            client.last_bytes.set()
        await settle()
        assert working == ["/health", "/first"] or working == ["/first", "/health"]  # /slow has not arrived
        may_end.set()
        await asyncio.gather(first.task, second.task, health.task)
        assert working[-1] == "/second"
        slow.last_bytes.set()
        await slow.task
        assert working[-1] == "/slow"
        assert turns.free._value == 1

    asyncio.run(scenario())


def test_a_request_that_fails_gives_its_turn_back() -> None:
    async def scenario() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            while (await receive())["more_body"]:
                pass
            raise ValueError

        turns = Turns(app, 1)
        for _ in range(3):
            client = Client(turns)
            client.last_bytes.set()
            outcome = await asyncio.gather(client.task, return_exceptions=True)
            assert isinstance(outcome[0], ValueError)

    asyncio.run(scenario())

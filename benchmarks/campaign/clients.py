"""The real server under slow clients, many requests at once, and many in a row; its health check is timed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from campaign.report import Report
from campaign.runs import train_command
from campaign.sessions import end_group, has_ended, run, start, wait
from PIL import Image

CASE = "one process"
ADDRESSES = 20  # of loopback, so that no limit for one client hides the limit for all
SERVER_DESCRIPTORS = 1024  # the usual limit of a shell
SLOW = (
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc",
    b"GET /health HTTP/1.1\r\nHost: loc",
    b"",
)


class Server:
    """``pmtrans serve``, a fork of this process."""

    def __init__(self, run_folder: Path, log: Path) -> None:
        log.unlink(missing_ok=True)
        self.log = log
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SERVER_DESCRIPTORS, SERVER_DESCRIPTORS))  # noqa: E731
        self.pid = start(["serve", str(run_folder), "--port", "0"], log, limit)
        while not (found := re.search(r"http://[^ ]+:(\d+)", self.text)):
            if has_ended(self.pid):
                raise RuntimeError(f"the server ended: {self.text[-500:]}")
            time.sleep(0.05)
        self.port = int(found[1])

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    @property
    def megabytes(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6


@contextmanager
def serving(run_folder: Path, log: Path, faults: list[str]) -> Iterator[Server]:
    """A server that must stop within 15 s, in order, and with a short log."""
    server = Server(run_folder, log)
    try:
        yield server
    finally:
        os.kill(server.pid, signal.SIGTERM)
        begin = time.monotonic()
        code = wait(server.pid, 30)
        end_group(server.pid)
        if code != 0 or time.monotonic() - begin > 15:
            faults.append(f"stopped with {code} after {time.monotonic() - begin:.0f} s")
        if "Traceback" in server.text:
            faults.append("a traceback in the log")
        if len(server.text) > 20_000:
            faults.append(f"a log of {len(server.text)} characters")


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def upload(name: str, content: bytes) -> bytes:
    """A whole request."""
    body = (
        (
            f'--b\r\nContent-Disposition: form-data; name="images"; filename="{name}"\r\n'
            "Content-Type: image/png\r\n\r\n"
        ).encode()
        + content
        + b"\r\n--b--\r\n"
    )
    head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def ask(port: int, request: bytes, client: str = "127.0.0.1") -> tuple[int, bytes]:
    """Status and answer; 0 where the connection was closed without one."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(client, 0))
        try:
            writer.write(request)
            answer = await reader.read()
        finally:
            writer.close()
    except OSError:
        return 0, b""
    return (int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0), answer


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass
class Health:
    """What a process of its own saw that asked for ``/health`` all the time, from an address of its own."""

    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> dict[str, float]:
        return {"health checks": len(self.seconds), "slowest (s)": round(max(self.seconds, default=0.0), 3)}


@contextmanager
def watched_health(port: int, folder: Path) -> Iterator[Health]:
    """Filled when the block ends. A process, as the clients keep this one busy."""
    seen, health = folder / "health.txt", Health()
    pid = os.fork()
    if not pid:
        with seen.open("w") as file:
            while True:
                begin = time.monotonic()
                status = asyncio.run(ask(port, HEALTH, "127.0.0.99"))[0]
                print(status, time.monotonic() - begin, file=file, flush=True)
                time.sleep(0.1)
    try:
        yield health
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for line in seen.read_text().splitlines():
        code, seconds = line.split()
        health.seconds.append(float(seconds))
        if code != "200":
            health.faults.append(f"/health: {code}")
        elif float(seconds) > 1:
            health.faults.append(f"/health after {float(seconds):.1f} s")


def _client(number: int) -> str:
    return f"127.0.0.{2 + number % ADDRESSES}"


async def _slow_clients(port: int, count: int) -> int:
    """All connected at once, each with the beginning of a request; one byte more a second, for ten seconds."""
    connected = 0
    writers = []
    for number in range(count):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(_client(number), 0))
            writer.write(SLOW[number % len(SLOW)])
            writers.append(writer)
            connected += 1
    for _ in range(10):
        await asyncio.sleep(1)
        for writer in writers:
            if not writer.is_closing():
                writer.write(b"a")
    for writer in writers:
        writer.close()
    return connected


async def _at_once(port: int, count: int) -> tuple[int, int]:
    """Right answers, and how often a client was told to come back."""
    refused = 0
    sent = [png(number) for number in range(50)]

    async def one(number: int) -> bool:
        nonlocal refused
        name = f"{number}.png"
        for wait_for in (0.1 * 1.5**n for n in range(25)):
            status, answer = await ask(port, upload(name, sent[number % 50]), _client(number))
            if status == 200:
                return f'"{name}"'.encode() in answer
            if status not in (0, 503):
                return False
            refused += 1
            await asyncio.sleep(min(wait_for, 5.0))
        return False

    right = sum(await asyncio.gather(*(one(number) for number in range(count))))
    return right, refused


async def _in_a_row(port: int, count: int, lanes: int = 8) -> int:
    """Right answers of ``count`` requests, a few at a time."""
    content = png(0)

    async def lane(number: int) -> int:
        right = 0
        for index in range(number, count, lanes):
            status, answer = await ask(port, upload(f"{index}.png", content))
            right += status == 200 and f'"{index}.png"'.encode() in answer
        return right

    return sum(await asyncio.gather(*(lane(number) for number in range(lanes))))


def many_clients(report: Report, slow: int, at_once: int, in_a_row: int, folder: Path, steps: int) -> None:
    whole = folder / f"whole {CASE}"
    if not whole.is_dir():
        run(train_command(folder / "data", whole, CASE, steps))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log = folder / "serve.log"
    if report.tried("server", "slow clients") < slow:
        faults: list[str] = []
        with serving(whole, log, faults) as server:
            with watched_health(server.port, folder) as health:
                connected = asyncio.run(_slow_clients(server.port, slow))
            after, _ = asyncio.run(ask(server.port, upload("after.png", png(0))))
            if after != 200:
                faults.append(f"after the slow clients: {after}")
        faults += _summed(health.faults)
        report.add("server", "slow clients", connected, faults, numbers=health.numbers)
    if report.tried("server", "requests at once") < at_once:
        faults = []
        with serving(whole, log, faults) as server, watched_health(server.port, folder) as health:
            right, refused = asyncio.run(_at_once(server.port, at_once))
        if right != at_once:
            faults.append(f"{at_once - right} without a right answer")
        faults += _summed(health.faults)
        numbers = {**health.numbers, "times told to come back": refused}
        report.add("server", "requests at once", at_once, faults, {"answered": right}, numbers)
    if report.tried("server", "requests in a row") < in_a_row:
        faults = []
        early = max(1, in_a_row // 10)
        with serving(whole, log, faults) as server:
            right = asyncio.run(_in_a_row(server.port, early))
            before = server.megabytes
            right += asyncio.run(_in_a_row(server.port, in_a_row - early))
            after_all = server.megabytes
        if right != in_a_row:
            faults.append(f"{in_a_row - right} without a right answer")
        if after_all > 1.1 * before:
            faults.append(f"memory grew from {before:.0f} to {after_all:.0f} MB")
        numbers = {f"MB after {early}": round(before, 1), "MB after all": round(after_all, 1)}
        report.add("server", "requests in a row", in_a_row, faults, {"answered": right}, numbers)


def _summed(faults: list[str]) -> list[str]:
    kinds = Counter(re.sub(r"after .*", "after more than 1 s", fault) for fault in faults)
    return [f"{kind} ({count} times)" for kind, count in kinds.items()]

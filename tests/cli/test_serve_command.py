"""``pmtrans serve`` as a real process: many requests at once, a stop in the middle of them."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

COMMAND = [sys.executable, "-c", "from pmtrans.cli import main; main()"]


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (36, 36, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def service(saved_model: Callable[..., Path]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*COMMAND, "serve", str(saved_model()), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    yield process, line.split()[2]
    if process.poll() is None:
        process.kill()
        process.wait()


async def send_many(address: str, count: int) -> list[httpx.Response]:
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=httpx.Limits(max_connections=200)) as client:
        files = ([("images", (f"{seed}.png", png(seed)))] for seed in range(count))
        return await asyncio.gather(*(client.post(f"{address}/predict", files=sent) for sent in files))


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_no_request_of_many_is_lost_and_one_under_way_is_answered_before_the_stop(
    service: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = service
    assert httpx.get(f"{address}/health", trust_env=False).json()["status"] == "ok"

    responses = asyncio.run(send_many(address, 150))
    assert {response.status_code for response in responses} == {200}
    names = [response.json()["predictions"][0]["name"] for response in responses]
    assert names == [f"{seed}.png" for seed in range(150)]

    port = int(address.rpartition(":")[2])
    request = httpx.Request("POST", f"{address}/predict", files=[("images", ("late.png", png(0)))])
    body = request.read()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {request.headers['content-type']}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:100])
        assert httpx.get(f"{address}/health", trust_env=False).status_code == 200  # so it has seen the first half
        process.send_signal(signal.SIGTERM)
        while is_listening(port):
            time.sleep(0.01)
        connection.sendall(body[100:])
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"late.png"' in answer
    assert process.wait(timeout=60) == 0

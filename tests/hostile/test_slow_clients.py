"""Many slow clients, foreign names and a stop: the server keeps its descriptors and answers for its health."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pmtrans.serving.limits import ConnectionLimits

LIMITS = {"in_all": 60, "per_client": 40, "reserve": 16, "header_seconds": 2.0, "reserve_seconds": 1.0}
QUICK = {**LIMITS, "body_grace": 1.0, "body_rate": 1000.0, "stop_seconds": 2, "linger_seconds": 0.5}


class Server:
    """The process, and raw requests to it."""

    def __init__(self, log: Path) -> None:
        program = [sys.executable, str(Path(__file__).with_name("small_server.py")), json.dumps(QUICK)]
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def ask(self, head: str, *headers: str, host: str | None = "localhost") -> tuple[int, str]:
        lines = [f"{head} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *headers, "Connection: close"]
        with self.connect() as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            answer = connection.makefile("rb").read().decode("latin-1")
        return int(answer.split()[1]) if answer else 0, answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server") / "log")
    yield started
    started.process.kill()
    started.process.wait()


def is_closed(connection: socket.socket, within: float) -> bool:
    connection.settimeout(within)
    with suppress(ConnectionError):
        try:
            return connection.recv(1000) == b""
        except TimeoutError:
            return False
    return True


def test_more_slow_clients_than_descriptors_do_not_stop_the_health_check(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    slowest = 0.0
    try:
        with ExitStack() as held:
            for number in range(600):
                slow = held.enter_context(server.connect())
                slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
                if number % 60 == 59:
                    begin = time.monotonic()
                    status, _ = server.ask("GET /health")
                    slowest = max(slowest, time.monotonic() - begin)
                    assert status == 200
            assert server.ask("GET /docs")[0] == 503  # the places of this client are taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert slowest < 5  # on a busy machine; a second elsewhere
    deadline = time.monotonic() + 20
    while (status := server.ask("POST /predict", "Content-Length: 0")[0]) != 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert status == 200
    assert server.log.stat().st_size < 20_000


def test_a_refused_client_that_is_still_sending_reads_why_it_was_refused(server: Server) -> None:
    """A socket that closes with bytes unread resets the connection, and the answer may be lost with it."""
    body = b"x" * 300_000
    with server.connect() as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: evil.example.com\r\nContent-Length: 300000\r\n\r\n")
        answer = connection.recv(1000)
        for start in range(0, len(body), 100_000):  # the first piece alone would be taken by a closed socket
            connection.sendall(body[start : start + 100_000])
            time.sleep(0.05)
        while piece := connection.recv(1000):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"evil.example.com" in answer


def test_a_refused_client_that_never_ends_is_let_go(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: evil.example.com\r\nContent-Length: 9000\r\n\r\n")
        begin = time.monotonic()
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 403")  # to the end, which the server makes
        assert 0.4 < time.monotonic() - begin < 10  # linger_seconds is 0.5 here


def test_no_health_check_is_lost_among_many_requests_that_come_at_once(server: Server) -> None:
    """All connections wait before the server looks: it must take them in smaller steps than its reserve."""
    body = b"x" * 1000
    request = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n" + body
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with ExitStack() as held:
        os.kill(server.process.pid, signal.SIGSTOP)
        held.callback(os.kill, server.process.pid, signal.SIGCONT)
        asked = []
        for number in range(300):
            connection = held.enter_context(server.connect())
            connection.sendall(health if number % 20 == 19 else request)
            asked += [connection] if number % 20 == 19 else []
        os.kill(server.process.pid, signal.SIGCONT)
        answers = []
        for connection in asked:
            try:
                answers.append(connection.recv(1000)[:12])
            except ConnectionError:
                answers.append(b"reset")
    assert answers == [b"HTTP/1.1 200"] * 15


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: loc",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: lo",
    ],
)
def test_a_request_that_does_not_arrive_is_cut_off(server: Server, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        if sent.count(b"GET /health") == 2:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        for _ in range(3):  # dripping does not help
            with suppress(OSError):
                connection.sendall(b"a")
            if is_closed(connection, 0.3):
                return
        assert is_closed(connection, 15)


def test_a_request_that_came_with_the_one_before_is_cut_off_too(server: Server) -> None:
    """Its first bytes wait until the answer before it is sent, and no more of them come."""
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as connection:
        connection.settimeout(10)
        connection.sendall(head % 5 + b"hello" + head % 50_000 + b"x")
        with suppress(ConnectionError):
            assert connection.makefile("rb").read().count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]", "10.1.2.3", "models.example.org", "LOCALHOST."])
def test_own_names_and_addresses_are_answered(server: Server, host: str) -> None:
    assert server.ask("GET /health", host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::1", "127.0.0.1.evil.example"])
def test_a_foreign_host_is_refused(server: Server, host: str) -> None:
    assert server.ask("GET /health", host=host)[0] in (400, 403)


def test_no_host_and_two_hosts_are_refused(server: Server) -> None:
    assert server.ask("GET /health", host=None)[0] in (400, 403)
    assert server.ask("GET /health", "Host: evil.example")[0] in (400, 403)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost", 200),
        ("https://localhost", 200),
        ("http://localhost:3000", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("", 403),
    ],
)
def test_a_post_of_another_sites_page_is_refused(server: Server, origin: str, status: int) -> None:
    assert server.ask("POST /predict", "Content-Length: 0", f"Origin: {origin}")[0] == status


def test_forwarded_names_reach_nothing(server: Server) -> None:
    for path in ("/health/", "/predict/", "/docs/", "//evil.example/"):
        status, answer = server.ask(f"GET {path}", "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https")
        assert status == 404
        assert "evil" not in answer.lower().replace("//evil.example", "")


def test_faults_are_logged_a_few_times_only(server: Server) -> None:
    before = server.log.stat().st_size
    assert {server.ask("GET /fails")[0] for _ in range(40)} == {500}
    assert server.log.read_bytes()[before:].count(b"a bug") <= 20  # ten records, in which it may stand twice
    assert server.log.stat().st_size - before < 200_000


def test_a_stop_takes_seconds_though_clients_are_slow(tmp_path: Path) -> None:
    server = Server(tmp_path / "log")
    with ExitStack() as held:
        for _ in range(20):
            slow = held.enter_context(server.connect())
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
        assert time.monotonic() - begin < 15


def test_the_limits_leave_room_for_two_hundred_connections_of_one_client() -> None:
    assert ConnectionLimits().per_client >= 200
    assert ConnectionLimits().in_all > ConnectionLimits().per_client

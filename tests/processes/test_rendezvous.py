"""Where processes meet: a port that cannot be used is one line, wherever it is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest

from pmtrans.errors import ConfigError
from pmtrans.processes.rendezvous import group_secret, meeting_point

GROUP = {"WORLD_SIZE": "2", "RANK": "0"}


@pytest.fixture(scope="module")
def taken() -> Iterator[str]:
    with socket.create_server(("", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("port", ["0", "65536", "99999999", "-5"])
def test_a_number_that_is_no_port_is_refused(address: str, port: str) -> None:
    with pytest.raises(ConfigError, match=rf"MASTER_PORT .* is '{port}', not a whole number from 1 to 65535"):
        meeting_point({**GROUP, "MASTER_ADDR": address, "MASTER_PORT": port}, timedelta(seconds=1))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_another_program_has_is_named(address: str, taken: str) -> None:
    with pytest.raises(ConfigError, match=f"^The processes cannot meet at port {taken}: .*[Aa]ddress already in use"):
        meeting_point({**GROUP, "MASTER_ADDR": address, "MASTER_PORT": taken}, timedelta(seconds=1))


def test_a_secret_is_any_bytes() -> None:
    assert group_secret({"PMTRANS_SECRET": os.fsdecode(b"\xff")}) == b"\xff"

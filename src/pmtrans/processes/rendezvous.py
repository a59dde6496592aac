"""Where the processes of a run meet: on one machine in a folder of the user's, on several nodes through a store.

On one machine nothing listens on the network: the addresses are exchanged in a folder that only this user can open,
and gloo's and NCCL's own sockets are bound to the loopback interface.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import torch.distributed as dist

from pmtrans.errors import ConfigError, RunError, one_line
from pmtrans.processes.environment import FOLDER, INTERFACE, SECRET, SECRET_FILE, is_one_machine, whole_number

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def meeting_point(environment: Mapping[str, str], patience: timedelta) -> Any:
    """The store through which the processes find each other."""
    if FOLDER in environment:
        folder = _private(Path(environment[FOLDER]))
        store = dist.FileStore(str(folder / "store"), int(environment["WORLD_SIZE"]))  # type: ignore[attr-defined]
        store.set_timeout(patience)
        return store
    address = environment.get("MASTER_ADDR", "")
    if not address:
        raise ConfigError("WORLD_SIZE says that there are several processes, and MASTER_ADDR not where they meet.")
    port = whole_number(environment, "MASTER_PORT", 29_500, 1, 65_535)
    _refuse_unresolvable(address)
    count, rank = int(environment["WORLD_SIZE"]), int(environment["RANK"])
    is_agents = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_ours = rank == 0 and not is_agents
    is_ipv6 = ":" in address
    try:
        if is_agents or not _is_loopback(address):
            url = f"tcp://[{address}]:{port}" if is_ipv6 else f"tcp://{address}:{port}"
            return next(dist.rendezvous(url, rank, count, timeout=patience))[0]  # type: ignore[attr-defined]
        # torch's own store listens on every interface, also for an address that only this machine has
        family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
        listener = socket.create_server((address, port), family=family).detach() if is_ours else None
        return dist.TCPStore(  # type: ignore[attr-defined]
            address, port, count, is_ours, timeout=patience, master_listen_fd=listener
        )
    except (OSError, dist.DistNetworkError) as error:
        if not is_ours:
            raise
        reason = one_line(getattr(error, "strerror", None) or error, 200)
        raise ConfigError(f"The processes cannot meet at port {port}: {reason}. Choose another MASTER_PORT.") from None


def group_secret(environment: Mapping[str, str]) -> bytes:
    """What the members of a group know and others do not; empty: nothing was agreed on."""
    if FOLDER in environment:
        return (_private(Path(environment[FOLDER])) / SECRET_FILE).read_bytes()
    return os.fsencode(environment.get(SECRET, ""))


def choose_interface(environment: Mapping[str, str]) -> None:
    """gloo and NCCL use the interface that the user named; on one machine, the loopback."""
    name = environment.get(INTERFACE)
    known = [interface for _, interface in socket.if_nameindex()]
    if name is not None and name not in known:
        raise ConfigError(f"Network interface {one_line(name)!r} is not one of this machine's: {', '.join(known)}.")
    if name is None and is_one_machine(environment):
        name = next((loopback for loopback in ("lo", "lo0") if loopback in known), None)
    if name is not None:
        os.environ.update(dict.fromkeys(_INTERFACES, name))


def _private(folder: Path) -> Path:
    """Refuse a folder that somebody else could have prepared, or could look into."""
    try:
        status = os.lstat(folder)
    except OSError as error:
        raise RunError(f"{one_line(folder)!r}, where the processes meet, cannot be used: {error.strerror}.") from None
    others = stat.S_IMODE(status.st_mode) & 0o077 if os.name == "posix" else 0
    if not stat.S_ISDIR(status.st_mode) or others or (os.name == "posix" and status.st_uid != os.getuid()):
        raise RunError(f"{one_line(folder)!r}, where the processes meet, must be a folder that only you can open.")
    return folder


def _refuse_unresolvable(address: str) -> None:
    """torch would ask for it again and again until its patience ends, which is minutes."""
    try:
        socket.getaddrinfo(address, None)
    except (OSError, UnicodeError) as error:
        reason = one_line(getattr(error, "strerror", None) or error, 100)
        raise ConfigError(
            f"MASTER_ADDR {one_line(address, 100)!r} is no machine that can be found: {reason}."
        ) from None


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"

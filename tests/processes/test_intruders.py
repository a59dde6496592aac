"""A run of several processes on one machine is nobody else's: no socket on the network, no pickle in an exchange."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

import pmtrans
import tiny_run
from pmtrans.errors import ConfigError, RunError, TrainingError
from pmtrans.processes import exchange
from pmtrans.processes.environment import FOLDER, SECRET_FILE, private_folder
from pmtrans.processes.rendezvous import choose_interface, meeting_point

HERE = Path(__file__).parent
linux = pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="sockets are found through /proc")
LISTENING = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}

# what another user of the machine does: looks into the meeting place, connects to every port and talks
INTRUDER = """
import json, os, pickle, socket, sys
meeting, ports, address = json.loads(sys.argv[1])
"x".encode("idna")  # what is imported later may be in a folder that the other user cannot open
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
done = {"user": os.getuid(), "opened": [], "remote": [], "local": []}
for path in (meeting, meeting + "/store", meeting + "/secret"):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).read()
        done["opened"].append(path)
    except OSError:
        pass
held = []
for port in ports:
    for place, host in (("remote", address), ("local", "127.0.0.1")):
        try:
            one = socket.create_connection((host, port), timeout=2)
            one.sendall(b"\\0" * 8 + pickle.dumps({"rank": 1}) * 20)
            held.append(one)
            done[place].append(port)
        except OSError:
            pass
print(json.dumps(done), flush=True)
sys.stdin.read()
"""


def children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()]


def listening(processes: list[int]) -> list[tuple[str, int]]:
    """(address, port) of all that these processes listen on."""
    sockets = set()
    for process in processes:
        for entry in Path(f"/proc/{process}/fd").iterdir():
            try:
                sockets.add(os.readlink(entry))
            except OSError:  # closed meanwhile
                continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            columns = line.split()
            address, port = columns[1].split(":")
            if columns[3] == LISTENING and f"socket:[{columns[9]}]" in sockets:
                found.append((address, int(port, 16)))
    return found


def own_address() -> str:
    """An address of this machine besides the loopback; without one, another loopback address."""
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if re.fullmatch(r"\d+(\.\d+){3}", one.address) and not one.address.startswith("127."):
                return str(one.address)
    return "127.0.0.2"


@linux
def test_another_user_and_another_address_get_nowhere(tmp_path: Path) -> None:
    tiny_run.write_domains(tmp_path)
    settings = {**tiny_run.SETTINGS, "data.source": str(tmp_path / "source"), "data.target": str(tmp_path / "target")}
    text = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    run = tmp_path / "run"
    program = [sys.executable, "-m", "pmtrans", "train", *text, "--out", str(run), "--processes", "2", "--quiet"]
    launched = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(6000):
            if (run / "environment.json").is_file():
                break
            assert launched.poll() is None, launched.communicate()
            time.sleep(0.05)
        ranks = children(launched.pid)
        assert len(ranks) == 2
        sockets = listening([launched.pid, *ranks])
        assert {address for address, _ in sockets} <= LOOPBACK
        environment = Path(f"/proc/{ranks[0]}/environ").read_bytes().split(b"\0")
        meeting = next(one for one in environment if one.startswith(f"{FOLDER}=".encode())).decode().partition("=")[2]
        given = json.dumps([meeting, [port for _, port in sockets], own_address()])
        intruder = subprocess.Popen(
            [sys.executable, "-c", INTRUDER, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert intruder.stdout is not None
        done = json.loads(intruder.stdout.readline())
        assert done["remote"] == []
        if os.getuid() == 0:
            assert done["user"] == 65534
            assert done["opened"] == []
        _, said = launched.communicate(timeout=300)
        intruder.communicate(timeout=20)
    finally:
        launched.kill()
    assert launched.returncode == 0, said
    assert not Path(meeting).exists()


def test_every_kind_of_value_crosses_without_a_pickle(tmp_path: Path) -> None:
    with private_folder() as meeting:
        path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
        shared = {**os.environ, "PYTHONPATH": path, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", FOLDER: str(meeting)}
        program = [sys.executable, str(HERE / "exchange_once.py"), str(tmp_path)]
        started = [
            subprocess.Popen(program, env={**shared, "RANK": rank}, stderr=subprocess.PIPE, text=True)
            for rank in ("0", "1")
        ]
        said = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    for rank in (0, 1):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text(encoding="utf-8"))
        assert found == {"same": [True] * 4, "said": "rank 1 found a mistake"}


def test_no_exchange_of_the_package_pickles() -> None:
    """torch names its pickling exchanges ``..._object`` and ``..._object_list``."""
    for file in Path(pmtrans.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            assert not re.search(r"_object(_list)?$", name), file
            assert name not in ("pickle", "monitored_barrier"), file


def test_what_is_not_named_does_not_cross() -> None:
    with pytest.raises(TypeError, match=r"^TrainingError may not cross processes$"):
        exchange._as_json(TrainingError("x"), [], ())
    with pytest.raises(KeyError):
        exchange._from_json({"Popen": ["id"]}, None, {})


def test_a_meeting_place_that_others_can_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for name in ("open", "link", "missing"):
        with pytest.raises(RunError, match="where the processes meet"):
            meeting_point({FOLDER: str(tmp_path / name), "WORLD_SIZE": "2"}, timedelta(seconds=1))
    with private_folder() as folder:
        assert folder.stat().st_mode & 0o077 == 0
        assert len((folder / SECRET_FILE).read_bytes()) == 32


def test_an_interface_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^Network interface 'nowhere0' is not one of this machine's: "):
        choose_interface({"PMTRANS_INTERFACE": "nowhere0"})

"""Two torchrun agents, as on two nodes: one is lost, the other ends in one line, and both resume to the same bytes.

Six interpreters that import torch: run with PMTRANS_SOAK=1 (``make soak`` does).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import tiny_run
from tiny_run import assert_same_run

pytestmark = pytest.mark.skipif(not os.environ.get("PMTRANS_SOAK"), reason="takes a minute: PMTRANS_SOAK=1")
ENDS_WITHIN = 60.0  # seconds, of a survivor; on a busy machine
SETTINGS = {**tiny_run.SETTINGS, "train.max_steps": 60, "train.epochs": 99, "train.evaluate_every": 10}


class Agents:
    """Two agents of one process each, which meet at a port of the loopback interface."""

    def __init__(self, home: Path, out: Path, logs: Path) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        data = {"data.source": str(home / "source"), "data.target": str(home / "target")}
        settings = [f"{key}={json.dumps(value)}" for key, value in {**SETTINGS, **data}.items()]
        meeting = [
            f"--rdzv-endpoint=127.0.0.1:{port}",
            "--local-addr=127.0.0.1",
            "--rdzv-id=two",
            "--rdzv-backend=c10d",
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PMTRANS_INTERFACE": "lo"}
        self.logs = [logs / str(number) for number in (0, 1)]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", *meeting]
        command = ["--redirects=3", "-m", "pmtrans", "train", *settings, "--out", str(out)]
        self.agents = [
            subprocess.Popen(
                [*torchrun, f"--log-dir={log}", *command], env=environment, stderr=subprocess.DEVNULL, text=True
            )
            for log in self.logs
        ]

    def end(self) -> list[int]:
        return [agent.wait(timeout=600) for agent in self.agents]

    def said(self, number: int) -> str:
        """By the process of an agent, not by torchrun."""
        return "".join(file.read_text() for file in sorted(self.logs[number].rglob("stderr.log")))

    def worker(self, number: int) -> psutil.Process:
        (worker,) = psutil.Process(self.agents[number].pid).children()
        return worker

    def number_of(self, rank: int) -> int:
        """Which agent has the process of that rank."""
        return next(number for number in (0, 1) if self.worker(number).environ()["RANK"] == str(rank))


def wait_for(file: Path, agents: Agents) -> None:
    while not file.exists():
        assert all(agent.poll() is None for agent in agents.agents), [agents.said(number) for number in (0, 1)]
        time.sleep(0.01)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run.write_domains(tmp_path_factory.mktemp("agents"), images=12)


@pytest.fixture(scope="module")
def undisturbed(home: Path) -> Path:
    assert Agents(home, home / "undisturbed", home / "logs").end() == [0, 0]
    return home / "undisturbed"


@pytest.mark.parametrize(("rank", "with_its_process"), [(1, False), (0, True)])
def test_the_other_agent_ends_in_one_line_and_both_resume_to_the_same_bytes(
    rank: int, with_its_process: bool, home: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """An agent alone is killed, or its whole node with the main process on it."""
    out = tmp_path / "run"
    agents = Agents(home, out, tmp_path / "first")
    wait_for(out / "checkpoints" / "step-00000010", agents)
    lost = agents.number_of(rank)
    doomed = [psutil.Process(agents.agents[lost].pid), *([agents.worker(lost)] if with_its_process else [])]
    orphan = agents.worker(lost)
    begin = time.monotonic()
    for process in doomed:
        process.send_signal(signal.SIGKILL)
    codes = agents.end()
    psutil.wait_procs([orphan], timeout=ENDS_WITHIN)
    seconds = time.monotonic() - begin
    assert codes[lost] == -signal.SIGKILL
    assert codes[1 - lost] != 0
    assert not orphan.is_running()
    assert seconds < ENDS_WITHIN
    survivor = agents.said(1 - lost)
    assert "Traceback" not in survivor
    last = "Give the same command again." if with_its_process else "Resume with: "
    assert sum(last in line for line in survivor.splitlines()) == 1, survivor
    assert not (out / "summary.json").exists()
    print(f"rank {rank} lost: the other agent ended after {seconds:.1f} s")

    again = Agents(home, out, tmp_path / "second")
    assert again.end() == [0, 0]
    assert any("Resuming pmtrans from step" in again.said(number) for number in (0, 1))
    assert_same_run(out, undisturbed)

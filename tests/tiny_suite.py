"""A suite of two tiny runs, what it leaves, and how to kill one of them."""

from __future__ import annotations

import csv
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pmtrans.bench.display import Display, RunReporter
from pmtrans.bench.engine import Engine, Serial
from pmtrans.bench.entry import SharedSettings, parse_entries
from pmtrans.bench.jobs import Suite, open_suite, plan_suite
from pmtrans.bench.suite import run_suite
from tiny_office_home import FLAGS, SETTINGS


def tiny_plan(data: Path, out: Path, *overrides: str) -> Suite:
    settings = SharedSettings(None, (*SETTINGS, *overrides), FLAGS)
    plan = plan_suite("office-home", data, out, parse_entries("source_only,pmtrans"), [0], settings, ["R2P"])
    open_suite(plan)
    return plan


def run(plan: Suite, engine: Engine | None = None) -> int:
    display = Display(quiet=True)
    return run_suite(plan, engine or Serial(lambda job: RunReporter(display, job)), display)


def results(out: Path) -> list[dict[str, str]]:
    """All but the time."""
    rows = csv.DictReader((out / "results.csv").open())
    return [{key: value for key, value in row.items() if key not in ("seconds", "memory")} for row in rows]


def weights(out: Path, task: str = "R2P", method: str = "pmtrans") -> bytes:
    return (out / "runs" / task / method / "0" / "model" / "model.safetensors").read_bytes()


@dataclass
class Killer:
    """Who was killed: nobody, unless ``condition`` named somebody in time."""

    victims: list[int] = field(default_factory=list)


def kill_when(condition: Callable[[], int | None]) -> Killer:
    """Kill the process whose id ``condition`` gives, the first time it gives one."""
    killer = Killer()

    def watch() -> None:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            if (process := condition()) is not None:
                os.kill(process, signal.SIGKILL)
                killer.victims.append(process)
                return
            time.sleep(0.01)

    threading.Thread(target=watch, daemon=True).start()
    return killer


def holder(out: Path) -> int | None:
    """The process that trains PMTrans, from its first checkpoint on; nobody once the run is finished."""
    folder = out / "runs" / "R2P" / "pmtrans" / "0"
    if not list(folder.glob("checkpoints/step-*")) or (folder / "finished.json").exists():
        return None
    return int((folder / ".lock").read_text().split()[-1])

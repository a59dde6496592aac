"""The fault campaign: kills, signals, disks, descriptors, slow clients, flipped bits, hostile commands, fuzzing.

    python benchmarks/soak.py                            everything, with the counts below: about an hour
    python benchmarks/soak.py --quick                    a few of each: some minutes
    python benchmarks/soak.py --only kills --kills 20    one section
    python benchmarks/soak.py --table                    write the table of docs/guarantees.md from the report

Every piece is added to the report (``--report``) as soon as it is done, so a campaign that was interrupted is
resumed by the same command; ``--fresh`` begins a new one. Exit code 1 if anything was at fault.

Sessions are forks of one process that has imported everything (``campaign/sessions.py``); where the start or the
end of an interpreter matters, it is a real one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: this process must have no threads to fork from

from campaign.clients import many_clients
from campaign.commands import KINDS, hostile_commands
from campaign.disks import few_descriptors, full_disks
from campaign.flips import flip_bits
from campaign.interruptions import interrupt, kill, kill_launcher, send_signal, stop_a_rank
from campaign.report import Report, write_table
from campaign.runs import CASES, write_domains
from campaign.sessions import warm_up

HERE = Path(__file__).parent
REPORT = HERE / "soak.json"
PAGE = HERE.parent / "docs" / "guarantees.md"
TWO_PROCESSES = [case for case in CASES if case.startswith("two processes")]
QUICK = 20  # times fewer of each


def kills(report: Report, given: argparse.Namespace, folder: Path) -> None:
    shares = dict(zip(CASES, (0.3, 0.2, 0.2, 0.2, 0.1), strict=True))
    for case, share in shares.items():
        if case in (given.case or CASES):
            count = given.kills if given.case else round(share * given.kills)
            interrupt(report, "kills", case, kill, max(1, count), folder, given.seed, given.steps)


def signals(report: Report, given: argparse.Namespace, folder: Path) -> None:
    shares = dict(zip(CASES, (0.3, 0.2, 0.2, 0.2, 0.1), strict=True))
    for case, share in shares.items():
        if case in (given.case or CASES):
            count = given.signals if given.case else round(share * given.signals)
            interrupt(report, "signals", case, send_signal, max(1, count), folder, given.seed, given.steps)


def launchers(report: Report, given: argparse.Namespace, folder: Path) -> None:
    steps = ("step",)
    for case in TWO_PROCESSES:
        count = max(1, given.launchers // 2)
        interrupt(report, "launcher killed", case, kill_launcher, count, folder, given.seed, given.steps, steps)
        interrupt(report, "a process stopped", case, stop_a_rank, count, folder, given.seed, given.steps, steps)


def commands(report: Report, given: argparse.Namespace, folder: Path) -> None:
    hostile_commands(report, given.commands / 100, folder, given.seed, given.steps, given.kind or KINDS)


def flips(report: Report, given: argparse.Namespace, folder: Path) -> None:
    flip_bits(report, given.flips, folder, given.seed, given.steps)


def disks(report: Report, given: argparse.Namespace, folder: Path) -> None:
    full_disks(report, given.disks, folder, given.seed, given.steps)


def descriptors(report: Report, given: argparse.Namespace, folder: Path) -> None:
    few_descriptors(report, given.descriptors, folder, given.seed, given.steps)


def server(report: Report, given: argparse.Namespace, folder: Path) -> None:
    many_clients(report, given.slow_clients, given.at_once, given.in_a_row, folder, given.steps)


SECTIONS: dict[str, Callable[[Report, argparse.Namespace, Path], None]] = {
    "kills": kills,
    "signals": signals,
    "launchers": launchers,
    "server": server,
    "commands": commands,
    "disks": disks,
    "descriptors": descriptors,
    "flips": flips,
}
COUNTS = {
    "kills": (200, "SIGKILLs"),
    "signals": (60, "SIGTERMs and SIGINTs"),
    "launchers": (10, "launchers killed, and processes stopped"),
    "slow_clients": (1100, "connections at once that send almost nothing"),
    "at_once": (2000, "requests at once"),
    "in_a_row": (
        5000,
        "requests for the memory of the server, which is measured after a tenth of them, and at the end",
    ),
    "commands": (100, "per cent of the hostile commands"),
    "disks": (7, "full disks for each command that writes"),
    "descriptors": (12, "limits of descriptors for each command"),
    "flips": (3, "flipped bits in each file"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (count, what) in COUNTS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=None, metavar="N", help=f"{what} (default {count})")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="a section; may be repeated")
    parser.add_argument("--case", action="append", choices=CASES, help="of kills and signals; may be repeated")
    parser.add_argument("--kind", action="append", choices=KINDS, help="of hostile commands; may be repeated")
    parser.add_argument("--steps", type=int, default=12, help="of each training; checkpoints every 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"a {QUICK}th of every default")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--fresh", action="store_true", help="forget the report that is there")
    parser.add_argument("--table", action="store_true", help="only write the table from the report")
    given = parser.parse_args()
    if given.table:
        write_table(given.report, PAGE)
        return 0
    for name, (count, _) in COUNTS.items():
        if getattr(given, name) is None:
            setattr(given, name, max(1, count // QUICK) if given.quick else count)
    if given.fresh:
        given.report.unlink(missing_ok=True)
    warm_up()
    with tempfile.TemporaryDirectory(prefix="pmtrans-soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        report = Report(given.report, {name: "SOAK", str(HERE.parent): "REPOSITORY"})
        write_domains(folder / "data")
        for section in given.only or SECTIONS:
            SECTIONS[section](report, given, folder)
    for fault in report.faults:
        print(fault, file=sys.stderr)
    return int(bool(report.faults))


if __name__ == "__main__":
    sys.exit(main())

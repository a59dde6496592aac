"""Disks that are full or read-only, and few descriptors: a line, or the whole result; nothing is dropped.

A full disk is a small tmpfs that a filler file leaves some bytes of, where root may mount one; elsewhere, and in any
case, files may not grow beyond a limit (RLIMIT_FSIZE).
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from campaign.report import Report
from campaign.runs import differences, train_command
from campaign.sessions import Ended, run

CASE = "one process"
MEGABYTES = 12
LEFT = (0, 4, 12, 40, 100, 300, 1000)  # kB


def commands(run_folder: Path, data: Path, out: Path) -> dict[str, list[str]]:
    """Commands that write into ``out``."""
    target, run_name = str(data / "target"), str(run_folder)
    predict = ["predict", run_name, target, "--workers", "0", "--out"]
    return {
        "predict csv": [*predict, str(out / "out.csv")],
        "predict jsonl": [*predict, str(out / "out.jsonl")],
        "predict parquet": [*predict, str(out / "out.parquet")],
        "report": ["report", run_name, "--out", str(out / "page.html")],
        "label-these": ["label-these", "--run", run_name, "-n", "6", "--out", str(out / "labels")],
        "export torch": ["export", run_name, "--out", str(out / "model.pt2"), "--images", target],
        "export onnx": ["export", run_name, "--out", str(out / "model.onnx"), "--images", target],
    }


@contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """A tmpfs at ``place``; False where it cannot be mounted."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)


def fill(disk: Path, left: int) -> None:
    """Leave ``left`` bytes."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with (disk / "filler").open("wb") as file, contextlib.suppress(OSError):
        file.write(b"\0" * max(0, free - left))


def limit_files(largest: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))


def limit_descriptors(most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def full_disks(report: Report, count: int, folder: Path, seed: int, steps: int) -> None:
    """``count`` of each kind of command."""
    data, whole = folder / "data", folder / f"whole {CASE}"
    if not whole.is_dir():
        run(train_command(data, whole, CASE, steps))
    disk = folder / "disk"
    with small_disk(disk) as mounted:
        for real in (True, False) if mounted else (False,):
            section = "full disk" if real else "files that may not grow"
            for name in commands(whole, data, disk):
                for number in range(report.tried(section, name), count):
                    chance = random.Random(f"{seed} {section} {name} {number}")
                    left = int(1000 * LEFT[number % len(LEFT)] * chance.uniform(0.5, 1.0))
                    _write_into_little(report, section, name, whole, data, disk if real else folder / "little", left)
            for number in range(report.tried(section, "train, then resumed"), count):
                chance = random.Random(f"{seed} {section} train {number}")
                little = disk if real else folder / "little"
                _train_into_little(report, section, data, whole, little, real, chance, steps)
    _read_only(report, folder, data, whole)


def _write_into_little(report: Report, section: str, name: str, whole: Path, data: Path, out: Path, left: int) -> None:
    _empty(out)
    prepare: Callable[[], object] = lambda: None  # noqa: E731
    if section == "full disk":
        fill(out, left)
    else:
        prepare = limit_files(left)
    ended = run(commands(whole, data, out)[name], prepare)
    faults = [f"{left} bytes: {ended.fault()}"] if ended.fault() else []
    if ended.code == 0 and not _is_whole(out):
        faults.append(f"{left} bytes: exit code 0 without its output")
    if ended.code != 0 and any(path.suffix in (".tmp", ".partial") for path in out.rglob("*") if path.is_file()):
        report_counts = {"a temporary left for the next start": 1}
    else:
        report_counts = {}
    report.add(section, name, 1, faults, {**report_counts, "with enough room" if ended.code == 0 else "a line": 1})


def _is_whole(out: Path) -> bool:
    """There is an output, and no file of it is empty."""
    made = [path for path in out.rglob("*") if path.is_file() and path.name != "filler"]
    return bool(made) and all(path.stat().st_size for path in made)


def _train_into_little(
    report: Report, section: str, data: Path, whole: Path, out: Path, real: bool, chance: random.Random, steps: int
) -> None:
    """A training that finds no room ends with a line; once there is room, it is resumed and equal."""
    _empty(out)
    command = train_command(data, out / "run", CASE, steps)
    left = int(chance.choice([2_000, 100_000, 500_000, 1_500_000]) * chance.uniform(0.5, 1.5))
    if real:
        fill(out, left)
    ended = run(command, (lambda: None) if real else limit_files(left // 4))
    faults = [f"{left} bytes: {ended.fault()}"] if ended.fault() else []
    (out / "filler").unlink(missing_ok=True)
    again = run(command)
    faults += [f"{left} bytes, then room: {again.fault((0,))}"] if again.fault((0,)) else []
    if again.code == 0:
        faults += differences(whole, out / "run", data)
    counts = {"with enough room" if ended.code == 0 else "a line": 1}
    report.add(section, "train, then resumed", 1, faults, counts)


def _read_only(report: Report, folder: Path, data: Path, whole: Path) -> None:
    """Every command on a run, and into a folder, on a disk that cannot be written."""
    section, disk = "read-only disk", folder / "disk"
    with small_disk(disk) as mounted:
        if not mounted:
            return
        shutil.copytree(whole, disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        elsewhere = folder / "elsewhere"
        for where, out, codes in (("into it", disk, (1, 2)), ("from it", elsewhere, (0,))):
            for name, command in commands(disk / "run", data, out).items():
                if report.tried(section, f"{name}, {where}"):
                    continue
                _empty(elsewhere)
                ended = run(command)
                fault = ended.fault(codes)
                report.add(section, f"{name}, {where}", 1, [fault] if fault else [])


def few_descriptors(report: Report, count: int, folder: Path, seed: int, steps: int) -> None:
    """Little by little more descriptors: a line, or the whole result; no image is left out."""
    data, whole, out = folder / "data", folder / f"whole {CASE}", folder / "few"
    if not whole.is_dir():
        run(train_command(data, whole, CASE, steps))
    cases = {
        name: command
        for name, command in commands(whole, data, out).items()
        if name in ("predict csv", "report", "label-these", "export torch")
    }
    cases["predict, 2 workers"] = [*cases["predict csv"][:-3], "2", *cases["predict csv"][-2:]]
    skip = ("data.on_bad_image=skip",)
    for title, case in (("train", CASE), ("train, 2 workers", "two workers"), ("train, 2 processes", "two processes")):
        cases[title] = train_command(data, out / "run", case, 3, skip)
    for name, command in cases.items():
        for number in range(report.tried("few descriptors", name), count):
            _empty(out)
            most = 5 + (number * 60) // max(1, count) + random.Random(f"{seed} {name} {number}").randrange(4)
            ended = run(command, limit_descriptors(most))
            faults = [f"{most} descriptors: {ended.fault()}"] if ended.fault() else []
            if ended.code == 0:
                faults += [f"{most} descriptors: {fault}" for fault in _left_out(ended, out)]
            counts = {"with enough of them" if ended.code == 0 else "a line": 1}
            report.add("few descriptors", name, 1, faults, counts)


def _left_out(ended: Ended, out: Path) -> list[str]:
    """What a command that says all is well has not done."""
    if (out / "out.csv").exists():
        rows = (out / "out.csv").read_text(encoding="utf-8").splitlines()[1:]
        if len(rows) != 24 or any("error" in row or ",," in row.rstrip(",") for row in rows):
            return ["images without a prediction"]
    if (out / "run").exists() and "unreadable" in ended.text:
        return ["images were left out"]
    return [] if _is_whole(out) else ["no output"]


def _empty(folder: Path) -> None:
    """Remove what is in it; the folder itself may be a disk."""
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()

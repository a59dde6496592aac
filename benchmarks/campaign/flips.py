"""One flipped bit in every file of a run folder: a line that says so, or results that are equal; never a traceback."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path

from campaign.report import Report
from campaign.runs import train_command
from campaign.sessions import Ended, end_group, has_ended, run, start, wait

from pmtrans.files import LOCK

CASE = "one process"
FINISHED, CUT = "a finished run", "an interrupted run"


def files_of(folder: Path) -> list[Path]:
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path for path in found if path.name != LOCK]


def cut_run(data: Path, out: Path, steps: int, log: Path) -> None:
    """A run that was killed in its last stage, with checkpoints and candidates."""
    pid = start(train_command(data, out, CASE, steps), log)
    wanted = out / "checkpoints"
    while not has_ended(pid) and not (wanted.is_dir() and sum(name[0] != "." for name in os.listdir(wanted)) >= 2):
        time.sleep(0.005)
    end_group(pid)
    wait(pid)


def flip(path: Path, chance: random.Random) -> str:
    """Flip one bit; of a short file anywhere, of a long one in its first or last part or anywhere."""
    content = bytearray(path.read_bytes())
    if not content:
        return ""
    most = chance.choice([len(content), min(len(content), 2000)])
    place, bit = chance.randrange(most), chance.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place}"


def flip_bits(report: Report, count: int, folder: Path, seed: int, steps: int) -> None:
    """``count`` flips in every file, of a finished and of an interrupted run."""
    data, whole, cut = folder / "data", folder / f"whole {CASE}", folder / "cut"
    if not whole.is_dir() and (ended := run(train_command(data, whole, CASE, steps))).code != 0:
        report.add("flipped bits", FINISHED, 0, [f"the uninterrupted run: {ended.fault((0,))}"])
        return
    for _ in range(10):
        if (cut / "candidates").is_dir() and not (cut / "summary.json").exists():
            break
        shutil.rmtree(cut, ignore_errors=True)
        cut_run(data, cut, steps, folder / "cut.log")
    target = str(data / "target")
    run(["predict", str(whole), target, "--out", str(folder / "right.csv"), "--workers", "0"])
    right = (folder / "right.csv").read_bytes()
    weights = (whole / "model" / "model.safetensors").read_bytes()
    seen: Counter[str] = Counter()
    for title, original in ((FINISHED, whole), (CUT, cut)):
        for path in files_of(original):
            case = f"{title}, {_kind(path)}"
            for number in range(count):
                seen[case] += 1
                if seen[case] <= report.tried("flipped bits", case):
                    continue
                copy = folder / "flipped"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(original, copy)
                where = flip(copy / path, random.Random(f"{seed} {title} {path} {number}"))
                sessions: dict[str, Ended] = {}
                wrong = ""
                if title == FINISHED:
                    out = folder / "flipped.csv"
                    out.unlink(missing_ok=True)
                    sessions["predict"] = run(["predict", str(copy), target, "--out", str(out), "--workers", "0"])
                    if sessions["predict"].code == 0 and out.read_bytes() != right:
                        wrong = "other predictions, in silence"
                    if path.parts[0] != "checkpoints":  # of a finished run no report reads them
                        sessions["report"] = run(["report", str(copy), "--out", str(folder / "flipped.html")])
                sessions["train"] = run(train_command(data, copy, CASE, steps))
                if not wrong and sessions["train"].code == 0:
                    changed = (copy / "model" / "model.safetensors").read_bytes() != weights
                    untouched = title == FINISHED and path == Path("model/model.safetensors")
                    wrong = "other weights, in silence" if changed and not untouched else ""
                faults = [f"{path}, {where}: {verb}: {end.fault()}" for verb, end in sessions.items() if end.fault()]
                faults += [f"{path}, {where}: {wrong}"] if wrong else []
                noticed = any(end.code != 0 for end in sessions.values())
                counts = Counter({"refused or repaired with a line" if noticed else "harmless": 1})
                report.add("flipped bits", case, 1, faults, counts)


def _kind(path: Path) -> str:
    """Files of a kind share a row."""
    return path.name if path.parts[0] not in ("checkpoints", "candidates") else f"{path.parts[0]}/"

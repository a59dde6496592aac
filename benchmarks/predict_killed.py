"""Rows of ``predict`` while its worker processes are killed: each image once, in order, or not?

python benchmarks/predict_killed.py --images office31/amazon --kills 5

One process writes the rows that the others are compared with, byte for byte. Then the command line itself predicts with
two processes and with a local Ray cluster, and while its rows grow, SIGKILL ends one of the workers, again and again.
The table: how many were killed, rows that are missing or there twice, and whether the file is the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from predict import write_model

PREDICT = [sys.executable, "-c", "from pmtrans.cli import main; main()", "predict"]
WORKERS = {"--processes 2": "spawn_main", "--engine ray": "ray::"}  # what the command of a worker at work begins with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="a folder")
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--kills", type=int, default=5, help="of each way to divide the images")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of whom to kill, and when")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_model(folder / "model", given.backbone, given.weights, given.size)
        command = [*PREDICT, str(model), given.images, "--quiet", "--out"]
        whole = folder / "one.csv"
        subprocess.run([*command, str(whole)], check=True)
        paths = _paths(whole)
        print("| images divided by | images | workers killed | rows missing | rows twice | the bytes of one process |")
        print("|---|---|---|---|---|---|")
        for way, worker in WORKERS.items():
            out = folder / f"{worker.strip(':')}.csv"
            killed = _predict_and_kill([*command, str(out), *way.split()], worker, given, out, len(paths))
            found = Counter(_paths(out))
            missing = sum(path not in found for path in paths)
            twice = sum(count > 1 for count in found.values())
            same = "yes" if out.read_bytes() == whole.read_bytes() else "no"
            print(f"| `{way}` | {len(paths)} | {killed} | {missing} | {twice} | {same} |", flush=True)


def _paths(table: Path) -> list[str]:
    with table.open(newline="", encoding="utf-8") as file:
        return [row["path"] for row in csv.DictReader(file)]


def _predict_and_kill(command: list[str], worker: str, given: argparse.Namespace, out: Path, images: int) -> int:
    """Kill a worker at moments spread over the growth of the rows; how many were."""
    draw = random.Random(given.seed)
    journal = out.with_name(f".{out.name}.partial") / "rows.jsonl"
    killed = 0
    process = psutil.Popen(command)
    while process.poll() is None:
        rows = journal.read_bytes().count(b"\n") if journal.exists() else 0
        if killed < given.kills and rows >= images * killed / given.kills:
            at_work = [one for one in process.children(recursive=True) if _is_at_work(one, worker)]
            if at_work:
                time.sleep(draw.random())
                draw.choice(at_work).kill()
                killed += 1
        time.sleep(0.1)
    if process.returncode != 0:
        raise SystemExit(json.dumps({"command": command, "exit_code": process.returncode}))
    return killed


def _is_at_work(process: psutil.Process, worker: str) -> bool:
    try:
        return worker in " ".join(process.cmdline()) and process.cpu_times().user > 1
    except psutil.Error:
        return False


if __name__ == "__main__":
    main()

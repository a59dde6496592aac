"""Kill the real command line repeatedly, resume each time, and compare with an uninterrupted run.

    python benchmarks/soak.py                     20 kills for each preset, with 0 and with 2 workers
    python benchmarks/soak.py --kills 3 --case paper:0 --forked      the short form that the tests run

Every run accumulates gradients and trains its baseline first. The kills are SIGKILL: half of them inside saving, that
is when the temporary name of a checkpoint, candidate, model or file is seen to exist; the others at a random moment
after the first step, and a few of them at a random moment after the start, wherever that is.
Afterwards the weights must be equal byte by byte (of the model and of the baseline), ``metrics.jsonl`` line by line but
for times, and the predictions for every target image digit by digit. Exit code 1 if anything differs.

``--forked`` starts each session as a fork of a process that has imported everything: the same ``main()``, faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from pmtrans.run.folder import RunFolder

TIME_LIMIT = 300.0  # seconds for one session: a run that hangs is a failure too
SETTINGS = [
    "backbone.options={depth: 2, embed_dim: 32, num_heads: 2}",
    "data.image_size=32",
    "train.batch_size=3",
    "train.accumulate=2",
    "train.epochs=99",
    "train.evaluate_every=3",
    "train.log_every=1",
]
CASES = ("paper:0", "paper:2", "reference:0", "reference:2")


def write_domains(folder: Path) -> None:
    """Two small domains of noise: nothing is learned, everything is compared."""
    noise = np.random.default_rng(0)
    for domain, images in (("source", 11), ("target", 8)):
        for name in ("ant", "bee", "cat"):
            (folder / domain / name).mkdir(parents=True)
            for number in range(images):
                pixels = noise.integers(0, 256, (36, 36, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / domain / name / f"{number:02d}.png")


def command(data: Path, out: Path, preset: str, workers: int, steps: int) -> list[str]:
    domains = ["--source", str(data / "source"), "--target", str(data / "target")]
    model = ["--backbone", "vit_tiny_patch16_224", "--weights", "none", "--out", str(out)]
    chosen = [f"method.preset={preset}", f"data.workers={workers}", f"train.max_steps={steps}"]
    return ["train", *domains, *model, *SETTINGS, *chosen]


def start_process(arguments: list[str], log: Path) -> int:
    """A new interpreter, as a shell would start it."""
    code = "from pmtrans.cli import main; main()"
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=file, stderr=file).pid


def start_fork(arguments: list[str], log: Path) -> int:
    """A copy of this process, which has imported everything."""
    import pmtrans.training.train  # noqa: F401
    from pmtrans.cli import main

    pid = os.fork()
    if pid:
        return pid
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["pmtrans", *arguments]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 70
    sys.stdout.flush()
    os._exit(code)


def wait(pid: int) -> int:
    """The exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def has_ended(pid: int) -> bool:
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return status is not None


def parts_of(out: Path) -> tuple[RunFolder, RunFolder]:
    """The run itself and its baseline."""
    return RunFolder(out), RunFolder(out).baseline


def temporaries(out: Path) -> set[str]:
    """What is being written right now under a name that is not its own yet."""
    found = set()
    for part in parts_of(out):
        for folder in (part.path, part.checkpoints, part.candidates):
            with contextlib.suppress(OSError):
                found |= {f"{folder}/{entry.name}" for entry in os.scandir(folder) if entry.name.endswith(".tmp")}
    return found


def sizes(out: Path) -> list[int]:
    """Grows with every step."""
    paths = [part.metrics for part in parts_of(out)]
    return [path.stat().st_size if path.exists() else -1 for path in paths]


@dataclass
class Killer:
    """Decides when a session is killed."""

    random: random.Random
    inside_saving: int = 0
    at_random: int = 0
    left_behind: int = 0  # kills after which a temporary name was still there

    def kill(self, pid: int, out: Path) -> bool:
        """Wait for the moment and kill; False: the run ended before."""
        saving = self.random.random() < 0.5
        if saving:
            moment = self._inside_saving(out, self.random.randint(1, 8))
        elif self.random.random() < 0.2:
            moment = self._at_random(out, self.random.uniform(0.0, 5.0), progress=False)
        else:
            moment = self._at_random(out, self.random.uniform(0.0, 2.0), progress=True)
        begin = time.monotonic()
        for ready in moment:
            if has_ended(pid):
                return False
            if ready:
                break
            if time.monotonic() - begin > TIME_LIMIT:
                break
        os.kill(pid, signal.SIGKILL)
        wait(pid)
        self.inside_saving += saving
        self.at_random += not saving
        self.left_behind += bool(temporaries(out))
        return True

    def _inside_saving(self, out: Path, which: int) -> Iterator[bool]:
        """True when the ``which``-th new temporary name is seen; watched without a pause, as it is there briefly."""
        known = temporaries(out)
        while True:
            fresh = temporaries(out) - known
            if fresh:
                known |= fresh
                which -= 1
            yield which <= 0

    def _at_random(self, out: Path, seconds: float, progress: bool) -> Iterator[bool]:
        """True some seconds after the first sign of progress, or after the start."""
        before = sizes(out)
        first = None if progress else time.monotonic()
        while True:
            if first is None and sizes(out) != before:
                first = time.monotonic()
            yield first is not None and time.monotonic() - first >= seconds
            time.sleep(0.002)


def predictions(run: Path, data: Path) -> list[tuple[object, ...]]:
    from pmtrans.inference.predictor import load

    paths = sorted(str(path) for path in (data / "target").rglob("*.png"))
    return [(p.path, p.label, p.probability, p.probabilities) for p in load(run, device="cpu").predict(paths)]


def metrics(run: RunFolder) -> list[dict[str, object]]:
    from pmtrans.run.metrics import TIMES

    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]  # every line must be complete
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def differences(one: Path, other: Path, data: Path) -> list[str]:
    found = []
    for part, runs in zip(("model", "baseline"), zip(parts_of(one), parts_of(other), strict=True), strict=True):
        weights = [(run.model / "model.safetensors").read_bytes() for run in runs]
        if weights[0] != weights[1]:
            found.append(f"{part}: weights differ")
        if metrics(runs[0]) != metrics(runs[1]):
            found.append(f"{part}: metrics differ")
        leftovers = temporaries(other)
        if leftovers:
            found.append(f"left behind: {leftovers}")
    if predictions(one, data) != predictions(other, data):
        found.append("predictions differ")
    summaries = [json.loads(RunFolder(run).summary.read_text()) for run in (one, other)]
    for summary in summaries:
        summary.pop("seconds")
    if summaries[0] != summaries[1]:
        found.append("summaries differ")
    return found


def soak(
    case: str, kills: int, steps: int, folder: Path, start: Callable[[list[str], Path], int], seed: int
) -> list[str]:
    """One case: what differs from the uninterrupted run of its preset."""
    preset, workers = case.split(":")
    data, whole, out = folder / "data", folder / f"{preset}-whole", folder / f"{preset}-{workers}"
    log = folder / f"{preset}-{workers}.log"
    if not data.is_dir():
        write_domains(data)
    if not whole.is_dir() and wait(start(command(data, whole, preset, 0, steps), log)) != 0:
        return [f"the uninterrupted run failed: {log.read_text()[-500:]}"]
    begin = time.monotonic()
    killer = Killer(random.Random(f"{seed} {case}"))
    arguments = command(data, out, preset, int(workers), steps)
    done = 0
    while done < kills:
        if not killer.kill(start(arguments, log), out):
            return [f"the run ended after {done} kills: give it more --steps; {log.read_text()[-500:]}"]
        done += 1
    code = wait(start(arguments, log))
    if code != 0:
        return [f"the last session ended with {code}: {log.read_text()[-500:]}"]
    again = wait(start(arguments, log))
    found = differences(whole, out, data)
    if again != 0 or "is finished already" not in log.read_text():
        found.append(f"the finished run did not say so (exit code {again})")
    print(
        f"{case:12s} {done} kills: {killer.at_random} at random moments, {killer.inside_saving} inside saving "
        f"({killer.left_behind} left a temporary name behind); {time.monotonic() - begin:.0f} s; "
        f"{'; '.join(found) if found else 'all equal'}",
        flush=True,
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60, help="of each training; checkpoints every 3")
    parser.add_argument("--case", action="append", choices=CASES, help="PRESET:WORKERS (default: all four)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forked", action="store_true", help="fork instead of starting a new interpreter")
    arguments = parser.parse_args()
    start = start_fork if arguments.forked else start_process
    with tempfile.TemporaryDirectory(prefix="pmtrans-soak-") as folder:
        found = {
            case: soak(case, arguments.kills, arguments.steps, Path(folder), start, arguments.seed)
            for case in arguments.case or CASES
        }
    for case, what in found.items():
        for line in what:
            print(f"{case}: {line}", file=sys.stderr)
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())

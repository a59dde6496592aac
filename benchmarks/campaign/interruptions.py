"""Kill, signal and stop a training at many moments, resume it, and compare it with one that nothing happened to."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from campaign.report import Report
from campaign.runs import CASES, differences, milestones, progress, temporaries, train_command
from campaign.sessions import Ended, end_group, has_ended, run, start, wait

KILLS_OF_A_RUN = 6  # then it may end, and is compared
LEAVE_WITHIN = 40.0  # seconds for all processes of a run that lost one, or was told to stop
LOADERS_WITHIN = 10.0  # seconds for the loader processes of a killed run


class Moments:
    """When to strike: at a random time after the start or a step, inside saving, or between stages."""

    KINDS = ("start", "step", "step", "saving", "saving", "stage")

    def __init__(self, chance: random.Random, out: Path) -> None:
        self.chance, self.out = chance, out
        self.kind = chance.choice(self.KINDS)

    def __iter__(self) -> Iterator[bool]:
        if self.kind == "saving":
            return self._grown(lambda: temporaries(self.out), self.chance.randint(1, 6), 0.0)
        if self.kind == "stage":
            return self._grown(lambda: milestones(self.out), self.chance.randint(1, 3), self.chance.uniform(0, 0.05))
        return self._at_random()

    def _grown(self, look: Callable[[], set[str]], which: int, delay: float) -> Iterator[bool]:
        """True once the ``which``-th new name is seen; watched without a pause, as a temporary is there briefly."""
        known = look()
        while True:
            fresh = look() - known
            if fresh:
                known |= fresh
                which -= 1
            if which <= 0:
                time.sleep(delay)
            yield which <= 0

    def _at_random(self) -> Iterator[bool]:
        begin = time.monotonic() if self.kind == "start" else None
        seconds, before = self.chance.uniform(0.05, 1.5), progress(self.out)
        while True:
            if begin is None and progress(self.out) != before:
                begin = time.monotonic()
            yield begin is not None and time.monotonic() - begin >= seconds
            time.sleep(0.002)


def ranks(launcher: int) -> list[int]:
    """The processes of ``--processes``, in order of their rank."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return sorted(child.pid for child in psutil.Process(launcher).children())
    return []


def alive(group: int) -> list[int]:
    """The processes of a group that are no zombies."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


Blow = Callable[[int, random.Random], tuple[str, float, tuple[int, ...]]]
"""Strike a group: what was done, the seconds within which all of it must be gone, and the exit codes that are right."""


def kill(group: int, chance: random.Random) -> tuple[str, float, tuple[int, ...]]:
    """SIGKILL to everything, to the process itself (its loaders must follow), or to one of two ranks."""
    children = ranks(group)
    whom = chance.choice(["all", "the process", "a rank"])
    if whom == "all":
        end_group(group)
        return "all processes at once", LOADERS_WITHIN, (-signal.SIGKILL,)
    if whom == "a rank" and is_launcher(group) and len(children) == 2:
        os.kill(chance.choice(children), signal.SIGKILL)
        return "one of two ranks", LEAVE_WITHIN, (1, 137)
    os.kill(group, signal.SIGKILL)
    if is_launcher(group):
        return "the launcher alone", LEAVE_WITHIN, (-signal.SIGKILL,)
    return "the main process alone", LOADERS_WITHIN, (-signal.SIGKILL,)


def kill_launcher(group: int, chance: random.Random) -> tuple[str, float, tuple[int, ...]]:
    os.kill(group, signal.SIGKILL)
    return "the launcher alone", LEAVE_WITHIN, (-signal.SIGKILL,)


def send_signal(group: int, chance: random.Random) -> tuple[str, float, tuple[int, ...]]:
    """SIGTERM or SIGINT, to the process or to its group, once or twice."""
    number = chance.choice([signal.SIGTERM, signal.SIGINT])
    to_all, twice = chance.random() < 0.5, chance.random() < 0.25
    for _ in range(1 + twice):
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if to_all else os.kill)(group, number)
        if twice:
            time.sleep(chance.uniform(0.0, 0.2))
    name = f"{number.name} {'to the group' if to_all else 'to the process'}{', twice' if twice else ''}"
    # before training has begun nothing listens: the process ends as any other
    return name, LEAVE_WITHIN, (128 + number, -number, 0)


def stop_a_rank(group: int, chance: random.Random) -> tuple[str, float, tuple[int, ...]]:
    """SIGSTOP of one of two processes, then SIGTERM to the run."""
    children = ranks(group)
    if children:
        os.kill(chance.choice(children), signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(group, signal.SIGTERM)
    return "a rank stopped, then SIGTERM", LEAVE_WITHIN, (143, -signal.SIGTERM, 0, 1)


def is_launcher(group: int) -> bool:
    return group in _LAUNCHERS


_LAUNCHERS: set[int] = set()


def interrupt(
    report: Report,
    section: str,
    case: str,
    blow: Blow,
    count: int,
    folder: Path,
    seed: int,
    steps: int,
    only: tuple[str, ...] = Moments.KINDS,
) -> None:
    """Runs of a case until ``count`` blows are in the report; each run ends and is compared."""
    data, whole = folder / "data", folder / f"whole {case}"
    if report.tried(section, case) < count and not whole.is_dir():
        ended = run(train_command(data, whole, case, steps))
        if ended.code != 0:
            report.add(section, case, 0, [f"the uninterrupted run: {ended.fault((0,))}"])
            return
    for attempt in range(3 * count):  # a run may end before its blow
        if (done := report.tried(section, case)) >= count:
            break
        out = folder / "interrupted"
        shutil.rmtree(out, ignore_errors=True)
        chance = random.Random(f"{seed} {section} {case} {done} {attempt}")
        counts: Counter[str] = Counter()
        faults: list[str] = []
        command = train_command(data, out, case, steps)
        log = folder / "interrupted.log"
        for _ in range(min(KILLS_OF_A_RUN, count - done)):
            log.unlink(missing_ok=True)
            moments = Moments(chance, out)
            moments.kind = chance.choice(only)
            struck = _strike(command, log, moments, blow, chance, "--processes" in CASES[case], counts, faults)
            if not struck:
                break
        tried = sum(number for name, number in counts.items() if name.startswith("at: "))
        ended = run(command)
        if ended.code == 0:
            faults += differences(whole, out, data)
        faults += [ended.fault((0,))] if ended.fault((0,)) else []
        if faults:
            shutil.copytree(out, folder / f"kept {section} {case} {done}", dirs_exist_ok=True)
        report.add(section, case, tried, faults, counts)


def _strike(
    command: list[str],
    log: Path,
    moments: Moments,
    blow: Blow,
    chance: random.Random,
    launches: bool,
    counts: Counter[str],
    faults: list[str],
) -> bool:
    """One session and its blow; False: the run ended before."""
    pid = start(command, log)
    if launches:
        _LAUNCHERS.add(pid)
    begin = time.monotonic()
    for ready in moments:
        if has_ended(pid):
            code = wait(pid)
            faults += [f"a session ended with {code} by itself"] if code != 0 else []
            return False
        if ready or time.monotonic() - begin > 120:
            break
    done, within, codes = blow(pid, chance)
    code = wait(pid, within)
    begin = time.monotonic()
    while left := alive(pid):
        if time.monotonic() - begin > within:
            faults.append(f"{done}: {len(left)} processes alive after {within:.0f} s")
            end_group(pid)
            break
        time.sleep(0.05)
    text = log.read_text(encoding="utf-8", errors="replace")
    fault = Ended(code, text, 0.0).fault((*codes, 0))
    faults += [f"{done} ({moments.kind}): {fault}"] if fault else []
    counts[f"at: {moments.kind}"] += 1
    counts[done] += 1
    counts["leaving temporaries"] += bool(temporaries(moments.out))
    return True

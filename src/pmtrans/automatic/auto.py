"""Within a time budget: check, probe, source stage, PMTrans, then other strong methods; the best of them is shipped.

Everything is in files, so the same command resumes after a kill at any moment: each training is a run in ``runs/``,
``auto.json`` holds what was decided (lengths of the trainings, measured costs), ``clock.json`` the time spent.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pmtrans.automatic.budget import Clock, TimedReporter
from pmtrans.automatic.folder import CLOCK, COMPARISON, LEADERBOARD, PLAN, RUNS, open_folder
from pmtrans.automatic.leaderboard import (
    PROBE,
    Row,
    best,
    leaderboard_csv,
    leaderboard_section,
    method_row,
    probe_row,
    ranked,
    source_rows,
)
from pmtrans.automatic.plan import ENTRIES, SOURCE, Cost, Length, longest, measure, plan_length
from pmtrans.automatic.stored_plan import StoredPlan
from pmtrans.bench.entry import Entry, SharedSettings
from pmtrans.bench.jobs import slug
from pmtrans.config import LOCATIONS, Config
from pmtrans.data.domains import Data, read_data
from pmtrans.errors import RunError, TrainingError, UserError, one_line
from pmtrans.files import new_folder, run_lock, settle, write_atomically, write_json, write_text
from pmtrans.report.comparison import write_comparison
from pmtrans.run.folder import RunFolder
from pmtrans.run.provenance import MAY_CHANGE, fingerprint, flatten
from pmtrans.run.summary import Summary, read_summary
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.texts import TextError, like, read_json
from pmtrans.training.finished import read_finished, read_stored
from pmtrans.training.train import train, train_probe

CLOSING = 0.03  # share of the time for the leaderboard, the pages and the copy of the shipped run
REHEARSAL = 0.01  # share of the time that the timed steps of one method may take
WORTH_SHORTENING = 0.5  # of the common length: a shorter training would not be compared fairly
_NOT_SHIPPED = {"checkpoints", "candidates", ".lock"}


@dataclass(frozen=True)
class Outcome:
    """What ``auto`` leaves: the summary of the shipped run, and all models, best first."""

    summary: Summary
    rows: list[Row]
    seconds: float


def auto(
    settings: SharedSettings,
    run_settings: Mapping[str, Any],
    out: Path,
    budget: float,
    overwrite: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Run, or resume, within ``budget`` seconds; ``run_settings`` name the two domains and the seed."""
    open_folder(out, overwrite)
    with run_lock(out):
        settle(out)
        clock = Clock(out / CLOCK, budget)
        try:
            return _Auto(settings, dict(run_settings), out, clock, TimedReporter(clock, quiet)).run()
        finally:
            clock.save()


class _Auto:
    """One session: what is decided goes to ``auto.json`` before it is acted on."""

    def __init__(
        self, settings: SharedSettings, run_settings: dict[str, Any], out: Path, clock: Clock, reporter: TimedReporter
    ) -> None:
        self.settings, self.run_settings = settings, run_settings
        self.out, self.clock, self.reporter = out, clock, reporter
        self.plan: dict[str, Any] = {"asked": self._asked(), "lengths": {}, "costs": {}, "failed": {}}
        if (out / PLAN).is_file():
            self.plan = self._read_plan() or self.plan
        self._save()

    def run(self) -> Outcome:
        data = read_data(self._configure(SOURCE), self.reporter)  # the check: unreadable files are told here
        self._refuse_other_images(data)
        length, methods_fit = self._common_length(data)
        if length is None:
            return self._ship_probe()
        if not self._finished(SOURCE) and not self._train(SOURCE, Length(*length)):
            return self._ship_probe()
        entries = self._entries() if methods_fit else []
        for number, entry in enumerate(entries, 1):
            if not self._finished(entry) and not self._attempt(entry, Length(*length), data, number, len(entries)):
                break
        return self._ship_best(entries)

    # what is asked for, and what was decided

    def _asked(self) -> dict[str, Any]:
        """The settings that a resumed command must share; where the data are may change."""
        flat = flatten(self._configure(ENTRIES[0]).model_dump(mode="json"))
        ignored = (*MAY_CHANGE, *(f"data.{name}" for name in LOCATIONS))
        return {key: value for key, value in flat.items() if key not in ignored}

    def _read_plan(self) -> dict[str, Any] | None:
        """None: one of other settings, which failed before anything was trained, so that a corrected command begins."""
        shown = one_line(self.out)
        try:
            plan: dict[str, Any] = read_json(self.out / PLAN, Annotated[dict[str, Any], like(StoredPlan)])
            before = plan["asked"]
        except (OSError, TextError):
            raise RunError(f"{PLAN} in {shown!r} cannot be read: --overwrite the folder.") from None
        now = self.plan["asked"]
        changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
        if changed and not (self.out / RUNS).exists():
            return None
        if changed:
            pairs = (f"{key}: {one_line(before.get(key), 60)} -> {one_line(now.get(key), 60)}" for key in changed[:3])
            raise RunError(
                f"{shown!r} was begun with other settings ({'; '.join(pairs)}): "
                "choose another --out, or --overwrite it."
            )
        return plan

    def _refuse_other_images(self, data: Data) -> None:
        """Finished trainings are not looked at again: those of other images, or other labels, would be shipped."""
        found = fingerprint(data.source, data.target.domain, data.labels_given)
        before = self.plan.setdefault("data", found)
        changed = [name for name in sorted({*before, *found}) if before.get(name) != found.get(name)]
        if changed:
            raise RunError(
                f"{one_line(self.out)!r} was begun with other data ({', '.join(changed)}): "
                "choose another --out, or --overwrite it."
            )
        self._save()

    def _save(self) -> None:
        write_json(self.out / PLAN, self.plan)
        self.clock.save()

    def _entries(self) -> list[Entry]:
        """Those that differ: a preset that is the default stands once."""
        chosen: dict[str, Entry] = {}
        for entry in ENTRIES:
            chosen.setdefault(repr(self._configure(entry)), entry)
        return list(chosen.values())

    def _configure(self, entry: Entry, length: Length | None = None) -> Config:
        config = self.settings.configure(entry, self.run_settings)
        if length is None:
            return config
        shortened = {"max_steps": length.steps, "evaluate_every": length.evaluate_every}
        return config.model_copy(update={"train": config.train.model_copy(update=shortened)})

    def _run_folder(self, entry: Entry) -> Path:
        return self.out / RUNS / slug(entry.name)

    def _finished(self, entry: Entry) -> bool:
        return RunFolder(self._run_folder(entry)).summary.is_file()

    # how long the trainings are

    @property
    def _seconds(self) -> float:
        """What is left for trainings."""
        return self.clock.left - CLOSING * self.clock.budget

    def _common_length(self, data: Data) -> tuple[tuple[int, int] | None, bool]:
        """(steps and steps between evaluations, whether methods fit), decided once; no training yet: decided again."""
        if self.plan.get("length") is None:
            first = ENTRIES[0]
            source, method = self._measure(SOURCE, data), self._measure(first, data)
            length, methods_fit = plan_length(source[1], self._seconds, source[0], method[0])
            self.plan["length"] = None if length is None else [length.steps, length.evaluate_every]
            self.plan["methods_fit"] = methods_fit
            self._save()
        length = self.plan["length"]
        return (None if length is None else (length[0], length[1])), bool(self.plan.get("methods_fit"))

    def _measure(self, entry: Entry, data: Data) -> tuple[Cost, Length]:
        """A rehearsal, once: a resumed session takes the numbers of the first."""
        if entry.name not in self.plan["costs"]:
            cost, length = measure(self._configure(entry), data, self.reporter, REHEARSAL * self.clock.budget)
            self.plan["costs"][entry.name] = {**asdict(cost), **asdict(length)}
            self._save()
        stored = self.plan["costs"][entry.name]
        return _cost(stored), Length(stored["steps"], stored["evaluate_every"])

    def _slowness(self) -> float:
        """How much longer finished trainings took than their rehearsals said: data, waiting and conclusion included."""
        taken, expected = 0.0, 0.0
        for name, stored in self.plan["lengths"].items():
            if stored.get("seconds") is not None:
                taken += stored["seconds"]
                expected += _cost(self.plan["costs"][name]).of(Length(*stored["length"]))
        return taken / expected if expected else 1.0

    # trainings

    def _attempt(self, entry: Entry, common: Length, data: Data, number: int, of: int) -> bool:
        """Train one entry if it fits; False: the time is over."""
        if entry.name in self.plan["failed"]:
            return True
        stored = self.plan["lengths"].get(entry.name)
        try:
            length = Length(*stored["length"]) if stored else self._fitting(entry, common, data, is_first=number == 1)
        except (UserError, TrainingError) as error:
            return self._failed(entry, error)
        if length is None:
            self.reporter.note(f"{entry.name} does not fit into the {_minutes(self.clock.left)} that are left.")
            return longest(common, self._seconds, self._expected(SOURCE, data)) is not None  # no method is cheaper
        self.reporter.note(f"[{number}/{of}] {entry.name}: {length.steps} steps; {_minutes(self.clock.left)} left.")
        return self._train(entry, length)

    def _fitting(self, entry: Entry, common: Length, data: Data, is_first: bool) -> Length | None:
        """The common length, or the longest shorter one that is still worth it."""
        cost = self._expected(entry, data)  # first: its rehearsal takes some of the time
        length = longest(common, self._seconds, cost)
        shortest = common.fewest if is_first else WORTH_SHORTENING * common.steps
        return length if length is not None and length.steps >= shortest else None

    def _expected(self, entry: Entry, data: Data) -> Cost:
        """What a rehearsal says, corrected by how finished trainings compare with theirs."""
        return self._measure(entry, data)[0].times(self._slowness())

    def _train(self, entry: Entry, length: Length) -> bool:
        """False: there is no time to begin it. Where the time ends during it, it concludes with what it has.

        A training that fails is told and left out.
        """
        run, begin = RunFolder(self._run_folder(entry)), self.clock.spent
        self.reporter.reserve = (
            CLOSING * self.clock.budget + self._slowness() * self.plan["costs"][entry.name]["evaluation"]
        )
        if self.reporter.has_had_enough() and not run.has_begun:
            return False
        stored = self.plan["lengths"].setdefault(entry.name, {"length": [length.steps, length.evaluate_every]})
        self._save()
        donor = None if entry == SOURCE else self._run_folder(SOURCE)
        try:
            train(self._configure(entry, length), run.path, self.reporter, start_from=donor)
        except (UserError, TrainingError) as error:
            if entry == SOURCE:
                raise
            return self._failed(entry, error)
        finished = read_stored(run)
        if finished.evaluations[-1]["step"] == length.steps:  # to its end: a measure of how slow trainings are
            stored["seconds"] = max(self.clock.spent - begin, finished.seconds)  # a part may be of before a kill
        self._save()
        return True

    def _failed(self, entry: Entry, error: Exception) -> bool:
        self.reporter.warn(f"{entry.name} failed and is left out: {one_line(error)}")
        self.plan["failed"][entry.name] = one_line(error)
        self._save()
        return True

    # the end

    def _ship_best(self, entries: list[Entry]) -> Outcome:
        source_run = self._run_folder(SOURCE)
        rows = source_rows(source_run)
        runs = [source_run]
        of_row: dict[int, Path] = {}
        for entry in entries:
            if self._finished(entry):
                run = self._run_folder(entry)
                preset = self._configure(entry).method.get("preset", "")
                row = method_row(run, ":".join(filter(None, (preset, *entry.switches))))
                of_row[id(row)] = run
                rows.append(row)
                runs.append(run)
        winner = best(rows)
        if winner is None:
            winner = rows[0] if read_summary(RunFolder(source_run).summary).shipped == "probe" else rows[1]
        shipped = of_row.get(id(winner), source_run)
        _ship(shipped, self.out)
        return self._close(rows, winner, runs)

    def _ship_probe(self) -> Outcome:
        """The time is too short for a training: the linear probe, named as what it is."""
        run = RunFolder(self._run_folder(SOURCE))
        length = self.plan["lengths"].get(SOURCE.name)
        config = self._configure(SOURCE, Length(*length["length"]) if length else None)
        self.reporter.note("The time is too short for a training: the linear probe is shipped.")
        probe = read_finished(run.probe) or train_probe(config, run.path, self.reporter)
        assert probe is not None
        estimate = asdict(estimate_accuracy(probe.evidence)) if probe.evidence is not None else None
        summary = Summary(
            method=PROBE,
            probe=probe.accuracy,
            source_only=None,
            adapted=None,
            shipped="probe",
            shipped_reason="the time was too short for a training",
            last=None,
            oracle=None,
            seconds=round(probe.seconds, 3),
            selected_step=0,
            selection=probe.explanation,
            estimate=estimate,
            estimates={"probe": estimate, "source_only": None, "adapted": None},
            verdict=None,
            verdict_reason="Nothing was trained: the time was too short.",
            compared_with=None,
            evaluations={"probe": probe.chosen, "source_only": None, "adapted": None},
        )
        _ship(run.path, self.out, probe=summary)
        row = probe_row(summary)
        return self._close([row], row, [])

    def _close(self, rows: list[Row], winner: Row, runs: list[Path]) -> Outcome:
        order = ranked(rows, winner)
        write_text(self.out / LEADERBOARD, leaderboard_csv(order))
        if runs:
            write_comparison(runs, self.out / COMPARISON, [leaderboard_section(order)])
        self.clock.save()
        return Outcome(read_summary(RunFolder(self.out).summary), order, self.clock.spent)


def _ship(run: Path, out: Path, probe: Summary | None = None) -> None:
    """``out`` becomes a run folder: a copy of ``run`` without its checkpoints, or of its probe alone."""
    source, target = RunFolder(run), RunFolder(out)
    parts = {entry.name: entry for entry in run.iterdir() if entry.name not in _NOT_SHIPPED}
    if probe is not None:
        kept = (source.config, source.data, source.holdout, source.classes, source.environment, source.probe.path)
        parts = {path.name: path for path in kept if path.exists()}
        parts |= {source.model.name: source.probe.model}
        if source.probe.evidence.is_file():
            parts |= {source.evidence.name: source.probe.evidence}
    stale = {path.name for path in (source.model, source.adapted, source.metrics, source.finished, source.evidence,
             source.summary, *(stage.path for stage in source.stages[:-1]))}  # fmt: skip
    target.summary.unlink(missing_ok=True)  # away first, back last: a kill leaves no mixture that looks finished
    for name in stale - parts.keys():
        _remove(out / name)
    for name, part in sorted(parts.items(), key=lambda item: item[0] == source.summary.name):
        if part.is_dir():
            with new_folder(out / name) as temporary:
                shutil.copytree(part, temporary, dirs_exist_ok=True, copy_function=_link_or_copy)
        else:
            write_atomically(out / name, _copier(part))
    if probe is not None:
        write_json(target.summary, probe.to_json())


def _cost(stored: Mapping[str, float]) -> Cost:
    return Cost(stored["step"], stored["evaluation"], stored["start"])


def _copier(part: Path) -> Callable[[Path], None]:
    def write(temporary: Path) -> None:
        shutil.copyfile(part, temporary)

    return write


def _link_or_copy(old: str, new: str) -> None:
    """Weights are linked where the disk can, as no file is ever changed in place."""
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _minutes(seconds: float) -> str:
    return f"{max(seconds, 0) / 60:.1f} min"

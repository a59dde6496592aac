"""The runs of ``benchmarks/situations.py``: trained once, from shared source stages, and what their models answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from situation_data import Images, read_images, write_table
from torch import Tensor

from pmtrans.data.reading.read import read_target
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.summary import Summary, read_summary
from pmtrans.selection.evidence import read_evidence
from pmtrans.settings import load_config
from pmtrans.texts import read_json, read_yaml
from pmtrans.training.finished import read_stored
from pmtrans.training.moving import move, moving_config, open_donor
from pmtrans.training.train import source_stage, train

MOVED = ("train.", "selection.")  # sections that a moved model does not keep from its run


class Recorder(Reporter):
    """Quiet; warnings go to a file at once, so that they are known of a run that is resumed or finished."""

    def __init__(self, file: Path) -> None:
        super().__init__(quiet=True)
        self.file = file

    def warn(self, text: str) -> None:
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(text.replace("\n", " ") + "\n")


@dataclass(frozen=True)
class Answers:
    """Logits of a model on the images of its run's target."""

    paths: tuple[str, ...]
    classes: tuple[str, ...]
    logits_MK: Tensor

    def labels(self, images: Images) -> tuple[Tensor, Tensor]:
        """(rows, labels) of these images, -1 where the model does not know the class."""
        place = {path: row for row, path in enumerate(self.paths)}
        number = {name: index for index, name in enumerate(self.classes)}
        rows = torch.tensor([place[path] for path, _ in images])
        return rows, torch.tensor([number.get(label, -1) for _, label in images])

    def accuracy(self, images: Images) -> float:
        """On these images of the target; those of unknown classes do not count."""
        rows, labels = self.labels(images)
        known = labels >= 0
        return (self.logits_MK.argmax(1)[rows[known]] == labels[known]).double().mean().item()


@dataclass(frozen=True)
class Trained:
    """A finished run, with what it warned of."""

    path: Path
    warnings: tuple[str, ...]
    stage: Path | None = None  # the run that it started from: source-only, or the model that was moved

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def summary(self) -> Summary:
        return read_summary(self.folder.summary)

    @property
    def advised(self) -> list[str]:
        """Values of ``data.target_classes`` that the run's warnings advise."""
        found = {name for text in self.warnings for name in re.findall(r"data\.target_classes=(\w+)", text)}
        return sorted(found)

    def answers(self, model: str) -> Answers:
        """Of ``probe``, ``source_only``, ``adapted`` or ``shipped``, as the run saw them when it chose the model."""
        name = self.summary.shipped if model == "shipped" else model
        stage = {"probe": self.folder.probe, "source_only": self.folder.baseline, "adapted": self.folder}[name]
        classes = tuple(read_json(self.folder.classes, list[str]))
        target = read_target(read_yaml(self.folder.config)["data"]["target"], classes)
        logits_MK = read_evidence(stage.evidence).target_logits_MK
        if len(logits_MK) != len(target.domain.paths):
            raise SystemExit(f"{self.path}: {len(logits_MK)} answers for {len(target.domain.paths)} images.")
        return Answers(target.domain.paths, classes, logits_MK)

    def seconds(self, model: str = "adapted") -> float:
        """Of the training of one stage, without what came before it."""
        run = self.stage if model == "source_only" and self.stage is not None else self.path
        return read_stored(RunFolder(run)).seconds


@dataclass(frozen=True)
class Bench:
    """Domains by letter, the settings of all runs, and where runs go; a task is ``A2W``, or ``AD2W`` of two sources."""

    out: Path
    domains: Mapping[str, Path]
    recipe: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)  # by dotted key
    overrides: tuple[str, ...] = ()
    source_stages: Path | None = None  # finished source-only runs TASK-SEED of the user

    def place(self, letter: str) -> Path:
        if letter not in self.domains:
            raise SystemExit(f"There is no domain {letter!r}; known: {', '.join(self.domains)}.")
        return self.domains[letter]

    def images(self, letter: str) -> Images:
        return read_images(self.place(letter))

    def table(self, name: str, images: Images) -> Path:
        return write_table(self.out / "tables" / f"{name}.csv", images)

    def plain(self, task: str, seed: int) -> Trained:
        """``pmtrans train`` on whole domains, without any switch."""
        return self.adapted(task, task, seed)

    def adapted(
        self,
        name: str,
        task: str,
        seed: int,
        target: Path | None = None,
        source: Path | None = None,
        switches: Mapping[str, Any] | None = None,
    ) -> Trained:
        """``pmtrans train`` from the shared source stage; ``source`` and ``target``: in place of the whole domains."""
        stage = self.source_stage(task, seed, source, target)
        domains = self._domains(task, source, target)
        config = load_config(self.recipe, self.overrides, {**self.flags, **domains, **(switches or {}), "seed": seed})
        folder, reporter = self._begin(name, seed)
        if not RunFolder(folder).summary.is_file():
            train(config, folder, reporter, start_from=stage.path)
        return self._trained(folder, stage.path)

    def source_stage(self, task: str, seed: int, source: Path | None = None, target: Path | None = None) -> Trained:
        """The source-only run of a source and seed: the user's, one that is there, or a new one on this target."""
        letters = task.split("2")[0]
        if source is None and self.source_stages is not None:
            own = self.source_stages / f"{task}-{seed}"
            for folder in (own, *sorted(self.source_stages.glob(f"{letters}2*-{seed}"))):
                if RunFolder(folder).summary.is_file():
                    return Trained(folder, ())
        folder, reporter = self._begin(f"source-{letters if source is None else source.stem}", seed)
        if not RunFolder(folder).summary.is_file():
            flags = {**self.flags, **self._domains(task, source, target), "seed": seed}
            of_method = source_stage(load_config(self.recipe, self.overrides, flags)).method
            switches = {f"method.{key}": value for key, value in of_method.items()}
            overrides = [one for one in self.overrides if not one.startswith("method.")]
            train(load_config(self.recipe, overrides, {**flags, **switches}), folder, reporter)
        return self._trained(folder)

    def moved(self, name: str, donor: Trained, target: Path, seed: int) -> Trained:
        """``pmtrans adapt``: the shipped model of a run on a new place, without its source."""
        folder, reporter = self._begin(name, seed)
        if not RunFolder(folder).summary.is_file():
            given = open_donor(donor.path)
            overrides = [one for one in self.overrides if one.startswith(MOVED)]
            config = moving_config(given, str(target), folder, overrides, {"seed": seed})
            move(given, config, folder, reporter)
        return self._trained(folder, donor.path)

    def _domains(self, task: str, source: Path | None, target: Path | None) -> dict[str, Any]:
        letters, goal = task.split("2")
        places: Sequence[Path] = [self.place(letter) for letter in letters] if source is None else [source]
        given: Any = [str(place) for place in places] if len(places) > 1 else str(places[0])
        return {"data.source": given, "data.target": str(target or self.place(goal))}

    def _begin(self, name: str, seed: int) -> tuple[Path, Recorder]:
        folder = self.out / str(seed) / name
        if not RunFolder(folder).summary.is_file():
            print(f"{name}, seed {seed} ...", file=sys.stderr, flush=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
        return folder, Recorder(_warnings_file(folder))

    def _trained(self, folder: Path, stage: Path | None = None) -> Trained:
        file = _warnings_file(folder)
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        return Trained(folder, tuple(dict.fromkeys(lines)), stage)


def _warnings_file(folder: Path) -> Path:
    """Beside the run folder, which holds the run's own files alone."""
    return folder.with_name(f"{folder.name}.warnings.txt")

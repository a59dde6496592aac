"""The files of a study, rewritten after every run: ``results.csv``, ``table.md``, ``study.png``, ``study.svg``.

They are made from the run folders of the runs that the file asks for; other runs in the folder are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pmtrans.bench.execute import FAILURE, read_result
from pmtrans.bench.grids import not_reproduced
from pmtrans.bench.jobs import Job, Suite
from pmtrans.bench.results import Result, records_csv
from pmtrans.bench.source_stages import source_key
from pmtrans.bench.study_figure import draw_study
from pmtrans.bench.study_table import StudyRun, StudyText, study_table
from pmtrans.config import Config
from pmtrans.data.sampling import count_steps
from pmtrans.errors import UserError
from pmtrans.files import write_text
from pmtrans.methods import METHODS
from pmtrans.run.folder import RunFolder, unreadable
from pmtrans.run.summary import Summary, read_summary
from pmtrans.texts import MAX_IMAGES, TextError, read_json
from pmtrans.training.finished import read_stored


@dataclass(frozen=True)
class _Domain:
    images: Annotated[int, Field(ge=1, le=MAX_IMAGES, strict=True)]


@dataclass(frozen=True)
class _Domains:
    """Of ``data.json``, how large the domains are."""

    source: _Domain
    target: _Domain


@dataclass(frozen=True)
class StudyFiles:
    """Writes the files of a study; ``reference`` is the variant that the others are compared with."""

    reference: str

    def __call__(self, suite: Suite) -> list[Result]:
        """Write all files, each atomically; returns the results for the display."""
        order = {variant: place for place, variant in enumerate(suite.methods)}
        jobs = sorted(suite.jobs, key=lambda job: (order[job.method], suite.tasks.index(job.task), job.seed))
        results = [(job, result) for job in jobs if (result := read_result(job.folder)) is not None]
        runs = [_study_run(job, result) for job, result in results]
        write_text(suite.out / "results.csv", records_csv(StudyRun, runs))
        text = StudyText(suite.name, suite.methods, self.reference, suite.tasks, len(jobs), _remarks(jobs, runs))
        write_text(suite.out / "table.md", study_table(runs, text))
        draw_study(runs, suite.methods, suite.out / "study")
        return [result for _, result in results]


def _study_run(job: Job, result: Result) -> StudyRun:
    folder = RunFolder(job.folder)
    return StudyRun(
        variant=job.method,
        task=job.task,
        seed=job.seed,
        label_free_score=read_score(folder),
        selected=result.selected,
        last=result.last,
        oracle=result.oracle,
        seconds=result.seconds,
        images=images_encoded(folder, job.config),
        memory=result.memory,
    )


def read_score(folder: RunFolder) -> float | None:
    """The label-free score of a run whose result is there, so that it is not concluded again."""
    try:
        return label_free_score(read_summary(folder.summary))
    except UserError as error:
        raise unreadable(folder.summary, folder, error) from None


def label_free_score(summary: Summary) -> float | None:
    """Estimated accuracy before adaptation plus the gain that arbitration finds; None where nothing was held out.

    Variants that share their source stage share the first part and what the gain is measured against: their scores
    differ by the estimated gain alone. The estimate of the adapted model itself (``summary.estimate``) is made to be
    right on the average, not to rank: one of its parts falls with every prediction that adaptation changes.
    """
    before = summary.estimates.get("source_only") or summary.estimates.get("probe")
    if before is None or summary.method == "source_only":
        return None if before is None else float(before["accuracy"])
    gain = (summary.evaluations.get("adapted") or {}).get("score.arbitration")
    return None if gain is None else float(before["accuracy"]) + float(gain)


def images_encoded(folder: RunFolder, config: Config) -> int:
    """Images that the steps of the adaptation put through the network, mixed ones and those of every phase and
    network included. Passes for pseudo labels and evaluations are not counted."""
    entry = METHODS[config.method["name"]]
    options = entry.options.model_validate({key: value for key, value in config.method.items() if key != "name"})
    try:
        domains: _Domains = read_json(folder.data, _Domains)
    except (OSError, TextError) as error:
        raise unreadable(folder.data, folder, error) from None
    source, target = domains.source.images, domains.target.images
    batch_size = min(config.train.batch_size, source, target)
    steps: int = read_stored(folder).evaluations[-1]["step"]  # the last step is always evaluated
    longest, _ = count_steps(config.train, source, target, batch_size)
    if steps > longest:
        raise unreadable(folder.finished, folder, f"step {steps} of {longest}")
    per_pair: int = sum(entry.method.images_per_pair(options, step / steps) for step in range(steps))
    return per_pair * config.train.accumulate * batch_size


def _remarks(jobs: Sequence[Job], runs: Sequence[StudyRun]) -> tuple[str, ...]:
    """What a reader of the table must know: runs that are missing or failed, variants that cannot differ or that
    start elsewhere."""
    remarks = []
    if len(runs) < len(jobs):
        remarks.append(f"{len(jobs) - len(runs)} of {len(jobs)} runs are not done.")
    for job in jobs:
        if (job.folder / FAILURE).is_file():
            reason = (job.folder / FAILURE).read_text(encoding="utf-8", errors="replace").strip()
            remarks.append(f"failed: {job.title}: {reason}")
    remarks += not_reproduced([job.config.method["name"] for job in jobs])
    first = [job for job in jobs if (job.task, job.seed) == (jobs[0].task, jobs[0].seed)]
    stages: dict[str | None, list[str]] = {}
    for place, job in enumerate(first):
        stages.setdefault(source_key(job.config), []).append(job.method)
        if same := [other.method for other in first[:place] if other.config == job.config]:
            remarks.append(f"{job.method} has the settings of {same[0]}.")
    if len(stages) > 1:
        groups = "; ".join(", ".join(variants) for variants in stages.values())
        remarks.append(
            f"Not all variants share their source stage ({groups}): label-free scores of different groups "
            "are measured against different models."
        )
    return tuple(remarks)

"""``table.md`` of a study: means and two rankings, differences to the reference, and a table of each task.

Accuracies and label-free scores are in percent, differences in points.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import rankdata

from pmtrans.bench.differences_table import differences_table
from pmtrans.bench.paired_differences import Pair
from pmtrans.bench.rendering import escape_markdown, markdown_rows
from pmtrans.bench.results import MEMORY, megabytes, percent


@dataclass(frozen=True)
class StudyRun:
    """One run, as a line of ``results.csv``. Fractions; None where there are no target labels, or no held-out part."""

    variant: str
    task: str
    seed: int
    label_free_score: float | None
    selected: float | None  # of the evaluation that was chosen without target labels
    last: float | None
    oracle: float | None  # of the best evaluation by target labels
    seconds: float | None
    images: int
    memory: int | None = None  # bytes at the peak of the training above those before it


@dataclass(frozen=True)
class StudyText:
    """What the table says besides numbers. ``runs``: how many there are to be, of all variants."""

    name: str
    variants: Sequence[str]
    reference: str
    tasks: Sequence[str]
    runs: int
    remarks: Sequence[str] = ()


Read = Callable[[StudyRun], float | None]
SCORE = "label-free score"
SELECTED = "selected"
MEASURES: Mapping[str, Read] = {
    SCORE: lambda run: percent(run.label_free_score),
    SELECTED: lambda run: percent(run.selected),
    "last": lambda run: percent(run.last),
    "oracle": lambda run: percent(run.oracle),
}
COSTS: Mapping[str, Read] = {
    "seconds": lambda run: run.seconds,
    "images": lambda run: run.images,
    MEMORY: lambda run: megabytes(run.memory),
}


def study_table(runs: Sequence[StudyRun], text: StudyText) -> str:
    """All of ``table.md``."""
    shown = {name: read for name, read in MEASURES.items() if any(read(run) is not None for run in runs)}
    parts = [[f"# {escape_markdown(text.name)}"], *_means(runs, text, shown)]
    parts.append(_differences(runs, text, shown))
    for task in text.tasks:
        of_task = [run for run in runs if run.task == task]
        if of_task:
            parts.append([f"## {escape_markdown(task)}", "", *_task(of_task, text, shown)])
    parts.append([f"- {escape_markdown(remark)}" for remark in text.remarks])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def ranks(runs: Sequence[StudyRun], text: StudyText, read: Read) -> dict[str, int]:
    """1 is best, equal means share a rank; variants of which runs are missing have none yet."""
    complete = text.runs // len(text.variants)
    means = {}
    for variant in text.variants:
        values = values_by_pair(runs, variant, read)
        done = sum(run.variant == variant for run in runs)
        if values and done == complete:
            means[variant] = round(statistics.fmean(values.values()), 9)
    placed = rankdata([-mean for mean in means.values()], method="min") if means else []
    return {variant: int(rank) for variant, rank in zip(means, placed, strict=True)}


def values_by_pair(runs: Sequence[StudyRun], variant: str, read: Read) -> dict[Pair, float]:
    """The values of a variant by task and seed, without those that are not known."""
    return {(run.task, run.seed): value for run in runs if run.variant == variant and (value := read(run)) is not None}


def _means(runs: Sequence[StudyRun], text: StudyText, shown: Mapping[str, Read]) -> list[list[str]]:
    ranked = {name: ranks(runs, text, shown[name]) for name in (SCORE, SELECTED) if name in shown}
    titles = {SCORE: "rank without labels", SELECTED: "rank by target labels"}
    head = ["variant", *(titles[name] for name in ranked), *shown, *COSTS, "runs"]
    body = []
    for variant in text.variants:
        own = [run for run in runs if run.variant == variant]
        places = [str(places.get(variant, "-")) for places in ranked.values()]
        measures = [_mean(own, read) for read in shown.values()]
        costs = [_mean(own, read, ".0f") for read in COSTS.values()]
        done = f"{len(own)}/{text.runs // len(text.variants)}"
        body.append([escape_markdown(variant), *places, *measures, *costs, done])
    caption = "Means over tasks and seeds. The rank without labels is by the label-free score, which a user has"
    caption += "; that by target labels is by `selected`, which only an oracle has." if SELECTED in shown else "."
    if runs and SELECTED not in shown:
        caption += " The targets have no labels: no accuracy can be measured."
    return [[caption], markdown_rows(head, body), _choices(ranked)]


def _choices(ranked: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Who comes first, in words."""
    first = {
        name: ", ".join(escape_markdown(variant) for variant, rank in places.items() if rank == 1)
        for name, places in ranked.items()
    }
    told = {SCORE: "Chosen without labels", SELECTED: "best by target labels"}
    sentence = "; ".join(f"{told[name]}: {variants}" for name, variants in first.items() if variants)
    return [f"{sentence}."] if first.get(SCORE) else []


def _differences(runs: Sequence[StudyRun], text: StudyText, shown: Mapping[str, Read]) -> list[str]:
    compared = {name: read for name, read in shown.items() if name in (SCORE, SELECTED)}
    measures = {
        name: {variant: values_by_pair(runs, variant, read) for variant in text.variants}
        for name, read in compared.items()
    }
    return differences_table(measures, text.variants, text.reference)


def _task(runs: Sequence[StudyRun], text: StudyText, shown: Mapping[str, Read]) -> list[str]:
    body = []
    for variant in text.variants:
        own = [run for run in runs if run.variant == variant]
        if own:
            measures = [_mean(own, read, spread=True) for read in shown.values()]
            body.append([escape_markdown(variant), *measures, *(_mean(own, read, ".0f") for read in COSTS.values())])
    return markdown_rows(["variant", *shown, *COSTS], body)


def _mean(runs: Sequence[StudyRun], read: Read, form: str = ".1f", spread: bool = False) -> str:
    """The mean, with the standard deviation over seeds where asked for and there are several."""
    values = [value for run in runs if (value := read(run)) is not None]
    if not values:
        return "-"
    mean = format(statistics.fmean(values), form)
    return f"{mean} ± {statistics.stdev(values):{form}}" if spread and len(values) > 1 else mean

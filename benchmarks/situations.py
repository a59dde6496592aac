"""What each switch for an unusual target brings: a few labels, several sources, other classes, a long tail, a move.

    python benchmarks/situations.py --data office31 --out runs/situations --seeds 0,1 --json runs/situations.json \
        --recipe small/office-31-deit-tiny --weights FILE train.max_steps=80 train.evaluate_every=40
    python benchmarks/situations.py --demo --out runs/digits --only partial train.max_steps=20

| situation | made from | compared |
|---|---|---|
| labels-1, labels-3 | so many target labels per class | `--target-labels`, plain `train`; on images without one |
| sources | two labelled domains | both, each alone |
| partial | a target with the first half of the classes | `data.target_classes=partial`, `same` |
| open | a source with the first two thirds of them | `data.target_classes=open`, thresholds on models without it |
| long-tail | target classes that fall to a tenth | `predict --prior target`, other priors; estimated and true shares |
| moved | a finished run and a third domain | `adapt`, the model as it is, `train` with the source |

Domains are the folders of ``--data``, named by their first letter: A2W is amazon to webcam, AD2W has two sources, A2W2D
moves the model of A2W to dslr, and W2D the source-only model of webcam. Accuracies are those of the model that the run
selects without labels; where it ships another one, the record has that too. Target labels make the situations and
measure; only labels-1 and labels-3 train with any.

A source stage is trained once per source and seed. Finished runs are skipped, so the same command resumes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from situation_data import (
    Images,
    class_names,
    class_shares,
    demo_domains,
    draw_labels,
    folder_domains,
    long_tail,
    of_classes,
    without,
)
from situation_runs import Answers, Bench, Trained
from torch import Tensor

from pmtrans.backbones.digits_vit import weights_path
from pmtrans.bench.rendering import markdown_rows
from pmtrans.demo import SETTINGS as DEMO_SETTINGS
from pmtrans.files import write_json
from pmtrans.pseudo_labels import otsu_threshold
from pmtrans.run.model_folder import load_model
from pmtrans.run.model_notes import PriorName
from pmtrans.selection.calibration import calibrated_probabilities
from pmtrans.selection.unknown_threshold import fit_unknown, harmonic_mean

Record = dict[str, Any]
SOURCE, PLAIN, SWITCH, OTHER = "source only", "plain", "switch", "other"  # what a record is compared as


def record(role: str, title: str, run: Trained, model: str, images: Images, **details: float) -> Record:
    """Accuracy of one model of a run on these images, and of the shipped one where ``model`` is the adapted one."""
    found = {"role": role, "model": title, "images": len(images), "accuracy": run.answers(model).accuracy(images)}
    if model == "adapted":
        found |= {"shipped": run.summary.shipped, "shipped_accuracy": run.answers("shipped").accuracy(images)}
    return {**found, **_of_run(run, model), "details": details}


def _of_run(run: Trained, model: str) -> Record:
    return {"seconds": run.seconds(model), "advised": run.advised, "warnings": list(run.warnings)}


# ---- the situations: each trains what is missing and gives its records


def labels(bench: Bench, task: str, seed: int, per_class: int) -> Iterator[Record]:
    """A few target labels per class; measured on the images that no label was given for."""
    goal = task.split("2")[1]
    given = draw_labels(bench.images(goal), per_class, seed)
    left = without(bench.images(goal), given)
    plain = bench.plain(task, seed)
    yield record(SOURCE, "source only", plain, "source_only", left)
    yield record(PLAIN, "train", plain, "adapted", left)
    name = f"labels-{per_class}"
    table = bench.table(f"{goal}-{name}-{seed}", given)
    run = bench.adapted(f"{task}-{name}", task, seed, switches={"data.target_labels": str(table)})
    stated = run.summary.target_labels or {}
    counts = {key: float(stated[key]) for key in ("trained", "kept") if isinstance(stated.get(key), int)}
    yield record(SWITCH, "train --target-labels", run, "adapted", left, **counts)


def sources(bench: Bench, task: str, seed: int) -> Iterator[Record]:
    """All sources together, and each alone."""
    letters, goal = task.split("2")
    images = bench.images(goal)
    for one in (*letters, letters):
        run, shown = bench.plain(f"{one}2{goal}", seed), " + ".join(bench.place(letter).stem for letter in one)
        yield record(SOURCE, f"source only, {shown}", run, "source_only", images)
        yield record(SWITCH if one == letters else PLAIN, f"train, {shown}", run, "adapted", images)


def partial(bench: Bench, task: str, seed: int) -> Iterator[Record]:
    """A target with the first half of the classes."""
    goal = task.split("2")[1]
    names = class_names(bench.images(goal))
    images = of_classes(bench.images(goal), names[: len(names) // 2])
    target = bench.table(f"{goal}-first-{len(names) // 2}", images)
    same = bench.adapted(f"{task}-half-same", task, seed, target)
    yield record(SOURCE, "source only", same, "source_only", images)
    yield record(PLAIN, "train", same, "adapted", images)
    switches = {"data.target_classes": "partial"}
    run = bench.adapted(f"{task}-half-partial", task, seed, target, switches=switches)
    yield record(SWITCH, "data.target_classes=partial", run, "adapted", images)


def open_(bench: Bench, task: str, seed: int) -> Iterator[Record]:
    """A source with the first two thirds of the classes; thresholds are Otsu's, as in a run, and see no label.

    A record's accuracy is the harmonic mean of known accuracy and unknown recall.
    """
    start, goal = task.split("2")
    names, images = class_names(bench.images(start)), bench.images(goal)
    known = names[: 2 * len(names) // 3]
    source = bench.table(f"{start}-first-{len(known)}", of_classes(bench.images(start), known))
    same = bench.adapted(f"{task}-known-same", task, seed, source=source)
    run = bench.adapted(f"{task}-known-open", task, seed, source=source, switches={"data.target_classes": "open"})
    compared: list[tuple[str, str, Trained, str, Callable[[Tensor], Tensor]]] = [
        (SOURCE, "source only, threshold on the confidence", same, "source_only", unsure),
        (SOURCE, "source only, threshold on the largest logit", same, "source_only", strange),
        (PLAIN, "train, threshold on the largest logit", same, "adapted", strange),
        (SWITCH, "data.target_classes=open", run, "adapted", strange),
    ]
    for role, title, trained, model, called in compared:
        found = open_measures(trained.answers(model), images, called)
        entry = {"role": role, "model": title, "images": len(images), "accuracy": found.pop("harmonic mean")}
        if model == "adapted":
            shipped = open_measures(trained.answers("shipped"), images, called)["harmonic mean"]
            entry |= {"shipped": trained.summary.shipped, "shipped_accuracy": shipped}
        yield {**entry, **_of_run(trained, model), "details": found}


def open_measures(answers: Answers, images: Images, called: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """In %, but for the harmonic mean; ``closed``: accuracy on known images if the model never answers unknown."""
    rows, labels_B = answers.labels(images)
    unknown_B = called(answers.logits_MK)[rows]
    known, recall, mean = harmonic_mean(answers.logits_MK.argmax(1)[rows], unknown_B, labels_B)
    closed = answers.accuracy(images)
    return {"harmonic mean": mean, "known": 100 * known, "unknown": 100 * recall, "closed": 100 * closed}


def strange(logits_MK: Tensor) -> Tensor:
    """Which images a run with ``open`` would call unknown: those without a high logit."""
    return fit_unknown(logits_MK).scores(logits_MK) > 0.5


def unsure(logits_MK: Tensor) -> Tensor:
    """Which images have a small largest probability, by the same rule."""
    doubt_M = 1 - logits_MK.double().softmax(1).max(1).values
    return doubt_M > otsu_threshold(doubt_M)


def long_tailed(bench: Bench, task: str, seed: int) -> Iterator[Record]:
    """A target whose class sizes fall to a tenth; the errors of estimated shares are points, mean of the classes.

    ``predict`` answers with the shipped model, so its rows are compared with each other.
    """
    goal = task.split("2")[1]
    images = long_tail(bench.images(goal), seed)
    run = bench.adapted(f"{task}-tail", task, seed, bench.table(f"{goal}-tail-{seed}", images))
    yield record(SOURCE, "source only", run, "source_only", images)
    yield record(OTHER, "train", run, "adapted", images, **share_errors(run, images))
    priors: tuple[tuple[str, PriorName | None], ...] = (
        (PLAIN, None), (OTHER, "source"), (OTHER, "uniform"), (SWITCH, "target"),
    )  # fmt: skip
    for role, prior in priors:
        found = (run.answers("shipped") if prior is None else reweighed(run, prior)).accuracy(images)
        title = "predict" if prior is None else f"predict --prior {prior}"
        entry = {"role": role, "model": title, "images": len(images), "accuracy": found}
        yield {**entry, "shipped": run.summary.shipped, **_of_run(run, "adapted"), "details": {}}


def share_errors(run: Trained, images: Images) -> dict[str, float]:
    """|estimated - true share|, mean of the classes, of the run's estimate and of the two others it states."""
    summary, classes = run.summary, run.answers("adapted").classes
    true_K = class_shares(images, classes)
    details = summary.target_prior_details or {}
    estimates = {"shares": summary.target_prior, "BBSE": details.get("bbse"), "MLLS": details.get("mlls")}
    return {
        f"{name} off by": 100 * statistics.mean(abs(found[k] - true) for k, true in zip(classes, true_K, strict=True))
        for name, found in estimates.items()
        if found is not None
    }


def reweighed(run: Trained, prior: PriorName) -> Answers:
    """The shipped model's probabilities under a prior, as ``pmtrans predict --prior`` gives them."""
    shipped, trained = run.answers("shipped"), load_model(run.folder.model)
    if trained.balance is None:
        raise SystemExit(f"{run.path}: the model folder has no class balance (data.holdout is 0).")
    probabilities_MK = calibrated_probabilities(shipped.logits_MK, trained.temperature)
    return Answers(shipped.paths, shipped.classes, trained.balance.apply(probabilities_MK, prior))


def moved(bench: Bench, chain: str, seed: int) -> Iterator[Record]:
    """The model of all but the last place on the last one; with a source, training starts from the first place."""
    *before, goal = chain.split("2")
    with_source = f"{before[0]}2{goal}"
    donor = bench.source_stage(with_source, seed) if len(before) == 1 else bench.plain("2".join(before), seed)
    images = bench.images(goal)
    run = bench.moved(f"{chain}-moved", donor, bench.place(goal), seed)
    yield record(PLAIN, "the model as it is", run, "source_only", images)
    yield record(SWITCH, "adapt", run, "adapted", images)
    plain = bench.plain(with_source, seed)
    yield record(SOURCE, f"source only, {bench.place(before[0]).stem}", plain, "source_only", images)
    yield record(OTHER, f"train with the source, {bench.place(before[0]).stem}", plain, "adapted", images)


Situation = Callable[[Bench, str, int], Iterator[Record]]
SITUATIONS: dict[str, Situation] = {
    "labels-1": lambda bench, task, seed: labels(bench, task, seed, 1),
    "labels-3": lambda bench, task, seed: labels(bench, task, seed, 3),
    "sources": sources,
    "partial": partial,
    "open": open_,
    "long-tail": long_tailed,
    "moved": moved,
}


# ---- the table


def table(records: Sequence[Record]) -> str:
    """Means over seeds with their deviation; the gain is over the best record without the switch, seed by seed."""
    rows = []
    for key in dict.fromkeys((one["situation"], one["task"], one["model"]) for one in records):
        own = [one for one in records if (one["situation"], one["task"], one["model"]) == key]
        gains = [100 * gain for one in own if (gain := gain_of(one, records)) is not None]
        cells = [spread([100 * one["accuracy"] for one in own]), spread(gains) if gains else "", details(own)]
        seconds = f"{statistics.mean(one['seconds'] for one in own):.0f}"
        rows.append([*key, *cells, advice(own), seconds, str(len(own))])
    head = ("Situation", "Task", "Model", "Accuracy (%)", "Gain", "Details", "Advised", "Seconds", "Seeds")
    return "\n".join(markdown_rows(head, rows, left=3)) + "\n"


def gain_of(one: Record, records: Sequence[Record]) -> float | None:
    """Of a record with the switch: its accuracy minus the best without it."""
    same = [other for other in records if all(other[key] == one[key] for key in ("situation", "task", "seed"))]
    plain = [other["accuracy"] for other in same if other["role"] == PLAIN]
    return one["accuracy"] - max(plain) if one["role"] == SWITCH and plain else None


def details(own: Sequence[Record]) -> str:
    means = {name: statistics.mean(one["details"][name] for one in own) for name in own[0]["details"]}
    unlike = sorted({one["shipped"] for one in own if one.get("shipped", "adapted") != "adapted"})
    said = [f"{name} {mean:.1f}" for name, mean in means.items()]
    return ", ".join([*said, *(f"ships {name}" for name in unlike)])


def advice(own: Sequence[Record]) -> str:
    """Which ``data.target_classes`` the runs' warnings advised, and how many of them did."""
    said = [name for one in own for name in one["advised"]] if own[0]["role"] == PLAIN else []
    return ", ".join(f"{name} {said.count(name)}/{len(own)}" for name in sorted(set(said)))


def spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def main() -> None:
    """Train what is missing, a seed at a time, and print the table."""
    given = parsed()
    domains = demo_domains(given.out) if given.demo else folder_domains(given.data)
    flags: dict[str, Any] = {**DEMO_SETTINGS, "backbone.weights": str(weights_path())} if given.demo else {}
    flags |= {} if given.weights is None else {"backbone.weights": given.weights}
    bench = Bench(given.out, domains, given.recipe, flags, tuple(given.overrides), given.source_stages)
    tasks = {"sources": given.sources, "moved": given.moves}
    records: list[Record] = []
    for seed in given.seeds:
        for name in given.only:
            for task in tasks.get(name, given.tasks):
                key = {"situation": name, "task": task, "seed": seed}
                records += [{**key, **found} for found in SITUATIONS[name](bench, task, seed)]
                if given.json is not None:  # after each: hours of runs have something to show
                    write_json(given.json, records)
    print(table(records))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", type=Path, help="a folder of domains, each a folder of class folders")
    where.add_argument("--demo", action="store_true", help="the demo's digits: P, H, and of P the fonts S and R")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", type=_several, help=f"of {','.join(SITUATIONS)}")
    parser.add_argument("--tasks", type=_several, help="of all situations but the next two")
    parser.add_argument("--sources", type=_several, help="tasks with several sources, such as AD2W")
    parser.add_argument("--moves", type=_several, help="chains of places, such as A2W2D")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    parser.add_argument("--recipe", type=Path)
    parser.add_argument("--weights")
    parser.add_argument("--source-stages", type=Path, help="a folder of finished source-only runs, TASK-SEED")
    parser.add_argument("--json", type=Path, help="write all records to this file")
    parser.add_argument("overrides", nargs="*", help="any setting, such as train.max_steps=80")
    given = parser.parse_intermixed_args()
    usual = (["P2H"], ["SR2H"], ["S2R2H"]) if given.demo else (["A2W", "W2A"], ["AD2W"], ["A2W2D", "W2D"])
    for name, tasks in zip(("tasks", "sources", "moves"), usual, strict=True):
        if getattr(given, name) is None:
            setattr(given, name, tasks)
    given.only = list(SITUATIONS) if given.only is None else given.only
    for name in given.only:
        if name not in SITUATIONS:
            parser.error(f"--only {name}: known are {', '.join(SITUATIONS)}")
    return given


def _several(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()

"""How far what a run says of itself can be trusted: many adaptations with known truth, each task left out in turn.

    python benchmarks/trust.py --data office31 --weights deit_tiny_patch16_224.safetensors
    python benchmarks/trust.py --data office31 --weights FILE --runs runs/a2w-0 runs/demo --json
    python benchmarks/trust.py --data office31 --weights FILE --runs runs/* --write

The adaptations are made here, on features that are extracted once and kept in --cache: Office-31's six tasks at two
image sizes and the demo's digits; all target images, label-shifted and subsampled ones; eleven settings, good and
harmful. --runs adds finished full trainings whose target has labels. Estimates and verdicts of a task are made with
constants that were fitted without it, at any size. --write fits them on all tasks and writes them into the package.

The figures are of targets of at least LEAST_IMAGES images, below which no run gives a verdict; those of smaller ones
(fewer_images) and of all stand beside them.

The target's labels are read here to measure, and by --write to fit the constants; no training sees them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor
from trust_adaptations import DRAWS, IMAGE_SIZES, SETTINGS, Adaptation, adapt, read_tasks
from trust_fit import SOURCE_MODELS, Case, fit_constants, signals_of

import pmtrans.selection.assessment
from pmtrans.data.reading.read import read_target
from pmtrans.evaluation.interval import wilson_interval
from pmtrans.labelling.prediction_powered import prediction_powered
from pmtrans.outcomes import Name
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics
from pmtrans.selection.assessment import LEVEL, Constants, Estimate, write_constants
from pmtrans.selection.calibration import cautious_temperature
from pmtrans.selection.comparison import SourceSignals, compare_source_models, judge_adapted, read_source_models
from pmtrans.selection.evidence import Evidence, read_evidence
from pmtrans.selection.left_out import fit_linear, inverse_logit, logit
from pmtrans.selection.rule import choose
from pmtrans.selection.signals import read_pair
from pmtrans.selection.validators import VALIDATORS
from pmtrans.selection.verdict import LEAST_IMAGES, NOTABLE, Verdict

BESIDE_ALL = 4  # settings of each label-shifted or subsampled target; all images get every setting
SCORES = ("source_accuracy", "entropy", "information_maximisation", "bnm", "class_ami")  # that the rule reads
SWAP = 0.03  # a true change above it must not be called its opposite
LABELS = (0, 5, 10, 20, 30, 50)
LABELLED_TASKS = ("A2W", "D2A")
SURVEYS = 400
WRITTEN = Path(pmtrans.selection.assessment.__file__).with_name("left_out_tasks.json")


@dataclass(frozen=True)
class Survey:
    """What labelling needs: whether the adapted model is right on each target image, and its confidence there."""

    task: str
    right_M: Tensor
    confidence_M: Tensor


@dataclass(frozen=True)
class Judged:
    """A case with what constants of the other tasks say of it."""

    case: Case
    estimates: dict[Name, Estimate]
    reference: Name
    verdict: Verdict
    shipped: Name

    @property
    def estimate(self) -> Estimate:
        return self.estimates[self.shipped]

    @property
    def true_gain(self) -> float:
        return self.case.truth["adapted"] - max(self.case.truth["probe"], self.case.truth["source_only"])


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(1)
    begin = time.process_time()
    cases, surveys = make_cases(arguments)
    runs = [read_run(run) for run in arguments.runs]
    cases += [case for case in runs if case is not None]
    judged = judge_left_out(cases)
    enough = [one for one in judged if one.case.pair.images >= LEAST_IMAGES]
    results = {
        **measure(enough),
        "adaptations": len(cases),
        "full_trainings": sum(case.is_run for case in cases),
        "seconds_of_processor": round(time.process_time() - begin),
        "runs": measure([one for one in judged if one.case.is_run]),
        "fewer_images": measure([one for one in judged if one.case.pair.images < LEAST_IMAGES]),
        "all_targets": measure(judged),
    }
    if arguments.write:
        WRITTEN.write_text(json.dumps(write_constants(fit_all(cases, _rests_on(cases))), indent=1) + "\n")
    if arguments.json:
        print(json.dumps(results))
    else:
        _print_tables(judged, results, surveys)


def make_cases(arguments: argparse.Namespace) -> tuple[list[Case], list[Survey]]:
    """Every task with every version of its target."""
    cases, surveys, settings = [], [], list(SETTINGS)
    for number, known in enumerate(read_tasks(arguments.data, arguments.weights, arguments.cache)):
        for place, draw in enumerate(DRAWS):
            rotated = [settings[(4 * place + 3 * number + 3 * k) % len(settings)] for k in range(BESIDE_ALL)]
            names = settings if draw == "all" else rotated
            signals: SourceSignals | None = None
            for one in adapt(known, draw, names, arguments.seed + place):
                signals = signals or with_line(read_source_models(one.probe, one.source_only), one.on_the_line)
                case, chosen = to_case(one, signals)
                cases.append(case)
                is_surveyed = known.name in LABELLED_TASKS and known.pixels == IMAGE_SIZES[0]
                if is_surveyed and draw == "all" and one.method == "pseudo labels":
                    surveys.append(survey(known.name, chosen, one.labels_M))
            print(f"{known.name} at {known.pixels} pixels, {draw}: {len(names)} adaptations", file=sys.stderr)
    return cases, surveys


def with_line(signals: SourceSignals, on_the_line: tuple[float, float]) -> SourceSignals:
    """With agreement on the line among the parts, which no estimate reads."""
    assert signals.source_only is not None
    probe, source_only = (
        replace(model, parts={**model.parts, "agreement on the line": value})
        for model, value in zip((signals.probe, signals.source_only), on_the_line, strict=True)
    )
    return replace(signals, probe=probe, source_only=source_only)


def to_case(one: Adaptation, signals: SourceSignals) -> tuple[Case, Evidence]:
    """The evaluation that the rule chooses, as in a run."""
    before = one.source_only.on_features_of(one.probe)
    pairs = [read_pair(before, evidence) for evidence in one.evaluations]
    history = [
        {name: VALIDATORS[name].function(evidence) for name in SCORES} | {"arbitration": pair.gain}
        for evidence, pair in zip(one.evaluations, pairs, strict=True)
    ]
    index = choose(history).index
    accuracies = [one.accuracy(evidence) for evidence in one.evaluations]
    truth: dict[Name, float] = {
        "probe": one.accuracy(one.probe),
        "source_only": one.accuracy(one.source_only),
        "adapted": accuracies[index],
    }
    case = Case(one.task, one.target, one.method, False, signals, pairs[index], truth, max(accuracies))
    return case, one.evaluations[index]


def survey(task: str, chosen: Evidence, labels_M: Tensor) -> Survey:
    temperature = cautious_temperature(chosen.source_logits_NK, chosen.source_labels_N)
    confidence_M = (chosen.target_logits_MK.double() / temperature).softmax(1).max(1).values
    return Survey(task, chosen.target_predictions_M() == labels_M, confidence_M)


def read_run(path: Path) -> Case | None:
    """A finished run with a probe, a source-only model and target labels; None with a message otherwise."""
    folder = RunFolder(path)
    needed = [folder.probe.evidence, folder.baseline.evidence, folder.evidence, folder.summary]
    if not all(file.is_file() for file in needed):
        print(f"{path}: left out, as it has no finished probe, source-only and adapted model.", file=sys.stderr)
        return None
    data = yaml.safe_load(folder.config.read_text(encoding="utf-8"))["data"]
    classes = tuple(json.loads(folder.classes.read_text(encoding="utf-8")))
    target = read_target(data["target"], classes)
    probe, source_only, adapted = (read_evidence(file) for file in needed[:3])
    if target.labelled is None or len(target.domain) != len(adapted.target_logits_MK):
        print(f"{path}: left out, as its target has no labels or has changed.", file=sys.stderr)
        return None
    label_of = dict(zip(target.labelled.paths, target.labelled.labels, strict=True))
    labels_M = torch.tensor([label_of[image] for image in target.domain.paths])
    models: dict[Name, Evidence] = {"probe": probe, "source_only": source_only, "adapted": adapted}
    truth = {
        name: (evidence.target_predictions_M() == labels_M).double().mean().item() for name, evidence in models.items()
    }
    lines = [line for line in read_metrics(folder.metrics) if "oracle_accuracy" in line]
    best = max([truth["adapted"], *(line["oracle_accuracy"] for line in lines)])
    names = Path(data["source"]).name, Path(data["target"]).name
    task = "digits" if names == ("source", "target") else f"{names[0][0].upper()}2{names[1][0].upper()}"
    pair = read_pair(source_only.on_features_of(probe), adapted)
    return Case(task, path.name, "full training", True, read_source_models(probe, source_only), pair, truth, best)


def judge_left_out(cases: Sequence[Case], *, corrected: bool = True) -> list[Judged]:
    """Each case with constants that were fitted on the other tasks."""
    judged = []
    for task in sorted({case.task for case in cases}):
        others = [case for case in cases if case.task != task]
        constants = fit_all(others, "the other tasks") if corrected else fit_constants(others, "the other tasks")
        judged += [judge(case, constants) for case in cases if case.task == task]
    return judged


def fit_all(cases: Sequence[Case], rests_on: str) -> Constants:
    """All constants, and how reliable the verdicts are that they lead to on tasks left out of them in turn."""
    judged = judge_left_out(cases, corrected=False)
    reliability = {}
    for name in ("helped", "unchanged", "hurt"):
        members = [one for one in judged if one.verdict.name == name]
        right = sum(true_answer(one) == name for one in members)
        stated = sum(one.verdict.probability for one in members)
        reliability[name] = min(1.0, (right + 1) / (stated + 1))  # one more that was right as stated: few are few
    return replace(fit_constants(cases, rests_on), reliability=reliability)


def judge(case: Case, constants: Constants) -> Judged:
    models = compare_source_models(case.source, constants)
    estimate, verdict = judge_adapted(models, case.pair, constants)
    shipped: Name = "adapted" if verdict.name != "hurt" and verdict.gain > 0 else models.reference
    return Judged(case, {**models.estimates, "adapted": estimate}, models.reference, verdict, shipped)


def measure(judged: Sequence[Judged]) -> dict[str, Any]:
    """The figures of the contract, in accuracy (0.05 is five points)."""
    if not judged:
        return {}
    errors = [abs(one.estimate.accuracy - one.case.truth[one.shipped]) for one in judged]
    inside = [one.estimate.low <= one.case.truth[one.shipped] <= one.estimate.high for one in judged]
    best_reference = [max(one.case.truth["probe"], one.case.truth["source_only"]) for one in judged]
    return {
        "mean_absolute_error": fmean(errors),
        "coverage": fmean(inside),
        "mean_width": fmean(one.estimate.high - one.estimate.low for one in judged),
        "swapped": sum(is_swapped(one) for one in judged),
        "loss_to_oracle": fmean(one.case.best - one.case.truth["adapted"] for one in judged),
        "bias": fmean(one.estimate.accuracy - one.case.truth[one.shipped] for one in judged),
        "shipped_against_best_reference": fmean(
            one.case.truth[one.shipped] - best for one, best in zip(judged, best_reference, strict=True)
        ),
        "wrong_reference_costs": fmean(
            best - one.case.truth[one.reference] for one, best in zip(judged, best_reference, strict=True)
        ),
        "verdicts_right": fmean([one.verdict.name == true_answer(one) for one in decided])
        if (decided := [one for one in judged if one.verdict.name != "cannot tell"])
        else None,
        "cannot_tell": fmean(one.verdict.name == "cannot tell" for one in judged),
        "floors_broken": sum(
            signals_of(one.case, name).floor > one.case.truth[name] for one in judged for name in SOURCE_MODELS
        ),
    }


def is_swapped(one: Judged) -> bool:
    """Called the opposite of a true change above ``SWAP``."""
    return (one.verdict.name == "helped" and one.true_gain < -SWAP) or (
        one.verdict.name == "hurt" and one.true_gain > SWAP
    )


def true_answer(one: Judged) -> str:
    return "unchanged" if abs(one.true_gain) <= NOTABLE else "helped" if one.true_gain > 0 else "hurt"


def each_estimator(cases: Sequence[Case]) -> Iterator[tuple[str, float, float]]:
    """(name, mean error as it is, mean error with a line fitted on the other tasks) of each estimator alone."""
    models = [(case, name) for case in cases for name in SOURCE_MODELS]
    models = list({(c.stage, n): (c, n) for c, n in models}.values())
    for part in signals_of(*models[0]).parts:
        points = [one for one in models if part in signals_of(*one).parts]  # a finished run keeps its last models alone
        truth = [case.truth[name] for case, name in points]
        values = [signals_of(case, name).parts[part] for case, name in points]
        fitted = []
        for (case, _), value in zip(points, values, strict=True):
            others = [place for place, (other, _) in enumerate(points) if other.task != case.task]
            line = fit_linear(
                np.array([[logit(values[place])] for place in others]),
                np.array([logit(truth[place]) for place in others]),
                np.array([points[place][0].weight for place in others]),
            )
            fitted.append(inverse_logit(line([logit(value)])))
        raw, lined = (fmean(abs(a - t) for a, t in zip(found, truth, strict=True)) for found in (values, fitted))
        yield part, raw, lined


def powered_interval(one: Survey, drawn: Tensor) -> tuple[float, float]:
    """From the labels of the drawn images and the confidence on all."""
    _, low, high = prediction_powered(
        one.right_M[drawn].tolist(), one.confidence_M[drawn].tolist(), one.confidence_M.mean().item(),
        len(one.right_M), LEVEL,
    )  # fmt: skip
    return low, high


def plain_interval(one: Survey, drawn: Tensor) -> tuple[float, float]:
    """From the labels alone."""
    return wilson_interval(one.right_M[drawn].double().mean().item(), len(drawn), LEVEL)


def label_table(surveys: Sequence[Survey], judged: Sequence[Judged]) -> Iterator[list[str]]:
    """Width and coverage of 90 % intervals from 0 to 50 labels, over many random choices of the images."""
    for one in surveys:
        case = next(
            j for j in judged if (j.case.task, j.case.target, j.case.method) == (one.task, "all", "pseudo labels")
        )
        free, truth = case.estimates["adapted"], one.right_M.double().mean().item()
        random = np.random.default_rng(0)
        for count in LABELS:
            if count == 0:
                held = f"{'yes' if free.low <= truth <= free.high else 'no'}"
                yield [one.task, "0 (label-free)", f"{100 * (free.high - free.low):.1f}", held, "", ""]
                continue
            draws = [torch.from_numpy(random.choice(len(one.right_M), count, replace=False)) for _ in range(SURVEYS)]
            cells = []
            for interval in (powered_interval, plain_interval):
                found = [interval(one, drawn) for drawn in draws]
                cells += [
                    f"{100 * fmean(high - low for low, high in found):.1f}",
                    f"{100 * fmean(low <= truth <= high for low, high in found):.0f} %",
                ]
            yield [one.task, str(count), *cells]


def _print_tables(judged: Sequence[Judged], results: dict[str, Any], surveys: Sequence[Survey]) -> None:
    print(json.dumps(results, indent=1), "\n")
    tasks = sorted({one.case.task for one in judged})
    groups = [(task, [one for one in judged if one.case.task == task]) for task in tasks]
    groups += [(draw, [one for one in judged if one.case.target == draw]) for draw in DRAWS]
    groups += [
        ("full trainings", [one for one in judged if one.case.is_run]),
        (f"at least {LEAST_IMAGES} images", [one for one in judged if one.case.pair.images >= LEAST_IMAGES]),
        ("all of them", list(judged)),
    ]
    rows = []
    for name, members in groups:
        if members:
            found = measure(members)
            keys = ("mean_absolute_error", "bias", "mean_width", "loss_to_oracle")
            error, bias, width, loss = (100 * found[key] for key in keys)
            covered, right = found["coverage"], found["verdicts_right"]
            rows.append(
                [name, str(len(members)), f"{error:.1f}", f"{bias:+.1f}", f"{100 * covered:.0f} %", f"{width:.1f}",
                 "" if right is None else f"{100 * right:.0f} %", f"{100 * found['cannot_tell']:.0f} %",
                 str(found["swapped"]), f"{loss:.2f}"]
            )  # fmt: skip
    header = ["", "adaptations", "error", "bias", "covered", "width", "verdicts right", "cannot tell", "swapped"]
    show([*header, "loss to oracle"], rows)

    answers = ("helped", "unchanged", "hurt", "cannot tell")
    table = []
    for said in answers:
        members = [one for one in judged if one.verdict.name == said]
        counts = [str(sum(true_answer(one) == true for one in members)) for true in answers[:3]]
        table.append([said, *counts, *_stated_and_found(members)])
    show(["verdict", "truly helped", "truly unchanged", "truly hurt", "stated probability", "right"], table)

    runs = [one for one in judged if one.case.is_run]
    header = ["full training", "shipped", "truth", "estimate", "interval", "verdict", "probability"]
    show([*header, "expected gain", "true gain"], [_run_row(one) for one in runs])
    models: tuple[Name, ...] = ("probe", "source_only", "adapted")
    show(
        ["full training", *(f"{name}: truth, estimate" for name in models)],
        [[f"{one.case.task}, {one.case.target}", *(_truth_and_estimate(one, name) for name in models)] for one in runs],
    )
    show(
        ["estimator alone, on probe and source-only model", "mean error", "with a line from the other tasks"],
        [
            [name, f"{100 * raw:.1f}", f"{100 * fitted:.1f}"]
            for name, raw, fitted in each_estimator([j.case for j in judged])
        ],
    )
    if surveys:
        show(
            ["task", "labels", "width", "covered", "width, labels alone", "covered, labels alone"],
            list(label_table(surveys, judged)),
        )


def _run_row(one: Judged) -> list[str]:
    estimate, said = one.estimate, one.verdict
    return [
        f"{one.case.task}, {one.case.target}",
        one.shipped,
        f"{100 * one.case.truth[one.shipped]:.1f}",
        f"{100 * estimate.accuracy:.1f}",
        f"{100 * estimate.low:.0f} to {100 * estimate.high:.0f}",
        said.name,
        f"{said.probability:.2f}",
        f"{100 * said.gain:+.1f}",
        f"{100 * one.true_gain:+.1f}",
    ]


def _truth_and_estimate(one: Judged, name: Name) -> str:
    found = one.estimates[name]
    interval = f"({100 * found.low:.0f} to {100 * found.high:.0f})"
    return f"{100 * one.case.truth[name]:.1f}, {100 * found.accuracy:.1f} {interval}"


def _stated_and_found(members: Sequence[Judged]) -> list[str]:
    if not members or members[0].verdict.name == "cannot tell":
        return ["", ""]
    stated = fmean(one.verdict.probability for one in members)
    return [f"{100 * stated:.0f} %", f"{100 * fmean(one.verdict.name == true_answer(one) for one in members):.0f} %"]


def show(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def _rests_on(cases: Sequence[Case]) -> str:
    runs = sum(case.is_run for case in cases)
    tasks = ", ".join(sorted({case.task for case in cases}))
    return f"{len(cases) - runs} adaptations on cached features and {runs} full trainings of {tasks}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="Office-31: a folder with amazon, dslr and webcam")
    parser.add_argument("--weights", type=Path, help="weights of deit_tiny_patch16_224")
    parser.add_argument("--cache", type=Path, default=Path("runs/trust-features"), help="where features are kept")
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="finished runs whose target has labels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--write", action="store_true", help="fit on all tasks and write the package's constants")
    arguments = parser.parse_args()
    if (arguments.data is None) != (arguments.weights is None):
        parser.error("--data and --weights belong together")
    if arguments.data is None and not arguments.runs:
        parser.error("the digits alone are one task, and none would be left to fit on: give --data and --weights")
    return arguments


if __name__ == "__main__":
    main()

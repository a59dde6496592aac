"""The measures of ``benchmarks/trust.py`` on cases made up so that every figure can be computed by hand."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from trust import (
    Judged,
    Survey,
    each_estimator,
    fit_all,
    is_swapped,
    judge_left_out,
    label_table,
    measure,
    plain_interval,
    powered_interval,
    read_run,
    true_answer,
)
from trust_adaptations import DRAWS, draw_target
from trust_fit import Case, fit_constants
from trust_line import accuracies_on_the_line

from pmtrans.outcomes import Answer, Name
from pmtrans.selection.assessment import Estimate
from pmtrans.selection.comparison import SourceSignals
from pmtrans.selection.evidence import Evidence, write_evidence
from pmtrans.selection.signals import ModelSignals, PairSignals
from pmtrans.selection.verdict import Verdict


def signals(clusters: float, floor: float = 0.0) -> ModelSignals:
    parts = dict.fromkeys(("clusters", "own_clusters", "class_means", "agreement"), clusters)
    return ModelSignals(parts, floor, 400, 10)


PAIR = PairSignals(0.1, 60, 20, disputed=0.2, dead=0.0, source_drop=0.0, images=400, classes=10)


def case(task: str, probe: float, source_only: float, adapted: float, best: float, target: str = "all") -> Case:
    """Signals that say the truth; what arbitration finds is the true gain."""
    source = SourceSignals(
        signals(probe), signals(source_only), replace(PAIR, gain=source_only - probe), source_only - probe
    )
    truth: dict[Name, float] = {"probe": probe, "source_only": source_only, "adapted": adapted}
    return Case(task, target, "made up", False, source, replace(PAIR, gain=adapted - source_only), truth, best)


def judged(one: Case, estimate: tuple[float, float, float], said: Answer, shipped: Name = "adapted") -> Judged:
    low, accuracy, high = estimate
    found = Estimate(accuracy, low, high, 0.9, {})
    return Judged(one, {shipped: found}, "source_only", Verdict(said, 0.9, "", 0.0), shipped)


def test_the_figures_of_the_contract() -> None:
    first = judged(case("A", 0.5, 0.6, 0.7, 0.75), (0.5, 0.65, 0.8), "helped")
    second = judged(case("B", 0.6, 0.5, 0.4, 0.4), (0.45, 0.5, 0.55), "hurt", "source_only")
    third = judged(case("C", 0.5, 0.5, 0.9, 0.91), (0.3, 0.6, 0.7), "hurt")
    fourth = judged(case("D", 0.5, 0.5, 0.5, 0.52), (0.4, 0.5, 0.6), "cannot tell")
    found = measure([first, second, third, fourth])
    assert found["mean_absolute_error"] == pytest.approx((0.05 + 0.0 + 0.3 + 0.0) / 4)
    assert found["bias"] == pytest.approx((-0.05 + 0.0 - 0.3 + 0.0) / 4)
    assert found["coverage"] == 3 / 4  # 0.9 is not within 0.3 to 0.7
    assert found["mean_width"] == pytest.approx((0.3 + 0.1 + 0.4 + 0.2) / 4)
    assert found["swapped"] == 1  # the third gained 40 points and was called hurt
    assert found["loss_to_oracle"] == pytest.approx((0.05 + 0.0 + 0.01 + 0.02) / 4)
    assert found["verdicts_right"] == pytest.approx(2 / 3)
    assert found["cannot_tell"] == 1 / 4
    assert found["shipped_against_best_reference"] == pytest.approx((0.1 - 0.1 + 0.4 + 0.0) / 4)
    assert found["wrong_reference_costs"] == pytest.approx((0.0 + 0.1 + 0.0 + 0.0) / 4)
    assert found["floors_broken"] == 0
    assert measure([]) == {}
    assert measure([fourth])["verdicts_right"] is None


def test_a_floor_above_the_truth_is_counted_for_each_model() -> None:
    broken = case("A", 0.5, 0.6, 0.7, 0.7)
    broken = replace(broken, source=replace(broken.source, probe=signals(0.5, floor=0.51)))
    assert measure([judged(broken, (0.0, 0.7, 1.0), "helped")])["floors_broken"] == 1


@pytest.mark.parametrize(
    ("gain", "said", "swapped", "truly"),
    [
        (-0.04, "helped", True, "hurt"),
        (-0.025, "helped", False, "hurt"),  # harmful, but not by more than three points
        (0.04, "hurt", True, "helped"),
        (0.025, "hurt", False, "helped"),
        (0.04, "helped", False, "helped"),
        (-0.5, "cannot tell", False, "hurt"),
        (0.015, "unchanged", False, "unchanged"),
    ],
)
def test_a_verdict_is_swapped_if_it_is_the_opposite_of_a_change_above_three_points(
    gain: float, said: Answer, swapped: bool, truly: str
) -> None:
    one = judged(case("A", 0.5, 0.6, 0.6 + gain, 0.9), (0.0, 0.5, 1.0), said)
    assert one.true_gain == pytest.approx(gain)  # against the better of probe and source-only
    assert is_swapped(one) is swapped
    assert true_answer(one) == truly


def many_cases() -> list[Case]:
    random = np.random.default_rng(0)
    cases = []
    for task in "ABCD":
        for target in ("all", "300 images", "long tail"):
            probe, source_only, adapted = (0.4 + 0.5 * random.random(3)).tolist()
            cases.append(case(task, probe, source_only, adapted, 0.95, target))
    return cases


def test_a_task_is_judged_by_constants_that_have_not_seen_it() -> None:
    cases = many_cases()
    before = {(j.case.task, j.case.target): j for j in judge_left_out(cases)}
    changed = [
        replace(c, truth={"probe": 0.1, "source_only": 0.2, "adapted": 0.3}) if c.task == "B" else c for c in cases
    ]
    after = {(j.case.task, j.case.target): j for j in judge_left_out(changed)}
    assert len(after) == 12
    for key, one in after.items():
        same = one.estimates == before[key].estimates and one.verdict == before[key].verdict
        assert same == (key[0] == "B")


def test_where_the_signals_say_the_truth_the_left_out_estimates_are_right() -> None:
    found = measure(judge_left_out(many_cases()))
    assert found["mean_absolute_error"] < 0.02
    assert found["swapped"] == 0


def test_the_reliability_is_how_often_left_out_verdicts_were_right_by_how_often_they_said_so() -> None:
    cases = many_cases()
    fitted, plain = fit_all(cases, "made up"), fit_constants(cases, "made up")
    assert replace(fitted, reliability={}) == plain
    verdicts = judge_left_out(cases, corrected=False)
    for name in ("helped", "unchanged", "hurt"):
        members = [one for one in verdicts if one.verdict.name == name]
        right = sum(true_answer(one) == name for one in members)
        stated = sum(one.verdict.probability for one in members)
        assert fitted.reliability[name] == pytest.approx(min(1.0, (right + 1) / (stated + 1)))


def test_a_full_training_counts_more_and_few_images_half() -> None:
    one = case("A", 0.5, 0.6, 0.7, 0.7)
    assert one.weight == pytest.approx(400 / 450)
    assert replace(one, is_run=True).weight == pytest.approx(1.5 * 400 / 450)
    assert replace(one, pair=replace(PAIR, images=50)).weight == 0.5


LABELS = torch.arange(3000) % 10


def test_versions_of_a_target() -> None:
    drawn = {draw: draw_target(draw, LABELS, 10, seed=3) for draw in DRAWS}
    assert drawn["all"].tolist() == list(range(3000))
    for draw, places in drawn.items():
        assert places.tolist() == sorted(set(places.tolist())), draw  # each image once, in its order
        assert torch.equal(places, draw_target(draw, LABELS, 10, seed=3))
    for count in (300, 100, 40):
        assert len(drawn[f"{count} images"]) == count
        assert not torch.equal(drawn[f"{count} images"], draw_target(f"{count} images", LABELS, 10, seed=4))
    kept = Counter(LABELS[drawn["third of the classes"]].tolist())
    assert sorted(kept.values()) == [300] * 4  # four of ten, each whole
    counts = sorted(Counter(LABELS[drawn["long tail"]].tolist()).values(), reverse=True)
    for rank, count in enumerate(counts):
        expected = 300 * 20 ** (-rank / 9)
        assert count == pytest.approx(expected, abs=4 * expected**0.5 + 1)


def test_labels_alone_are_the_wilson_interval_and_predictions_make_it_narrower() -> None:
    """Confidence that is the truth: with it, few labels say more than alone."""
    right = torch.arange(400) % 4 != 0
    one = Survey("A", right, torch.where(right, 0.95, 0.05).double())
    drawn = torch.arange(40)
    share, z = 0.75, 1.6448536
    centre = (share + z * z / 80) / (1 + z * z / 40)
    half = z * (share * (1 - share) / 40 + z * z / 6400) ** 0.5 / (1 + z * z / 40)
    assert plain_interval(one, drawn) == pytest.approx((centre - half, centre + half), rel=1e-6)
    low, high = powered_interval(one, drawn)
    assert low <= 0.75 <= high
    assert high - low < half


def test_each_estimator_is_measured_as_it_is_and_with_a_line_from_the_other_tasks() -> None:
    """Signals that say the truth have no error; half of the truth has one that a line of the others takes away."""
    cases = []
    for one in many_cases():
        halved = [
            replace(model, parts={**model.parts, "class_means": model.parts["class_means"] / 2})
            for model in (one.source.probe, one.source.source_only)
            if model is not None
        ]
        cases.append(replace(one, source=replace(one.source, probe=halved[0], source_only=halved[1])))
    found = {name: (raw, lined) for name, raw, lined in each_estimator(cases)}
    truth = [case.truth[name] for case in cases for name in ("probe", "source_only")]
    assert found["clusters"][0] == pytest.approx(0.0, abs=1e-12)
    assert found["class_means"][0] == pytest.approx(sum(truth) / len(truth) / 2)
    assert found["class_means"][1] < 0.3 * found["class_means"][0]


def test_the_table_of_labels_begins_without_any_and_its_intervals_shrink() -> None:
    right = torch.arange(400) % 4 != 0
    survey = Survey("A", right, torch.where(right, 0.8, 0.4).double())
    one = replace(case("A", 0.5, 0.6, 0.75, 0.75), method="pseudo labels")
    rows = list(label_table([survey], [judged(one, (0.6, 0.7, 0.8), "helped")]))
    assert rows[0] == ["A", "0 (label-free)", "20.0", "yes", "", ""]
    assert [row[1] for row in rows[1:]] == ["5", "10", "20", "30", "50"]
    for column in (2, 4):
        widths = [float(row[column]) for row in rows[1:]]
        assert widths == sorted(widths, reverse=True)
    assert all(float(row[5].split()[0]) > 80 for row in rows[1:])  # labels alone, 90 % asked


def test_a_run_is_read_with_the_labels_of_its_target(tmp_path: Path) -> None:
    run, target = tmp_path / "run", tmp_path / "webcam"
    for name, count in (("cup", 3), ("pen", 2)):
        (target / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (4, 4), (number, count, 9)).save(target / name / f"{name}{number}.png")
    labels = torch.tensor([0, 0, 0, 1, 1])  # in the order of the file names
    calls = {"probe": [1, 1, 1, 1, 0], "baseline": [0, 0, 1, 1, 0], ".": [0, 0, 0, 1, 0]}
    for stage, called in calls.items():
        (run / stage).mkdir(parents=True, exist_ok=True)
        logits = torch.nn.functional.one_hot(torch.tensor(called), 2).float()
        evidence = Evidence(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), torch.randn(5, 2), logits)
        write_evidence(run / stage / "evidence.safetensors", evidence)
    assert read_run(run) is None  # no summary: not finished
    (run / "summary.json").write_text("{}")
    (run / "classes.json").write_text(json.dumps(["cup", "pen"]))
    (run / "config.yaml").write_text(yaml.safe_dump({"data": {"source": "x/amazon", "target": str(target)}}))
    (run / "metrics.jsonl").write_text('{"step": 5, "oracle_accuracy": 1.0}\n{"step": 9, "oracle_accuracy": 0.8}\n')
    found = read_run(run)
    assert found is not None
    right = {stage: float((torch.tensor(called) == labels).double().mean()) for stage, called in calls.items()}
    assert found.truth == {"probe": right["probe"], "source_only": right["baseline"], "adapted": right["."]}
    assert (found.task, found.is_run, found.best, found.pair.images) == ("A2W", True, 1.0, 5)
    (target / "pen" / "pen1.png").unlink()
    assert read_run(run) is None  # the target has changed


def test_agreement_on_the_line_puts_the_source_accuracy_into_the_line_of_the_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    labels, truth = torch.randint(4, (200,), generator=generator), torch.randint(4, (300,), generator=generator)
    source: list[torch.Tensor] = []
    target: list[torch.Tensor] = []
    for wrong in (0.1, 0.2, 0.3):  # on the target 0.15 more are wrong, each in its own way
        for kept, rows, more in ((source, labels, 0.0), (target, truth, 0.15)):
            guess = torch.randint(4, rows.shape, generator=generator)
            kept.append(torch.where(torch.rand(rows.shape, generator=generator) < wrong + more, guess, rows))
    x, y = [], []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        x.append(norm.ppf(sum(a == b for a, b in zip(source[i].tolist(), source[j].tolist(), strict=True)) / 200))
        y.append(norm.ppf(sum(a == b for a, b in zip(target[i].tolist(), target[j].tolist(), strict=True)) / 300))
    slope, intercept = np.polyfit(x, y, 1)
    found = accuracies_on_the_line(source, target, labels)
    for model, estimate in zip(source, found, strict=True):
        accuracy = sum(a == b for a, b in zip(model.tolist(), labels.tolist(), strict=True)) / 200
        assert estimate == pytest.approx(norm.cdf(slope * norm.ppf(accuracy) + intercept))
    assert found == pytest.approx([(model == truth).double().mean().item() for model in target], abs=0.1)


def test_models_that_always_agree_have_no_line_but_their_source_accuracy() -> None:
    labels = torch.tensor([0, 1] * 50)
    almost = torch.cat([labels[:90], 1 - labels[90:]])
    assert accuracies_on_the_line([almost] * 3, [labels] * 3, labels) == pytest.approx([0.9] * 3)

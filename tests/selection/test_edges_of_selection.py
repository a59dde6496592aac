"""Boundaries, defaults, many classes and exact texts of what selection says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import one_hot

from made_up_evidence import EvidenceMaker
from pmtrans.errors import ModelError, UserError
from pmtrans.selection import evidence as evidence_module
from pmtrans.selection.agreement import class_mean_agreement
from pmtrans.selection.arbitration import Arbitration, arbitrate
from pmtrans.selection.assessment import Change
from pmtrans.selection.calibration import (
    calibrated_probabilities,
    expected_calibration_error,
    fit_temperature,
    read_temperature,
)
from pmtrans.selection.collapse import collapse_signs, dying_classes
from pmtrans.selection.comparison import SourceModels, SourceSignals
from pmtrans.selection.disagreement_discrepancy import accuracy_floor, discrepancy
from pmtrans.selection.evidence import Evidence, even_sample
from pmtrans.selection.judge import Judge, Judged
from pmtrans.selection.left_out import Linear, Spread, fit_linear, fit_spread, left_out_residuals, weighted_quantile
from pmtrans.selection.optimal_transport import transported_confidences
from pmtrans.selection.rule import choose, disagreement
from pmtrans.selection.signals import ModelSignals, PairSignals, read_model
from pmtrans.selection.validators import VALIDATORS, score_all
from pmtrans.selection.validators.bnm import bnm
from pmtrans.selection.validators.dev import controlled_risk, density_ratio
from pmtrans.selection.validators.reverse import reverse
from pmtrans.selection.verdict import Verdict, verdict
from simulation import EVEN, simulate


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# --- agreement and arbitration


@pytest.mark.parametrize("seed", range(6))
def test_class_means_without_the_image_itself_in_plain_loops(seed: int) -> None:
    """Seven classes for fourteen images: some have one image, some none."""
    features = normal(14, 3, seed=seed).double()
    predicted = torch.randint(7, (14,), generator=torch.Generator().manual_seed(seed))
    unit = features / features.norm(dim=1, keepdim=True)
    same = 0
    for m in range(14):
        cosines = {}
        for k in range(7):
            members = [unit[i] for i in range(14) if i != m and predicted[i] == k]
            if members:
                mean = torch.stack(members).mean(0)
                cosines[k] = float(unit[m] @ mean / mean.norm())
        same += max(cosines, key=lambda k: cosines[k]) == int(predicted[m])
    assert class_mean_agreement(features, predicted, 7) == pytest.approx(same / 14)


def test_ten_witnesses_are_called() -> None:
    """Five say 0 and five say 1; the eleventh, further away, would decide, and so would the fifth missing."""
    angles = [0.01 * n for n in range(1, 12)]
    calls = [0, 1] * 5 + [1]
    called = torch.tensor([*calls, 0])
    adapted = torch.tensor([*calls, 1])
    features = torch.tensor([[math.cos(a), math.sin(a)] for a in [*angles, 0.0]])
    far = torch.tensor([[-1.0, 0.0]])

    def model(answers: torch.Tensor) -> Evidence:
        return Evidence(far, torch.tensor([[1.0, 0.0]]), torch.tensor([0]), features, one_hot(answers, 2).float())

    assert arbitrate(model(called), model(adapted)).outcome_M.tolist() == [0] * 12
    assert arbitrate(model(called), model(adapted), neighbours=11).outcome_M[-1] == 1
    assert arbitrate(model(called), model(adapted), neighbours=9).outcome_M[-1] == -1


def test_the_baseline_may_win_where_its_class_is_dying() -> None:
    """Twelve images of class 0, of which the adapted model leaves one: its images count for nobody but the baseline."""
    called, adapted = torch.tensor([0] * 12), torch.tensor([0] + [1] * 11)
    features = torch.eye(2)[[0] * 12]
    source = torch.eye(2)

    def model(answers: torch.Tensor) -> Evidence:
        return Evidence(source, 3.0 * source, torch.tensor([0, 1]), features, one_hot(answers, 2).float())

    judged = arbitrate(model(called), model(adapted))
    assert judged.outcome_M.tolist() == [0] + [-1] * 11


# --- calibration


def test_the_calibration_error_has_fifteen_bins() -> None:
    # 0.61 and 0.66 share a bin of fifteen, but neither of fourteen nor of sixteen
    confidence = torch.tensor([0.06, 0.36, 0.39, 0.61, 0.59, 0.999, 1.0, 0.97, 0.66])
    right = [0, 1, 0, 1, 1, 1, 1, 0, 0]
    sums: Counter[int] = Counter()
    for value, hit in zip(confidence.double().tolist(), right, strict=True):
        sums[max(1, math.ceil(value * 15))] += value - hit
    # twenty classes share what is left, so that the first class is always the largest
    probabilities = torch.cat([confidence[:, None], ((1 - confidence) / 20)[:, None].expand(-1, 20)], 1)
    labels = torch.tensor([0 if hit else 1 for hit in right])
    expected = sum(abs(value) for value in sums.values()) / 9
    assert expected_calibration_error(probabilities, labels) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("factor", "bound"), [(1e4, 20.0), (1e-4, 0.05)])
def test_temperatures_end_where_the_search_does(factor: float, bound: float) -> None:
    labels = torch.arange(40) % 2
    calls = torch.where(torch.arange(40) < 19, labels, 1 - labels) if bound == 20.0 else labels
    assert fit_temperature(factor * one_hot(calls, 2).float(), labels) == pytest.approx(bound, rel=1e-3)


def test_a_stored_temperature_is_a_number_above_zero() -> None:
    assert read_temperature({}) == 1.0
    assert read_temperature({"temperature": 0.5}) == 0.5
    assert read_temperature({"temperature": 3}) == 3.0
    for wrong in (0, 0.0, -0.5, -2, True, "2", None, math.inf, math.nan, [1.0]):
        with pytest.raises(ModelError, match=r"pmtrans\.temperature: Input should be"):
            read_temperature({"temperature": wrong})


def test_calibrated_probabilities_are_those_of_divided_logits() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.25, 3.0]])
    for row, got in zip(logits.tolist(), calibrated_probabilities(logits.bfloat16(), 2.0).tolist(), strict=True):
        powers = [math.exp(value / 2) for value in row]
        assert got == pytest.approx([power / sum(powers) for power in powers])


# --- collapse


def hard(labels: list[int], classes: int) -> torch.Tensor:
    return one_hot(torch.tensor(labels), classes).double()


def test_a_class_is_dying_from_a_tenth_of_its_images_downwards() -> None:
    before = torch.tensor([20, 20, 3, 2, 30])
    assert dying_classes(torch.tensor([2, 3, 0, 0, 3]), before).tolist() == [True, False, True, False, True]


def test_few_classes_are_less_than_a_third_of_the_possible_and_less_than_half_as_before() -> None:
    def few(now: int, before: int | None) -> bool:
        previous = None if before is None else hard([n % before for n in range(36)], 12)
        return any(sign.startswith("Only") for sign in collapse_signs(hard([n % now for n in range(36)], 12), previous))

    assert few(3, None)
    assert not few(4, None)  # exactly a third
    assert few(3, 7)
    assert not few(3, 6)  # exactly half
    assert not few(3, 5)


def test_classes_that_had_a_single_image_were_predicted_too() -> None:
    before = hard([0] * 30 + [1, 2, 3, 4, 5, 6], 12)
    signs = collapse_signs(hard([0] * 18 + [1] * 9 + [2] * 9, 12), before)
    assert signs[0] == "Only 3 of 12 classes are predicted (7 before)."


def test_one_class_takes_over_from_nine_tenths_of_the_images() -> None:
    def taken(now: int, before: int | None, classes: int = 3) -> bool:
        first = None if before is None else hard([0] * before + [1] * (20 - before), classes)
        return any("takes" in sign for sign in collapse_signs(hard([0] * now + [1] * (20 - now), classes), first))

    assert taken(18, None)
    assert not taken(17, None)
    assert taken(18, 17)
    assert not taken(18, 18)
    assert taken(18, None, classes=2)
    assert collapse_signs(hard([0], 2)) == []  # of one image every class has all


def test_the_spread_is_halved_below_a_half() -> None:
    def spread(now: int, before: int) -> list[str]:
        signs = collapse_signs(hard([n % now for n in range(24)], 12), hard([n % before for n in range(24)], 12))
        return [sign for sign in signs if sign.startswith("Predictions spread")]

    assert spread(5, 12) == ["Predictions spread over 5.0 classes in effect, 12.0 before."]
    assert spread(7, 12) == []


def test_ten_dying_classes_are_named_and_the_others_counted() -> None:
    for gone in (2, 9, 10, 11, 13):
        before = hard([c for c in range(80) for _ in range(3)], 80)
        now = hard([0 if 1 <= c <= gone else c for c in range(80) for _ in range(3)], 80)
        (sign,) = (sign for sign in collapse_signs(now, before) if "dying" in sign)
        assert sign.count("(3 images before, 0 now)") == min(gone, 10)
        assert sign.endswith(f" and {gone - 10} more." if gone > 10 else "now).")


# --- disagreement discrepancy


def shifted(count: int, active: float, seed: int) -> torch.Tensor:
    """Two classes called by the first two logits; the third logit is ``active``, a little below the called one."""
    logits = 0.3 * normal(count, 3, seed=seed)
    logits[torch.arange(count), torch.arange(count) % 2] += 5.0
    logits[:, 2] += active
    return logits.double()


def test_a_critic_contradicts_where_the_target_shows_what_the_source_never_does() -> None:
    source = shifted(400, 0.0, seed=0)
    assert discrepancy(source, shifted(300, 4.0, seed=1)) > 0.9
    assert discrepancy(source, shifted(300, 0.0, seed=1)) < 0.1
    for unit in (100.0, 0.01):
        apart = discrepancy(unit * source, unit * shifted(300, 4.0, seed=1))
        assert apart == pytest.approx(discrepancy(source, shifted(300, 4.0, seed=1)), abs=0.02)


@pytest.mark.parametrize(("sources", "targets"), [(251, 801), (200, 2000)])
def test_the_floor_is_the_bound_of_the_theorem(sources: int, targets: int) -> None:
    source, target = shifted(sources, 0.0, seed=0), shifted(targets, 0.0, seed=1)
    labels = source.argmax(1)
    labels[:10] = 1 - labels[:10]
    seen = Evidence(source, source, labels, target, target)
    n_s, n_t = sources // 2, targets // 2
    chance = math.sqrt((n_s + 4 * n_t) * math.log(1 / 0.1) / (2 * n_s * n_t))
    expected = 1 - 10 / sources - discrepancy(source, target) - chance
    assert expected > 0.3
    assert accuracy_floor(seen, 0.1) == pytest.approx(expected, abs=1e-9)


def test_the_floor_is_nothing_with_fewer_than_200_held_out_images_or_where_the_bound_is_void() -> None:
    for sources, targets in ((199, 2000), (200, 2)):
        source, target = shifted(sources, 0.0, seed=0), shifted(targets, 0.0, seed=1)
        assert accuracy_floor(Evidence(source, source, source.argmax(1), target, target), 0.01) == 0.0


# --- evidence and many classes


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0, 1, 2, 5]),
        torch.tensor([0, 1, 2, -1]),
        torch.tensor([0.0, 1.0, 2.0, 3.0]),
        torch.tensor([[0], [1], [2], [3]]),
        torch.tensor([-1, 5, 2, 3]),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels: torch.Tensor) -> None:
    with pytest.raises(UserError, match="must be classes of the logits"):
        Evidence(normal(4, 3), normal(4, 5), labels, normal(2, 3), normal(2, 5))
    assert Evidence(normal(4, 3), normal(4, 5), torch.tensor([0, 4, 2, 3]), normal(2, 3), normal(2, 5)).classes == 5


def test_logits_of_one_class_and_an_empty_hold_out_are_refused() -> None:
    zeros = torch.zeros(4, dtype=torch.long)
    with pytest.raises(UserError, match="two or more classes"):
        Evidence(normal(4, 3), normal(4, 1), zeros, normal(2, 3), normal(2, 1))
    with pytest.raises(UserError, match="two or more classes"):
        Evidence(normal(4, 3), normal(4, 3, 2), zeros, normal(2, 3), normal(2, 3, 2))
    with pytest.raises(UserError, match="at least one held-out"):
        Evidence(normal(0, 3), normal(0, 5), zeros[:0], normal(2, 3), normal(2, 5))


def test_a_sample_is_evenly_spaced_from_the_first_to_the_last() -> None:
    assert even_sample(10, 5).tolist() == list(range(10))
    assert even_sample(1000, 100_000).tolist() == [round(place * 999 / 255) for place in range(256)]
    assert len(even_sample(2_000_000, 11)) == 10_000_000 // 11
    assert len(even_sample(2_000_000, 10)) == 1_000_000
    assert even_sample(1, 10**9).tolist() == [0]


def many(classes: int, sources: int = 300, targets: int = 280) -> Evidence:
    labels = torch.arange(sources) % classes
    return Evidence(
        normal(sources, 4), 3 * normal(sources, classes, seed=1), labels, normal(targets, 4, seed=2),
        3 * normal(targets, classes, seed=3),
    )  # fmt: skip


def test_with_more_than_2048_classes_scores_look_at_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_module, "ENTRIES", 1000)  # so that 256 images are the sample
    seen = many(2049)
    sample = seen.sampled()
    kept = even_sample(300, 2049)
    assert len(kept) == 256
    assert torch.equal(sample.source_labels_N, seen.source_labels_N[kept])
    assert torch.equal(sample.target_logits_MK, seen.target_logits_MK[even_sample(280, 2049)])
    assert not {name for name, one in VALIDATORS.items() if one.expensive} & set(score_all(seen))
    small = many(2048)
    assert small.sampled() is small
    p = seen.target_logits_MK[even_sample(280, 2049)].double().softmax(1)
    norm = float(torch.linalg.svdvals(p).sum()) / math.sqrt(256 * 256)
    assert bnm(seen) == pytest.approx(norm, rel=1e-6)
    sampled = fit_temperature(seen.source_logits_NK[kept], seen.source_labels_N[kept])
    assert fit_temperature(seen.source_logits_NK, seen.source_labels_N) == sampled


def test_a_thousand_images_are_assigned_exactly() -> None:
    probabilities = normal(1300, 3).double().softmax(1)
    assert len(transported_confidences(probabilities, torch.arange(3))) == 1000
    assert len(transported_confidences(probabilities[:1000], torch.arange(3))) == 1000


# --- the judge


def outputs(images: int, classes: int, seed: int, logits: torch.Tensor | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        features_MF=normal(images, 4, seed=seed).bfloat16(),
        logits_MK=3 * normal(images, classes, seed=seed + 1) if logits is None else logits,
    )


@pytest.fixture
def judge_with(tmp_path: Path) -> Callable[..., tuple[Judge, list[str]]]:
    def make(baseline: Evidence | None) -> tuple[Judge, list[str]]:
        said: list[str] = []
        judge = Judge(
            tmp_path / "candidates", (0, 1, 2, 0, 1, 2), ("ant", "bee", "cat"), lambda: {"w": torch.ones(1)},
            said.append, baseline, 2, [],
        )  # fmt: skip
        return judge, said

    return make


def test_an_evaluation_is_scored_for_the_log_and_kept(judge_with: Callable[..., tuple[Judge, list[str]]]) -> None:
    judge, said = judge_with(None)
    target = outputs(30, 3, 5, 4 * one_hot(torch.arange(30) % 3, 3).float())
    logged = judge(
        SimpleNamespace(step=7, target=target, holdout=outputs(6, 3, 1), source_sample=outputs(9, 3, 3), ground=None)
    )
    assert set(logged) == {f"score.{name}" for name in VALIDATORS}  # DEV too, which needs the sample
    assert said == []
    assert judge.history[0].step == 7
    assert {f"score.{name}": value for name, value in judge.history[0].scores.items()} == logged
    _, _, weights, kept = judge.select()
    assert weights["w"].tolist() == [1.0]
    assert kept.source_labels_N.tolist() == [0, 1, 2, 0, 1, 2]
    assert kept.target_features_MD.dtype == torch.float32
    assert torch.equal(kept.target_features_MD, target.features_MF.float())


def test_a_collapse_is_said_at_once_and_logged(judge_with: Callable[..., tuple[Judge, list[str]]]) -> None:
    even = outputs(30, 3, 5, 4 * one_hot(torch.arange(30) % 3, 3).float())
    holdout = outputs(6, 3, 1)
    baseline = Evidence(
        holdout.features_MF.float(), holdout.logits_MK, torch.tensor([0, 1, 2, 0, 1, 2]), even.features_MF.float(),
        even.logits_MK,
    )  # fmt: skip
    judge, said = judge_with(baseline)
    torn = outputs(30, 3, 5, 4 * one_hot(torch.tensor([0, 1, 0] * 10), 3).float())
    logged = judge(SimpleNamespace(step=9, target=torn, holdout=holdout, source_sample=None, ground=None))
    before, now = (math.exp(4) + 2) / (3 * (math.exp(4) + 2)), 1 / (math.exp(4) + 2)
    sign = f"Class cat is dying: 10 images before, 0 now (mean probability {before:.3f} before, {now:.3f} now)."
    assert logged["warnings"] == [sign]
    assert said == [f"step 9: {sign}"]
    assert "score.arbitration" in logged
    assert "score.dev" not in logged
    quiet = judge(SimpleNamespace(step=10, target=even, holdout=holdout, source_sample=None, ground=None))
    assert "warnings" not in quiet
    with pytest.raises(AssertionError, match="held-out part"):
        judge(SimpleNamespace(step=11, target=even, holdout=None, source_sample=None, ground=None))


# --- fits over tasks


def test_a_line_through_the_origin_has_no_ridge_to_speak_of() -> None:
    x, weight = normal(9, 2).double().numpy(), np.linspace(0.5, 1.5, 9)
    y = x @ np.array([2.0, -1.0]) + 0.1 * normal(9, seed=1).double().numpy()
    root = np.sqrt(weight)[:, None]
    expected = np.linalg.lstsq(x * root, y * root[:, 0], rcond=None)[0]
    found = fit_linear(x, y, weight, intercept=False)
    assert found.coefficients == pytest.approx(expected.tolist(), rel=1e-4)
    assert found.intercept == 0.0


def test_the_ridge_of_a_line_with_an_intercept_is_five_thousandths() -> None:
    """One signal of variance v: covariance / (v + 0.005)."""
    x, y = np.array([[0.0], [0.1], [0.2], [0.3]]), np.array([1.0, 1.3, 1.2, 1.8])
    variance = np.mean((x[:, 0] - 0.15) ** 2)
    slope = np.mean((x[:, 0] - 0.15) * (y - y.mean())) / (variance + 0.005)
    found = fit_linear(x, y, np.ones(4))
    assert found.coefficients[0] == pytest.approx(slope)
    assert found.intercept == pytest.approx(y.mean() - 0.15 * slope)


@pytest.mark.parametrize("intercept", [True, False])
def test_residuals_are_of_fits_without_the_task(intercept: bool) -> None:
    x, y, weight = normal(9, 1).double().numpy(), normal(9, seed=1).double().numpy(), np.linspace(0.5, 1.5, 9)
    tasks = ["a", "b", "c"] * 3
    got = left_out_residuals(x, y, weight, tasks, intercept=intercept)
    if intercept:
        assert left_out_residuals(x, y, weight, tasks).tolist() == got.tolist()
    for n, task in enumerate(tasks):
        others = [i for i in range(9) if tasks[i] != task]
        total = sum(weight[i] for i in others)
        cx = sum(weight[i] * x[i, 0] for i in others) / total if intercept else 0.0
        cy = sum(weight[i] * y[i] for i in others) / total if intercept else 0.0
        above = sum(weight[i] * (x[i, 0] - cx) * (y[i] - cy) for i in others) / total
        below = sum(weight[i] * (x[i, 0] - cx) ** 2 for i in others) / total + (0.005 if intercept else 1e-6)
        assert got[n] == pytest.approx(y[n] - (cy + (x[n, 0] - cx) * above / below))


def plain_spread(r: Any, d: Any, s: Any, w: Any, believed: float = 1.0) -> tuple[float, float]:
    """Base and slope by moments, in plain loops."""
    left = [max(a * a - b * b, 0.0) for a, b in zip(r, s, strict=True)]
    square = [a * a for a in d]
    mean = sum(a * b for a, b in zip(w, square, strict=True)) / sum(w)
    spread = sum(a * (b - mean) ** 2 for a, b in zip(w, square, strict=True))
    slope2 = 0.0
    if spread > 0:
        slope2 = believed * max(0.0, sum(a * (b - mean) * c for a, b, c in zip(w, square, left, strict=True)) / spread)
    base2 = sum(a * (c - slope2 * b) for a, b, c in zip(w, square, left, strict=True)) / sum(w)
    return math.sqrt(max(1e-6, base2)), math.sqrt(slope2)


@pytest.mark.parametrize("believed", [1.0, 0.5])
@pytest.mark.parametrize(
    "difficulty",
    [[0.1, 0.4, 0.2, 0.8, 0.6], [0.8, 0.3, 0.6, 0.1, 0.2], [0.5] * 5],
    ids=["harder errs more", "easier errs more", "all alike"],
)
def test_a_spread_is_fitted_by_moments(difficulty: list[float], believed: float) -> None:
    residual, sampling, weight = [0.1, -0.3, 0.05, 0.9, -0.5], [0.05, 0.1, 0.3, 0.2, 0.1], [1.0, 2.0, 1.0, 0.5, 1.5]
    found = fit_spread(
        np.array(residual), np.array(difficulty), np.array(sampling), np.array(weight), 0.5, believed
    )  # fmt: skip
    base, slope = plain_spread(residual, difficulty, sampling, weight, believed)
    assert (found.base, found.slope) == pytest.approx((base, slope))
    plain = [math.sqrt(base**2 + (slope * d) ** 2 + s**2) for d, s in zip(difficulty, sampling, strict=True)]
    ratios = sorted((abs(r) / p, w) for r, p, w in zip(residual, plain, weight, strict=True))
    reached, quantile = 0.0, ratios[-1][0]
    for ratio, w in ratios:
        reached += w
        if reached / (sum(weight) + sum(weight) / 5) >= 0.5:
            quantile = ratio
            break
    assert found.factor == pytest.approx(quantile / 0.6744898)  # of a normal distribution, half lies within that


def test_where_nothing_is_left_the_base_is_a_thousandth() -> None:
    tiny = fit_spread(np.full(4, 0.01), np.array([0.1, 0.2, 0.3, 0.4]), np.full(4, 0.5), np.ones(4), 0.9)
    assert (tiny.base, tiny.slope) == pytest.approx((1e-3, 0.0))


def test_a_quantile_beyond_all_is_the_largest() -> None:
    assert weighted_quantile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.99) == 3.0


def test_a_line_refuses_another_number_of_signals() -> None:
    with pytest.raises(ValueError, match="zip"):
        Linear((1.0, 2.0), 0.0)([1.0])


# --- the rule


def scored(im: float, **changed: float) -> dict[str, float]:
    base = {"source_accuracy": 0.9, "entropy": -0.5, "information_maximisation": im, "bnm": im, "class_ami": im}
    return {**base, **changed}


def test_exactly_a_third_of_the_classes_is_no_collapse() -> None:
    wide, third = scored(0.0, entropy=-math.log(9)), scored(5.0, entropy=5.0 - math.log(3))
    assert math.exp(5.0 - third["entropy"]) == pytest.approx(3.0)
    nudged = scored(5.0, entropy=5.0 - math.log(3) - 1e-9)
    narrower = scored(5.0, entropy=5.0 - math.log(2.99))
    assert choose([wide, nudged]).index == 1
    assert choose([wide, narrower]).index == 0


def test_the_refused_come_after_the_admitted_the_best_of_each_guard_first() -> None:
    history = [
        scored(1.0, arbitration=0.10),
        scored(2.0, arbitration=0.10),
        scored(9.0, arbitration=0.10, entropy=9.0 - 0.01),  # collapsed: one class in effect
        scored(9.0, arbitration=0.10, entropy=9.0 + 0.02),  # and narrower still
        scored(9.0, arbitration=0.10, source_accuracy=0.5),
        scored(9.0, arbitration=0.10, source_accuracy=0.6),
        scored(9.0, arbitration=-0.2),
        scored(9.0, arbitration=-0.1),
        scored(9.0, arbitration=-0.1),
    ]
    assert choose(history).order == (1, 0, 2, 3, 5, 4, 8, 7, 6)


def test_validators_that_tie_do_not_disagree_and_the_default_are_those_of_every_evaluation() -> None:
    found = disagreement([{"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 3.0, "c": 1.0}])
    assert found.choices == {"a": 1, "b": 1}
    assert (found.spread, found.discordance) == (0, 0.0)
    nothing = disagreement([{"a": 1.0}, {"b": 1.0}])
    assert (nothing.choices, nothing.spread, nothing.discordance) == ({}, 0, 0.0)
    assert disagreement([{"b": 2.0, "a": 1.0}, {"a": 1.0}]).choices == {"a": 1}


# --- signals


def test_confidences_are_read_at_the_cautious_temperature() -> None:
    world = simulate(EVEN, images=120)
    sure = replace(
        world.baseline,
        source_logits_NK=6.0 * world.baseline.source_logits_NK + 15 * normal(*world.baseline.source_logits_NK.shape),
        target_logits_MK=6.0 * world.baseline.target_logits_MK,
    )
    temperature = fit_temperature(sure.source_logits_NK, sure.source_labels_N)
    assert temperature > 1.5
    parts = read_model(sure).parts
    target = [max(row) for row in (sure.target_logits_MK.double() / temperature).softmax(1).tolist()]
    source = sorted(max(row) for row in (sure.source_logits_NK.double() / temperature).softmax(1).tolist())
    assert parts["average_confidence"] == pytest.approx(sum(target) / len(target))
    wrong = int((sure.source_logits_NK.argmax(1) != sure.source_labels_N).sum())
    assert wrong > 0
    assert parts["atc_confidence"] == pytest.approx(np.mean([value >= source[wrong] for value in target]))


# --- DEV and reverse validation


def test_the_density_ratio_is_that_of_the_penalty_that_judges_best() -> None:
    source, target, at = (
        normal(n, 3, seed=seed).double().numpy() + shift for n, seed, shift in ((33, 0, 0.0), (27, 1, 0.8), (5, 2, 0.4))
    )
    images, is_target = np.concatenate([source, target]), np.array([0] * 33 + [1] * 27)
    judged = np.array([n % 5 == 0 for n in range(60)])
    answers = []
    for penalty in (1e-4, 1e-3, 1e-2, 1e-1):
        scale = StandardScaler().fit(images[~judged])
        model = LogisticRegression(C=penalty, max_iter=500, tol=1e-3)
        model.fit(scale.transform(images[~judged]), is_target[~judged])
        loss = log_loss(is_target[judged], model.predict_proba(scale.transform(images[judged])))
        share = is_target[~judged].mean()
        answers.append((loss, np.exp(model.decision_function(scale.transform(at))) * (1 - share) / share))
    best = min(answers, key=lambda answer: answer[0])[1]
    assert density_ratio(source, target, at) == pytest.approx(best)


def test_with_too_few_images_to_judge_the_third_penalty_is_taken() -> None:
    source, target, at = (normal(n, 2, seed=n).double().numpy() for n in (2, 2, 3))
    images = np.concatenate([source, target])
    scale = StandardScaler().fit(images)
    model = LogisticRegression(C=1e-2, max_iter=500, tol=1e-3).fit(scale.transform(images), [0, 0, 1, 1])
    assert density_ratio(source, target, at) == pytest.approx(np.exp(model.decision_function(scale.transform(at))))


def test_the_control_variate_works_from_two_weights_on() -> None:
    weights, losses = np.array([0.5, 2.0]), np.array([1.0, 3.0])
    weighted = weights * losses
    covariance = np.sum((weighted - weighted.mean()) * (weights - weights.mean()))
    eta = -covariance / np.sum((weights - weights.mean()) ** 2)
    assert controlled_risk(weights, losses) == pytest.approx(weighted.mean() + eta * (weights.mean() - 1))
    assert controlled_risk(weights[:1], losses[:1]) == 0.5


def test_reverse_validation_is_a_logistic_regression_on_predicted_labels(made_up: EvidenceMaker) -> None:
    for seed in range(4):
        seen = made_up(targets=40, sources=60, seed=seed, classes=4)
        features, labels = seen.target_features_MD.numpy(), seen.target_logits_MK.argmax(1).numpy()
        scale = StandardScaler().fit(features)
        model = LogisticRegression(C=0.1, max_iter=200, tol=1e-3).fit(scale.transform(features), labels)
        right = model.predict(scale.transform(seen.source_features_ND.numpy())) == seen.source_labels_N.numpy()
        assert reverse(seen) == pytest.approx(right.mean())


# --- the verdict's text


PAIR = PairSignals(0.1, 60, 20, disputed=0.2, dead=0.0, source_drop=0.0, images=400, classes=10)
TOLD = "60 images changed for the better, 20 for the worse"


@pytest.mark.parametrize(
    ("change", "pair", "lead", "name", "reason"),
    [
        (Change(0.1, 0.01), PAIR, 0.0, "helped", f"Neighbours side with the adapted model: {TOLD}; about +10.0 points "
         "are expected, and the verdict is right in 100% of such cases."),
        (Change(-0.1, 0.01), PAIR, 0.0, "hurt", f"Neighbours side with the model before adaptation: {TOLD}; about "
         "-10.0 points are expected, and the verdict is right in 100% of such cases."),
        (Change(0.001, 0.001), PAIR, 0.0, "unchanged", f"No difference worth mentioning: {TOLD}; about +0.1 points "
         "are expected, and the verdict is right in 100% of such cases."),
        (Change(-0.3, 0.01), replace(PAIR, dead=0.2), 0.0, "hurt", "Adaptation collapsed, classes that held 20% of the "
         f"target images died out: {TOLD}; about -30.0 points are expected, and the verdict is right in 100% of such "
         "cases."),
        (Change(0.3, 0.01), replace(PAIR, dead=0.3), 0.0, "cannot tell", "A gain is not certain where classes that "
         f"held 30% of the target images died out: {TOLD}."),
        (Change(0.06, 0.08), PAIR, 0.0, "cannot tell", "A change of +6.0 points is expected, give or take 8.0: "
         f"{TOLD}."),
        (Change(0.0199, 0.02), PAIR, 0.0, "cannot tell", "A change of +2.0 points is expected, give or take 2.0: "
         f"{TOLD}."),
        (Change(0.06, 0.08), PAIR, 0.05, "cannot tell", "A change of +6.0 points is expected, give or take 8.0: "
         f"{TOLD}; the linear probe is 5.0 points ahead of the model before adaptation, which are taken off."),
        (Change(0.1, 0.01), replace(PAIR, images=149), 0.0, "cannot tell", "149 target images are too few, 150 are "
         f"needed; {TOLD}."),
        (Change(0.1, 0.01), replace(PAIR, source_drop=0.06), 0.0, "cannot tell", "A gain is not certain in a model "
         f"that has forgotten the source: {TOLD}, and 6.0 points of accuracy on the source were lost."),
        (Change(0.1, 0.0), replace(PAIR, images=150, source_drop=0.05), 0.0, "helped", "Neighbours side with the "
         f"adapted model: {TOLD}; about +10.0 points are expected, and the verdict is right in 100% of such cases."),
    ],
)  # fmt: skip
def test_the_reason_of_each_answer(change: Change, pair: PairSignals, lead: float, name: str, reason: str) -> None:
    said = verdict(change, pair, lead)
    assert (said.name, said.reason) == (name, reason)
    if lead == 0.0:
        assert verdict(change, pair) == said


def test_what_was_found_cannot_be_changed_afterwards() -> None:
    evidence = simulate(EVEN, images=20).baseline
    signals = ModelSignals({"clusters": 0.5}, 0.0, 10, 2)
    line = Linear((1.0,), 0.0)
    for found, name in (
        (evidence, "target_logits_MK"),
        (Arbitration(torch.zeros(3)), "outcome_M"),
        (Judged(1, {}), "step"),
        (line, "intercept"),
        (Spread(1.0, 1.0, 1.0), "base"),
        (choose([scored(1.0)]), "index"),
        (disagreement([scored(1.0)]), "spread"),
        (signals, "floor"),
        (PAIR, "gain"),
        (VALIDATORS["bnm"], "function"),
        (Verdict("helped", 1.0, "", 0.0), "name"),
        (Change(0.0, 0.1), "gain"),
        (SourceSignals(signals), "probe"),
        (SourceModels({}, "probe"), "reference"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(found, name, None)

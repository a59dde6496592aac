"""The constants of ``selection/assessment.py`` from adaptations whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtrans.outcomes import Name
from pmtrans.selection.assessment import (
    COLLAPSED,
    LEVEL,
    Constants,
    regressors,
    sampling_deviation,
    scarcity,
    shrunk_gain,
    source_gain_regressors,
)
from pmtrans.selection.comparison import SourceSignals
from pmtrans.selection.left_out import (
    Array,
    Linear,
    Spread,
    fit_linear,
    fit_spread,
    inverse_logit,
    left_out_residuals,
    logit,
)
from pmtrans.selection.signals import ModelSignals, PairSignals

RUN_WEIGHT = 1.5  # of a full training, in adaptations on cached features: with 2, a verdict was swapped
SOURCE_MODELS: tuple[Name, ...] = ("probe", "source_only")
HALF = 50  # target images at which an adaptation counts half in a fit
BELIEVED = 0.7  # of the growth of errors with scarcity: small targets say little of it, and would narrow all others

Stage = tuple[str, str, float, float]


@dataclass(frozen=True)
class Case:
    """One adaptation: what the models show, and their true accuracies."""

    task: str
    target: str
    method: str
    is_run: bool
    source: SourceSignals
    pair: PairSignals
    truth: dict[Name, float]
    best: float  # accuracy of the best evaluation, by target labels

    @property
    def stage(self) -> Stage:
        """Which probe and source-only model these are: several full trainings start from the same."""
        target = "full training" if self.is_run else self.target
        return self.task, target, self.truth["probe"], self.truth["source_only"]

    @property
    def weight(self) -> float:
        return (RUN_WEIGHT if self.is_run else 1.0) * self.pair.images / (self.pair.images + HALF)


def fit_constants(cases: Sequence[Case], rests_on: str) -> Constants:
    """Every residual behind a width is of a task that its fit has not seen."""
    distinct = list({case.stage: case for case in cases}.values())
    points = [(case, name) for case in distinct for name in SOURCE_MODELS]
    accuracy, accuracy_spread, left_out = _fit_accuracy(points)
    source_gain, source_gain_spread = _fit_source_gain(distinct, left_out)
    gain, gain_spread, adapted_spread = _fit_gain([case for case in cases if case.pair.dead < COLLAPSED], left_out)
    return Constants(
        accuracy, accuracy_spread, source_gain, source_gain_spread, gain, gain_spread, adapted_spread, {}, rests_on
    )


def signals_of(case: Case, name: Name) -> ModelSignals:
    found = case.source.probe if name == "probe" else case.source.source_only
    assert found is not None
    return found


LeftOut = dict[tuple[Stage, Name], float]  # estimates of source models by fits without their task


def _fit_accuracy(points: list[tuple[Case, Name]]) -> tuple[Linear, Spread, LeftOut]:
    x_NF = np.array([regressors(signals_of(case, name)) for case, name in points])
    truth_N = np.array([case.truth[name] for case, name in points])
    y_N = np.array([logit(value) for value in truth_N])
    weight_N = np.array([case.weight for case, _ in points])
    tasks = [case.task for case, _ in points]
    residual_N = left_out_residuals(x_NF, y_N, weight_N, tasks)
    left_out = {
        (case.stage, name): inverse_logit(y - residual)
        for (case, name), y, residual in zip(points, y_N, residual_N, strict=True)
    }
    sampling_N = np.array(
        [sampling_deviation(t, case.pair.images) for t, (case, _) in zip(truth_N, points, strict=True)]
    )
    scarcity_N = np.array([scarcity(case.pair.classes, case.pair.images) for case, _ in points])
    spread = fit_spread(
        residual_N, scarcity_N, sampling_N, _plain_weight([case for case, _ in points]), LEVEL, BELIEVED
    )
    return fit_linear(x_NF, y_N, weight_N), spread, left_out


def _fit_source_gain(cases: list[Case], left_out: LeftOut) -> tuple[Linear, Spread]:
    rows, truth = [], []
    for case in cases:
        assert case.source.on_probe is not None
        probe, source_only = (left_out[case.stage, name] for name in SOURCE_MODELS)
        rows.append(source_gain_regressors(case.source.on_probe.gain, case.source.on_source, probe, source_only))
        truth.append(case.truth["source_only"] - case.truth["probe"])
    disputed_N = np.array([case.source.on_probe.disputed for case in cases if case.source.on_probe is not None])
    x_NF, y_N, weight_N = np.array(rows), np.array(truth), np.array([case.weight for case in cases])
    residual_N = left_out_residuals(x_NF, y_N, weight_N, [case.task for case in cases], intercept=False)
    sampling_N = np.sqrt(disputed_N / np.array([case.pair.images for case in cases]))
    spread = fit_spread(residual_N, disputed_N, sampling_N, _plain_weight(cases), LEVEL)
    return fit_linear(x_NF, y_N, weight_N, intercept=False), spread


def _fit_gain(cases: list[Case], left_out: LeftOut) -> tuple[Linear, Spread, Spread]:
    x_NF = np.array([[shrunk_gain(case.pair)] for case in cases])
    y_N = np.array([case.truth["adapted"] - case.truth["source_only"] for case in cases])
    weight_N, tasks = np.array([case.weight for case in cases]), [case.task for case in cases]
    residual_N = left_out_residuals(x_NF, y_N, weight_N, tasks, intercept=False)
    images_N = np.array([case.pair.images for case in cases], dtype=np.float64)
    disputed_N = np.array([case.pair.disputed for case in cases])
    plain_N = _plain_weight(cases)
    gain_spread = fit_spread(residual_N, disputed_N, np.sqrt(disputed_N / images_N), plain_N, LEVEL)

    before_N = np.array([left_out[case.stage, "source_only"] for case in cases])
    estimated_N = before_N + (y_N - residual_N)
    truth_N = np.array([case.truth["adapted"] for case in cases])
    on_logits_N = np.array([logit(t) - logit(e) for t, e in zip(truth_N, estimated_N, strict=True)])
    sampling_N = np.array([sampling_deviation(t, int(m)) for t, m in zip(truth_N, images_N, strict=True)])
    scarcity_N = np.array([scarcity(case.pair.classes, case.pair.images) for case in cases])
    adapted_spread = fit_spread(on_logits_N, scarcity_N, sampling_N, plain_N, LEVEL, BELIEVED)
    return fit_linear(x_NF, y_N, weight_N, intercept=False), gain_spread, adapted_spread


def _plain_weight(cases: Sequence[Case]) -> Array:
    """Widths know the number of images by themselves."""
    return np.array([RUN_WEIGHT if case.is_run else 1.0 for case in cases])

"""Probe, source-only and adapted model against each other, with constants whose answers can be computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from pmtrans.selection.arbitration import arbitrate
from pmtrans.selection.assessment import (
    Change,
    Constants,
    change_to_adapted,
    change_to_source_only,
    estimate_adapted,
    estimate_source_model,
    sampling_deviation,
    source_gain_regressors,
)
from pmtrans.selection.comparison import (
    SourceModels,
    SourceSignals,
    compare_source_models,
    judge_adapted,
    judge_source_only,
    read_source_models,
)
from pmtrans.selection.left_out import Linear, Spread
from pmtrans.selection.signals import ModelSignals, PairSignals
from simulation import EVEN, simulate

CONSTANTS = Constants(
    accuracy=Linear((1.0, 0.0, 0.0), 0.0),  # the estimate is the agreement with the clusters
    accuracy_spread=Spread(0.1, 0.0, 1.0),
    source_gain=Linear((0.5, 0.25, 0.125), 0.01),
    source_gain_spread=Spread(0.03, 0.1, 1.0),
    gain=Linear((0.8,), 0.0),
    gain_spread=Spread(0.04, 0.0, 1.0),
    adapted_spread=Spread(0.2, 0.0, 1.0),
    reliability={"helped": 0.75},
    rests_on="made up",
)
PAIR = PairSignals(0.2, 60, 20, disputed=0.36, dead=0.0, source_drop=0.0, images=400, classes=10)


def model(clusters: float) -> ModelSignals:
    return ModelSignals({"clusters": clusters, "own_clusters": 0.5, "class_means": 0.5, "agreement": 0.5}, 0.0, 400, 10)


def signals(gain: float, on_source: float, probe: float, source_only: float) -> SourceSignals:
    return SourceSignals(model(probe), model(source_only), replace(PAIR, gain=gain), on_source)


def test_without_a_source_only_model_the_probe_is_to_beat() -> None:
    found = compare_source_models(SourceSignals(model(0.7)), CONSTANTS)
    assert (found.reference, found.change, found.lead) == ("probe", None, 0.0)
    assert found.estimates["probe"].accuracy == pytest.approx(0.7)
    assert set(found.estimates) == {"probe"}


@pytest.mark.parametrize(
    ("gain", "on_source", "expected"),
    [(0.2, 0.08, 0.5 * 0.2 + 0.25 * 0.08 + 0.125 * 0.1 + 0.01), (-0.4, -0.2, -0.2 - 0.05 + 0.0125 + 0.01)],
)
def test_the_better_of_probe_and_source_only_is_found_by_both_arbitrations_and_the_estimates(
    gain: float, on_source: float, expected: float
) -> None:
    found = compare_source_models(signals(gain, on_source, 0.6, 0.7), CONSTANTS)
    assert found.change is not None
    assert found.change.gain == pytest.approx(expected)
    assert found.change.deviation == pytest.approx(math.sqrt(0.03**2 + (0.1 * 0.36) ** 2 + 0.36 / 400))
    assert found.reference == ("source_only" if expected > 0 else "probe")
    assert found.lead == pytest.approx(0.0 if expected > 0 else -expected)
    assert found.estimates["probe"].accuracy == pytest.approx(0.6)
    assert found.estimates["source_only"].accuracy == pytest.approx(0.7)


def test_a_tie_goes_to_the_source_only_model() -> None:
    even = replace(CONSTANTS, source_gain=Linear((0.0, 0.0, 0.0), 0.0))
    assert compare_source_models(signals(0.1, 0.1, 0.6, 0.7), even).reference == "source_only"


def test_the_lead_of_the_probe_is_taken_off_and_its_uncertainty_added() -> None:
    ahead = compare_source_models(signals(-0.4, -0.2, 0.6, 0.7), CONSTANTS)
    behind = compare_source_models(signals(0.2, 0.08, 0.6, 0.7), CONSTANTS)
    assert ahead.change is not None
    own = change_to_adapted(PAIR, 0.7, CONSTANTS)
    assert own.gain == pytest.approx(0.8 * 0.2 * 400 / 450)
    estimate, against_probe = judge_adapted(ahead, PAIR, CONSTANTS)
    assert estimate.accuracy == pytest.approx(0.7 + own.gain)  # of the model itself, whatever it is compared with
    assert against_probe.gain == pytest.approx(own.gain - ahead.lead)
    assert "the linear probe is 22.7 points ahead" in against_probe.reason
    _, against_source = judge_adapted(behind, PAIR, CONSTANTS)
    assert against_source.gain == pytest.approx(own.gain)
    assert "linear probe" not in against_source.reason
    alone = math.sqrt(0.04**2 + 0.36 / 400)  # where the source-only model is the reference, nothing is added
    sure = 0.5 * (1 - math.erf((0.02 - own.gain) / alone / math.sqrt(2)))
    assert against_source.probability == pytest.approx(0.75 * sure)  # times its reliability
    deviation = math.hypot(math.sqrt(0.04**2 + 0.36 / 400), ahead.change.deviation)

    def below(change: float) -> float:
        return 0.5 * (1 + math.erf((change - against_probe.gain) / deviation / math.sqrt(2)))

    answers = (below(-0.02), below(0.02) - below(-0.02), 1 - below(0.02))
    assert against_probe.name == "cannot tell"  # that it helped is more probable than one in twenty
    assert 0.05 < answers[2] < answers[0]
    assert against_probe.probability == pytest.approx(max(answers))


def test_an_adapted_model_without_a_source_only_model_is_compared_with_the_probe() -> None:
    estimate, said = judge_adapted(compare_source_models(SourceSignals(model(0.5)), CONSTANTS), PAIR, CONSTANTS)
    gain = 0.8 * 0.2 * 400 / 450
    assert estimate.accuracy == pytest.approx(0.5 + gain)
    assert said.name == "helped"
    assert said.gain == pytest.approx(gain)


def test_a_source_only_model_is_judged_against_the_probe() -> None:
    seen = signals(0.6, 0.4, 0.5, 0.7)
    found = compare_source_models(seen, CONSTANTS)
    said = judge_source_only(found, seen, CONSTANTS)
    assert found.change is not None
    assert said.name == "helped"
    assert said.gain == found.change.gain
    below = 0.5 * (1 + math.erf((0.02 - said.gain) / found.change.deviation / math.sqrt(2)))
    assert said.probability == pytest.approx(0.75 * (1 - below))  # corrected by the reliability of that answer
    with pytest.raises(AssertionError):
        judge_source_only(SourceModels({}, "probe"), seen, CONSTANTS)
    with pytest.raises(AssertionError):
        judge_source_only(found, SourceSignals(model(0.5), model(0.5)), CONSTANTS)


def test_signals_without_the_pair_are_those_of_the_probe_alone() -> None:
    assert compare_source_models(SourceSignals(model(0.7), model(0.8)), CONSTANTS).reference == "probe"
    assert SourceSignals(model(0.7)).on_source == 0.0


def test_each_source_model_is_read_on_the_right_features() -> None:
    world = simulate(EVEN, images=80)
    probe = world.baseline
    noise = torch.randn(probe.target_features_MD.shape, generator=torch.Generator().manual_seed(3))
    source_only = replace(world.adapted_to(world.truth_M), target_features_MD=noise)
    found = read_source_models(probe, source_only)
    assert found.source_only is not None
    assert found.on_probe is not None
    agreed = (probe.target_predictions_M() == source_only.target_predictions_M()).double().mean().item()
    assert found.probe.parts["agreement"] == found.source_only.parts["agreement"] == pytest.approx(agreed)
    assert found.on_probe.gain == arbitrate(probe, source_only).gain
    bent = replace(probe, source_features_ND=source_only.source_features_ND, target_features_MD=noise)
    assert found.on_source == arbitrate(bent, source_only).gain
    assert found.on_source != found.on_probe.gain
    alone = read_source_models(probe, None)
    assert alone.source_only is None
    assert alone.on_probe is None
    assert "agreement" not in alone.probe.parts


def test_the_regressors_are_both_arbitrations_and_the_difference() -> None:
    assert source_gain_regressors(0.1, 0.2, 0.5, 0.75) == [0.1, 0.2, 0.25]
    change = change_to_source_only([0.1, 0.2, 0.25], 0.16, 100, CONSTANTS)
    assert change.gain == pytest.approx(0.05 + 0.05 + 0.03125 + 0.01)
    assert change.deviation == pytest.approx(math.sqrt(0.03**2 + 0.016**2 + 0.04**2))


def test_sampling_is_counted_as_at_least_that_of_a_rate_of_five_percent() -> None:
    for accuracy in (0.001, 0.05, 0.95, 0.999):
        assert sampling_deviation(accuracy, 100) == pytest.approx(1 / math.sqrt(4.75))
    assert sampling_deviation(0.3, 100) == pytest.approx(1 / math.sqrt(21))


def test_a_collapse_begins_at_a_fifth_of_the_images() -> None:
    assert change_to_adapted(replace(PAIR, dead=0.2), 0.5, CONSTANTS).gain == pytest.approx(-0.1)
    assert change_to_adapted(replace(PAIR, dead=0.19), 0.5, CONSTANTS).gain > 0


def test_an_interval_that_leaves_the_known_range_ends_at_nothing_or_all() -> None:
    before = estimate_source_model(model(0.5), CONSTANTS)
    lost = estimate_adapted(before, Change(-0.6, 0.1), PAIR, CONSTANTS)
    assert lost.low == 0.0
    assert lost.accuracy == pytest.approx(0.01)
    assert 0.01 < lost.high < 0.1
    won = estimate_adapted(before, Change(0.6, 0.1), PAIR, CONSTANTS)
    assert won.accuracy == pytest.approx(0.99)
    assert won.high == 1.0
    assert 0.9 < won.low < 0.99

"""Whole runs on targets that lack source classes, or have images of none."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pmtrans
from pmtrans.api import evaluate
from pmtrans.cli.ending import closing_lines
from pmtrans.cli.predict import Prior
from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.domains import Data
from pmtrans.data.reading.read import Target
from pmtrans.errors import ConfigError, ModelError
from pmtrans.inference.predictor import load
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import NO_CLASS, Context, Moment, SourcePass, TargetPass
from pmtrans.methods.parts.target_classes import TargetClasses
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.model import Model
from pmtrans.run.metrics import read_metrics
from pmtrans.selection.calibration import fit_temperature
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.prior import likelihood_shift, source_prior
from pmtrans.settings import load_config
from pmtrans.training.situation import absent_classes, doubts, find_situation, smoothed
from pmtrans.training.train import train
from tiny_run import Crash, Witness, assert_same_run, crash, write_images

Configure = Callable[..., Config]


def clusters(labels: torch.Tensor, classes: int, seed: int = 0) -> torch.Tensor:
    noise = torch.randn(len(labels), classes, generator=torch.Generator().manual_seed(seed))
    return 3 * torch.eye(classes)[labels] + 0.4 * noise


@pytest.mark.parametrize("kind", ["partial", "open"])
@pytest.mark.parametrize("method", [{"name": "pmtrans", "refresh_steps": 2}, {"name": "mcc"}])
def test_a_run_that_crashed_is_resumed_exactly(
    kind: str, method: dict[str, Any], tmp_path: Path, configure: Configure
) -> None:
    changes = {"data__target_classes": kind, "method": method}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(configure(**changes), whole, Witness())
    with pytest.raises(Crash):
        train(configure(**changes), cut, Witness({3: crash}))
    train(configure(**changes), cut, Witness())
    assert_same_run(cut, whole)
    logged = {"partial": "present_classes", "open": "unknown_share"}[kind]
    assert any(logged in line for line in read_metrics(whole / "metrics.jsonl"))


def test_an_open_run_answers_unknown_and_is_measured_by_it(tmp_path: Path, configure: Configure) -> None:
    config = configure(data__target_classes="open", data__holdout=0.3)
    summary = train(config, tmp_path / "run", Witness())
    assert summary.target_prior is not None
    assert sum(summary.target_prior.values()) == pytest.approx(1.0, abs=1e-5)
    stored = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["pmtrans"]
    targets = sorted(Path(str(config.data.target)).rglob("*.png"))
    labels = [load(tmp_path / "run").predict(path)[0].label for path in targets]
    assert summary.unknown_share == pytest.approx(labels.count("unknown") / len(targets))
    assert any("answers `unknown` for" in line for line in closing_lines(summary, tmp_path / "run"))
    write_images(tmp_path / "labelled", ("cat", "dog", "eel"), 3)
    measured = evaluate(tmp_path / "run", tmp_path / "labelled").as_json()
    answers = {path: load(tmp_path / "run").predict(path)[0] for path in (tmp_path / "labelled").rglob("*.png")}
    known = [path.parent.name == answer.label for path, answer in answers.items() if path.parent.name != "eel"]
    called = [answer.label == "unknown" for path, answer in answers.items() if path.parent.name == "eel"]
    k, u = sum(known) / len(known), sum(called) / len(called)
    assert measured["known_accuracy"] == pytest.approx(k)
    assert measured["unknown_recall"] == pytest.approx(u)
    assert measured["harmonic_mean"] == pytest.approx(2 * k * u / (k + u) if k + u else 0.0)
    assert measured["unknown_images"] == 3
    for answer in answers.values():
        assert answer.unknown_score is not None
        assert (answer.label == "unknown") == (answer.unknown_score > 0.5)
    evaluate(tmp_path / "run", tmp_path / "labelled", calibrate=True)
    moved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["pmtrans"]
    assert moved["unknown"]["threshold"] != stored["unknown"]["threshold"]
    assert moved["prior"] == stored["prior"]

    # what watches the run, and what moves it on, know images of no class too
    pmtrans.watch(tmp_path / "run", tmp_path / "labelled", window=8, quiet=True)
    with (tmp_path / "run" / "watch" / "predictions.csv").open(newline="") as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    answers = {path: load(tmp_path / "run").predict(path)[0] for path in answers}
    assert {path: row["class"] for path, row in rows.items()} == {str(p): a.label for p, a in answers.items()}
    assert all(float(row["unknown_score"]) >= 0 for row in rows.values())
    few = {"train.max_steps": 2, "train.evaluate_every": 2, "train.batch_size": 4}
    elsewhere = pmtrans.adapt(tmp_path / "run", tmp_path / "labelled", tmp_path / "moved", settings=few, quiet=True)
    assert evaluate(elsewhere.path, tmp_path / "labelled").as_json()["known_accuracy"] is not None


def test_a_run_with_the_same_classes_has_no_unknown(undisturbed: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "labelled", ("cat", "eel"), 2)
    assert "known_accuracy" not in evaluate(undisturbed, tmp_path / "labelled").as_json()
    with pytest.raises(ModelError, match="target_classes=open"):
        evaluate(undisturbed, tmp_path / "labelled", calibrate=True)


def test_a_class_named_unknown_is_refused_in_one_line(images: Path, configure: Configure, tmp_path: Path) -> None:
    (images / "source" / "cat").rename(images / "source" / "unknown")
    with pytest.raises(ConfigError, match="class 'unknown'"):
        train(configure(data__target_classes="open"), tmp_path / "run", Witness())
    assert not (tmp_path / "run").exists()


def test_a_method_that_cannot_leave_out_unknown_images_says_so(configure: Configure, tmp_path: Path) -> None:
    witness = Witness()
    train(configure(data__target_classes="open", method={"name": "mcc"}), tmp_path / "run", witness)
    assert any("method mcc trains on target images of no source class" in said for said in witness.said)


def test_a_method_that_does_not_weigh_source_classes_says_so(configure: Configure, tmp_path: Path) -> None:
    witness = Witness()
    train(configure(data__target_classes="partial", method={"name": "symnets"}), tmp_path / "run", witness)
    assert any("data.target_classes=partial changes nothing in its training" in said for said in witness.said)


def test_predictions_under_another_balance_are_reweighted(undisturbed: Path, images: Path) -> None:
    path = next((images / "target").rglob("*.png"))
    plain = load(undisturbed).predict(path)[0].probabilities
    balance = load(undisturbed).trained.balance
    assert plain is not None
    assert balance is not None
    for prior in Prior:
        wanted = [0.5, 0.5] if prior.value == "uniform" else getattr(balance, prior.value)
        weighted = [p * w / o for p, w, o in zip(plain.values(), wanted, balance.own, strict=True)]
        found = load(undisturbed, prior=prior.value).predict(path)[0].probabilities
        assert found is not None
        assert list(found.values()) == pytest.approx([value / sum(weighted) for value in weighted], rel=1e-4)


def method_on(kind: Any, tiny: Callable[..., Model], target: TargetPass, **options: Any) -> tuple[PMTrans, Context]:
    model = tiny("vit", classes=6)
    sizes = Sizes(classes=6, source_images=12, target_images=len(target.logits_MK), steps_per_epoch=40)
    method = PMTrans(model, PMTransOptions(preset="paper", **options), sizes)
    method.target_classes = TargetClasses(kind, 6, len(target.logits_MK))
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 6), torch.arange(6).repeat(2))
    return method, Context(lambda: target, lambda: source)


def batch(count: int = 4) -> Batch:
    torch.manual_seed(0)
    places = torch.arange(count)
    return Batch(torch.randn(count, 3, 32, 32), places % 6, places, torch.randn(count, 3, 32, 32), places)


@pytest.mark.parametrize("labels", ["kmeans", "propagation", "transport"])
def test_pmtrans_labels_no_image_as_an_absent_class(labels: str, tiny: Callable[..., Model]) -> None:
    truth = torch.arange(3).repeat_interleave(12)
    features = clusters(truth, 6)
    logits = features.clone()
    logits[::9, 4] += 3.5  # images that lean to an absent class
    method, context = method_on("partial", tiny, TargetPass(features, logits), pseudo_labels=labels)
    method.before_step(Moment(0, 40, 40), context)
    assert method.target_classes is not None
    assert method.target_classes.present_K.tolist() == [True] * 3 + [False] * 3
    assert method.pseudo_labels_M.tolist() == truth.tolist()


def test_source_images_of_absent_classes_have_no_part_in_the_loss(tiny: Callable[..., Model]) -> None:
    truth = torch.arange(3).repeat_interleave(12)
    features = clusters(truth, 6)
    method, context = method_on("partial", tiny, TargetPass(features, features), information=0.1)
    method.before_step(Moment(0, 40, 40), context)
    classes = method.target_classes
    assert classes is not None
    labels = torch.tensor([0, 3, 4, 1])
    weights = classes.source_weights(labels).tolist()
    assert weights[1] == weights[2] == 0
    assert weights[0] > 0
    logits = torch.randn(4, 6)
    each = [torch.nn.functional.cross_entropy(row[None], y[None]).item() for row, y in zip(logits, labels, strict=True)]
    expected = (weights[0] * each[0] + weights[3] * each[3]) / 4
    assert method.source_loss(logits, labels, 0.0).item() == pytest.approx(expected, rel=1e-5)
    assert torch.isfinite(method(batch(), Moment(0, 40, 40))["loss"])


def test_unknown_images_are_kept_out_of_mixing_and_labels(tiny: Callable[..., Model]) -> None:
    truth = torch.arange(7).repeat_interleave(8)
    features = clusters(truth, 7)
    method, context = method_on("open", tiny, TargetPass(features, 2 * features[:, :6]), information=0.1)
    method.before_step(Moment(0, 40, 40), context)
    classes = method.target_classes
    assert classes is not None
    assert classes.known_M.tolist() == (truth < 6).tolist()
    assert method.pseudo_labels_M[truth < 6].tolist() == truth[truth < 6].tolist()
    weights = classes.target_weights(torch.arange(56))
    assert weights[truth == 6].abs().sum() == 0
    assert weights.mean().item() == pytest.approx(1.0)
    given = batch()
    strange = Batch(given.source_images, given.source_labels, given.source_index, given.target_images,
                    torch.arange(48, 52))  # fmt: skip
    values = method(strange, Moment(0, 40, 40))
    assert values["label_space"] == values["feature_space"] == values["information"] == 0
    assert values["unknown_separation"] > 0


def test_every_method_that_sees_the_target_can_weigh_source_classes() -> None:
    for name, entry in METHODS.items():
        assert entry.method.looks_at_classes == (name == "pmtrans")


def test_given_labels_are_known_and_their_classes_present() -> None:
    truth = torch.arange(3).repeat(8)
    features = clusters(truth, 6, 0)
    target = TargetPass(features, features[:, :6])
    pinned_M = torch.full((24,), -1)
    part = TargetClasses("partial", 6, 24)
    part.update(target, pinned_M)
    assert part.present_K.tolist() == [True] * 3 + [False] * 3
    pinned_M[:2] = 5
    part.update(target, pinned_M)
    assert part.present_K.tolist() == [True] * 3 + [False] * 2 + [True]
    assert part.weights_K[5] > 0

    strange = TargetPass(features, features[:, :6] * (torch.arange(24) >= 4)[:, None])  # of four no logit is high
    part = TargetClasses("open", 6, 24)
    part.update(strange)
    assert not part.known_M[:4].any()
    part.update(strange, torch.tensor([0, 1, 2, 0] + [-1] * 20))
    assert part.known_M[:4].all()
    part.update(strange, torch.tensor([0, 1, 2, NO_CLASS] + [-1] * 19 + [NO_CLASS]))
    assert part.known_M[:4].tolist() == [True, True, True, False]
    assert not part.known_M[-1]


def evidence(truth: torch.Tensor, classes: int, heads: int) -> Evidence:
    source = torch.arange(heads).repeat(10)
    of_source, of_target = clusters(source, classes, 1), clusters(truth, classes, 2)
    return Evidence(of_source, of_source[:, :heads], source, of_target, of_target[:, :heads])


def settings(kind: str, weights: str = "timm") -> Config:
    return load_config(None, [], {"data.target_classes": kind, "backbone.weights": weights})


def test_doubts_name_missing_classes_and_images_that_fit_none() -> None:
    names = tuple("abcdef")
    half = evidence(torch.arange(3).repeat(20), 6, 6)
    (doubt,) = doubts(settings("same"), names, half, half)
    assert "3 of 6 source classes" in doubt
    assert "partial" in doubt
    strange = evidence(torch.arange(10).repeat(10), 10, 6)
    (doubt,) = doubts(settings("same"), names, strange, strange)
    assert "data.target_classes=open" in doubt
    assert list(doubts(settings("same", "none"), names, strange, strange)) == []
    whole = evidence(torch.arange(6).repeat(10), 6, 6)
    assert list(doubts(settings("same"), names, whole, whole)) == []
    for kind in ("partial", "open"):
        assert list(doubts(settings(kind), names, half, half)) == []
    few = evidence(torch.full((20,), 2), 6, 6)
    (doubt,) = doubts(settings("same"), names, few, whole)
    assert "calls 100% of the target c:" in doubt


def test_only_of_a_partial_target_classes_may_die_out() -> None:
    half = evidence(torch.arange(3).repeat(20), 6, 6)
    absent = absent_classes(settings("partial"), half)
    assert absent is not None
    assert absent.tolist() == [False] * 3 + [True] * 3
    assert absent_classes(settings("same"), half) is None
    assert absent_classes(settings("partial"), None) is None


def one_of(source: torch.Tensor, classes: int, images: int) -> Data:
    """A source of these labels and an unlabelled target of so many images; none of them exists."""
    labelled = LabelledDomain(
        Domain(Path(), tuple(map(str, range(len(source))))), tuple(source.tolist()), tuple("abcdef"[:classes])
    )
    nothing = LabelledDomain(Domain(Path(), ()), (), labelled.classes)
    return Data(labelled, nothing, Target(Domain(Path(), tuple(map(str, range(images)))), None, ()))


def test_the_balance_of_an_open_target_is_that_of_its_known_classes() -> None:
    """Of the known images a half, a third and a sixth; as many images of no class lean to the last one."""
    known = torch.tensor([0, 1, 2]).repeat_interleave(torch.tensor([30, 20, 10]))
    features = clusters(torch.cat([known, torch.full((60,), 3)]), 4)
    logits = 3 * features[:, :3]
    logits[60:, 2] += 3.0
    source = torch.arange(3).repeat(10)
    of_source = clusters(source, 4, 1)
    seen = Evidence(of_source, 3 * of_source[:, :3], source, features, logits)
    data = one_of(source, 3, 120)
    prior = find_situation(settings("open"), data, seen).prior
    assert prior is not None
    assert prior.shares_K.tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 6], abs=0.03)
    assert prior.mlls_K.tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 6], abs=0.03)
    same = find_situation(settings("same"), data, seen).prior
    assert same is not None
    assert same.shares_K[2] > 0.5


def test_the_likelihood_of_a_balance_starts_from_what_training_saw() -> None:
    """The source has 80, 16 and 4 images; ``data.balance=classes`` showed as many of each."""
    source = torch.tensor([0, 1, 2]).repeat_interleave(torch.tensor([80, 16, 4]))
    of_source, of_target = clusters(source, 3, 1), clusters(torch.arange(3).repeat(20), 3, 2)
    doubtful = 0.3 * of_source, 0.3 * of_target
    seen = Evidence(of_source, doubtful[0], source, of_target, doubtful[1])
    config = load_config(None, [], {"data.balance": "classes"})
    data = one_of(source, 3, 60)
    rows = (doubtful[1].double() / fit_temperature(doubtful[0], source)).softmax(1)
    for of_probe, learned in ((False, torch.full((3,), 1 / 3).double()), (True, source_prior(source, 3))):
        prior = find_situation(config, data, seen, of_probe).prior
        assert prior is not None
        assert prior.mlls_K.tolist() == pytest.approx(likelihood_shift(rows, learned).tolist(), abs=1e-6)


def test_a_class_that_was_not_seen_is_rare() -> None:
    assert smoothed(torch.tensor([1.0, 0.0]), 9).tolist() == pytest.approx([0.95, 0.05])

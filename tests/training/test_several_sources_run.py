"""A run with several sources: shares of a batch, resuming, what the summary and the report say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fed import parts_of
from pmtrans.cli import app
from pmtrans.config import Config
from pmtrans.data.sampling import SourceBalancedStream
from pmtrans.errors import ConfigError, DataError, RunError
from pmtrans.report.page import write_report
from pmtrans.run.model_folder import load_model
from pmtrans.settings import load_config
from pmtrans.training.train import train
from recounted import recount
from tiny_run import SETTINGS, Crash, Witness, assert_same_run, crash, write_images

STAGED = {"train.start": "source", "train.baseline": True, "data.holdout": 0.3}


def test_each_source_has_an_equal_share_of_every_batch_and_is_passed_over_in_its_own_time() -> None:
    origins = (0, 0, 0, 1, 1, 2)
    stream = SourceBalancedStream(0, "source", (0,) * 6, origins, by_class=False)
    draws = [stream.at(place) for place in range(18)]
    assert [origins[draw.index] for draw in draws] == [0, 1, 2] * 6
    first = [(draw.epoch, draw.index) for draw in draws if origins[draw.index] == 0]
    assert [epoch for epoch, _ in first] == [0, 0, 0, 1, 1, 1]
    assert sorted(index for _, index in first[:3]) == sorted(index for _, index in first[3:]) == [0, 1, 2]
    assert [draw.epoch for draw in draws if origins[draw.index] == 2] == [0, 1, 2, 3, 4, 5]
    again = SourceBalancedStream(0, "source", (0,) * 6, origins, by_class=False)
    assert [again.at(place) for place in (17, 3)] == [draws[17], draws[3]]


def test_classes_are_balanced_within_each_source() -> None:
    labels, origins = (0, 0, 0, 1, 0, 1, 1), (0, 0, 0, 0, 1, 1, 1)
    stream = SourceBalancedStream(0, "source", labels, origins, by_class=True)
    seen = [(origins[draw.index], labels[draw.index]) for draw in map(stream.at, range(12))]
    assert sorted(seen) == [(0, 0)] * 3 + [(0, 1)] * 3 + [(1, 0)] * 3 + [(1, 1)] * 3


@pytest.fixture
def several(tmp_path: Path) -> Callable[..., Config]:
    write_images(tmp_path / "a", ("cat", "dog"), 8)
    write_images(tmp_path / "b", ("dog", "owl"), 4)
    write_images(tmp_path / "target", ("cat", "dog", "owl"), 5)

    def make(**changes: Any) -> Config:
        domains = {"data.source": [str(tmp_path / "a"), str(tmp_path / "b")], "data.target": str(tmp_path / "target")}
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return load_config(None, [], {**domains, **SETTINGS, **STAGED, **named})

    return make


def test_a_run_says_how_well_it_does_on_each_source_and_what_each_contributes(
    several: Callable[..., Config], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    witness = Witness()
    summary = train(several(selection__source_contributions=True), run, witness)
    assert "source 'a' has no images of 1 classes: owl" in witness.said
    assert load_model(run / "model").classes == ("cat", "dog", "owl")
    written = json.loads((run / "summary.json").read_text())["sources"]
    assert written == summary.sources
    assert {name: (entry["images"], entry["held_out"]) for name, entry in written.items()} == {
        "a": (12, 4),
        "b": (6, 2),
    }
    for name, entry in written.items():
        assert set(entry["accuracy"]) == {"probe", "source_only", "adapted"}
        for model, accuracy in entry["accuracy"].items():
            assert accuracy in [step / entry["held_out"] for step in range(entry["held_out"] + 1)], (name, model)
        contribution = entry["contribution"]
        assert contribution["change"]["oracle_accuracy"] == pytest.approx(
            contribution["without"]["oracle_accuracy"] - written_probe(run), abs=1e-12
        )
        assert 0 <= contribution["without"]["estimate"] <= 1
    page = write_report(run, figures=False).read_text()
    assert "probe without it: estimate" in page
    assert "a + b → target" in page


def written_probe(run: Path) -> float:
    return float(json.loads((run / "summary.json").read_text())["probe"])


def test_the_probe_without_a_source_is_that_of_a_run_without_it(several: Callable[..., Config], tmp_path: Path) -> None:
    """The probe without a source is that of a run that never had it; without a hold-out the two are the same fit."""
    write_images(tmp_path / "c", ("cat", "dog", "owl"), 6)
    both = [str(tmp_path / "c"), str(tmp_path / "b")]
    names = tmp_path / "names.txt"
    names.write_text("cat\ndog\nowl\n")
    config = several(
        data__source=both, data__holdout=0.0, selection__source_contributions=True, train__max_steps=1,
        selection__ship="adapted",
    )  # fmt: skip
    with_both = train(config, tmp_path / "both", Witness())
    alone = several(data__source=both[0], data__holdout=0.0, data__classes=str(names), train__max_steps=1)
    train(alone, tmp_path / "alone", Witness())
    assert with_both.sources is not None
    expected = recount(tmp_path / "alone" / "probe" / "model", tmp_path / "target")[0]
    assert with_both.sources["b"]["contribution"]["without"] == {"oracle_accuracy": pytest.approx(expected)}


@pytest.mark.parametrize("method", ["pmtrans", "mcd"])
def test_a_run_that_was_cut_resumes_to_the_same_weights(
    method: str, several: Callable[..., Config], tmp_path: Path
) -> None:
    short = {"train__start": "pretrained", "train__baseline": False, "method__name": method}
    train(several(**short), tmp_path / "whole", Witness())
    with pytest.raises(Crash):
        train(several(**short), tmp_path / "cut", Witness({5: crash}))
    train(several(**short), tmp_path / "cut", Witness())
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_another_division_into_sources_is_other_data(several: Callable[..., Config], tmp_path: Path) -> None:
    short = {"train__start": "pretrained", "train__baseline": False}
    with pytest.raises(Crash):
        train(several(**short), tmp_path / "cut", Witness({5: crash}))
    turned = [str(tmp_path / "b"), str(tmp_path / "a")]
    with pytest.raises(RunError, match="The source has changed since run"):
        train(several(**short, data__source=turned), tmp_path / "cut", Witness())


def test_from_the_command_line(several: Callable[..., Config], tmp_path: Path) -> None:
    config = several(train__max_steps=1)
    (tmp_path / "recipe.yaml").write_text(config.to_yaml())
    assert load_config(tmp_path / "recipe.yaml") == config
    sources = ["--source", str(tmp_path / "a"), "--source", str(tmp_path / "b")]
    target = ["--target", str(tmp_path / "target")]
    result = CliRunner().invoke(
        app, ["train", *sources, *target, "--recipe", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 0, result.output
    assert "Accuracy on the held-out part of each source: a " in " ".join(result.output.split())
    checked = CliRunner().invoke(app, ["check", *sources, *target, "--json"])
    assert checked.exit_code == 0, checked.output
    found = json.loads(checked.stdout)
    assert [(one["name"], one["images"]) for one in found["sources"]] == [("a", 16), ("b", 8)]
    assert found["source"]["images"] == 24
    for wrong, kind, said in (
        ([*sources, "--source", str(tmp_path / "a")], DataError, "is given twice: each source once"),
        ([*sources, "--source", "nowhere"], DataError, "--source nowhere: there is no such folder or file"),
        (["data.source=[]"], ConfigError, "an empty list names no source"),
    ):
        result = CliRunner().invoke(app, ["train", *wrong, *target, "--out", str(tmp_path / "other")])
        assert isinstance(result.exception, kind)
        assert said in str(result.exception)
        assert not (tmp_path / "other").exists()


def test_a_source_of_which_nothing_can_be_read_is_not_lost_in_silence(
    several: Callable[..., Config], tmp_path: Path
) -> None:
    for path in (tmp_path / "b").rglob("*.png"):
        path.write_bytes(b"not an image")
    with pytest.raises(DataError, match="b: none of its 8 images can be read"):
        train(several(data__on_bad_image="skip"), tmp_path / "run", Witness())


def test_shares_reach_the_method(several: Callable[..., Config], tmp_path: Path) -> None:
    _, feed = parts_of(several(train__max_steps=3))
    for (batch,) in feed.steps(0):
        origins = torch.tensor(feed.task.source.origins)[batch.source_index]
        assert sorted(origins.tolist()) == [0, 0, 1, 1]

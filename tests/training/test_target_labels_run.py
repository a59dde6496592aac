"""A run with labels of a few target images: they train, they stay, a part measures, and nothing else reads them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from fed import parts_of
from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.data.sampling import Stream, WithTargetLabels
from pmtrans.errors import RunError
from pmtrans.methods import METHODS
from pmtrans.methods.method import NO_CLASS, Moment
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.progress import Reporter
from pmtrans.report.page import write_report
from pmtrans.run.folder import RunFolder
from pmtrans.selection.evidence import read_evidence
from pmtrans.selection.unknown_threshold import fit_unknown
from pmtrans.settings import load_config
from pmtrans.training.build import build
from pmtrans.training.train import train
from recounted import recount
from tiny_run import SETTINGS, Crash, Witness, assert_same_run, crash, write_images

STAGED = {"train.start": "source", "train.baseline": True, "data.holdout": 0.3}


@pytest.fixture
def labelled(tmp_path: Path) -> Callable[..., Config]:
    """An unlabelled target of 30 images, 24 of which have a label in ``labels.csv``."""
    write_images(tmp_path / "source", ("cat", "dog"), 8)
    write_images(tmp_path / "known", ("cat", "dog"), 15)
    (tmp_path / "target").mkdir()
    rows = []
    for path in sorted((tmp_path / "known").rglob("*.png"), key=lambda path: (int(path.stem), path)):
        name = f"{path.parent.name[0]}{path.name}"
        shutil.copy(path, tmp_path / "target" / name)
        rows.append(f"{name},{path.parent.name}\n")
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(rows[:24]))

    def make(**changes: Any) -> Config:
        places = {"data.source": str(tmp_path / "source"), "data.target": str(tmp_path / "target")}
        named = {key.replace("__", "."): value for key, value in changes.items()}
        given = {"data.target_labels": str(tmp_path / "labels.csv")}
        settings = {**places, **SETTINGS, **STAGED, **given, **named}
        return load_config(None, [], {key: value for key, value in settings.items() if value is not None})

    return make


def truth(path: str) -> int:
    return {"c": 0, "d": 1}[Path(path).name[0]]


def test_labelled_images_are_spread_evenly_over_every_batch() -> None:
    stream = WithTargetLabels(Stream(0, "source", 10), 0, 10, 3, Fraction(1, 4))
    draws = [stream.at(place) for place in range(40)]
    assert [place for place, draw in enumerate(draws) if draw.index >= 10] == list(range(3, 40, 4))
    assert {draw.domain for draw in draws} == {"source"}
    own = [draw for draw in draws if draw.index < 10]
    assert own == [Stream(0, "source", 10).at(place) for place in range(30)]
    counts = Counter(draw.index for draw in draws if draw.index >= 10)
    assert sorted(counts.values()) == [3, 3, 4]  # ten draws in passes over three images


@pytest.mark.parametrize("preset", ["best", "paper", "reference"])
def test_known_labels_stay_whatever_the_clusters_say(preset: str, labelled: Callable[..., Config]) -> None:
    passes, feed = parts_of(labelled(method__preset=preset, train__start="pretrained"))
    method, task = feed.method, feed.task
    assert isinstance(method, PMTrans)
    places, labels = task.pinned()
    assert task.target_labels is not None
    assert [truth(task.target.paths[place]) for place in places] == labels
    assert len(places) == len(task.target_labels) < 24
    method.before_step(Moment(0, 6, 3), passes.context())
    for (batch,) in feed.steps(0):
        found, _ = method._pseudo_labels(batch)
        for place, label in zip(batch.target_index.tolist(), found.tolist(), strict=True):
            if place in places:
                assert label == labels[places.index(place)]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_on_them_and_has_them_in_half_of_its_labelled_images(
    name: str, labelled: Callable[..., Config]
) -> None:
    config = labelled(method__name=name)
    quiet = Reporter(quiet=True)
    data = read_data(config, quiet)
    method, task, _ = build(config, data, quiet)
    assert task.target_labels is not None
    assert task.steps(config) == (6, 30 // 4)  # as without labels
    assert task.source.paths[len(data.source) :] == task.target_labels.paths
    assert task.source.labels[len(data.source) :] == tuple(map(truth, task.target_labels.paths))
    assert method.pinned_M is not None
    assert "pinned_M" not in method.state_dict()
    if method.uses_source and not method.chooses_pairs:
        _, feed = parts_of(config)
        (batch,) = next(feed.steps(0))
        assert (batch.source_index >= len(data.source)).sum() == 2  # of 4


def test_the_summary_and_the_report_say_what_they_brought(labelled: Callable[..., Config], tmp_path: Path) -> None:
    before, run = tmp_path / "before", tmp_path / "run"
    without = labelled(data__target_labels=None)
    assert without.data.target_labels is None
    train(without, before, Witness())
    assert json.loads((before / "summary.json").read_text())["target_labels"] is None
    witness = Witness()
    summary = train(labelled(), run, witness, start_from=before)
    assert "Source only is finished already." in witness.said
    labels = summary.target_labels
    assert labels is not None
    assert labels["trained"] + labels["kept"] == 24
    recorded = json.loads((run / "target_labels.json").read_text())
    kept = tmp_path / "kept"
    for name in recorded["kept"]:
        place = kept / {"c": "cat", "d": "dog"}[Path(name).name[0]]
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / name, place)
    assert len(recorded["kept"]) == labels["kept"] >= 5
    adapted = run / "adapted" / "model" if (run / "adapted" / "model").is_dir() else run / "model"
    measured = labels["accuracy"]["adapted"]
    assert measured["accuracy"] == pytest.approx(recount(adapted, kept)[0])
    assert 0 <= measured["low"] <= measured["accuracy"] <= measured["high"] <= 1
    for name, stage in (("probe", run / "probe"), ("source_only", run / "baseline")):
        assert labels["accuracy"][name]["accuracy"] == pytest.approx(recount(stage / "model", kept)[0])
        assert labels["taken_over"][name] == {"run": "before", "trained": 0}
    assert "adapted" not in labels["taken_over"]
    assert labels["before"]["run"] == "before"
    assert labels["before"]["accuracy"] == pytest.approx(recount(before / "model", kept)[0])
    page = write_report(run, figures=False).read_text()
    assert "What the target labels brought" in page
    assert "before, the run before the labels" in page
    assert "source only, taken over from before" in page
    onwards = train(labelled(), tmp_path / "onwards", Witness(), start_from=run)
    assert onwards.target_labels is not None
    assert onwards.target_labels["taken_over"]["probe"] == {
        "run": "run",
        "trained": 0,
    }  # and that one had it from before


def test_a_run_that_was_cut_resumes_to_the_same_weights(labelled: Callable[..., Config], tmp_path: Path) -> None:
    short = {"train__start": "pretrained", "train__baseline": False}
    train(labelled(**short), tmp_path / "whole", Witness())
    with pytest.raises(Crash):
        train(labelled(**short), tmp_path / "cut", Witness({5: crash}))
    plain = labelled(**short, data__target_labels=None)
    with pytest.raises(RunError, match="The target labels have changed since run"):
        train(plain, tmp_path / "cut", Witness())
    train(labelled(**short), tmp_path / "cut", Witness())
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    train(plain, tmp_path / "plain", Witness())
    weights = Path("model") / "model.safetensors"
    assert (tmp_path / "plain" / weights).read_bytes() != (tmp_path / "whole" / weights).read_bytes()
    with pytest.raises(RunError, match="The target labels have changed since run"):
        train(labelled(**short), tmp_path / "plain", Witness())


def test_what_was_trained_on_elsewhere_does_not_measure(labelled: Callable[..., Config], tmp_path: Path) -> None:
    train(labelled(data__target_labels_kept=0.0), tmp_path / "all", Witness())
    with pytest.raises(RunError, match=r"was trained on the labels of .* images that this run keeps for measuring"):
        train(labelled(), tmp_path / "run", Witness(), start_from=tmp_path / "all")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_labels_train_the_probe_as_much_as_the_source(labelled: Callable[..., Config]) -> None:
    from pmtrans.training.contributions import weighed_rows

    rows = weighed_rows(7, 9, torch.device("cpu")).tolist()
    assert rows == [*range(7), 7, 8, 7, 8, 7, 8]


def test_labels_of_unknown_images_move_the_threshold_and_resume_exactly(
    labelled: Callable[..., Config], tmp_path: Path
) -> None:
    config = labelled(data__target_classes="open", method={"name": "pmtrans", "refresh_steps": 2})
    strange = [path.name for path in sorted((tmp_path / "target").glob("*.png")) if path.name in ("c12.png", "d12.png")]
    with (tmp_path / "labels.csv").open("a") as table:
        table.writelines(f"{name},unknown\n" for name in strange)
    summary = train(config, tmp_path / "whole", Witness())
    assert summary.target_labels is not None
    assert summary.target_labels["unknown"] == 2
    recorded = json.loads((tmp_path / "whole" / "target_labels.json").read_text())
    assert [Path(name).name for name in recorded["unknown"]] == strange
    method, _, _ = build(config, read_data(config, Reporter(quiet=True)), Reporter(quiet=True))
    assert method.pinned_M is not None
    assert int((method.pinned_M == NO_CLASS).sum()) == 2
    evidence = read_evidence(RunFolder(tmp_path / "whole").evidence)
    unmoved = fit_unknown(evidence.target_logits_MK)
    stored = json.loads((tmp_path / "whole" / "model" / "config.json").read_text())["pmtrans"]["unknown"]
    assert stored["threshold"] != pytest.approx(unmoved.threshold)
    with pytest.raises(Crash):
        train(config, tmp_path / "cut", Witness({3: crash}))
    train(config, tmp_path / "cut", Witness())
    assert_same_run(tmp_path / "cut", tmp_path / "whole")

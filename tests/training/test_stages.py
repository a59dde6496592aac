"""Probe, source stage, adaptation, conclusion: each finished and resumable by itself."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from pmtrans.bench.source_stages import source_key
from pmtrans.config import Config
from pmtrans.errors import ConfigError, RunError
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics
from pmtrans.run.model_folder import load_model
from pmtrans.run.summary import Summary
from pmtrans.training import conclusion
from pmtrans.training.train import train
from recounted import recount
from tiny_run import Crash, Witness, assert_same_run, crash, write_domains, write_images

STAGED = {"train__start": "average", "train__baseline": True}
FROM_ITS_END = {**STAGED, "train__start": "source"}
STILL = {  # nothing moves: the end of a stage is its start
    "train__learning_rate": 1e-12,
    "train__weight_decay": 0.0,
}
UNMOVED_HEAD = {"method__align_head": "never", "method__refit_head": False}


def weights(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model" / "model.safetensors")


def run(config: Config, out: Path, **more: Any) -> Summary:
    return train(config, out, Witness(), **more)


def test_a_run_leaves_every_stage_and_three_numbers(
    configure: Callable[..., Config], images: Path, tmp_path: Path
) -> None:
    summary = run(configure(**STAGED), tmp_path / "run")
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    for name, place in (("probe", "probe"), ("source_only", "baseline"), ("adapted", ".")):
        assert written[name] == pytest.approx(recount(tmp_path / "run" / place / "model", images / "target")[0])
        assert 0 <= written["estimates"][name]["low"] <= written["estimates"][name]["high"] <= 1
        assert written["evaluations"][name]["oracle_accuracy"] == written[name]
    assert written["shipped"] in ("probe", "source_only", "adapted")
    assert written["estimate"] == written["estimates"][written["shipped"]]
    assert summary.verdict in ("helped", "unchanged", "hurt", "cannot tell")
    folder = RunFolder(tmp_path / "run")
    for stage in (folder.probe, folder.baseline, folder):
        assert stage.finished.is_file()
        assert load_model(stage.model).classes == ("cat", "dog")
    assert "oracle_kmeans_accuracy" in written["evaluations"]["probe"]


@pytest.mark.parametrize(("method", "said"), [("bnm", "Evaluation [123] of 3: "), ("source_only", "Evaluation 3 of 3")])
def test_the_summary_names_how_many_evaluations_there_were_not_how_many_were_kept(
    method: str, said: str, configure: Callable[..., Config], tmp_path: Path
) -> None:
    summary = run(configure(method__name=method, selection__keep=1), tmp_path / "run")
    assert re.match(said, summary.selection)
    assert summary.selected_step in (2, 4, 6)


@pytest.mark.parametrize("start", ["average", "source", "probe", "pretrained"])
def test_the_method_starts_where_the_setting_says(start: str, configure: Callable[..., Config], tmp_path: Path) -> None:
    config = configure(train__start=start, train__baseline=True, selection__ship="adapted", **STILL, **UNMOVED_HEAD)
    run(config, tmp_path / "run")
    probe, source, adapted = (weights(tmp_path / "run" / part) for part in ("probe", "baseline", ""))
    same_as_probe = all(torch.allclose(adapted[name], probe[name], atol=1e-7) for name in adapted)
    same_as_source = all(torch.allclose(adapted[name], source[name], atol=1e-7) for name in adapted)
    assert same_as_probe == (start != "pretrained")
    assert same_as_source  # the source stage starts there too, and does not move
    backbone = [name for name in adapted if not name.startswith("head")]
    assert all(torch.allclose(adapted[name], probe[name], atol=1e-7) for name in backbone)


@pytest.fixture
def donor(configure: Callable[..., Config], tmp_path: Path) -> Path:
    """A run whose source stage did move."""
    run(configure(**STAGED), tmp_path / "donor")
    probe, source = (weights(tmp_path / "donor" / part) for part in ("probe", "baseline"))
    assert not all(torch.allclose(source[name], probe[name], atol=1e-6) for name in source)
    return tmp_path / "donor"


def first_of(start: dict[str, Any], donor: Path, configure: Callable[..., Config], out: Path) -> dict[str, Tensor]:
    """The weights that an adaptation starts from: it does not move."""
    return first_and_said(start, donor, configure, out)[0]


def first_and_said(
    start: dict[str, Any], donor: Path, configure: Callable[..., Config], out: Path
) -> tuple[dict[str, Tensor], str]:
    """Those weights, and what the run says of its start."""
    still, witness = configure(**start, **STILL, **UNMOVED_HEAD, selection__ship="adapted"), Witness()
    train(still, out, witness, start_from=donor)
    return weights(out), "".join(line for line in witness.said if line.startswith("Start: "))


def test_adaptation_starts_at_the_end_of_the_source_stage(
    donor: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    first, source = first_of(FROM_ITS_END, donor, configure, tmp_path / "run"), weights(donor / "baseline")
    assert all(torch.allclose(first[name], source[name], atol=1e-6) for name in first)


def test_adaptation_starts_half_way_between_probe_and_source_stage(
    donor: Path, configure: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pmtrans.training.start.RIDGE", 1.0)  # tiny random networks are no pretrained ones
    monkeypatch.setattr("pmtrans.training.start.LAGS", 1.1)
    first, said = first_and_said(STAGED, donor, configure, tmp_path / "run")
    probe, source = weights(donor / "probe"), weights(donor / "baseline")
    assert all(torch.allclose(first[name], (probe[name] + source[name]) / 2, atol=1e-6) for name in first)
    assert said.startswith("Start: half-way between probe and source-only model, as the source-only classifier agrees")


def test_a_mean_beyond_a_ridge_of_the_loss_is_no_start(
    donor: Path, configure: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier that knows one class alone: what a mean of unrelated weights could be."""

    def one_class(_: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**after, "head.bias": torch.eye(len(after["head.bias"]))[0] * 1e6}

    monkeypatch.setattr("pmtrans.training.start.LAGS", 1.1)
    monkeypatch.setattr("pmtrans.training.start.average", one_class)
    monkeypatch.setattr("pmtrans.training.start.source_accuracy", lambda _: 1.0)  # six steps learn nothing
    first, source = first_of(STAGED, donor, configure, tmp_path / "run"), weights(donor / "baseline")
    assert all(torch.allclose(first[name], source[name], atol=1e-6) for name in first)


def test_a_source_only_model_that_agrees_with_the_clusters_is_the_start(
    donor: Path, configure: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pmtrans.training.start.RIDGE", 1.0)
    monkeypatch.setattr("pmtrans.training.start.LAGS", 0.0)
    first, said = first_and_said(STAGED, donor, configure, tmp_path / "run")
    source = weights(donor / "baseline")
    assert all(torch.allclose(first[name], source[name], atol=1e-6) for name in first)
    assert said.startswith("Start: the end of the source stage, as the source-only classifier agrees with ")


def test_without_held_out_images_a_mean_is_not_trusted(configure: Callable[..., Config], tmp_path: Path) -> None:
    witness = Witness()
    train(configure(**STAGED, data__holdout=0.0), tmp_path / "run", witness)
    assert any("no source is held out to check an average with" in said for said in witness.said)


class KilledAt(Witness):
    """Crashes at one step of one stage, by its title."""

    def __init__(self, title: str, step: int) -> None:
        super().__init__()
        self.title, self.fatal, self.current = title, step, ""

    def start(self, title: str, step: int, steps: int) -> None:
        self.current = title
        super().start(title, step, steps)

    def step(self, step: int, rate: float) -> None:
        super().step(step, rate)
        if (self.current, step) == (self.title, self.fatal):
            crash()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A staged run that nothing happened to."""
    from pmtrans.settings import load_config
    from tiny_run import SETTINGS

    home = tmp_path_factory.mktemp("whole")
    write_domains(home / "images")
    domains = {"data.source": str(home / "images" / "source"), "data.target": str(home / "images" / "target")}
    staged = {"train.start": "average", "train.baseline": True}
    train(load_config(None, [], {**SETTINGS, **domains, **staged}), home / "run", Witness())
    return home / "run"


@pytest.mark.parametrize(
    ("title", "step"), [("source only", 1), ("source only", 5), ("source only", 6), ("pmtrans", 1), ("pmtrans", 5)]
)
def test_killed_in_a_stage_the_same_command_ends_in_the_same_weights(
    title: str, step: int, whole: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    with pytest.raises(Crash):
        train(configure(**STAGED), tmp_path / "run", KilledAt(title, step))
    run(configure(**STAGED), tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)
    for stage in ("probe", "baseline"):
        assert weights_bytes(tmp_path / "run" / stage) == weights_bytes(whole / stage)


@pytest.mark.parametrize(
    "function", ["probe_stage", "train_stage", "choose_reference", "conclude"], ids=lambda name: f"before {name}"
)
def test_killed_between_stages_the_same_command_ends_in_the_same_weights(
    function: str, whole: Path, configure: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(f"pmtrans.training.train.{function}", lambda *_: crash())
        with pytest.raises(Crash):
            run(configure(**STAGED), tmp_path / "run")
    run(configure(**STAGED), tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def test_killed_while_shipping_the_same_command_ends_in_the_same_model(
    whole: Path, configure: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(conclusion, "write_json", lambda *_: crash())
        with pytest.raises(Crash):
            run(configure(**STAGED), tmp_path / "run")
    summary = run(configure(**STAGED), tmp_path / "run")
    assert summary.shipped == json.loads((whole / "summary.json").read_text())["shipped"]
    assert_same_run(tmp_path / "run", whole)


def weights_bytes(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_another_method_starts_from_a_finished_source_stage(
    whole: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    witness = Witness()
    config = configure(**STAGED, method__name="bnm")
    shutil.copytree(whole.parent / "images", tmp_path / "images", dirs_exist_ok=True)  # as the donor's: the same
    summary = train(config, tmp_path / "run", witness, start_from=whole)
    assert "Source only is finished already." in witness.said
    assert "Linear probe is finished already." in witness.said
    assert summary.source_only == json.loads((whole / "summary.json").read_text())["source_only"]
    assert weights_bytes(tmp_path / "run" / "baseline") == weights_bytes(whole / "baseline")
    assert not witness._after  # the time left is that of this training alone


def test_a_source_only_run_that_ships_its_probe_hands_on_what_it_trained(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    donor = tmp_path / "donor"
    run(configure(**STAGED, method__name="source_only"), donor)
    trained = weights_bytes(donor)
    conclusion.ship(RunFolder(donor), "probe", "source_only")
    assert weights_bytes(donor) != trained
    run(configure(**STAGED, method__name="bnm", train__max_steps=1), tmp_path / "run", start_from=donor)
    assert weights_bytes(tmp_path / "run" / "baseline") == trained


def test_on_another_target_the_adopted_models_are_evaluated_again(
    whole: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    write_images(tmp_path / "elsewhere", images=7)
    config = configure(**STAGED, data__target=str(tmp_path / "elsewhere"))
    run(config, tmp_path / "run", start_from=whole)
    folder = RunFolder(tmp_path / "run")
    assert weights_bytes(folder.baseline.path) == weights_bytes(whole / "baseline")
    evidence = safetensors.torch.load_file(folder.baseline.evidence)
    assert len(evidence["target_logits_MK"]) == 14  # of the new target
    assert json.loads(folder.baseline.origin.read_text())["same_target"] is False


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data__image_size": 48}, "data.image_size=32, this run 48"),
        ({"backbone__options": {"depth": 2, "embed_dim": 24, "num_heads": 2}}, "backbone.options"),
        ({"seed": 1}, "seed=0, this run 1"),
        ({"method__head": "mlp"}, "method.head=linear, this run mlp"),
    ],
)
def test_from_a_run_that_does_not_fit_is_one_line(
    changes: dict[str, Any], said: str, whole: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=said):
        run(configure(**STAGED, **changes), tmp_path / "run", start_from=whole)


FROM_ADAPTED = {**STAGED, "train__start": "adapted"}


def adapted_in(run_folder: Path) -> Path:
    """The adapted model of a run, shipped or not."""
    return run_folder / "adapted" if (run_folder / "adapted").is_dir() else run_folder / "model"


def test_adaptation_starts_at_the_adapted_model_of_another_run(
    donor: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    first = first_of(FROM_ADAPTED, donor, configure, tmp_path / "run")
    theirs = safetensors.torch.load_file(adapted_in(donor) / "model.safetensors")
    source = weights(donor / "baseline")
    assert all(torch.allclose(first[name], theirs[name], atol=1e-7) for name in first)
    assert not all(torch.allclose(source[name], theirs[name], atol=1e-6) for name in source)
    assert weights_bytes(tmp_path / "run" / "baseline") == weights_bytes(donor / "baseline")  # to compare with


def test_a_killed_run_that_started_at_an_adapted_model_resumes_without_the_other_run(
    donor: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    config = configure(**FROM_ADAPTED, method__name="bnm")
    run(config, tmp_path / "whole", start_from=donor)
    with pytest.raises(Crash):
        train(config, tmp_path / "run", Witness({1: crash}), start_from=donor)
    shutil.rmtree(donor)
    run(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_an_adapted_start_without_such_a_model_is_one_line(
    donor: Path, configure: Callable[..., Config], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="name it with --from RUN"):
        run(configure(**FROM_ADAPTED), tmp_path / "run")
    (donor / "summary.json").unlink()
    with pytest.raises(RunError, match="has no finished adaptation"):
        run(configure(**FROM_ADAPTED), tmp_path / "run2", start_from=donor)
    run(configure(**STAGED, method__name="source_only"), tmp_path / "source")
    with pytest.raises(RunError, match="has no finished adaptation"):
        run(configure(**FROM_ADAPTED), tmp_path / "run3", start_from=tmp_path / "source")


def test_from_a_run_of_other_classes_is_one_line(whole: Path, configure: Callable[..., Config], tmp_path: Path) -> None:
    write_domains(tmp_path / "other", classes=("cat", "owl"))
    domains = {"data__source": str(tmp_path / "other" / "source"), "data__target": str(tmp_path / "other" / "target")}
    with pytest.raises(RunError, match=r"has other classes \(cat, dog\) than this source \(cat, owl\)"):
        run(configure(**STAGED, **domains), tmp_path / "run", start_from=whole)


def test_from_another_source_is_one_line(whole: Path, configure: Callable[..., Config], tmp_path: Path) -> None:
    write_images(tmp_path / "more", images=9)
    with pytest.raises(RunError, match="was trained on another source"):
        run(configure(**STAGED, data__source=str(tmp_path / "more")), tmp_path / "run", start_from=whole)


def test_from_an_unfinished_run_or_no_run_is_one_line(configure: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(Crash):
        train(configure(**STAGED), tmp_path / "cut", KilledAt("source only", 3))
    with pytest.raises(RunError, match="has no finished source stage"):
        run(configure(**STAGED), tmp_path / "run", start_from=tmp_path / "cut")
    with pytest.raises(RunError, match="is not a run folder"):
        run(configure(**STAGED), tmp_path / "run2", start_from=tmp_path / "nothing")


def test_the_adapted_model_is_shipped_all_the_same_where_a_user_wants_it(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    wanted = configure(**STAGED, **STILL, selection__ship="adapted")
    summary = run(wanted, tmp_path / "run")
    assert summary.shipped == "adapted"
    assert not (tmp_path / "run" / "adapted").exists()


def test_a_continued_baseline_has_as_many_further_steps(configure: Callable[..., Config], tmp_path: Path) -> None:
    summary = run(configure(**STAGED, train__baseline_steps="continued"), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert read_metrics(folder.continued.metrics)[-1]["step"] == 6
    assert weights_bytes(folder.continued.path) != weights_bytes(folder.baseline.path)
    assert summary.source_only == json.loads(folder.continued.finished.read_text())["accuracy"]


def test_the_source_stage_has_its_own_number_of_steps(configure: Callable[..., Config], tmp_path: Path) -> None:
    run(configure(**STAGED, train__source_steps=4, train__baseline_steps="continued"), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    ends = [read_metrics(one.metrics)[-1]["step"] for one in (folder.baseline, folder.continued, folder)]
    assert ends == [4, 6, 6]


def test_source_only_takes_the_steps_of_the_source_stage(configure: Callable[..., Config]) -> None:
    config = configure(**STAGED, train__source_steps=4, method__name="source_only")
    assert (config.train.max_steps, config.train.source_steps) == (4, None)
    assert source_key(config) == source_key(configure(**STAGED, train__source_steps=4))
    assert source_key(config) != source_key(configure(**STAGED))


def test_a_source_stage_may_be_longer_than_all_epochs(configure: Callable[..., Config], tmp_path: Path) -> None:
    run(configure(**{**STAGED, "train__max_steps": None, "train__epochs": 1}, train__source_steps=9), tmp_path / "run")
    assert read_metrics(RunFolder(tmp_path / "run").baseline.metrics)[-1]["step"] == 9


def test_a_source_only_run_starts_from_the_probe(configure: Callable[..., Config], tmp_path: Path) -> None:
    summary = run(configure(**STAGED, **STILL, method__name="source_only"), tmp_path / "run")
    assert summary.source_only == summary.adapted
    assert summary.shipped in ("probe", "source_only")
    assert not (tmp_path / "run" / "baseline").exists()
    probe, trained = weights(tmp_path / "run" / "probe"), weights(tmp_path / "run")
    assert all(torch.allclose(trained[name], probe[name], atol=1e-7) for name in trained)


def test_without_a_hold_out_a_run_still_ends_and_ships_what_it_trained(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    summary = run(configure(**STAGED, data__holdout=0.0), tmp_path / "run")
    assert (summary.verdict, summary.estimate, summary.shipped) == (None, None, "adapted")
    assert (
        "no source is held out" in json.loads((tmp_path / "run" / "probe" / "finished.json").read_text())["explanation"]
    )


def test_a_method_that_keeps_its_classifier_needs_one(configure: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"take train\.start=average, source or probe"):
        run(configure(method__name="shot", train__start="pretrained"), tmp_path / "run")
    assert not (tmp_path / "run").exists()

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from pmtrans.errors import DataError, RunError
from pmtrans.progress import Reporter
from pmtrans.report.material import read_material
from pmtrans.settings import load_config
from pmtrans.training.train import train
from recounted import adapted_model, recount

QUIET = Reporter(quiet=True)


def run(domains: tuple[Path, Path], out: Path, settings: list[str], **flags: Any) -> dict[str, torch.Tensor]:
    config = load_config(None, settings, {"data.source": str(domains[0]), "data.target": str(domains[1]), **flags})
    train(config, out, QUIET)
    return load_file(out / "model" / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]


def test_the_same_seed_gives_the_same_weights_whatever_the_workers(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    first = run(two_domains, tmp_path / "a", [*tiny_settings, "train.baseline=false"])
    again = run(two_domains, tmp_path / "b", [*tiny_settings, "train.baseline=false", "data.workers=2"])
    other = run(two_domains, tmp_path / "c", [*tiny_settings, "train.baseline=false"], seed=1)
    assert same(first, again)
    assert not same(first, other)


def test_a_run_leaves_everything_that_scripts_read(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    out = tmp_path / "run"
    run(two_domains, out, tiny_settings)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["source_only"] == pytest.approx(recount(out / "baseline" / "model", two_domains[1])[0])
    assert summary["adapted"] == pytest.approx(recount(adapted_model(out), two_domains[1])[0])
    assert summary["seconds"] > 0
    assert json.loads((out / "classes.json").read_text()) == ["ant", "bee", "cat"]
    assert "preset: best" in (out / "config.yaml").read_text()
    steps = [line for line in lines(out) if "event" not in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    game = steps[-1]
    for key in (
        "loss", "classification", "feature_space", "label_space", "cross_entropy", "beta_b", "beta_g", "alpha",
        "label_weight_mean", "label_weight_spread", "gradient_norm", "learning_rate.feature_extractor",
        "learning_rate.classifier", "learning_rate.patchmix", "images_per_second", "seconds",
    ):  # fmt: skip
        assert isinstance(game[key], float), key
    assert any("pseudo_labels_changed" in line for line in steps)


def test_a_target_without_labels_gets_null_accuracies(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, image in enumerate(sorted(two_domains[1].rglob("*.png"))):
        (flat / f"{number}.png").write_bytes(image.read_bytes())
    run((two_domains[0], flat), tmp_path / "run", tiny_settings)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["source_only"] is None
    assert summary["adapted"] is None


def test_the_batch_shrinks_to_what_the_smaller_domain_has(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(
        None,
        [*tiny_settings, "train.batch_size=500", "train.max_steps=1", "train.baseline=false"],
        {"data.source": str(two_domains[0]), "data.target": str(two_domains[1])},
    )
    train(config, tmp_path / "run", Reporter())
    assert "batch size 500 is more than a domain has: 18 is used" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_not_touched(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("do not lose me")
    with pytest.raises(RunError, match="is in use and is no run"):
        run(two_domains, out, tiny_settings)
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


def test_a_finished_run_is_not_trained_again_and_another_configuration_is_refused(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    settings = [*tiny_settings, "train.baseline=false", "train.max_steps=2"]
    first = run(two_domains, tmp_path / "run", settings)
    before = (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns
    assert same(first, run(two_domains, tmp_path / "run", settings))
    assert (tmp_path / "run" / "model" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(RunError, match=r"train.max_steps: 2 -> 3"):
        run(two_domains, tmp_path / "run", [*settings, "train.max_steps=3"])


def test_accumulated_micro_batches_are_one_step(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    """Source-only has no in-batch terms: 2 x 4 images give the gradient of 8."""
    plain = [*tiny_settings, "train.max_steps=3", "data.augmentation=none"]
    whole = run(two_domains, tmp_path / "a", [*plain, "train.batch_size=8"], **{"method.name": "source_only"})
    halves = run(
        two_domains,
        tmp_path / "b",
        [*plain, "train.batch_size=4", "train.accumulate=2"],
        **{"method.name": "source_only"},
    )
    for name in whole:
        assert torch.allclose(whole[name], halves[name], atol=1e-5), name


def test_one_target_image_is_too_few(two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]) -> None:
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    image = next(iter(two_domains[1].rglob("*.png")))
    (lonely / "1.png").write_bytes(image.read_bytes())
    with pytest.raises(DataError, match="1 image, but adaptation needs at least 2"):
        run((two_domains[0], lonely), tmp_path / "run", tiny_settings)
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_depend_on_the_working_directory(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [*tiny_settings, "train.max_steps=2", "train.baseline=false", "train.start=pretrained"]
    config = load_config(None, settings, {"data.source": "source", "data.target": "./target"})
    train(config, Path("run"), Reporter(quiet=True))
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"]
    assert (stored["source"], stored["target"]) == (str(two_domains[0]), str(two_domains[1]))
    monkeypatch.chdir("/")
    assert read_material(tmp_path / "run").data is not None

    two_domains[1].rename(tmp_path / "moved")  # the same images in another place are the same data
    moved = load_config(None, settings, {"data.source": str(two_domains[0]), "data.target": str(tmp_path / "moved")})
    train(moved, tmp_path / "run", Reporter(quiet=True))
    assert read_material(tmp_path / "run").data is not None

"""Training on a folder full of files that are no images, or hardly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostile_images import make_hostile_folder
from pmtrans.errors import DataError
from pmtrans.progress import Reporter
from pmtrans.settings import load_config
from pmtrans.training.train import train


def settings(two_domains: tuple[Path, Path], target: Path) -> dict[str, str]:
    return {"data.source": str(two_domains[0]), "data.target": str(target)}


def test_skip_finishes_and_error_stops_before_the_first_step(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = make_hostile_folder(tmp_path / "hostile")
    overrides = [*tiny_settings, "train.baseline=false", "train.max_steps=2"]
    flags = settings(two_domains, tmp_path / "hostile")
    with pytest.raises(DataError) as caught:
        train(load_config(None, overrides, flags), tmp_path / "refused", Reporter(quiet=True))
    assert f"{len(hostile.bad)} images cannot be read" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "refused").exists()

    train(load_config(None, [*overrides, "data.on_bad_image=skip"], flags), tmp_path / "run", Reporter())
    assert f"{len(hostile.bad)} unreadable images are left out" in capsys.readouterr().err
    data = json.loads((tmp_path / "run" / "data.json").read_text())
    assert data["target"]["images"] == len(hostile.good)

"""A target too large for memory: features on disk, judged on a sample. Here, ten images count as large."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pmtrans
from pmtrans import large_rows
from pmtrans.config import Config
from pmtrans.report import material as report_material
from pmtrans.selection import evidence
from pmtrans.selection.evidence import judged_places, judged_rows, read_evidence
from pmtrans.training import stage
from pmtrans.training.train import train
from tiny_run import Witness, assert_same_run


def test_a_run_whose_passes_are_on_disk_is_the_run_in_memory(
    configure: Callable[..., Config], undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = torch.from_file

    def noted(name: str, **given: Any) -> torch.Tensor:
        made.append(name)
        return real(name, **given)

    monkeypatch.setattr(large_rows, "ON_DISK", 1)
    monkeypatch.setattr(torch, "from_file", noted)
    train(configure(), tmp_path / "run", Witness())
    assert len(made) > 10
    assert_same_run(tmp_path / "run", undisturbed)
    assert not list((tmp_path / "run").rglob(".rows-*"))


def test_a_large_target_is_judged_on_an_even_sample_and_reports_show_those_images(
    configure: Callable[..., Config], images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (evidence, stage, report_material):
        monkeypatch.setattr(module, "MOST_TARGET", 6)
    witness = Witness()
    train(configure(), tmp_path / "run", witness)
    assert any("10 target images: scores and estimates look at an even sample of 6" in line for line in witness.said)
    assert len(read_evidence(tmp_path / "run" / "evidence.safetensors").target_logits_MK) == 6

    material = report_material.read_material(tmp_path / "run")
    assert material.data is not None
    paths = material.data.target.domain.paths
    assert list(material.target_paths) == [paths[place] for place in (0, 2, 4, 5, 7, 9)]
    by_name = {path: Path(path).parent.name for path in paths}
    labels = {row: material.classes[label] for row, label in material.target_labels.items()}
    assert labels == {row: by_name[path] for row, path in enumerate(material.target_paths)}
    assert pmtrans.report(tmp_path / "run", tmp_path / "page.html").is_file()
    with pmtrans.label_these(tmp_path / "run", tmp_path / "labels", count=3).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {Path(row["path"]).name for row in rows} <= {Path(path).name for path in material.target_paths}


def test_the_sample_is_even_and_shares_on_it_are_as_exact_as_they_are_said_to_be() -> None:
    places = judged_places(1_000_000)
    assert len(places.unique()) == 100_000
    gaps = places.diff()
    assert (int(gaps.min()), int(gaps.max())) == (10, 11)
    random, within = torch.Generator().manual_seed(0), 0
    for _ in range(40):
        right_M = (torch.rand(1_000_000, 1, generator=random) < 0.5).float()
        assert torch.equal(judged_rows(right_M[:100_000]), right_M[:100_000])
        within += abs(float(judged_rows(right_M).mean() - right_M.mean())) < 0.0031
    assert within >= 36  # 95 of 100 are said to be

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from pmtrans.files import write_json
from pmtrans.report.material import read_material
from pmtrans.report.page import render_report
from pmtrans.selection.evidence import Evidence, write_evidence
from pmtrans.settings import load_config


@pytest.fixture(scope="session")
def large_page(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The report of a run on 55,000 target images and 345 classes, made up rather than trained."""
    home = tmp_path_factory.mktemp("large")
    generator = torch.Generator().manual_seed(0)
    classes, targets, held = 345, 55_000, 345
    (home / "target").mkdir()
    pictures = []
    for number in range(8):
        pixels = torch.randint(0, 256, (128, 128, 3), generator=generator, dtype=torch.uint8).numpy()
        pictures.append(home / f"{number}.jpg")
        Image.fromarray(pixels).save(pictures[-1], quality=90)
    for number in range(targets):
        (home / "target" / f"{number:05d}.jpg").symlink_to(pictures[number % 8])
    for label in range(classes):
        (home / "source" / f"class {label:03d} with a rather long name").mkdir(parents=True)
        for number in range(2):
            (home / "source" / f"class {label:03d} with a rather long name" / f"{number}.jpg").symlink_to(
                pictures[number]
            )
    run = home / "run"
    shutil.copytree(trained_run, run, ignore=shutil.ignore_patterns("report.html", "figures", "data.json"))
    config = load_config(
        run / "config.yaml",
        ["data.holdout=0.5"],
        {"data.source": str(home / "source"), "data.target": str(home / "target")},
    )
    (run / "config.yaml").write_text(config.to_yaml())
    write_json(run / "classes.json", sorted(path.name for path in (home / "source").iterdir()))

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    for folder in (run, run / "baseline"):
        labels = torch.randint(0, classes, (held,), generator=generator)
        evidence = Evidence(
            random(held, 64), random(held, classes), labels, random(targets, 64), random(targets, classes)
        )
        write_evidence(folder / "evidence.safetensors", evidence)
    page = home / "report.html"
    page.write_text(render_report(read_material(run))[0], encoding="utf-8")
    yield page
    shutil.rmtree(home)  # half a gigabyte

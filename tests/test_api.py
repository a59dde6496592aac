"""In Python everything that the verbs do."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pmtrans
from pmtrans.errors import RunError
from pmtrans.evaluation.accuracy import measure_accuracy


def test_every_name_is_listed_and_nothing_heavy_is_imported_for_it() -> None:
    code = (
        "import sys, pmtrans;"
        "assert dir(pmtrans) == sorted(pmtrans.__all__);"
        "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in pmtrans.__all__:
        assert getattr(pmtrans, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'adopt'"):
        pmtrans.adopt  # noqa: B018


def test_a_run_is_measured_reported_compared_exported_and_chosen_from(trained_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    target = trained_run.parent / "target"

    measured = pmtrans.evaluate(run, target)
    assert measured.images == 18
    assert measured.accuracy.counts == dict.fromkeys(measured.accuracy.per_class, 6)
    told = measured.as_json()
    assert sum(map(sum, told["confusion"])) == 18
    assert told["accuracy"] == pytest.approx(sum(told["confusion"][k][k] for k in range(3)) / 18)

    page = pmtrans.report(run, tmp_path / "page.html")
    assert "<html" in page.read_text(encoding="utf-8")
    assert callable(pmtrans.report)  # also after the room of that name was imported
    assert pmtrans.compare([run, trained_run], tmp_path / "two.html").is_file()

    sheet = pmtrans.label_these(run, tmp_path / "to-label", count=4)
    assert sheet.exists()
    with (tmp_path / "to-label" / "labels.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4

    parity = pmtrans.export(run, tmp_path / "model.pt2", images=target)
    assert parity.agreeing == parity.images
    with pytest.raises(RunError, match="--overwrite"):
        pmtrans.export(run, tmp_path / "model.pt2")


def test_two_domains_are_checked(two_domains: tuple[Path, Path]) -> None:
    report = pmtrans.check(*two_domains)
    assert report.all_readable
    assert report.source.classes == {"ant": 8, "bee": 8, "cat": 8}


def test_f1_counts_and_confusions_are_those_of_the_definition() -> None:
    true, predicted = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 0, 1])
    accuracy = measure_accuracy(predicted, true, ["a", "b", "c", "d"])
    assert accuracy.counts == {"a": 3, "b": 2, "c": 1, "d": 0}
    # a: precision 1/2, recall 1/3; b: 1/4 and 1/2; c: never found; d: neither there nor predicted
    expected = {"a": 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3), "b": 2 * (1 / 4) * (1 / 2) / (1 / 4 + 1 / 2), "c": 0.0}
    assert {name: accuracy.f1[name] for name in "abc"} == pytest.approx(expected)
    assert accuracy.f1["d"] is None
    assert accuracy.macro_f1 == pytest.approx(sum(expected.values()) / 3)
    assert accuracy.confusions(2) == [("a", "b", 2), ("b", "a", 1)]

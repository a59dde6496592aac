from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pmtrans.cli import app
from pmtrans.errors import RunError
from pmtrans.labelling.worksheet import write_folder


def fill(labels: Path, truth: dict[str, str]) -> None:
    rows = list(csv.DictReader(labels.open(newline="")))
    with labels.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["path", "label"])
        writer.writeheader()
        writer.writerows({"path": row["path"], "label": truth[row["path"]]} for row in rows)


def test_images_are_listed_labelled_and_measured(trained_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "to label"
    result = CliRunner().invoke(app, ["label-these", "--run", str(trained_run), "-n", "10", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(out / "labels.csv")
    rows = list(csv.DictReader((out / "labels.csv").open(newline="")))
    assert [*rows[0]] == ["path", "label"]
    assert len(rows) == 10
    assert all(Path(row["path"]).is_file() and row["label"] == "" for row in rows)
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page.count('src="data:image/jpeg;base64,') == 10
    assert "<script>alert(1)" not in page

    fill(out / "labels.csv", {row["path"]: Path(row["path"]).parent.name for row in rows})
    result = CliRunner().invoke(app, ["evaluate", str(trained_run), "--data", str(out / "labels.csv"), "--json"])
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert values["images"] == 10
    assert values["estimate"]["of"] == "all 18 target images, from 5 chosen and 5 drawn at random"
    assert 0 <= values["estimate"]["low"] <= values["estimate"]["accuracy"] <= values["estimate"]["high"] <= 1

    # Without the design the same labels are images like any others.
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(out / "labels.csv", alone / "labels.csv")
    result = CliRunner().invoke(app, ["evaluate", str(trained_run), "--data", str(alone / "labels.csv")])
    assert re.search(r"accuracy on 10 images, as if drawn at random: .* \(95 % interval: ", result.output)


def test_labels_that_are_there_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\nx.png,cat\n")
    with pytest.raises(RunError, match="may hold labels"):
        write_folder(tmp_path, [], [], [])
    assert "cat" in (tmp_path / "labels.csv").read_text()

"""The files of a suite, from results written by hand."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pmtrans.bench.ablations import ablation_named
from pmtrans.bench.display import Display
from pmtrans.bench.entry import SharedSettings, parse_entries
from pmtrans.bench.jobs import Suite, plan_suite, slug
from pmtrans.bench.paired_differences import bootstrap_interval
from pmtrans.bench.results import Result
from pmtrans.bench.suite_files import write_records
from tiny_office_home import FLAGS, SETTINGS, write_office_home


@pytest.fixture
def office_home(tmp_path: Path) -> Path:
    return write_office_home(tmp_path / "data", per_class=1)


def plan(data: Path, out: Path, methods: str, ablation: str | None = None) -> Suite:
    chosen = ablation_named(ablation) if ablation else None
    entries = chosen.choose() if chosen else parse_entries(methods)
    return plan_suite(
        "office-home", data, out, entries, [0, 1], SharedSettings(None, SETTINGS, FLAGS), ["A2C", "A2P"], chosen
    )


def leave(out: Path, task: str, method: str, seed: int, selected: float, source_only: float | None = None) -> None:
    folder = out / "runs" / task / slug(method) / str(seed)
    folder.mkdir(parents=True)
    result = Result("office-home", task, method, "vit_tiny_patch16_224", seed, selected, 0.5, 0.75, 0.25, 60.0)
    result = replace(result, source_only=source_only)
    (folder / "result.json").write_text(json.dumps(asdict(result)))


def test_results_stand_in_the_order_of_methods_tasks_and_seeds_whenever_they_came(
    office_home: Path, tmp_path: Path
) -> None:
    for task, method, seed in (
        ("A2P", "pmtrans", 1),
        ("A2P", "cdan", 0),
        ("A2C", "pmtrans", 0),
        ("A2C", "source_only", 0),
    ):
        leave(tmp_path / "out", task, method, seed, 0.5)
    write_records(plan(office_home, tmp_path / "out", "source_only,pmtrans"))
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").open()))
    assert [(row["method"], row["task"], row["seed"]) for row in rows] == [
        ("source_only", "A2C", "0"),
        ("pmtrans", "A2C", "0"),
        ("pmtrans", "A2P", "1"),
        ("cdan", "A2P", "0"),  # of an earlier call
    ]


def test_the_table_says_what_is_missing_and_what_failed(office_home: Path, tmp_path: Path) -> None:
    leave(tmp_path / "out", "A2C", "pmtrans", 0, 0.875)
    failed = tmp_path / "out" / "runs" / "A2P" / "pmtrans" / "0"
    failed.mkdir(parents=True)
    (failed / "failure.txt").write_text("3 images cannot be read\n")
    write_records(plan(office_home, tmp_path / "out", "pmtrans"))
    text = (tmp_path / "out" / "table.md").read_text()
    assert "| pmtrans | vit_tiny_patch16_224 | label-free | 87.5 |" in text
    assert "3 of 4 runs are not done." in text
    assert "- failed: A2P, pmtrans, seed 0: 3 images cannot be read" in text
    for name in ("table.csv", "table.tex"):
        assert "87.5" in (tmp_path / "out" / name).read_text()


def test_an_incomplete_copy_is_told_and_every_table_is_marked(
    office_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    leave(out, "A2C", "pmtrans", 0, 0.875)
    suite = plan(office_home, out, "pmtrans")
    assert len(suite.problems) == 6  # images and classes of three domains: nothing is said of the one that is not used
    assert "Art: 3 images, expected 2427" in suite.problems[0]
    Display().begin(suite, [], 0)
    said = capsys.readouterr().err
    assert "warning: this copy of the benchmark is incomplete, so the numbers cannot be compared" in said
    write_records(suite)
    for name in ("table.md", "table.csv", "table.tex"):
        assert "office-home (incomplete copy)" in (out / name).read_text()
    assert "Art: 3 images, expected 2427" in (out / "table.md").read_text()
    write_records(replace(suite, problems=()))
    assert "incomplete" not in (out / "table.md").read_text() + (out / "table.tex").read_text()


def test_an_ablation_is_a_table_of_its_own_with_the_names_of_the_paper(office_home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    leave(out, "A2C", "pmtrans", 0, 0.9)
    leave(out, "A2C", "pmtrans:mixing=mixup", 0, 0.8)
    write_records(plan(office_home, out, "", ablation="mixing"))
    asked, own = (out / "table.md").read_text().split("###")[1:]
    assert asked.startswith(" office-home, mixing")
    assert [line.split(" | ")[0] for line in asked.splitlines() if "label-free" in line] == ["| Mixup", "| PatchMix"]
    assert [line.split(" | ")[0] for line in own.splitlines() if "label-free" in line] == ["| pmtrans"]


def test_an_ablation_that_nobody_asked_for_is_shown_when_it_is_complete(office_home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for method, value in (("pmtrans", 0.9), ("pmtrans:mixing=mixup", 0.8)):
        leave(out, "A2C", method, 0, value)
    write_records(plan(office_home, out, "pmtrans"))
    assert "mixing" in (out / "table.md").read_text().split("###")[1]  # as a method: CutMix is missing
    leave(out, "A2C", "pmtrans:mixing=cutmix", 0, 0.7)
    write_records(plan(office_home, out, "pmtrans"))
    own, mixing = (out / "table.md").read_text().split("###")[1:]
    assert mixing.startswith(" office-home, mixing")
    assert "mixup" not in own


def between(text: str, head: str) -> list[list[str]]:
    """The cells of the table's rows after a heading."""
    rows = [line for line in text.split(head)[1].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_methods_are_compared_with_source_only_at_the_same_task_and_seed(office_home: Path, tmp_path: Path) -> None:
    points = {"pmtrans": (4.0, 6.0, 8.0), "cdan": (-1.0, -2.0)}
    pairs = [("A2C", 0), ("A2C", 1), ("A2P", 0)]
    for place, (task, seed) in enumerate(pairs):
        before = 0.5 + 0.1 * place
        leave(tmp_path / "out", task, "source_only", seed, before)
        for method, gains in points.items():
            if place < len(gains):
                leave(tmp_path / "out", task, method, seed, before + gains[place] / 100)
    suite = plan(office_home, tmp_path / "out", "source_only,pmtrans,cdan")
    write_records(suite)
    text = (tmp_path / "out" / "table.md").read_text()
    low, high = bootstrap_interval([4.0, 6.0, 8.0])
    assert between(text, "## Paired differences") == [
        ["pmtrans", "3", f"+6.0 ({low:+.1f} to {high:+.1f})", "+0.0 (+0.0 to +0.0)"],
        ["cdan", "2", "-1.5", "+0.0"],  # too few for an interval
    ]
    assert "All methods start at the end of the source stage of their task and seed (train.start=source)." in text
    write_records(replace(suite, reference="cdan"))
    rows = between((tmp_path / "out" / "table.md").read_text(), "## Paired differences")
    assert [row[:3] for row in rows] == [["source_only", "2", "+1.5"], ["pmtrans", "2", "+6.5"]]


def test_without_runs_of_source_only_the_source_stages_of_the_others_are_compared_with(
    office_home: Path, tmp_path: Path
) -> None:
    for seed in (0, 1):
        leave(tmp_path / "out", "A2C", "pmtrans", seed, 0.6, source_only=0.45)
    write_records(plan(office_home, tmp_path / "out", "pmtrans"))
    text = (tmp_path / "out" / "table.md").read_text()
    assert between(text, "## Paired differences") == [["pmtrans", "2", "+15.0", "+5.0"]]

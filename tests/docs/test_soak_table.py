"""The table of the fault campaign on the page is the one of the committed report."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from campaign.report import BEGIN, END, write_table  # noqa: E402

REPORT, PAGE = ROOT / "benchmarks" / "soak.json", ROOT / "docs" / "guarantees.md"


def test_the_page_shows_the_committed_report(tmp_path: Path) -> None:
    shutil.copy(PAGE, tmp_path / "page.md")
    write_table(REPORT, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_every_case_and_fault_of_the_report_is_on_the_page() -> None:
    between = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    content = json.loads(REPORT.read_text(encoding="utf-8"))
    for section, cases in content["sections"].items():
        for case, entry in cases.items():
            row = next(line for line in between.splitlines() if line.startswith(f"| {section} | {case} | "))
            assert f" {entry['tried']:,} " in row
            assert all(fault in row for fault in entry["faults"])


def test_a_report_that_changed_is_noticed(tmp_path: Path) -> None:
    content = json.loads(REPORT.read_text(encoding="utf-8"))
    content["sections"]["kills"]["one process"]["tried"] += 1
    (tmp_path / "soak.json").write_text(json.dumps(content), encoding="utf-8")
    shutil.copy(PAGE, tmp_path / "page.md")
    write_table(tmp_path / "soak.json", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") != PAGE.read_text(encoding="utf-8")

"""Of several sources, the check says how far each is from the target, and what they have in common."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

from rich.console import Console

from pmtrans.data.checking.check import check_domains
from pmtrans.data.checking.text import print_report
from pmtrans.data.reading.read import read_target
from pmtrans.data.reading.several import read_sources
from tiny_data import write_domain


def test_of_several_sources_each_has_its_distance_and_copies_between_them_are_found(tmp_path: Path) -> None:
    near = write_domain(tmp_path / "near", ["ant", "bee"], 12, tint=60, seed=1)
    far = write_domain(tmp_path / "far", ["ant", "bee"], 12, tint=0, seed=2)
    target = write_domain(tmp_path / "target", ["ant", "bee"], 12, tint=60, seed=3)
    shutil.copy(near / "ant" / "000.png", far / "ant" / "copy.png")
    source = read_sources([near, far])
    report = check_domains(source, read_target(target, source.classes))
    assert [(one.name, one.images, one.classes) for one in report.sources] == [
        ("near", 24, {"ant": 12, "bee": 12}),
        ("far", 25, {"ant": 13, "bee": 12}),
    ]
    distances = {one.name: one.domain_gap for one in report.sources}
    assert distances["near"] is not None
    assert distances["far"] is not None
    assert distances["near"] + 0.5 < distances["far"]
    copies = (str(far / "ant" / "copy.png"), str(near / "ant" / "000.png"))
    assert any(set(copies) <= set(group) for group in report.between_sources)
    assert any("are in more than one source" in warning for warning in report.warnings)
    console = Console(width=200, file=io.StringIO())
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    assert "near (24 images) to the target: " in console.file.getvalue()
    assert "Duplicates between sources: " in console.file.getvalue()

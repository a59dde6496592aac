"""The report of a campaign: a JSON file that grows with every piece of it, and the table that is made from it."""

from __future__ import annotations

import datetime
import json
import platform
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pmtrans.files import write_json

BEGIN = "<!-- the table of `make soak`: written by benchmarks/soak.py --table, from benchmarks/soak.json -->"
END = "<!-- end of the table -->"
PACKAGES = ("torch", "timm", "numpy", "pillow", "safetensors", "uvicorn")


class Report:
    """What was tried so far, case by case: ``{section: {case: {"tried", "counts", "numbers", "faults"}}}``."""

    def __init__(self, path: Path, hidden: dict[str, str]) -> None:
        self.path, self.hidden = path, hidden
        self.content: dict[str, Any] = {}
        if path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))
        self.content.setdefault("sections", {})

    def tried(self, section: str, case: str) -> int:
        return int(self.content["sections"].get(section, {}).get(case, {}).get("tried", 0))

    def add(
        self,
        section: str,
        case: str,
        tried: int,
        faults: list[str],
        counts: dict[str, int] | None = None,
        numbers: dict[str, float] | None = None,
    ) -> None:
        """Add to what is there, print it, and write the file."""
        entry = (
            self.content["sections"]
            .setdefault(section, {})
            .setdefault(case, {"tried": 0, "counts": {}, "numbers": {}, "faults": []})
        )
        entry["tried"] += tried
        entry["counts"] = dict(sorted((Counter(entry["counts"]) + Counter(counts or {})).items()))
        entry["numbers"].update(numbers or {})
        faults = [self._hide(fault) for fault in faults]
        entry["faults"] += faults
        self.content["date"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        self.content["versions"] = {
            "pmtrans": version("pmtrans"),
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        }
        write_json(self.path, self.content)
        print(f"{section}: {case}: {entry['tried']} tried; {'; '.join(faults) if faults else 'no fault'}", flush=True)

    def _hide(self, text: str) -> str:
        """No path of this machine goes into a report that is committed."""
        for path, name in self.hidden.items():
            text = text.replace(path, name)
        return text

    @property
    def faults(self) -> list[str]:
        return [
            f"{section}: {case}: {fault}"
            for section, cases in self.content["sections"].items()
            for case, entry in cases.items()
            for fault in entry["faults"]
        ]


def table(content: dict[str, Any]) -> str:
    """Markdown: a row for each case of the campaign, and what it was run with."""
    lines = ["| section | case | tried | of which | measured | faults |", "|---|---|---|---|---|---|"]
    for section, cases in content["sections"].items():
        for case, entry in cases.items():
            counts = ", ".join(f"{count} {name}" for name, count in entry["counts"].items())
            numbers = ", ".join(f"{name} {value:g}" for name, value in entry["numbers"].items())
            faults = "; ".join(entry["faults"]) or "none"
            lines.append(f"| {section} | {case} | {entry['tried']:,} | {counts} | {numbers} | {faults} |")
    versions = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    return "\n".join([*lines, "", f"{content['date']}; {versions}."])


def write_table(report: Path, page: Path) -> None:
    """Put the table between its markers."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    content = json.loads(report.read_text(encoding="utf-8"))
    page.write_text(f"{before}{BEGIN}\n\n{table(content)}\n\n{END}{after}", encoding="utf-8")

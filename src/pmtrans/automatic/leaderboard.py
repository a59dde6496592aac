"""The leaderboard: one row a model, ranked without target labels; true accuracies stand beside and rank nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from pmtrans.errors import RunError, one_line
from pmtrans.report.section import Section
from pmtrans.run.folder import RunFolder
from pmtrans.run.summary import Summary, read_summary
from pmtrans.texts import TextError, read_text
from pmtrans.training.finished import read_stored

COLUMNS = ("method", "preset", "score", "estimate", "low", "high", "verdict", "seconds", "shipped")
PROBE = "linear_probe"


@dataclass(frozen=True)
class Row:
    """A model. ``score`` ranks: the label-free estimate of its accuracy. ``measured`` is the true one, for show."""

    method: str
    preset: str
    score: float | None
    low: float | None
    high: float | None
    verdict: str
    seconds: float
    measured: float | None
    beats_reference: bool  # by the verdict on it: a model that does not is never shipped for its score
    shipped: bool = False

    @property
    def title(self) -> str:
        return f"{self.method} ({self.preset})" if self.preset else self.method


def method_row(run: Path, preset: str) -> Row:
    """The adapted model of a finished run."""
    folder = RunFolder(run)
    summary = read_summary(folder.summary)
    return _row(
        summary.method,
        preset,
        summary.estimates.get("adapted"),
        summary.verdict,
        read_stored(folder).seconds,
        summary.adapted,
        summary.shipped == "adapted",
    )


def source_rows(run: Path) -> list[Row]:
    """The linear probe and the source-only model, of a finished source-only run."""
    folder = RunFolder(run)
    summary = read_summary(folder.summary)
    probe_seconds, seconds = (read_stored(stage).seconds for stage in (folder.probe, folder))
    probe = _row(PROBE, "", summary.estimates.get("probe"), None, probe_seconds, summary.probe, False)
    source = summary.estimates.get("source_only")
    return [probe, _row("source_only", "", source, summary.verdict, seconds, summary.source_only, False)]


def probe_row(summary: Summary) -> Row:
    """The linear probe where nothing was trained."""
    return _row(PROBE, "", summary.estimate, None, summary.seconds, summary.probe, False)


def _row(
    method: str,
    preset: str,
    estimate: dict[str, Any] | None,
    verdict: str | None,
    seconds: float,
    measured: float | None,
    beats: bool,
) -> Row:
    values = estimate or {"accuracy": None, "low": None, "high": None}
    return Row(
        method, preset, values["accuracy"], values["low"], values["high"], verdict or "", seconds, measured, beats
    )


def best(rows: Sequence[Row]) -> Row | None:
    """The method's model to ship: the best score among those that beat the reference; None: none does."""
    ahead = [row for row in rows if row.beats_reference]
    return max(ahead, key=_rank) if ahead else None


def ranked(rows: Sequence[Row], shipped: Row) -> list[Row]:
    """Best first, with the shipped one marked."""
    marked = [replace(row, shipped=row is shipped) for row in rows]
    return sorted(marked, key=lambda row: (row.shipped, _rank(row)), reverse=True)


def _rank(row: Row) -> float:
    return -1.0 if row.score is None else row.score


def leaderboard_csv(rows: Sequence[Row]) -> str:
    """The contract for scripts: fractions, seconds, empty where unknown; ``shipped`` is yes in one row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        numbers = [_number(value) for value in (row.score, row.score, row.low, row.high)]
        seconds = f"{row.seconds:.1f}"
        writer.writerow([row.method, row.preset, *numbers, row.verdict, seconds, "yes" if row.shipped else "no"])
    return text.getvalue()


def read_shipped(path: Path) -> str:
    """The method that ``leaderboard.csv`` marks as shipped."""
    try:
        for line in csv.DictReader(io.StringIO(read_text(path), newline="")):
            if line.get("shipped") == "yes" and line.get("method"):
                return str(line["method"])
    except (OSError, TextError, csv.Error) as error:
        raise RunError(f"{one_line(path)!r} cannot be read: {one_line(error, 100)}") from None
    raise RunError(f"{one_line(path)!r} has no shipped row.")


def leaderboard_table(rows: Sequence[Row]) -> Table:
    """For a terminal; measured accuracies are dim, as they decided nothing."""
    table = Table(title="Leaderboard, by the label-free estimate")
    table.add_column("")
    table.add_column("estimate (90 % interval)", justify="right")
    table.add_column("verdict")
    table.add_column("time", justify="right")
    has_labels = any(row.measured is not None for row in rows)
    if has_labels:
        table.add_column(Text("true", style="dim"), justify="right")
    for row in rows:
        cells: list[Any] = [_interval(row), row.verdict or "-", _minutes(row.seconds)]
        if has_labels:
            cells.append(Text(_percent(row.measured), style="dim"))
        table.add_row(Text(row.title + (" (shipped)" if row.shipped else "")), *cells)
    return table


def leaderboard_section(rows: Sequence[Row]) -> Section:
    """For the page that compares the runs."""
    values = [
        {
            "title": row.title,
            "estimate": _interval(row),
            "verdict": row.verdict,
            "time": _minutes(row.seconds),
            "measured": _percent(row.measured),
            "shipped": row.shipped,
        }
        for row in rows
    ]
    return Section("leaderboard", "Leaderboard", "leaderboard.html", values={"rows": values})


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _interval(row: Row) -> str:
    if row.score is None or row.low is None or row.high is None:
        return "-"
    return f"{_percent(row.score)} ({100 * row.low:.0f} to {100 * row.high:.0f})"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"

"""Grids as text: what is written is what was meant, whatever the names contain."""

from __future__ import annotations

import csv
import io

from pmtrans.bench.grids import Cell, Grid, Line
from pmtrans.bench.rendering import latex, markdown, table_csv

HOSTILE = Grid(
    title="50% of a|b",
    stub=("Method", "Measure"),
    columns=("A2W", "Avg"),
    lines=(
        Line(("source_only", "x & y"), (Cell(81.25, 0.449), None)),
        Line((r"p\m{1}", "#1 $^~ <i>"), (Cell(83.6, marked=True), Cell(5.0))),
    ),
    notes=("83.6 is not\nthe 100% mean",),
)


def test_markdown_is_escaped_and_marks_errata() -> None:
    assert markdown([HOSTILE]).split("\n") == [
        r"### 50% of a\|b",
        "",
        "| Method | Measure | A2W | Avg |",
        "| :-- | :-- | --: | --: |",
        "| source_only | x & y | 81.2 ± 0.4 | - |",
        r"| p\\m{1} | #1 $^~ \<i> | 83.6\* | 5.0 |",
        "",
        r"\* 83.6 is not the 100% mean",
        "",
    ]


def test_latex_is_escaped_and_marks_errata() -> None:
    assert latex([HOSTILE]).split("\n") == [
        r"\begin{table}",
        r"\centering",
        r"\caption{50\% of a\textbar{}b}",
        r"\resizebox{\linewidth}{!}{%",
        r"\begin{tabular}{llrr}",
        r"\toprule",
        r"Method & Measure & A$\to$W & Avg \\",
        r"\midrule",
        r"source\_only & x \& y & 81.2 $\pm$ 0.4 & - \\",
        r"\midrule",
        r"p\textbackslash{}m\{1\} & \#1 \$\textasciicircum{}\textasciitilde{} \textless{}i\textgreater{} & "
        r"83.6$^{*}$ & 5.0 \\",
        r"\bottomrule",
        r"\end{tabular}}",
        r"\par\footnotesize $^{*}$ 83.6 is not the 100\% mean",
        r"\end{table}",
        "",
    ]


def test_csv_has_a_column_of_deviations_after_each_column_and_parts_its_grids() -> None:
    text = table_csv([HOSTILE, Grid("second", ("Source",), ("clp",), (Line(("inf",), (Cell(1.0),)),))])
    first, second = text.split("\n\n")
    assert list(csv.reader(io.StringIO(first))) == [
        ["Table", "Method", "Measure", "A2W", "A2W std", "Avg", "Avg std"],
        ["50% of a|b", "source_only", "x & y", "81.25", "0.45", "", ""],
        ["50% of a|b", r"p\m{1}", "#1 $^~ <i>", "83.60", "", "5.00", ""],
    ]
    assert second == "Table,Source,clp,clp std\nsecond,inf,1.00,\n"


def test_no_grids_are_no_text() -> None:
    assert (markdown([]), table_csv([]), latex([])) == ("", "", "")

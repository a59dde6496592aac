"""Grids as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from pmtrans.bench.grids import Cell, Grid

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def markdown(grids: Sequence[Grid]) -> str:
    """One titled table per grid; ``*`` marks numbers of the paper that are known to be wrong."""
    return "\n".join(map(_markdown_table, grids))


def table_csv(grids: Sequence[Grid]) -> str:
    """One block per grid, separated by an empty line; each column is followed by its standard deviation."""
    return "\n".join(map(_csv_table, grids))


def latex(grids: Sequence[Grid]) -> str:
    """One ``table`` environment per grid, for the packages ``booktabs`` and ``graphicx``."""
    return "\n".join(map(_latex_table, grids))


def _markdown_table(grid: Grid) -> str:
    head = [*map(escape_markdown, grid.stub), *map(escape_markdown, grid.columns)]
    body = [
        [*map(escape_markdown, row.labels), *(_number(cell, "{} ± {}", "\\*") for cell in row.cells)]
        for row in grid.lines
    ]
    notes = [f"\\* {escape_markdown(note)}\n" for note in grid.notes]
    notes += [f"{escape_markdown(remark)}\n" for remark in grid.remarks]
    rows = markdown_rows(head, body, len(grid.stub))
    return "\n".join([f"### {escape_markdown(grid.title)}\n", *rows, "", *notes])


def markdown_rows(head: Sequence[str], body: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """The lines of a table; the first ``left`` columns are aligned left, the others right. Cells are Markdown."""
    rule = [":--"] * left + ["--:"] * (len(head) - left)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)]


def _csv_table(grid: Grid) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [name for column in grid.columns for name in (column, f"{column} std")]
    writer.writerow(["Table", *grid.stub, *columns])
    for row in grid.lines:
        cells = [(None, None) if cell is None else (cell.value, cell.deviation) for cell in row.cells]
        numbers = ["" if number is None else f"{number:.2f}" for pair in cells for number in pair]
        writer.writerow([grid.title, *row.labels, *numbers])
    return text.getvalue()


def _latex_table(grid: Grid) -> str:
    head = [*map(_escape_latex, grid.stub), *map(_latex_task, grid.columns)]
    body: list[str] = []
    group = None
    for row in grid.lines:
        # a rule between methods, as the paper has one between backbones
        if group not in (None, row.labels[:1]) and len(grid.stub) > 1:
            body.append(r"\midrule")
        group = row.labels[:1]
        numbers = (_number(cell, r"{} $\pm$ {}", "$^{*}$") for cell in row.cells)
        body.append(" & ".join([*map(_escape_latex, row.labels), *numbers]) + r" \\")
    notes = [rf"\par\footnotesize $^{{*}}$ {_escape_latex(note)}" for note in grid.notes]
    notes += [rf"\par\footnotesize {_escape_latex(remark)}" for remark in grid.remarks]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escape_latex(grid.title)}}}",
            r"\resizebox{\linewidth}{!}{%",
            rf"\begin{{tabular}}{{{'l' * len(grid.stub)}{'r' * len(grid.columns)}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def _number(cell: Cell | None, spread: str, mark: str) -> str:
    if cell is None:
        return "-"
    text = f"{cell.value:.1f}"
    if cell.deviation is not None:
        text = spread.format(text, f"{cell.deviation:.1f}")
    return text + mark if cell.marked else text


def _latex_task(name: str) -> str:
    """``A2W`` as the paper sets it; anything else as it is."""
    match = re.fullmatch(r"([A-Za-z]+)2([A-Za-z]+)", name)
    return rf"{match[1]}$\to${match[2]}" if match else _escape_latex(name)


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*<`])", r"\\\1", " ".join(text.split()))


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))

"""The paper's tables, loaded: accuracies in percent, exactly as printed, with what is known to be wrong.

One YAML file per table stands in ``tables/``. Averages over a row or column of a DomainNet matrix are
``margins``, named ``clp2*`` (from clp, over all targets) and ``*2clp`` (to clp, over all sources).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from pmtrans.errors import UserError, nearest

AVERAGE = "average"


@dataclass(frozen=True)
class PaperRow:
    """One line of a table (on DomainNet: one matrix)."""

    method: str  # as this package names it where it has the method, else as the paper does
    backbone: str  # family: swin, vit, deit, resnet-50 or resnet-101
    printed: str  # what the paper calls the line
    variant: str | None  # what an ablation changes
    citation: str | None  # the paper's own citation key
    cells: Mapping[str, float | None]
    margins: Mapping[str, float]
    stated_average: float
    errata: str | None
    corrections: Mapping[str, float]  # task, margin or "average" -> what it should have been

    @property
    def mean(self) -> float | None:
        """Mean of the cells, whatever the paper states; None where the paper gives the average only."""
        values = [cell for cell in self.cells.values() if cell is not None]
        return sum(values) / len(values) if values else None


@dataclass(frozen=True)
class Table:
    """One table, or (``number`` None) figures that the paper states in a sentence."""

    name: str
    number: int | None  # counted through paper and appendix, as the paper's figures are
    part: Literal["main", "appendix"]
    label: str | None
    title: str
    benchmark: str
    kind: Literal["comparison", "ablation"]
    task: str | None  # VisDA-2017: the one task whose classes the columns are
    tasks: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    remarks: tuple[str, ...]  # where text or marks of the paper disagree with its numbers

    @property
    def runs(self) -> tuple[str, ...]:
        """The tasks to run for this table: its columns, or the one task whose classes they are."""
        return (self.task,) if self.task else self.tasks


@cache
def table_names() -> tuple[str, ...]:
    """Names of all tables, in the order of the paper; those without a number come last."""
    entries = (files("pmtrans.bench.paper") / "tables").iterdir()
    names = [entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml")]
    return tuple(sorted(names, key=lambda name: (_read(f"tables/{name}.yaml")["number"] or 1000, name)))


@cache
def table(name: str) -> Table:
    """The table called ``name``: a benchmark, ``appendix-`` and a benchmark, or an ablation."""
    if name not in table_names():
        known = ", ".join(table_names())
        raise UserError(f"The paper has no table {name!r}: choose from {known}.{nearest(name, table_names())}")
    content = _read(f"tables/{name}.yaml")
    errata = {entry["row"]: entry for entry in content.get("errata", ())}
    entries = content["rows"]
    domains = content.get("domains")
    if domains:
        entries = [_unfold(entry, domains) for entry in entries]
    tasks = tuple(entries[0]["cells"]) if domains else tuple(content["tasks"])
    rows = tuple(_row(entry, tasks, errata.pop(entry.get("printed") or entry["variant"], None)) for entry in entries)
    assert not errata, f"{name}: errata of rows that do not exist: {list(errata)}"
    header = {key: content[key] for key in ("number", "part", "label", "title", "benchmark", "kind")}
    return Table(
        name=name,
        task=content.get("task"),
        tasks=tasks,
        rows=rows,
        remarks=tuple(content.get("remarks", ())),
        **header,
    )


def paper_row(name: str, method: str, backbone: str) -> PaperRow | None:
    """The line of table ``name`` for a method (or an ablation's variant) on a backbone's family.

    ``backbone`` may be a timm name: only its family counts, and the paper used the base size of each.
    """
    wanted = simplify(method), family(backbone)
    for row in table(name).rows:
        if (simplify(row.variant or row.method), simplify(row.backbone)) == wanted:
            return row
    return None


def paper_result(benchmark: str, method: str, backbone: str, task: str) -> float | None:
    """The accuracy in percent that the paper prints, or None where it reports none.

    ``task`` may be ``average``; the one task of VisDA-2017 stands for its mean over classes.
    """
    for name in (benchmark, f"appendix-{benchmark}"):
        row = paper_row(name, method, backbone) if name in table_names() else None
        if row is not None:
            return row.stated_average if task in (AVERAGE, table(name).task) else row.cells.get(task)
    return None


def simplify(name: str) -> str:
    """A name without case and punctuation, so that ``beta-1-1`` finds ``Beta(1,1)``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def family(backbone: str) -> str:
    """``swin_base_patch4_window7_224.ms_in22k`` -> ``swin``: the first word of a timm name."""
    return simplify(re.split(r"[_.]", backbone)[0])


def _row(entry: Mapping[str, Any], tasks: tuple[str, ...], erratum: Mapping[str, Any] | None) -> PaperRow:
    method, backbone, variant = entry["method"], entry["backbone"], entry.get("variant")
    cells = entry["cells"]
    if not isinstance(cells, dict):
        cells = dict(zip(tasks, cells, strict=True))
    citations = _read("citations.yaml")
    citation = citations["backbones"].get(backbone) if method == "source_only" else citations["methods"].get(method)
    return PaperRow(
        method=method,
        backbone=backbone,
        printed=entry.get("printed") or entry["variant"],
        variant=variant,
        citation=citations["variants"].get(variant, citation),
        cells=cells,
        margins=entry.get("margins", {}),
        stated_average=entry["average"],
        errata=erratum["note"] if erratum else None,
        corrections=erratum["corrections"] if erratum else {},
    )


def _unfold(entry: Mapping[str, Any], domains: list[str]) -> dict[str, Any]:
    """A matrix of source lines and target columns, bordered by its averages, as cells and margins."""
    matrix = entry["matrix"]
    cells = {
        f"{source}2{target}": matrix[source][column]
        for source in domains
        for column, target in enumerate(domains)
        if source != target
    }
    margins = {f"{source}2*": matrix[source][-1] for source in domains}
    margins |= {f"*2{target}": matrix[AVERAGE][column] for column, target in enumerate(domains)}
    return {**entry, "cells": cells, "margins": margins, "average": matrix[AVERAGE][-1]}


@cache
def _read(path: str) -> dict[str, Any]:
    content = yaml.safe_load((files("pmtrans.bench.paper") / path).read_text(encoding="utf-8"))
    assert isinstance(content, dict), path
    return content

"""A section of the report: values and charts for a template, no markup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from pmtrans.report.material import Material


@dataclass(frozen=True)
class Chart:
    """A figure, shown in the page and saved as PNG and SVG under ``name``."""

    name: str
    figure: Figure
    title: str
    wide: bool = False
    inline: bool = True  # False: only a file, as the page has an interactive version


@dataclass(frozen=True)
class Section:
    """``template`` (under templates/) is rendered with ``values`` and the charts."""

    name: str
    title: str
    template: str = "charts.html"
    lead: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    charts: tuple[Chart, ...] = ()


SectionMaker = Callable[[Material], "Section | None"]  # None: the run has nothing to show in this section

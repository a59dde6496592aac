"""What a section hands to the page: a template's values and charts, no markup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from pmtrans.report.material import Material


@dataclass(frozen=True)
class Chart:
    """A figure: inline in the page, and a PNG and an SVG file of this ``name``."""

    name: str
    figure: Figure
    title: str
    wide: bool = False
    shown: bool = True  # False: a file only, as the page has a livelier form of it


@dataclass(frozen=True)
class Section:
    """``template`` (under templates/) is rendered with ``values`` and the charts."""

    name: str
    title: str
    template: str = "charts.html"
    lead: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    charts: tuple[Chart, ...] = ()


SectionMaker = Callable[[Material], "Section | None"]  # None: the run has nothing to show there

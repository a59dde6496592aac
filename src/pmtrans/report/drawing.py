"""The style of all figures, and their conversion to inline SVG with ids that are unique in the page."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from pmtrans.errors import one_line

SOURCE, TARGET = "#2563a8", "#d9682b"
BEFORE, AFTER = "#8a94a3", "#0d7a6f"
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3af",
    "axes.labelcolor": "#3c4653",
    "xtick.color": "#5b6572",
    "ytick.color": "#5b6572",
    "axes.grid": True,
    "grid.color": "#e8ebef",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.prop_cycle": matplotlib.cycler(
        color=["#0d7a6f", "#d9682b", "#2563a8", "#9333a8", "#b8860b", "#c0304f", "#55606e"]
    ),
    "svg.hashsalt": "pmtrans",
}
ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", _LINK)


@contextmanager
def report_style() -> Iterator[None]:
    """Figures made inside this context have the style of the report; others are not affected."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_axes(width: float = 4.6, height: float = 2.9) -> tuple[Figure, Axes]:
    """A figure whose text is still legible on a phone."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def axis_label(name: str, length: int = 18) -> str:
    """A name for an axis: shortened, and with ``$`` escaped, which would begin a formula."""
    return one_line(name, length).replace("$", r"\$")


def freeze_layout(figure: Figure) -> None:
    """Compute the layout once: a figure is rendered several times, and layout costs more than drawing."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # not "none": its placeholder has every savefig draw twice


def inline_svg(figure: Figure, name: str, title: str) -> Markup:
    """The figure as an ``<svg>`` element that scales with its column."""
    buffer = io.BytesIO()
    freeze_layout(figure)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", dpi=130, metadata={"Date": None}, transparent=True)
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):  # its rules would apply to the whole page
                parent.remove(child)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _prefixed(key, value, f"{name}-"))
    width = float(root.attrib["viewBox"].split()[2])
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    root.set("style", f"max-width:{width * 4 / 3:.0f}px")
    root.set("role", "img")
    root.set("aria-label", title)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _prefixed(key: str, value: str, prefix: str) -> str:
    if key == "id":
        return prefix + value
    if key in ("href", f"{{{_LINK}}}href") and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    return value.replace("url(#", f"url(#{prefix}")


def sparkline(values: list[float | None], width: int = 120, height: int = 26) -> str:
    """The points of an SVG polyline through the finite values."""
    finite = [value for value in values if value is not None]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    across = (width - 6) / max(1, len(values) - 1)
    tall = (height - 6) / ((high - low) or 1.0)
    return " ".join(
        f"{3 + index * across:.1f},{height - 3 - (value - low) * tall:.1f}"
        for index, value in enumerate(values)
        if value is not None
    )


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with ordinary numbers as labels: its range is often less than a power of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))

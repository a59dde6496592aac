"""A check as text: two domains side by side, then duplicates, warnings and unreadable files."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pmtrans.data.checking.check import DomainReport, Report
from pmtrans.data.checking.duplicates import Groups
from pmtrans.data.checking.facts import Spread
from pmtrans.errors import one_line

_MOST_CLASSES = 40


def print_report(report: Report, console: Console, examples: int = 3) -> None:
    """Print the report: all unreadable files, and ``examples`` groups of each kind of duplicates."""
    console.print(_overview(report))
    console.print(_classes(report))
    duplicates, equal = report.duplicates, report.equal
    for title, found, exact in (
        ("Duplicates within the source", duplicates.within_source, equal.within_source),
        ("Duplicates within the target", duplicates.within_target, equal.within_target),
        ("Duplicates across the domains", duplicates.across, equal.across),
    ):
        _print_groups(console, title, found, exact, examples)
    if report.sources:
        shared = {path for group in report.between_sources for path in group}
        exact = tuple(group for group in equal.within_source if shared.issuperset(group))
        _print_groups(console, "Duplicates between sources", report.between_sources, exact, examples)
    gap = "not measured, too few images" if report.domain_gap is None else f"{report.domain_gap:.2f} of 2"
    _line(console, f"Domain gap (proxy A-distance, {report.domain_gap_features}): {gap}")
    for source in report.sources:
        distance = "not measured, too few images" if source.domain_gap is None else f"{source.domain_gap:.2f} of 2"
        _line(console, f"  {one_line(source.name)} ({source.images} images) to the target: {distance}")
    for warning in report.warnings:
        _line(console, f"warning: {warning}", "yellow")
    for domain in (report.source, report.target):
        for bad in domain.unreadable:
            _line(console, f"unreadable: {one_line(bad.path)}: {bad.reason}", "red")
    images = report.source.images + report.target.images
    rate = images / max(report.seconds, 1e-9)
    unreadable = len(report.source.unreadable) + len(report.target.unreadable)
    _line(console, f"{images} images, {unreadable} unreadable, {report.seconds:.1f} s ({rate:.0f} images/s)")


def _overview(report: Report) -> Table:
    table = Table(show_edge=False)
    table.add_column("")
    for title, domain in (("source", report.source), ("target", report.target)):
        table.add_column(escape(f"{title}: {one_line(domain.origin)}"), overflow="fold")
    both = (report.source, report.target)
    table.add_row("images", *(str(domain.images) for domain in both))
    table.add_row("unreadable", *(str(len(domain.unreadable)) for domain in both))
    table.add_row("classes", *(str(_present(domain)) if domain.classes else "no labels" for domain in both))
    statistics = [domain.statistics for domain in both]
    for name in ("width", "height", "aspect_ratio", "contrast", "sharpness"):
        spreads = [getattr(found, name) if found else None for found in statistics]
        table.add_row(name.replace("_", " "), *map(_spread, spreads))
    colours = [" ".join(f"{value:.0f}" for value in found.colour) if found else "" for found in statistics]
    table.add_row("mean red green blue", *colours)
    return table


def _classes(report: Report) -> Table:
    source, target = report.source.classes, report.target.classes
    names = [*source, *(name for name in target if name not in source)]
    listed = names
    if len(names) > _MOST_CLASSES:
        listed = sorted(names, key=lambda name: source.get(name, 0))[:_MOST_CLASSES]
    title = "images per class" if listed is names else f"the {_MOST_CLASSES} smallest of {len(names)} classes"
    table = Table(title=title, title_justify="left", show_edge=False)
    table.add_column("class")
    table.add_column("source", justify="right")
    table.add_column("target", justify="right")
    for name in listed:
        counts = (str(domain.get(name, 0)) if domain else "?" for domain in (source, target))
        table.add_row(escape(one_line(name)), *counts)
    return table


def _print_groups(console: Console, title: str, found: Groups, exact: Groups, examples: int) -> None:
    files = sum(map(len, found))
    equal = sum(map(len, exact))
    _line(console, f"{title}: {len(found)} groups of {files} images ({equal} of them pixel-identical)")
    for group in found[:examples]:
        ends = " and ".join(one_line(path) for path in (group[0], group[-1]))
        more = f" (and {len(group) - 2} more)" if len(group) > 2 else ""
        _line(console, f"  {ends}{more}")


def _present(domain: DomainReport) -> int:
    return sum(count > 0 for count in domain.classes.values())


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    digits = 0 if spread.max >= 10 else 2
    low, middle, high = (f"{value:.{digits}f}" for value in (spread.min, spread.median, spread.max))
    return f"{low} to {high}, median {middle}"


def _line(console: Console, text: str, style: str | None = None) -> None:
    # No markup, as paths may contain brackets; no wrapping, so that grep finds whole lines.
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

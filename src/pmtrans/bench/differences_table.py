"""Paired differences to a reference as a Markdown table: of a study's variants, and of a suite's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pmtrans.bench.paired_differences import LEAST_PAIRS, LEVEL, Difference, Pair, paired_difference
from pmtrans.bench.rendering import escape_markdown, markdown_rows

Values = Mapping[str, Mapping[Pair, float]]  # in percent, by variant, task and seed


def differences_table(measures: Mapping[str, Values], variants: Sequence[str], reference: str) -> list[str]:
    """The lines of the section; ``measures`` by their titles, each with the reference's own values. None: no lines."""
    others = [variant for variant in variants if variant != reference]
    if not measures or not others:
        return []
    body, fewest = [], LEAST_PAIRS
    for variant in others:
        found = [paired_difference(values.get(variant, {}), values.get(reference, {})) for values in measures.values()]
        pairs = [difference.pairs for difference in found if difference]
        fewest = min([fewest, *pairs])
        body.append([escape_markdown(variant), str(max(pairs, default=0)), *map(_difference, found)])
    caption = (
        f"Difference to {escape_markdown(reference)} at the same task and seed, in points; in brackets the "
        f"{LEVEL:.0%} bootstrap interval over the pairs."
    )
    if fewest < LEAST_PAIRS:
        caption += f" With fewer than {LEAST_PAIRS} pairs no interval can be given."
    return ["## Paired differences", "", caption, "", *markdown_rows(["variant", "pairs", *measures], body)]


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return "-"
    if difference.interval is None:
        return f"{difference.mean:+.1f}"
    low, high = difference.interval
    return f"{difference.mean:+.1f} ({low:+.1f} to {high:+.1f})"

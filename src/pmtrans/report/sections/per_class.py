"""Per-class results: confusion, predicted class shares before and after, and a table of all classes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from pmtrans.evaluation.accuracy import Accuracy, measure_accuracy
from pmtrans.report.drawing import AFTER, BEFORE, SOURCE, axis_label
from pmtrans.report.material import Material
from pmtrans.report.section import Chart, Section
from pmtrans.selection.evidence import MANY_CLASSES, Evidence

MAX_NAMED_CLASSES = 35  # that fit on an axis
PAIRS = 12


def confusion(material: Material) -> Section | None:
    """With labels: true against predicted. Without: the predicted share of each class against the source's."""
    after, before = material.evidence, material.baseline_evidence
    if after is None or not material.classes:
        return None
    charts = []
    values: dict[str, Any] = {"labelled": bool(material.target_labels), "confused": [], "moved": []}
    values["left_out"] = len(material.classes) > MANY_CLASSES
    if material.target_labels and not values["left_out"]:
        for name, evidence, title in (("before", before, "Source only"), ("after", after, "Adapted")):
            if evidence is not None:
                figure = _confusion_figure(target_accuracy(material, evidence), material.classes, title)
                charts.append(Chart(f"confusion-{name}", figure, f"Confusion, {title.lower()}"))
    if material.target_labels:
        values["confused"] = _most_confused(material, after)
    figure = _shares_figure(material, after, before)
    charts.append(Chart("class-shares", figure, "Predicted share of each class against its share in the source"))
    if before is not None:
        values["moved"] = _most_changed(material, before, after)
    return Section("confusion", "Confusion" if values["labelled"] else "Shares of the classes", "confusion.html",
                   values=values, charts=tuple(charts))  # fmt: skip


def per_class(material: Material) -> Section | None:
    """A row per class."""
    after, before = material.evidence, material.baseline_evidence
    if after is None or not material.classes:
        return None
    count = len(material.classes)
    source_K = source_counts(material, count)
    now_K = torch.bincount(after.target_predictions_M(), minlength=count)
    before_K = None if before is None else torch.bincount(before.target_predictions_M(), minlength=count)
    predicted_M = after.target_predictions_M()
    confidence_M = after.target_logits_MK.softmax(1).max(1).values
    confidence_K = torch.bincount(predicted_M, confidence_M.double(), count) / now_K.clamp(min=1)
    labelled = bool(material.target_labels)
    accuracy = list(target_accuracy(material, after).per_class.values()) if labelled else [None] * count
    earlier = list(target_accuracy(material, before).per_class.values()) if labelled and before else [None] * count
    holdout = measure_accuracy(after.source_predictions_N(), after.source_labels_N, _numbers(count)).per_class
    true_K = Counter(material.target_labels.values())
    rows = []
    for k, name in enumerate(material.classes):
        rows.append(
            {
                "name": name,
                "source": None if source_K is None else int(source_K[k]),
                "before": None if before_K is None else int(before_K[k]),
                "after": int(now_K[k]),
                "confidence": confidence_K[k].item() if now_K[k] else None,
                "holdout": holdout[str(k)],
                "true": true_K.get(k, 0),
                "accuracy": accuracy[k],
                "earlier": earlier[k],
            }
        )
    values = {"rows": rows, "labelled": labelled, "has_before": before is not None}
    return Section("classes", "Class by class", "classes.html", values=values)


def target_accuracy(material: Material, evidence: Evidence) -> Accuracy:
    """Accuracy on the labelled part of the target; by class index, as shortened names may not be distinct."""
    places = sorted(material.target_labels)
    predicted = evidence.target_predictions_M()[places]
    labels = torch.tensor([material.target_labels[place] for place in places])
    return measure_accuracy(predicted, labels, _numbers(len(material.classes)))


def source_counts(material: Material, count: int) -> Tensor | None:
    """Images of each class in the whole source."""
    if material.data is None:
        return None
    labels = (*material.data.source.labels, *material.data.holdout.labels)
    return torch.bincount(torch.tensor(labels), minlength=count)


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _most_confused(material: Material, evidence: Evidence) -> list[dict[str, Any]]:
    counts = Counter(
        divmod(pair, len(material.classes)) for pair in target_accuracy(material, evidence).pairs_M.tolist()
    )
    wrong = sorted((-images, pair) for pair, images in counts.items() if pair[0] != pair[1])
    return [
        {"first": material.classes[true], "second": material.classes[predicted], "images": -images}
        for images, (true, predicted) in wrong[:PAIRS]
    ]


def _most_changed(material: Material, before: Evidence, after: Evidence) -> list[dict[str, Any]]:
    """The pairs of classes between which adaptation changed the most predictions."""
    pairs = zip(before.target_predictions_M().tolist(), after.target_predictions_M().tolist(), strict=True)
    counts = Counter(pair for pair in pairs if pair[0] != pair[1])
    return [
        {"first": material.classes[a], "second": material.classes[b], "images": images}
        for (a, b), images in counts.most_common(PAIRS)
    ]


def _confusion_figure(accuracy: Accuracy, classes: tuple[str, ...], title: str) -> Figure:
    matrix = accuracy.confusion_KK.double()
    share = (matrix / matrix.sum(1, keepdim=True).clamp(min=1)).numpy()
    is_named = len(classes) <= MAX_NAMED_CLASSES
    size = (5.8, 5.4) if is_named and len(classes) > 15 else (4.6, 4.2)  # many names need the room
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.grid(False)
    axes.spines[:].set_visible(True)
    if is_named:
        points = 8 if len(classes) <= 15 else 7
        names = [axis_label(name, 20) for name in classes]
        axes.set_xticks(range(len(classes)), names, rotation=90, fontsize=points)
        axes.set_yticks(range(len(classes)), names, fontsize=points)
        if len(classes) <= 12:
            cell = 10 if len(classes) <= 6 else 7
            for (row, column), value in np.ndenumerate(share):
                if value >= 0.005:
                    ink = "white" if value > 0.55 else "#3c4653"
                    axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=cell, color=ink)
    axes.set(xlabel="predicted", ylabel="true", title=f"{title}: {100 * accuracy.overall:.1f} % right")
    return figure


def _shares_figure(material: Material, after: Evidence, before: Evidence | None) -> Figure:
    """One line of points per class; of too many classes, those whose share differs most from the source."""
    count = len(material.classes)
    source_K = source_counts(material, count)
    shares = {"adapted": (torch.bincount(after.target_predictions_M(), minlength=count).double(), AFTER, "o")}
    if before is not None:
        shares["source only"] = (torch.bincount(before.target_predictions_M(), minlength=count).double(), BEFORE, "o")
    if source_K is not None:
        shares["source images"] = (source_K.double(), SOURCE, "|")
    if material.target_labels:
        true = torch.bincount(torch.tensor(list(material.target_labels.values())), minlength=count).double()
        shares["true share"] = (true, "#c0304f", "x")
    percent = {name: (100 * counts / counts.sum(), colour, mark) for name, (counts, colour, mark) in shares.items()}
    reference = percent.get("source images", percent["adapted"])[0]
    differs = (percent["adapted"][0] - reference).abs()
    selected = sorted(differs.argsort(descending=True, stable=True)[:MAX_NAMED_CLASSES].tolist())
    figure = Figure(figsize=(4.6, 1.9 + 0.17 * len(selected)), layout="constrained")
    axes = figure.subplots()
    places = range(len(selected))
    for name, (values, colour, mark) in percent.items():
        axes.plot(values[selected], places, mark, color=colour, label=name, markersize=7 if mark == "|" else 4.5)
    _draw_prior(axes, material, selected)
    axes.set_yticks(places, [axis_label(material.classes[k], 20) for k in selected], fontsize=7)
    axes.set(xlabel="% of the images", title="Predicted share of each class", xlim=(0, None))
    axes.set_ylim(len(selected) - 0.5, -0.5)  # the first on top, none on the edge
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _draw_prior(axes: Any, material: Material, selected: list[int]) -> None:
    """The share of each class that was estimated before adaptation, as a line over its interval."""
    summary = material.summary
    if summary is None or not summary.target_prior or not summary.target_prior_details:
        return
    ends = [summary.target_prior_details.get(end, {}) for end in ("low", "high")]
    names = [material.classes[place] for place in selected]
    if any(name not in shares for shares in ends for name in names):  # a summary of other classes: nothing to draw
        return
    low, high = ([100 * shares[name] for name in names] for shares in ends)
    axes.hlines(range(len(selected)), low, high, color="#9aa5b1", linewidth=3, alpha=0.6, zorder=0, label="estimated")

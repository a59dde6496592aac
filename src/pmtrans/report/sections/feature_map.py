"""A joint t-SNE of both domains before and after adaptation, with a thumbnail for each point."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from pmtrans.pages.thumbnails import make_sheet
from pmtrans.report.drawing import SOURCE, TARGET
from pmtrans.report.embedding import Points, common_embedding
from pmtrans.report.material import Material
from pmtrans.report.section import Chart, Section
from pmtrans.selection.evidence import Evidence

MAX_SOURCE, MAX_TARGET = 350, 600  # limits the size of the page and the time of t-SNE


def feature_map(material: Material) -> Section | None:
    """t-SNE of held-out source and target images, a panel for each model, all in one embedding."""
    after, before = material.evidence, material.baseline_evidence
    if after is None or len(after.source_labels_N) + len(after.target_logits_MK) < 5:
        return None
    source = _sample(len(after.source_labels_N), MAX_SOURCE)
    target = _sample(len(after.target_logits_MK), MAX_TARGET)
    models = {"before adaptation": before, "after adaptation": after} if before is not None else {"the model": after}
    embedded = common_embedding(
        [
            (evidence.source_features_ND[source].numpy(), evidence.target_features_MD[target].numpy())
            for evidence in models.values()
            if evidence is not None
        ]
    )
    panels = [
        _panel(title, points, evidence, source, target)
        for (title, evidence), points in zip(models.items(), embedded, strict=True)
        if evidence is not None
    ]
    sheet = None
    if material.data is not None:
        paths = material.data.holdout.paths, material.target_paths
        sheet = make_sheet([*(paths[0][i] for i in source), *(paths[1][i] for i in target)])
    truth = [int(after.source_labels_N[i]) for i in source] + [material.target_labels.get(i, -1) for i in target]
    values = {
        "panels": panels,
        "sheet": sheet,
        "classes": [name[:120] for name in material.classes],
        "source": len(source),
        "target": len(target),
        "truth": truth,
        "all_source": len(after.source_labels_N),
        "all_target": len(after.target_logits_MK),
    }
    chart = Chart("features", _figure(panels, len(source)), "t-SNE of both domains", inline=False)
    return Section("features", "Both domains on one map", "features.html", values=values, charts=(chart,))


def _sample(count: int, max_images: int) -> list[int]:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:max_images]
    return sorted(order.tolist())


def _panel(title: str, points: Points, evidence: Evidence, source: list[int], target: list[int]) -> dict[str, Any]:
    logits = torch.cat([evidence.source_logits_NK[source], evidence.target_logits_MK[target]])
    confidence, predicted = logits.softmax(1).max(1)
    return {
        "title": title,
        "points": [(round(float(x), 1), round(float(y), 1)) for x, y in points],
        "predicted": predicted.tolist(),
        "confidence": [round(100 * value) for value in confidence.tolist()],
    }


def _figure(panels: list[dict[str, Any]], sources: int) -> Figure:
    figure = Figure(figsize=(4.5 * len(panels), 4.3), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        points = panel["points"]
        axes.scatter(*zip(*points[sources:], strict=True), s=7, color=TARGET, alpha=0.7, linewidths=0, label="target")
        if sources:
            axes.scatter(*zip(*points[:sources], strict=True), s=9, color=SOURCE, linewidths=0, label="source")
        axes.set(xticks=[], yticks=[], title=panel["title"], xlim=(0, 1000), ylim=(1000, 0))
        axes.grid(False)
        axes.legend(loc="upper right")
    return figure

"""Example images: mixed pairs, attention maps, and the most and least certain predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from pmtrans.pages.thumbnails import data_uri, thumbnail
from pmtrans.report.drawing import axis_label
from pmtrans.report.image_figures import Pixels, draw_attention
from pmtrans.report.material import Material
from pmtrans.report.run_figures import denormalised_image, mixed_figure
from pmtrans.report.section import Chart, Section
from pmtrans.run.model_folder import TrainedModel
from pmtrans.selection.calibration import cautious_temperature
from pmtrans.selection.evidence import Evidence

EXAMPLES = 6
CERTAIN = 12


def mixed_images(material: Material) -> Section | None:
    """Source, target, mixing ratios and mixed image; in pixels, as the model mixes tokens."""
    states = [line for line in material.metrics if line.get("beta_b") and line.get("beta_g")]
    if not states or material.data is None or material.model is None or "mixing" not in material.config.method:
        return None
    concentrations = (states[-1]["beta_b"], states[-1]["beta_g"])
    if material.config.method.get("ratio_weighs") == "target":  # then 1 - lambda weighs the source: Beta(g, b)
        concentrations = (concentrations[1], concentrations[0])
    figure = mixed_figure(
        material.data.source.paths,
        material.data.target.domain.paths,
        material.model.preprocessing,
        material.model.model.backbone.grid,
        material.config.method["mixing"],
        concentrations,
    )
    return Section(
        "mixed",
        "Mixed images",
        lead="Pairs of a source and a target image, the weight of the source in each patch, and the image between. "
        "Training mixes the embedded patches; this shows the same ratios on pixels.",
        charts=(Chart("mixed", figure, "Pairs of images, mix maps and mixed images", wide=True),),
    )


def attention(material: Material) -> Section | None:
    """The same target images under both models; those whose prediction changed come first."""
    if material.data is None or material.model is None or material.evidence is None:
        return None
    chosen = _changed_first(material.evidence, material.baseline_evidence)
    paths = [material.target_paths[index] for index in chosen]
    models = {"before": material.baseline_model, "after": material.model}
    evidence = {"before": material.baseline_evidence, "after": material.evidence}
    images = np.stack([denormalised_image(path, material.model.preprocessing) for path in paths])
    truth = [material.target_labels.get(index) for index in chosen]
    captions = {"image": ["" if label is None else axis_label(material.classes[label], 14) for label in truth]}
    maps: dict[str, Pixels] = {}
    for name, trained in models.items():
        seen = evidence[name]
        if trained is None or seen is None or trained.model.backbone.grid != material.model.model.backbone.grid:
            continue
        predicted = seen.target_predictions_M()[chosen]
        maps[name] = _scores(trained, images, predicted)
        captions[name] = [axis_label(material.classes[label], 14) for label in predicted.tolist()]
    figure = Figure(figsize=(1.45 * (1 + len(maps)), 1.62 * len(chosen)), layout="constrained")
    draw_attention(figure, images, maps, captions, material.model.model.backbone.grid)
    return Section(
        "attention",
        "What the model looks at",
        lead="Target images and the attention on their patches, before adaptation (source only) and after; below "
        "each, the class that was predicted" + (", below the image its label." if any(captions["image"]) else "."),
        charts=(Chart("attention", figure, "Attention maps before and after", wide=True),),
    )


def _changed_first(after: Evidence, before: Evidence | None) -> list[int]:
    """Half of the examples changed their predicted class, with the highest confidence; half are drawn at random."""
    confidence_M, predicted_M = after.target_logits_MK.softmax(1).max(1)
    order = torch.randperm(len(predicted_M), generator=torch.Generator().manual_seed(0)).tolist()
    changed: list[int] = []
    if before is not None:
        differs_M = predicted_M != before.target_predictions_M()
        ranked = (confidence_M * differs_M).argsort(descending=True, stable=True)[: EXAMPLES // 2].tolist()
        changed = [index for index in ranked if differs_M[index]]
    return [*changed, *(index for index in order if index not in changed)][:EXAMPLES]


@torch.no_grad()
def _scores(trained: TrainedModel, images: Pixels, predicted: Tensor) -> Pixels:
    backbone, preprocessing = trained.model.backbone, trained.preprocessing
    mean, std = (torch.tensor(values)[None, :, None, None] for values in (preprocessing.mean, preprocessing.std))
    pixels = (torch.from_numpy(images).permute(0, 3, 1, 2).float() - mean) / std
    encoding = backbone.encode(backbone.embed(pixels), len(pixels))
    result: Pixels = backbone.attention_scores(encoding, trained.model.head, predicted).numpy()
    return result


def certainty(material: Material) -> Section | None:
    """The target images with the most and the least certain predictions; at most two per class of the former."""
    if material.data is None or material.evidence is None:
        return None
    evidence, paths = material.evidence, material.target_paths
    temperature = cautious_temperature(evidence.source_logits_NK, evidence.source_labels_N)
    confidence_M, predicted_M = (evidence.target_logits_MK / temperature).softmax(1).max(1)
    order = confidence_M.argsort(descending=True, stable=True).tolist()
    taken: dict[int, int] = {}
    most: list[int] = []
    for index in order:
        label = int(predicted_M[index])
        if taken.get(label, 0) < 2 and len(most) < CERTAIN:
            taken[label] = taken.get(label, 0) + 1
            most.append(index)

    def card(index: int) -> dict[str, Any]:
        truth = material.target_labels.get(index)
        predicted = int(predicted_M[index])
        return {
            "uri": data_uri(thumbnail(paths[index], 96)),
            "predicted": material.classes[predicted],
            "confidence": confidence_M[index].item(),
            "truth": None if truth is None else material.classes[truth],
            "right": None if truth is None else truth == predicted,
        }

    values = {"most": [card(i) for i in most], "least": [card(i) for i in reversed(order[-CERTAIN:])]}
    return Section("certainty", "Most and least certain", "certainty.html", values=values)

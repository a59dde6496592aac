"""What each part of the training data contributes: the probe is fitted again without it.

The features of the untrained backbone are there already, so a fit takes seconds. What changes on the target is told
twice: by the label-free estimate, and by accuracy where labels are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pmtrans.data.domain import LabelledDomain
from pmtrans.evaluation.linear_probe import fit_probe
from pmtrans.evaluation.passes import Pass
from pmtrans.evaluation.per_source import places_of
from pmtrans.methods.method import SourcePass
from pmtrans.model import Model, logits_of
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence, judged_rows
from pmtrans.training.passes import Evaluation

Measure = Callable[[Tensor], dict[str, float]]  # target logits -> accuracies where labels are known


def source_contributions(
    source: SourcePass,
    evaluation: Evaluation,
    data: tuple[LabelledDomain, LabelledDomain],
    model: Model,
    seed: int,
    measure: Measure,
) -> dict[str, Any]:
    """Of each source the probe without it, minus the probe with all: below 0, the source helps.

    ``data``: training and held-out part of all sources; rows of ``source`` after those of the training part belong to
    no source and stay. ``model`` has the head of the probe on all.
    """
    training, holdout = data
    everything = describe_head(model.head, evaluation, holdout, range(len(holdout)), measure)
    found: dict[str, Any] = {}
    parts = zip(training.sources, places_of(training), places_of(holdout), strict=True)
    for name, own, own_holdout in parts:
        left = len(training) - len(own)
        rows = torch.tensor(_all_but(own, len(source.labels_N)))
        kept: list[int] = rows[weighed_rows(left, len(rows), rows.device)].tolist()
        kept_holdout = _all_but(own_holdout, len(holdout))
        head = refit(model, source, kept, evaluation.holdout, holdout, kept_holdout, seed)
        without = describe_head(head, evaluation, holdout, kept_holdout, measure)
        found[name] = {
            "without": without,
            "change": {key: without[key] - everything[key] for key in without.keys() & everything.keys()},
        }
    return found


def weighed_rows(images: int, rows: int, device: torch.device) -> Tensor:
    """All ``rows``; those after the ``images`` of the source, labelled target images, so often that they weigh as much.

    A few labels among thousands of source images would move a linear classifier by nothing.
    """
    labelled = torch.arange(images, rows, device=device)
    times = max(1, images // len(labelled)) if len(labelled) else 0
    return torch.cat([torch.arange(images, device=device), labelled.repeat(times)])


def _all_but(places: list[int], count: int) -> list[int]:
    left_out = set(places)
    return [place for place in range(count) if place not in left_out]


def refit(
    model: Model,
    source: SourcePass,
    kept: list[int],
    held_out: Pass | None,
    holdout: LabelledDomain,
    kept_holdout: list[int],
    seed: int,
) -> torch.nn.Module:
    """The head of a probe on a part of the rows."""
    rows = torch.tensor(kept, device=source.labels_N.device)
    features_MF, labels_M = source.features_NF[:0], source.labels_N[:0]
    if held_out is not None and kept_holdout:
        places = torch.tensor(kept_holdout, device=held_out.features_MF.device)
        features_MF = held_out.features_MF[places]
        labels_M = torch.tensor(holdout.labels, device=features_MF.device)[places]
    return fit_probe(model.head, source.features_NF[rows], source.labels_N[rows], features_MF, labels_M, seed).head


@torch.no_grad()
def describe_head(
    head: torch.nn.Module, evaluation: Evaluation, holdout: LabelledDomain, places: Any, measure: Measure
) -> dict[str, float]:
    """The estimated accuracy of a head on the target, and the measured ones; the estimate needs a held-out source."""
    head.eval()
    target = evaluation.target
    logits_MK = logits_of(head, target.features_MF)
    kept = torch.tensor(list(places), dtype=torch.long)
    described = dict(measure(logits_MK))
    if evaluation.holdout is not None and len(kept):
        features_ND = evaluation.holdout.features_MF[kept.to(evaluation.holdout.features_MF.device)]
        evidence = Evidence(
            source_features_ND=features_ND.float().cpu(),
            source_logits_NK=head(features_ND).float().cpu(),
            source_labels_N=torch.tensor(holdout.labels)[kept],
            target_features_MD=judged_rows(target.features_MF),
            target_logits_MK=judged_rows(logits_MK),
        )
        described["estimate"] = estimate_accuracy(evidence).accuracy
    return described

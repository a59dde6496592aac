"""The last stage: what the run says of itself, and which model it ships, without a target label."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from pmtrans.config import Config
from pmtrans.data.domains import Data
from pmtrans.files import new_folder, write_json
from pmtrans.outcomes import Name, SourceName
from pmtrans.run.folder import RunFolder
from pmtrans.run.summary import Summary
from pmtrans.selection.assessment import Estimate, shipped_constants
from pmtrans.selection.comparison import (
    SourceModels,
    compare_source_models,
    judge_adapted,
    judge_source_only,
    read_source_models,
)
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.signals import read_pair
from pmtrans.selection.verdict import Verdict
from pmtrans.training.described import describe_data
from pmtrans.training.finished import Finished
from pmtrans.training.situation import Situation, absent_classes

TITLES: dict[Name, str] = {
    "probe": "the linear probe",
    "source_only": "the source-only model",
    "adapted": "the adapted model",
}


@dataclass(frozen=True)
class Reference:
    """The better of probe and source-only model, which an adapted model has to beat.

    ``evidence`` is what arbitration compares with: the source-only model on the features of the untrained backbone,
    which training has not bent to any model's labels.
    """

    evidence: Evidence
    models: SourceModels

    @property
    def name(self) -> SourceName:
        return self.models.reference


def choose_reference(probe: Finished | None, source_only: Finished | None) -> Reference | None:
    """Judged without target labels; None where nothing of the source was held out to judge with."""
    if probe is None or probe.evidence is None:
        return None
    trained = source_only.evidence if source_only is not None else None
    models = compare_source_models(read_source_models(probe.evidence, trained), shipped_constants())
    return Reference(probe.evidence if trained is None else trained.on_features_of(probe.evidence), models)


def judge_trained(
    trained: Finished, reference: Reference | None, is_source_only: bool, absent_K: Tensor | None = None
) -> tuple[dict[Name, Estimate], Verdict | None]:
    """Estimates of all models, and the verdict on the trained one; none where nothing was held out to judge with."""
    if reference is None or trained.evidence is None:
        return {}, None
    if is_source_only:
        signals = read_source_models(reference.evidence, trained.evidence)
        models = compare_source_models(signals, shipped_constants())
        judged = judge_source_only(models, signals, shipped_constants())
        return {**models.estimates, "adapted": models.estimates["source_only"]}, judged
    pair = read_pair(reference.evidence, trained.evidence, absent_K=absent_K)
    estimate, judged = judge_adapted(reference.models, pair, shipped_constants())
    return {**reference.models.estimates, "adapted": estimate}, judged


def conclude(
    config: Config,
    folder: RunFolder,
    probe: Finished,
    source_only: Finished | None,
    adapted: Finished,
    reference: Reference | None,
    seconds: float,
    situation: Situation | None = None,
    data: Data | None = None,
) -> Summary:
    """Verdict, estimates, the shipped model and ``summary.json``, which comes last: a killed run does this again."""
    is_source_only = config.method["name"] == "source_only"
    absent_K = absent_classes(config, reference.evidence if reference else None)
    estimated, judged = judge_trained(adapted, reference, is_source_only, absent_K)
    trained: Name = "source_only" if is_source_only else "adapted"
    shipped, reason = _choose(config, judged, reference, trained)
    stages: dict[str, Finished | None] = {
        "probe": probe,
        "source_only": adapted if is_source_only else source_only,
        "adapted": adapted,
    }
    ship(folder, shipped, trained)
    unknown_share = None
    if situation is not None:
        stage = stages[shipped]
        unknown_share = situation.annotate(folder, shipped, stage.evidence if stage else None)
    oracle = [e["oracle_accuracy"] for e in adapted.evaluations if e.get("oracle_accuracy") is not None]
    estimates: dict[str, Any] = {name: asdict(estimated[name]) if name in estimated else None for name in stages}
    summary = Summary(
        method=config.method["name"],
        probe=probe.accuracy,
        source_only=baseline.accuracy if (baseline := stages["source_only"]) else None,
        adapted=adapted.accuracy,
        shipped=shipped,
        shipped_reason=reason,
        last=oracle[-1] if oracle else None,
        oracle=max(oracle) if oracle else None,
        seconds=round(seconds, 3),
        selected_step=adapted.step,
        selection=adapted.explanation,
        estimate=estimates[shipped],
        estimates=estimates,
        verdict=judged.name if judged else None,
        verdict_probability=judged.probability if judged else None,
        verdict_reason=judged.reason if judged else None,
        compared_with=reference.name if judged and reference else None,
        evaluations={name: stage.chosen if stage else None for name, stage in stages.items()},
        unknown_share=unknown_share,
        **(situation.summarised() if situation is not None else {}),
        **(describe_data(data, folder, stages) if data is not None else {}),
    )
    write_json(folder.summary, summary.to_json())
    return summary


def _choose(config: Config, judged: Verdict | None, reference: Reference | None, trained: Name) -> tuple[Name, str]:
    """(what is shipped, why): another model than the trained one only where that one is not ahead of it."""
    if judged is None or reference is None:
        return trained, "nothing of the source was held out to compare it with others"
    gain = f"about {100 * judged.gain:+.1f} points against {TITLES[reference.name]}"
    if judged.name != "hurt" and judged.gain > 0:
        return trained, f"ahead of both others: {gain}"
    if config.selection.ship == "adapted":
        return trained, f"selection.ship=adapted, though it is not ahead: {gain}"
    return reference.name, f"{TITLES[trained]} is not ahead of it: {gain}"


def ship(folder: RunFolder, shipped: Name, trained: Name) -> None:
    """``model/`` becomes the shipped model; a trained model that is not shipped is kept in ``adapted/``."""
    if shipped == trained:
        return
    if not folder.adapted.is_dir():
        _copy(folder.model, folder.adapted)
    origin = folder.probe if shipped == "probe" else folder.baseline
    if shipped == "source_only" and folder.continued.finished.is_file():
        origin = folder.continued
    _copy(origin.model, folder.model)


def _copy(old: Any, new: Any) -> None:
    with new_folder(new) as temporary:
        shutil.copytree(old, temporary, dirs_exist_ok=True)

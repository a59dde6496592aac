"""The last stage: what the run says of itself, and which model it ships, without a target label."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pmtrans.config import Config
from pmtrans.files import new_folder, write_json
from pmtrans.run.folder import RunFolder
from pmtrans.run.summary import Summary
from pmtrans.selection.arbitration import arbitrate_on_both
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.verdict import Verdict, verdict
from pmtrans.training.finished import Finished

Name = Literal["probe", "source_only", "adapted"]
TITLES: dict[Name, str] = {
    "probe": "the linear probe",
    "source_only": "the source-only model",
    "adapted": "the adapted model",
}


@dataclass(frozen=True)
class Reference:
    """The better of probe and source-only model, which an adapted model has to beat.

    ``evidence`` is what arbitration compares with: the source-only model on the features of the untrained backbone,
    which training has not bent to any model's labels. ``lead``: how far the probe is ahead of it, where it is.
    """

    name: Name
    evidence: Evidence
    lead: float = 0.0


def choose_reference(probe: Finished | None, source_only: Finished | None) -> Reference | None:
    """Judged without target labels; None where nothing of the source was held out to judge with."""
    if probe is None or probe.evidence is None:
        return None
    if source_only is None or source_only.evidence is None:
        return Reference("probe", probe.evidence)
    gain = arbitrate_on_both(probe.evidence, source_only.evidence).gain
    name: Name = "source_only" if gain >= 0 else "probe"
    return Reference(name, source_only.evidence.on_features_of(probe.evidence), max(0.0, -gain))


def judge_trained(trained: Finished, reference: Reference | None, is_source_only: bool) -> Verdict | None:
    """The verdict on the trained model; a source-only model and the probe have no neutral ground but both of theirs."""
    if reference is None or trained.evidence is None:
        return None
    judged = arbitrate_on_both(reference.evidence, trained.evidence) if is_source_only else None
    return verdict(reference.evidence, trained.evidence, judged, reference.lead)


def conclude(
    config: Config,
    folder: RunFolder,
    probe: Finished,
    source_only: Finished | None,
    adapted: Finished,
    reference: Reference | None,
    seconds: float,
) -> Summary:
    """Verdict, estimates, the shipped model and ``summary.json``, which comes last: a killed run does this again."""
    is_source_only = config.method["name"] == "source_only"
    judged = judge_trained(adapted, reference, is_source_only)
    trained: Name = "source_only" if is_source_only else "adapted"
    shipped, reason = _choose(config, judged, reference, trained)
    stages = {"probe": probe, "source_only": adapted if is_source_only else source_only, "adapted": adapted}
    ship(folder, shipped, trained)
    oracle = [e["oracle_accuracy"] for e in adapted.evaluations if e.get("oracle_accuracy") is not None]
    estimates = {name: _estimate(stage, reference if name == "adapted" else None) for name, stage in stages.items()}
    summary = Summary(
        method=config.method["name"],
        probe=probe.accuracy,
        source_only=stages["source_only"].accuracy if stages["source_only"] else None,
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
        verdict_reason=judged.reason if judged else None,
        compared_with=reference.name if judged and reference else None,
        evaluations={name: stage.chosen if stage else None for name, stage in stages.items()},
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


def _estimate(stage: Finished | None, reference: Reference | None) -> dict[str, Any] | None:
    if stage is None or stage.evidence is None:
        return None
    return asdict(estimate_accuracy(stage.evidence, reference.evidence if reference else None))

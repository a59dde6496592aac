"""``adapt``: a shipped model moves to a new place without source images, from its model folder alone.

It is a run like another, with two differences. Where the source would be, there is the target under the labels of the
given model, and what is held out to select by are its anchors. And the source stage is the given model, evaluated on
the target and otherwise left as it is. Stages:

1. **given**: a copy of the given model, in ``baseline/``: what the moved one is compared with.
2. **adaptation**: a source-free method from there, judged and selected without labels.
3. **conclusion**: the verdict as far as it is possible, the shipped model, ``summary.json``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pmtrans.config import Config
from pmtrans.config.load import load_tree
from pmtrans.data.domain import Domain
from pmtrans.data.domains import Data, read_unlabelled
from pmtrans.data.given import GivenLabels, GivenModel, read_given_labels, write_given_labels
from pmtrans.errors import ConfigError, ModelError, RunError, UserError, one_line
from pmtrans.evaluation.passes import run_pass
from pmtrans.files import checksum, new_folder, write_json
from pmtrans.machine import choose_device
from pmtrans.methods import METHODS
from pmtrans.outcomes import Name
from pmtrans.progress import Reporter
from pmtrans.pseudo_labels import anchor_images
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import TrainedModel, load_model
from pmtrans.run.model_notes import annotate_model
from pmtrans.run.provenance import fingerprint_target
from pmtrans.run.summary import Summary, read_summary
from pmtrans.selection.moved import judge_moved, read_moved
from pmtrans.selection.unknown_threshold import fit_unknown
from pmtrans.settings import validate
from pmtrans.texts import read_json, read_yaml
from pmtrans.training.conclusion import ship
from pmtrans.training.finished import Finished
from pmtrans.training.old_places import PREFIX, read_old_places
from pmtrans.training.resume import Opened
from pmtrans.training.session import Session
from pmtrans.training.stage import train_stage
from pmtrans.training.train import opened
from pmtrans.training.untrained import evaluate_adopted

# of the run that is moved: how it was trained, but for what belongs to its own data
_KEPT_DATA = ("augmentation", "flip", "random_erasing", "workers", "cache", "on_bad_image")
_OWN_TRAIN = ("start", "baseline", "baseline_steps", "loggers", "device")


@dataclass(frozen=True)
class Donor:
    """The model that is moved. ``settings``: those of its run, where a run folder was given."""

    path: Path  # what the user gave
    folder: Path
    trained: TrainedModel
    identity: str
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.resolve().name


def open_donor(given: Path) -> Donor:
    """The model of a finished run, or a model folder."""
    run, settings = RunFolder(given), dict[str, Any]()
    if run.config.is_file():
        if not (run.summary.is_file() and run.model.is_dir()):
            raise RunError(f"Run {one_line(given)!r} is not finished: let `pmtrans train` finish it, then move it.")
        settings = _settings_of(run)
    folder = run.model if run.model.is_dir() else given
    trained = load_model(folder)
    weights = _origin(folder)
    trained = replace(trained, backbone=trained.backbone.model_copy(update={"weights": weights}))
    identity = checksum(folder / "config.json", folder / "model.safetensors")
    return Donor(given, folder, trained, identity, settings)


def moving_config(
    donor: Donor, target: str | None, out: Path, overrides: Iterable[str], flags: dict[str, Any]
) -> Config:
    """The settings of the donor's run, a source-free method, then flags and overrides; the model's own are fixed."""
    trained = donor.trained
    fixed: dict[str, Any] = {
        "backbone.name": trained.backbone.name,
        "backbone.weights": "none",
        "backbone.options": trained.backbone.options,
        "backbone.bottleneck": trained.backbone.bottleneck,
        "backbone.distillation_token": trained.backbone.distillation_token,
        "data.image_size": trained.preprocessing.image_size,
        "data.source": None,
        "data.given": str(RunFolder(out).given),
        "method.head": trained.model.head_kind,
        "train.start": "source",
    }
    given = load_tree(None, overrides, {"data.target": target, **flags})
    for key, value in fixed.items():
        section, name = key.split(".")
        if name in given.get(section, {}) and given[section][name] != value:
            raise ConfigError(f"{key} is that of the given model: `pmtrans adapt` cannot change it.")
    if given.get("data", {}).get("target_labels") is not None:
        raise ConfigError("`pmtrans adapt` learns from no labels: leave out data.target_labels.")
    data = {key: value for key, value in donor.settings.get("data", {}).items() if key in _KEPT_DATA}
    if trained.unknown is not None:  # what knows images of no class goes on knowing them
        data["target_classes"] = "open"
    base = {
        "seed": donor.settings.get("seed", 0),
        "data": data,
        "train": {key: value for key, value in donor.settings.get("train", {}).items() if key not in _OWN_TRAIN},
        "method": {"name": "source_free"},
    }
    tree = _merged(base, given)
    for key, value in fixed.items():
        section, name = key.split(".")
        tree.setdefault(section, {})[name] = value
    config = validate(tree)
    if METHODS[config.method["name"]].method.uses_source:
        free = ", ".join(name for name, entry in METHODS.items() if not entry.method.uses_source)
        raise ConfigError(f"Method {config.method['name']!r} needs source images; without them there are: {free}.")
    return config


def move(
    donor: Donor,
    config: Config,
    out: Path,
    reporter: Reporter,
    old: Sequence[str] = (),
    overwrite: bool = False,
    resume: str = "auto",
) -> Summary:
    """Move the donor to the target of ``config``, or resume; ``old``: images of places where it worked so far."""
    if out.resolve() in (donor.path.resolve(), donor.folder.resolve()):
        raise RunError(f"--out {one_line(out)!r} is the model that is to be moved: choose another --out.")
    labels: list[GivenLabels] = []

    def read(config: Config, reporter: Reporter) -> Data:
        target = read_unlabelled(config, donor.trained.classes, reporter)
        labels[:] = [_given_labels(donor, target.domain, config, RunFolder(out), reporter, overwrite)]
        trained = donor.trained
        given = GivenModel(trained.preprocessing, trained.temperature, trained.backbone.weights)
        return Data(*labels[0].as_source(target.domain), target, given=given)

    def prepare(folder: RunFolder) -> None:
        write_given_labels(folder.given, labels[0])
        _adopt(donor, folder)

    with opened(config, out, reporter, overwrite, resume, read=read, prepare=prepare) as opened_run:
        config, folder, session, state = opened_run
        if state is Opened.FINISHED:
            session.reporter.note(f"Run {one_line(out)} is finished already.")
            return session.processes.on_main(lambda: read_summary(folder.summary), Summary)
        if session.processes.is_main and old:
            device = choose_device(config.train.device)
            session = replace(session, old=read_old_places(old, donor.trained, device, config.data.workers))
        return _run_stages(donor, config, folder, session)


def _run_stages(donor: Donor, config: Config, folder: RunFolder, session: Session) -> Summary:
    begin = time.monotonic()

    # given: the model as it is, on the new place
    is_done, given = session.finished("given model", folder.baseline)
    if not is_done:
        given = evaluate_adopted("given model", config, folder.baseline, session)

    # adaptation: a source-free method from there
    weights = session.weights_of(folder.baseline)
    evidence = given.evidence if given is not None else None
    moved = train_stage(config.method["name"], config, folder, session, weights, evidence)

    # conclusion: the verdict as far as it is possible, and the shipped model
    def concluded() -> Summary:
        assert given is not None
        assert moved is not None, "the main process has what came of each stage"
        return conclude_move(donor.name, config, folder, given, moved, session)

    summary = session.processes.on_main(concluded, Summary)
    session.reporter.note(f"Finished in {time.monotonic() - begin:.0f} s: {one_line(folder.path)}")
    return summary


def conclude_move(
    name: str, config: Config, folder: RunFolder, given: Finished, moved: Finished, session: Session
) -> Summary:
    """Verdict, the shipped model and ``summary.json``, which comes last: a killed run does this again."""
    assert given.evidence is not None
    assert moved.evidence is not None, "anchors are held out in every such run"
    signals = read_moved(given.evidence, moved.evidence)
    answer, reason = judge_moved(signals)
    gain = f"arbitration finds {100 * signals.gain:+.1f} points"
    shipped: Name
    if answer != "hurt" and signals.gain > 0:
        shipped, why = "adapted", f"ahead of the given model: {gain}"
    elif config.selection.ship == "adapted":
        shipped, why = "adapted", f"selection.ship=adapted, though it is not ahead of the given model: {gain}"
    else:
        shipped, why = "source_only", f"the moved model is not ahead of the given one: {gain}"
    ship(folder, shipped, "adapted")
    unknown_share = None
    if config.data.target_classes == "open":
        seen = moved.evidence if shipped == "adapted" else given.evidence
        unknown = fit_unknown(seen.target_logits_MK)
        annotate_model(folder.model, None, unknown)
        unknown_share = unknown.share(seen.target_logits_MK)
    oracle = [e["oracle_accuracy"] for e in moved.evaluations if e.get("oracle_accuracy") is not None]
    summary = Summary(
        method=config.method["name"],
        probe=None,
        source_only=given.accuracy,
        adapted=moved.accuracy,
        shipped=shipped,
        shipped_reason=why,
        last=oracle[-1] if oracle else None,
        oracle=max(oracle) if oracle else None,
        seconds=round(given.seconds + moved.seconds, 3),
        selected_step=moved.step,
        selection=moved.explanation,
        estimate=None,
        estimates=dict.fromkeys(("probe", "source_only", "adapted")),
        verdict=answer,
        verdict_reason=reason,
        compared_with="source_only",
        evaluations={"probe": None, "source_only": given.chosen, "adapted": moved.chosen},
        given=name,
        unknown_share=unknown_share,
        old={
            place.name: {
                "measure": place.measure,
                "images": len(place.paths),
                "given": place.given,
                "adapted": moved.chosen.get(PREFIX + place.name),
            }
            for place in session.old
        },
    )
    write_json(folder.summary, summary.to_json())
    return summary


def _given_labels(
    donor: Donor, target: Domain, config: Config, folder: RunFolder, reporter: Reporter, overwrite: bool
) -> GivenLabels:
    """As the run has them, if it is a run of this model on these images; otherwise by one pass over the target."""
    found = fingerprint_target(target)
    if folder.given.is_file() and folder.is_run and not overwrite:
        stored = read_given_labels(folder.given)
        if stored.model == donor.identity and stored.target == found:
            return stored
        if stored.model != donor.identity and folder.has_begun:
            raise RunError(
                f"Run folder {one_line(folder.path)!r} moves another model: choose another --out, or --overwrite it."
            )
    reporter.note(f"Labels of the given model: one pass over {len(target)} target images.")
    trained = donor.trained
    model = trained.model.to(choose_device(config.train.device))
    seen = run_pass(model, target.paths, trained.preprocessing, 64, config.data.workers)
    anchors = anchor_images(seen.features_MF, seen.logits_MK)
    labels: list[int] = seen.logits_MK.argmax(1).tolist()
    return GivenLabels(donor.identity, found, list(trained.classes), labels, anchors.tolist())


def _adopt(donor: Donor, folder: RunFolder) -> None:
    """A copy of the given model, once: the run can be resumed, reported and moved again without the original."""
    if folder.baseline.path.is_dir():
        return
    with new_folder(folder.baseline.path) as temporary:
        shutil.copytree(donor.folder, temporary / folder.model.name)
        write_json(temporary / folder.origin.name, {"run": donor.name, "same_target": False})


def _settings_of(run: RunFolder) -> dict[str, Any]:
    try:
        return validate(read_yaml(run.config)).model_dump(mode="json")
    except (OSError, UserError, AttributeError):
        raise RunError(f"{one_line(run.path)!r} has a config.yaml that cannot be read.") from None


def _origin(folder: Path) -> str:
    """Where the first weights of a model came from, as its folder says."""
    try:
        return str(read_json(folder / "config.json", dict[str, Any])["pmtrans"].get("weights", "none"))
    except (OSError, UserError, KeyError, AttributeError):
        raise ModelError(f"{one_line(folder)!r}: config.json cannot be read.") from None


def _merged(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """``given`` over ``base``, section by section."""
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    for key, value in given.items():
        tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value
    return tree

"""``--from RUN``: another method, or another target, starts from the finished probe and source stage of a run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pmtrans.config import Config
from pmtrans.errors import RunError, UserError, one_line
from pmtrans.files import new_folder, write_json
from pmtrans.run.folder import RunFolder
from pmtrans.settings import validate
from pmtrans.texts import read_json, read_yaml
from pmtrans.training.target_labels import trained_names

# what the weights of a source stage depend on, and what must be held out again
SAME = (
    "seed",
    "backbone.name",
    "backbone.options",
    "backbone.bottleneck",
    "backbone.distillation_token",
    "data.image_size",
    "data.crop_ratio",
    "data.holdout",
    "method.head",
)


def adopt_stages(
    donor: Path, folder: RunFolder, config: Config, classes: tuple[str, ...], data: dict[str, Any]
) -> None:
    """Copy probe and source stage of ``donor``, once; on another target their models are evaluated again."""
    run, shown = RunFolder(donor), one_line(donor)
    source = _finished_source(run, shown)
    _refuse_unlike(run, shown, config, classes, data)
    same_target = _read(run.data, shown, dict[str, Any]).get("target") == data["target"]
    for old, new in ((run.probe, folder.probe), (source, folder.baseline)):
        if new.path.is_dir():
            continue
        with new_folder(new.path) as temporary:
            of_one_target = (old.finished, old.evidence) if same_target else ()
            for file in (*of_one_target, old.metrics):
                if file.is_file():
                    shutil.copyfile(file, temporary / file.name)
            trained = old.adapted if old.adapted.is_dir() else old.model  # a source-only run may ship its probe
            shutil.copytree(trained, temporary / old.model.name)
            origin = {"run": donor.resolve().name, "same_target": same_target, "target_labels": _labels(run, old)}
            write_json(temporary / new.origin.name, origin)


def adopt_adapted(donor: Path, folder: RunFolder) -> None:
    """Copy the adapted model of ``donor``, once: the method starts there."""
    run, shown = RunFolder(donor), one_line(donor)
    if folder.first.path.is_dir():
        return
    if _config(run, shown).method["name"] == "source_only" or not run.summary.is_file():
        raise RunError(
            f"--from {shown!r} has no finished adaptation, which train.start=adapted begins with: resume it first, or "
            "take another run."
        )
    with new_folder(folder.first.path) as temporary:
        shutil.copytree(run.adapted if run.adapted.is_dir() else run.model, temporary / run.model.name)


def _finished_source(run: RunFolder, shown: str) -> RunFolder:
    """The folder of the finished source stage: of a source-only run the run itself."""
    if not run.is_run:
        raise RunError(f"--from {shown!r} is not a run folder.")
    is_source_only = _config(run, shown).method["name"] == "source_only"
    source = run if is_source_only else run.baseline
    if not (run.probe.finished.is_file() and source.finished.is_file() and source.model.is_dir()):
        raise RunError(f"--from {shown!r} has no finished source stage: resume it first, or take another run.")
    return source


def _labels(run: RunFolder, stage: RunFolder) -> int:
    """How many target labels trained a stage of ``run``, which may have taken it over itself."""
    if stage.origin.is_file():
        count = _read(stage.origin, one_line(run.path), dict[str, Any]).get("target_labels", 0)
        return count if isinstance(count, int) else 0  # earlier versions wrote none
    return len(trained_names(run))


def _refuse_unlike(run: RunFolder, shown: str, config: Config, classes: tuple[str, ...], data: dict[str, Any]) -> None:
    theirs = tuple(_read(run.classes, shown, list[str]))
    if theirs != classes:
        raise RunError(
            f"--from {shown!r} has other classes ({_few(theirs)}) than this source ({_few(classes)}): "
            "a source stage starts runs with the same classes only."
        )
    old, new = (one.model_dump(mode="json") for one in (_config(run, shown), config))
    for key in SAME:
        before, now = _value(old, key), _value(new, key)
        if before != now:
            raise RunError(
                f"--from {shown!r} has {key}={one_line(before, 60)}, this run {one_line(now, 60)}: "
                "both must be the same."
            )
    if _read(run.data, shown, dict[str, Any]).get("source") != data["source"]:
        raise RunError(
            f"--from {shown!r} was trained on another source: its held-out images are not those of this run."
        )


def _value(settings: dict[str, Any], key: str) -> Any:
    """A setting by its dotted key."""
    for part in key.split("."):
        settings = settings[part]
    return settings


def _read(path: Path, shown: str, schema: Any) -> Any:
    try:
        return read_json(path, schema)
    except (OSError, UserError):
        raise RunError(f"--from {shown!r} has a {path.name} that cannot be read.") from None


def _config(run: RunFolder, shown: str) -> Config:
    try:
        return validate(read_yaml(run.config))
    except (OSError, UserError, AttributeError):
        raise RunError(f"--from {shown!r} has a config.yaml that cannot be read.") from None


def _few(classes: tuple[str, ...]) -> str:
    return one_line(", ".join(classes[:3]) + (f", ... {len(classes)} in all" if len(classes) > 3 else ""), 80)

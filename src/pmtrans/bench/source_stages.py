"""Share one probe and one source stage between the methods of a task and seed, where theirs would be identical."""

from __future__ import annotations

import json
from pathlib import Path

from pmtrans.config import Config
from pmtrans.errors import UserError
from pmtrans.methods import METHODS
from pmtrans.run.folder import RunFolder
from pmtrans.run.provenance import MAY_CHANGE, flatten
from pmtrans.settings import validate
from pmtrans.texts import read_yaml
from pmtrans.training.train import source_stage

_OF_ADAPTATION = ("train.start", "train.baseline", "train.baseline_steps")  # settings that the source stage ignores


def source_key(config: Config) -> str | None:
    """Equal for runs with the same source stage; None for a run without one. A source-only run is its own."""
    is_source_only = config.method["name"] == "source_only"
    if not (is_source_only or config.train.baseline or config.train.starts_from_source):
        return None
    stage = source_stage(config)
    method = METHODS["source_only"].options.model_validate({k: v for k, v in stage.method.items() if k != "name"})
    settings = flatten(stage.model_copy(update={"method": method.model_dump(mode="json")}).model_dump(mode="json"))
    kept = {
        key: value
        for key, value in settings.items()
        if key not in (*MAY_CHANGE, *_OF_ADAPTATION) and not key.startswith("selection.")
    }
    return json.dumps({**kept, "from_probe": config.train.start != "pretrained"}, sort_keys=True)


def find_source_run(config: Config, folder: Path) -> Path | None:
    """A run with a finished source stage for that in ``runs/TASK/METHOD/SEED``, among those of its task and seed."""
    key = source_key(config)
    if key is None or config.method["name"] == "source_only":
        return None
    for candidate in sorted(folder.parent.parent.glob(f"*/{folder.name}")):
        run = RunFolder(candidate)
        try:
            found = validate(read_yaml(run.config))
        except (OSError, UserError):
            continue
        source = run if found.method["name"] == "source_only" else run.baseline
        finished = source.finished.is_file() and run.probe.finished.is_file()
        if candidate != folder and finished and source_key(found) == key:
            return candidate
    return None

"""Share one source-only training between the methods of a task and seed whose baselines are identical."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from pmtrans.config import Config
from pmtrans.errors import UserError
from pmtrans.methods import METHODS
from pmtrans.run.folder import RunFolder
from pmtrans.run.provenance import MAY_CHANGE, flatten
from pmtrans.settings import validate
from pmtrans.training.train import baseline_switches


def baseline_key(config: Config) -> str | None:
    """Equal for runs with the same baseline; None for a run without one. A source-only run is its own baseline."""
    if not config.train.baseline:
        return None
    switches = baseline_switches(config)
    method = METHODS["source_only"].options.model_validate({k: v for k, v in switches.items() if k != "name"})
    settings = flatten(config.model_copy(update={"method": method.model_dump(mode="json")}).model_dump(mode="json"))
    return json.dumps({key: value for key, value in settings.items() if key not in MAY_CHANGE}, sort_keys=True)


def find_baseline(config: Config, folder: Path) -> Path | None:
    """A finished baseline for the run in ``runs/TASK/METHOD/SEED`` among the other methods of its task and seed."""
    key = baseline_key(config)
    if key is None or config.method["name"] == "source_only":
        return None
    for candidate in sorted(folder.parent.parent.glob(f"*/{folder.name}")):
        run = RunFolder(candidate)
        try:
            found = validate(yaml.safe_load(run.config.read_text(encoding="utf-8")))
        except (OSError, UserError, yaml.YAMLError):
            continue
        trained = run if found.method["name"] == "source_only" else RunFolder(run.baseline)
        if candidate != folder and trained.finished.is_file() and baseline_key(found) == key:
            return trained.path
    return None

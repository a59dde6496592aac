"""What a model folder says of its own bytes: SHA-256 of the weights and of the rest of ``config.json``.

They find damage, not forgery: whoever changes a file on purpose can change its checksum too. Folders of earlier
versions have none, and are not checked.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pmtrans.errors import ModelError, one_line
from pmtrans.files import regular

KEY = "checksum"  # in the section ``pmtrans`` of ``config.json``
WEIGHTS, CONFIG = "model.safetensors", "config.json"


class ChangedError(ModelError):
    """A file of a model folder that is not what was written."""


def with_checksum(config: dict[str, Any], weights: str | None) -> dict[str, Any]:
    """``config`` with its checksum, and with that of the weights; None: a folder that has none stays without."""
    bare = _without(config)
    if weights is None:
        return bare
    return {**bare, "pmtrans": {**bare["pmtrans"], KEY: {"weights": weights, "config": _of_config(bare)}}}


def of_weights(folder: Path) -> str:
    digest = hashlib.sha256()
    with regular(folder / WEIGHTS).open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def verify_config(folder: Path, config: dict[str, Any]) -> str | None:
    """The checksum that the weights must have; None: none was recorded."""
    ours = config.get("pmtrans")
    if not isinstance(ours, dict) or KEY not in ours:
        return None
    stored = ours[KEY]
    if not isinstance(stored, dict) or set(stored) != {"weights", "config"} or stored["config"] != _of_config(config):
        raise ChangedError(
            f"{one_line(folder / CONFIG)!r} was changed since it was written: copy it again, "
            f"or, if it was meant, remove {KEY!r} from its section 'pmtrans'."
        )
    return str(stored["weights"])


def verify_weights(folder: Path, expected: str | None) -> None:
    if expected is not None and of_weights(folder) != expected:
        raise ChangedError(
            f"{one_line(folder / WEIGHTS)!r} was changed since it was written (its SHA-256 is not the one in "
            f"{CONFIG}): copy it again, or train again with --overwrite."
        )


def _of_config(config: dict[str, Any]) -> str:
    """Of all but the checksum, as JSON brings it back: spaces and the order of keys do not count."""
    brought_back = json.loads(json.dumps(_without(config)))
    return hashlib.sha256(json.dumps(brought_back, sort_keys=True).encode("ascii")).hexdigest()


def _without(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "pmtrans": {key: value for key, value in config["pmtrans"].items() if key != KEY}}

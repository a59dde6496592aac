"""What a run adds to its model folder at the end: the class balance it found, and from when on an answer is unknown.

Both stand in the section ``pmtrans`` of ``config.json`` and change no weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pmtrans.errors import ModelError, one_line
from pmtrans.files import write_json
from pmtrans.run.checksums import verify_config, with_checksum
from pmtrans.selection.prior import reweighted
from pmtrans.selection.unknown_threshold import UnknownThreshold
from pmtrans.texts import checked, read_json

PriorName = Literal["target", "source", "uniform"]


@dataclass(frozen=True)
class ClassBalance:
    """Shares of the classes, each in their order: ``own`` is what the model's probabilities have learned.

    A model that never trained on the target has learned the source's; of an adapted one it is its mean prediction.
    """

    own: tuple[float, ...]
    source: tuple[float, ...]
    target: tuple[float, ...]

    def apply(self, probabilities_BK: Tensor, prior: PriorName) -> Tensor:
        """The probabilities if classes came in these shares."""
        wanted = self.own if prior == "uniform" else getattr(self, prior)
        wanted_K = torch.tensor(wanted, dtype=torch.float64)
        if prior == "uniform":
            wanted_K = torch.full_like(wanted_K, 1 / len(wanted_K))
        return reweighted(probabilities_BK, torch.tensor(self.own, dtype=torch.float64), wanted_K)


def annotate_model(folder: Path, balance: ClassBalance | None, unknown: UnknownThreshold | None) -> None:
    """Write both into the folder's ``config.json``, in place of what stands there."""
    path = folder / "config.json"
    config = read_json(path, dict[str, Any])
    if not isinstance(config.get("pmtrans"), dict):
        raise ModelError(f"{one_line(path)!r} was changed: it has no section pmtrans. Train again with --overwrite.")
    weights = verify_config(folder, config)
    ours = {key: value for key, value in config["pmtrans"].items() if key not in ("prior", "unknown")}
    if balance is not None:
        ours["prior"] = {name: [round(share, 8) for share in shares] for name, shares in asdict(balance).items()}
    if unknown is not None:
        ours["unknown"] = asdict(unknown)
    write_json(path, with_checksum({**config, "pmtrans": ours}, weights))


def read_balance(section: Mapping[str, Any], classes: Sequence[str]) -> ClassBalance | None:
    """``prior`` of the section; None where a folder has none."""
    if section.get("prior") is None:
        return None
    found: ClassBalance = checked(section["prior"], ClassBalance)
    for name, shares in asdict(found).items():
        if len(shares) != len(classes) or not all(math.isfinite(share) and 0 <= share <= 1 for share in shares):
            raise ModelError(f"config.json: pmtrans.prior.{name} is not a share for each of {len(classes)} classes.")
    if not all(found.own):
        raise ModelError("config.json: pmtrans.prior.own holds a share of 0.")
    return found


def read_unknown(section: Mapping[str, Any]) -> UnknownThreshold | None:
    """``unknown`` of the section; None where all images are of a known class."""
    if section.get("unknown") is None:
        return None
    found: UnknownThreshold = checked(section["unknown"], UnknownThreshold)
    if not (math.isfinite(found.threshold) and math.isfinite(found.scale) and found.scale > 0):
        raise ModelError("config.json: pmtrans.unknown is not a threshold and a scale above 0.")
    return found

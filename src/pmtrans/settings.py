"""A whole configuration: the sections, and the switches of the method that it names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pmtrans.config import Config
from pmtrans.config.load import checked, load_tree
from pmtrans.errors import ConfigError, nearest, one_line

_SOURCE_STAGE = "runs have a source stage now (train.start=source)"
REMOVED = {  # switches that methods once had, and what stands for them
    "warmup": _SOURCE_STAGE,
    "source_share": _SOURCE_STAGE,
    "start": _SOURCE_STAGE,
    "matching": f"{_SOURCE_STAGE}; method.alone is a share of the steps after it",
}


def load_config(
    recipe: Path | None = None, overrides: Iterable[str] = (), flags: dict[str, Any] | None = None
) -> Config:
    """Recipe, then flags (dotted names, None: not given), then overrides ``section.key=value``; later ones win."""
    return validate(load_tree(recipe, overrides, flags))


def validate(tree: dict[str, Any]) -> Config:
    """A configuration, its method's switches filled in; the first mistake is named in one line."""
    config = checked(Config, tree)
    from pmtrans.methods import METHODS  # here: mistakes in the sections should not wait for torch

    switches = dict(config.method)
    name = switches.pop("name", "pmtrans")
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(
            f"Unknown method {one_line(name)!r}.{nearest(str(name), METHODS)} Known: {', '.join(METHODS)}."
        )
    for key in switches:
        if key in REMOVED:
            raise ConfigError(f"Key 'method.{key}' is gone: {REMOVED[key]}.")
    schema = METHODS[name].options
    if config.backbone.bottleneck and schema.head_behind_bottleneck is not None:
        switches.setdefault("head", schema.head_behind_bottleneck)
    options = checked(schema, switches, "method.")
    implied = {k: v for k, v in options.of_backbone().items() if k not in config.backbone.model_fields_set}
    backbone = config.backbone.model_copy(update=implied)
    method = {"name": name, **options.model_dump(mode="json")}
    train = config.train.of_source_stage() if name == "source_only" else config.train
    return config.model_copy(update={"backbone": backbone, "method": method, "train": train})

"""A whole configuration: the sections, and the switches of the method that it names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pmtrans.config import Config
from pmtrans.config.load import checked, load_tree
from pmtrans.errors import ConfigError, nearest, one_line


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
    if name not in METHODS:
        raise ConfigError(
            f"Unknown method {one_line(name)!r}.{nearest(str(name), METHODS)} Known: {', '.join(METHODS)}."
        )
    options = checked(METHODS[name].options, switches, "method.")
    return config.model_copy(update={"method": {"name": name, **options.model_dump(mode="json")}})

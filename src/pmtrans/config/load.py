"""Read settings from a recipe, flags and overrides into a tree, and validate a tree as a typed section.

A flag of the command line, or an argument of the Python API, is short for a setting (``FLAGS``). An error names the
full key; for an unknown key it suggests the nearest known one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pmtrans.addresses import absolute
from pmtrans.config.recipes import read_recipe
from pmtrans.config.sections import Config
from pmtrans.config.sources import one_or_several
from pmtrans.errors import ConfigError, nearest, one_line
from pmtrans.texts import TextError, parse_yaml

Checked = TypeVar("Checked", bound=BaseModel)
SHARED_SWITCHES = ("head", "label_smoothing")  # of a recipe's method, which another method inherits


def load_tree(
    recipe: Path | None = None, overrides: Iterable[str] = (), flags: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Recipe, then flags (dotted keys, None: not given), then overrides ``section.key=value``; later ones win."""
    tree = read_recipe(recipe) if recipe is not None else {}
    given = [(key, value) for key, value in (flags or {}).items() if value is not None]
    given += [_parsed(override) for override in overrides]
    if (method := dict(given).get("method.name")) is not None:
        tree = for_method(tree, method)
    for key, value in given:
        _set(tree, key, value)
    return tree


def for_method(tree: dict[str, Any], method: Any) -> dict[str, Any]:
    """The settings of a recipe as far as they apply to ``method``: not the switches of another one."""
    section = tree.get("method") or {}
    if not isinstance(section, dict) or method == section.get("name", "pmtrans"):
        return tree
    return {**tree, "method": {key: section[key] for key in SHARED_SWITCHES if key in section}}


def _parsed(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"Override {one_line(override)!r} is not of the form section.key=value.")
    try:
        return key.strip(), parse_yaml(text)
    except TextError as error:
        raise ConfigError(f"Override {one_line(override, 100)!r}: the value is {error}.") from None


def checked(model: type[Checked], tree: dict[str, Any], prefix: str = "") -> Checked:
    """The tree as a ``model``; raises a one-line error for the first invalid key, shown after ``prefix``."""
    _refuse_nul(tree, prefix)
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, model, prefix)) from None


def _refuse_nul(tree: Any, key: str) -> None:
    """No path, and no name, has a NUL; the system's calls would fail on it one by one."""
    if isinstance(tree, str) and "\0" in tree:
        raise ConfigError(f"Key {one_line(key.rstrip('.'))!r} holds a NUL character.")
    for name, inner in tree.items() if isinstance(tree, dict) else ():
        _refuse_nul(inner, f"{key}{name}.")
    for inner in tree if isinstance(tree, list | tuple) else ():
        _refuse_nul(inner, key)


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        if not isinstance(tree.setdefault(section, {}), dict):
            raise ConfigError(f"Key {one_line(key)!r}: {section!r} is a value, not a section.")
        tree = tree[section]
    tree[last] = value


def _explain(error: ValidationError, model: type[BaseModel], prefix: str) -> str:
    first = error.errors()[0]
    key = one_line(prefix + ".".join(str(part) for part in first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"Unknown key {key!r}.{nearest(key, _keys(model, prefix))}"
    reason = first["msg"].removeprefix("Value error, ")
    return f"Key {key or prefix.rstrip('.')!r} cannot be {one_line(first['input'], 60)!r}: {one_line(reason)}."


def _keys(model: type[BaseModel], prefix: str) -> list[str]:
    keys: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += _keys(inner, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys


LOCATIONS = (
    "source", "target", "target_labels", "root", "source_root", "target_root", "classes", "given",
)  # fmt: skip  # of the section data


def with_absolute_paths(config: Config) -> Config:
    """The same places from whatever working directory a run is resumed or looked at."""
    data: dict[str, Any] = {
        name: absolute(path) if isinstance(path, str) else tuple(map(absolute, path))
        for name in (*LOCATIONS, "cache")
        if (path := getattr(config.data, name))
    }
    weights = config.backbone.weights
    changes: dict[str, Any] = {"data": config.data.model_copy(update=data)}
    if os.path.isfile(weights):
        changes["backbone"] = config.backbone.model_copy(update={"weights": os.path.abspath(weights)})
    return config.model_copy(update=changes)


FLAGS = {
    "source": "data.source",
    "target": "data.target",
    "target_labels": "data.target_labels",
    "root": "data.root",
    "cache": "data.cache",
    "backbone": "backbone.name",
    "weights": "backbone.weights",
    "method": "method.name",
    "seed": "seed",
    "baseline": "train.baseline",
    "device": "train.device",
    "source_contributions": "selection.source_contributions",
}


def settings_from_flags(**flags: Any) -> dict[str, Any]:
    """Values by dotted key, ``None`` where a flag was not given; paths as strings."""
    return {FLAGS[name]: one_or_several(value) if name == "source" else _plain(value) for name, value in flags.items()}


def _plain(value: Any) -> Any:
    return fspath(value) if isinstance(value, PathLike) else value

"""Recipes: YAML files of settings, the user's own or those that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pmtrans.errors import ConfigError, nearest, one_line


def read_recipe(path: Path) -> dict[str, Any]:
    """A YAML file as a tree: of the user, or by its name (``office-31/deit``) one that comes with the package."""
    known = {} if path.is_file() else packaged_recipes()
    file = known.get(path.as_posix().removesuffix(".yaml").removeprefix("recipes/"), path)
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"Recipe {one_line(path)!r} does not exist, as a file or among those of the package."
            f"{nearest(path.as_posix(), known)}"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"Recipe {one_line(path)!r} cannot be read: {one_line(error, 150)}") from None
    if not isinstance(tree or {}, dict):
        raise ConfigError(f"Recipe {one_line(path)!r} is not a mapping of sections.")
    return tree or {}


def packaged_recipes() -> dict[str, Path]:
    """Files by name, such as ``small/trial``; in a checkout they lie beside ``src``."""
    places = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")
    home = next((place for place in places if place.is_dir()), None)
    return {} if home is None else {_recipe_name(file, home): file for file in sorted(home.rglob("*.yaml"))}


def _recipe_name(file: Path, home: Path) -> str:
    return file.relative_to(home).with_suffix("").as_posix()

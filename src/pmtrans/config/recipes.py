"""Recipes: YAML files of settings, from the user or packaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pmtrans.errors import ConfigError, nearest, one_line
from pmtrans.texts import read_yaml


def read_recipe(path: Path) -> dict[str, Any]:
    """The tree of a YAML file, or of a packaged recipe given by name (``office-31/deit``)."""
    known = {} if path.is_file() else packaged_recipes()
    file = known.get(_name(path), path)
    try:
        tree = read_yaml(file)
    except FileNotFoundError:
        raise ConfigError(
            f"Recipe {one_line(path)!r} is neither a file nor a packaged recipe.{nearest(path.as_posix(), known)}"
        ) from None
    except (OSError, ValueError) as error:  # also a path with a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"Recipe {one_line(path)!r} cannot be read: {one_line(reason, 150)}.") from None
    if not isinstance(tree or {}, dict):
        raise ConfigError(f"Recipe {one_line(path)!r} is not a mapping of sections.")
    return tree or {}


def find_study(file: Path) -> Path:
    """The file of a study, or of a packaged one given by name (``studies/office-31-best``)."""
    if file.is_file():
        return file.resolve()
    known = packaged_recipes()
    if _name(file) not in known:
        studies = [one for one in known if one.startswith("studies/")]
        near = nearest(_name(file), studies)
        raise ConfigError(f"Study {one_line(file)!r} is neither a file nor a packaged study.{near}")
    return known[_name(file)]


def _name(file: Path) -> str:
    return file.as_posix().removesuffix(".yaml").removeprefix("recipes/")


def packaged_recipes() -> dict[str, Path]:
    """Files by name, such as ``small/trial``; in a checkout they lie beside ``src``."""
    folders = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")
    folder = next((folder for folder in folders if folder.is_dir()), folders[0])
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.yaml"))}

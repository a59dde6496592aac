"""The flags of the command line, and arguments of the Python API, that are short for a setting."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

FLAGS = {
    "source": "data.source",
    "target": "data.target",
    "root": "data.root",
    "cache": "data.cache",
    "backbone": "backbone.name",
    "weights": "backbone.weights",
    "method": "method.name",
    "seed": "seed",
    "baseline": "train.baseline",
}


def settings_from_flags(**flags: Any) -> dict[str, Any]:
    """Values by dotted key, ``None`` where a flag was not given; paths as strings."""
    return {FLAGS[name]: fspath(value) if isinstance(value, PathLike) else value for name, value in flags.items()}

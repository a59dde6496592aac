"""Wrong paths and names are told before torch is imported: in a moment, not after half a minute on a busy machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pmtrans.addresses import as_path, expand, is_pattern, is_remote
from pmtrans.errors import ConfigError, DataError, ModelError, RunError, nearest, one_line

DEVICES = ("cpu", "cuda", "mps", "xpu")
_NO_METHODS = {"__init__", "method"}  # files of ``methods`` that are none, besides those that belong to another


def require_settings(
    recipe: Path | None,
    overrides: Iterable[str],
    flags: dict[str, Any],
    out: Path | None = None,
    needs_weights: bool = True,
) -> None:
    """Refuse settings that name a missing file, an unknown method, or an output folder that is somebody else's."""
    from pmtrans.config import Config
    from pmtrans.config.load import checked, load_tree
    from pmtrans.run.folder import RunFolder, refuse_occupied

    config = checked(Config, load_tree(recipe, overrides, flags))
    require_method(str(config.method.get("name", "pmtrans")))
    require_device(config.train.device)
    require_backbone(config.backbone.name)
    if not config.data.sources or config.data.target is None:
        raise ConfigError("Give both domains: --source DIR and --target DIR (or data.source and data.target).")
    require_sources(config.data.sources)
    for name in ("target", "target_labels", "root", "source_root", "target_root", "classes"):
        place = getattr(config.data, name)
        if place is not None:
            is_flag = name in ("target", "target_labels", "root")
            require_data(f"--{name.replace('_', '-')}" if is_flag else f"data.{name}", place)
    weights = config.backbone.weights
    is_place = weights not in ("none", "timm") and not weights.startswith("hf-hub:")
    if needs_weights and is_place and not Path(weights).is_file():
        raise ModelError(f"Weights file {one_line(weights)!r} does not exist.")
    if out is not None:
        refuse_occupied(RunFolder(out))


def require_sources(places: Sequence[str | Path]) -> None:
    """Each is there, and is given once."""
    from pmtrans.config.sources import refuse_same_place

    for place in places:
        require_data("--source", place)
    refuse_same_place(places)


def require_data(flag: str, path: str | Path) -> None:
    if is_remote(path):
        return
    if is_pattern(path):
        expand(path)
    elif not as_path(path).exists():
        raise DataError(f"{flag} {one_line(path)}: there is no such folder or file")


def require_inputs(names: Sequence[str]) -> None:
    """What ``predict`` is given: a name without an ending is a folder; a missing image has a row that says so."""
    for name in names:
        if name != "-" and not Path(name).suffix:
            require_data("PATHS", name)


def require_device(name: str | None) -> None:
    kind, _, number = (name or "cpu").partition(":")
    if kind not in DEVICES or (number and not number.isdecimal()):
        raise ConfigError(f"--device {one_line(name)!r}: take {', '.join(DEVICES)}, or one of several, such as cuda:1.")


def require_backbone(name: str) -> None:
    """An architecture, by the decorators in its files: its import takes seconds. The tag is looked at later."""
    architecture, known = name.partition(".")[0], _architectures()
    if known and architecture not in known and not name.startswith(("hf-hub:", "local-dir:")):
        raise ModelError(f"timm has no model {one_line(architecture)!r}.{nearest(architecture, sorted(known))}")


def _architectures() -> set[str]:
    """Timm's and our own; empty where timm is not laid out as files: then its own list, later, decides."""
    spec = find_spec("timm")
    files = list(Path(spec.origin).parent.glob("models/*.py")) if spec is not None and spec.origin is not None else []
    own = Path(__file__).parents[1].glob("backbones/*.py") if files else ()
    registered = re.compile(r"^@register_model\b.*\s+def (\w+)\(", re.MULTILINE)
    return {name for file in (*files, *own) for name in registered.findall(file.read_text(encoding="utf-8"))}


def require_method(name: str) -> None:
    known = method_names()
    if name not in known:
        raise ConfigError(f"Unknown method {one_line(name)!r}.{nearest(name, known)} Known: {', '.join(known)}.")


def method_names() -> list[str]:
    """The names of the methods, which are those of their files: to read the folder is quicker than to import it."""
    folder = Path(__file__).parents[1] / "methods"
    names = {file.stem for file in folder.glob("*.py")} - _NO_METHODS
    return sorted(name for name in names if not name.startswith("pmtrans_"))


def require_model(run: Path) -> None:
    """A run folder with a model, or a model folder."""
    shown = one_line(run)
    if (run / "model").is_dir() or (run / "config.json").exists():
        return
    if (run / "config.yaml").is_file():
        raise RunError(f"Run {shown!r} has no model yet: let `pmtrans train` finish it.")
    missing = "config.json is missing" if run.is_dir() else "there is no such folder"
    raise ModelError(f"{shown!r} is neither a run folder nor a model folder: {missing}.")


def require_run(run: Path) -> None:
    """A run folder, finished or not."""
    if run.is_dir() and not (run / "config.yaml").exists():
        raise RunError(f"{one_line(run)!r} is not a run folder: config.yaml is missing.")
    if not run.is_dir():
        raise RunError(f"{one_line(run)!r} is not a run folder: there is no such folder.")

"""Opening a run folder: a new one, one to go on with, a finished one, or a refusal that says why."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from pmtrans.config import Config
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.errors import RunError, one_line
from pmtrans.run.files import read_json, write_json, write_text

MAY_CHANGE = ("data.workers", "train.keep_checkpoints")  # these do not change what is computed


class Opened(Enum):
    """In what state a folder was found."""

    NEW = "new"
    UNFINISHED = "unfinished"
    FINISHED = "finished"


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def classes(self) -> Path:
        return self.path / "classes.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def baseline(self) -> Path:
        return self.path / "baseline"


def prepare(folder: RunFolder, overwrite: bool) -> None:
    """Make sure that the folder may be written: empty, a run of ours, or to be overwritten."""
    path = folder.path
    if path.exists() and not path.is_dir():
        raise RunError(f"--out {one_line(path)!r} is a file, not a folder.")
    if path.is_dir() and any(entry.name != ".lock" for entry in path.iterdir()):
        ours = folder.config.is_file()
        if overwrite and ours:
            for entry in path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != ".lock":
                    entry.unlink()
        elif not ours:
            raise RunError(f"Output folder {one_line(path)!r} is in use and is no run: choose another --out.")
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".lock").touch()
    except OSError as error:
        raise RunError(f"Output folder {one_line(path)!r} cannot be written: {error.strerror}.") from None


def open_run(folder: RunFolder, config: Config, data: dict[str, Any]) -> Opened:
    """Compare with what is there. Another configuration or other data are refused, the difference shown."""
    if not folder.config.is_file():
        write_json(folder.path / "data.json", data)
        write_text(folder.config, config.to_yaml())
        return Opened.NEW
    old = flatten(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    new = flatten(yaml.safe_load(config.to_yaml()))
    changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key) and key not in MAY_CHANGE]
    if changed:
        shown = "; ".join(f"{key}: {one_line(old.get(key), 60)} -> {one_line(new.get(key), 60)}" for key in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise RunError(
            f"Run folder {one_line(folder.path)!r} was made with another configuration ({shown}{more}): "
            "choose another --out, or --overwrite it."
        )
    before = read_json(folder.path / "data.json") if (folder.path / "data.json").is_file() else data
    for name in data:
        if before.get(name) != data[name]:
            raise RunError(
                f"The {name} has changed since run {one_line(folder.path)!r} began: "
                f"{before.get(name, {}).get('images')} images then, {data[name]['images']} now, or other names. "
                "Put it back, or start a new --out."
            )
    return Opened.FINISHED if folder.summary.is_file() else Opened.UNFINISHED


def fingerprint(source: LabelledDomain, target: Domain) -> dict[str, Any]:
    """What training depends on in the data: names and source labels, never target labels."""
    return {
        "source": {"images": len(source), "hash": _hash(zip(_names(source), source.labels, strict=True))},
        "target": {"images": len(target), "hash": _hash(_names(target))},
    }


def _names(domain: Domain) -> list[str]:
    """The last part of each path: a folder that moved as a whole is the same data."""
    return [path.rpartition("/")[2] for path in domain.paths]


def _hash(parts: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(repr(part).encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """A tree of sections as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat

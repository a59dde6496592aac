"""The run folder: its parts, who may write it, and what it was made with."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pmtrans.config import Config
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.errors import RunError, one_line
from pmtrans.run import lock
from pmtrans.run.files import is_leftover, read_json, settle, write_json, write_text

# these do not change what is computed
MAY_CHANGE = (
    "data.workers",
    "data.cache",
    "train.checkpoint_activations",
    "train.keep_checkpoints",
    "train.loggers",
    "train.sharding",
)
_MEASURED = 2000  # images of a domain whose sizes are compared: seconds, even on a slow network disk


@dataclass(frozen=True)
class RunFolder:
    """Paths inside a run folder."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def data(self) -> Path:
        return self.path / "data.json"

    @property
    def classes(self) -> Path:
        return self.path / "classes.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def candidates(self) -> Path:
        return self.path / "candidates"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def finished(self) -> Path:
        return self.path / "finished.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def baseline(self) -> Path:
        return self.path / "baseline"

    @property
    def is_run(self) -> bool:
        """``config.yaml`` is written last: where it is, the start was complete."""
        return self.config.is_file() and (self.data.is_file() or lock.was_locked(self.path))


_STARTED = {lock.NAME, "data.json", "data"}  # what a start that was cut short leaves (``data``: the demo's digits)


@contextmanager
def claim(folder: RunFolder, overwrite: bool = False) -> Iterator[None]:
    """The folder for this process alone, made if needed, emptied if asked, tidied up after a kill."""
    _refuse_foreign(folder)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"Output folder {one_line(folder.path)!r} cannot be made: {error.strerror}.") from None
    with lock.run_lock(folder.path):
        if overwrite and folder.is_run:
            _empty(folder)
        for part in (folder, RunFolder(folder.baseline)):
            for path in (part.path, part.checkpoints, part.candidates):
                settle(path)
        yield


def _refuse_foreign(folder: RunFolder) -> None:
    path = folder.path
    if path.exists() and not path.is_dir():
        raise RunError(f"--out {one_line(path)!r} is a file, not a folder.")
    if not path.is_dir() or folder.is_run:
        return
    names = {entry.name for entry in path.iterdir() if not is_leftover(entry.name)} - {lock.NAME}
    cut_short = lock.was_locked(path) and all(name in _STARTED or name.startswith(".data-") for name in names)
    if names and not cut_short:
        raise RunError(f"Output folder {one_line(path)!r} is in use and is no run: choose another --out.")


def _empty(folder: RunFolder) -> None:
    """In an order that leaves a run that can be continued, if it is cut short: checkpoints first, then their log."""
    baseline = RunFolder(folder.baseline)
    _remove([folder.summary, folder.finished, baseline.finished, folder.checkpoints, baseline.checkpoints])
    _remove(entry for entry in folder.path.iterdir() if entry.name not in (lock.NAME, folder.config.name))
    _remove([folder.config])


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def describe_run(folder: RunFolder, config: Config, data: dict[str, Any]) -> None:
    """Write down what a new run is made with."""
    write_json(folder.data, data)
    write_text(folder.config, config.to_yaml())


def refuse_differences(folder: RunFolder, config: Config, data: dict[str, Any]) -> None:
    """Another configuration or other data than the run was made with are refused, the difference shown."""
    shown = one_line(folder.path)
    try:
        old = flatten(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
        before = read_json(folder.data)
        domains = {name: dict(before[name]) for name in data}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        raise RunError(
            f"Run folder {shown!r} has a config.yaml or data.json that cannot be read: --overwrite it."
        ) from None
    new = flatten(yaml.safe_load(config.to_yaml()))
    changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key) and key not in MAY_CHANGE]
    if changed:
        pairs = "; ".join(f"{key}: {one_line(old.get(key), 60)} -> {one_line(new.get(key), 60)}" for key in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise RunError(
            f"Run folder {shown!r} was made with another configuration ({pairs}{more}): "
            "choose another --out, or --overwrite it."
        )
    for name, now in data.items():
        then = domains[name]
        differs = [f"{key}: {one_line(then.get(key), 40)} -> {now[key]}" for key in now if then.get(key) != now[key]]
        if differs:
            raise RunError(
                f"The {name} has changed since run {shown!r} began ({'; '.join(differs)}): "
                "put it back, choose another --out, or --overwrite it."
            )


def fingerprint(source: LabelledDomain, target: Domain) -> dict[str, Any]:
    """What training depends on in the data: names, sizes and source labels, never target labels."""
    return {
        "source": {**_fingerprint(source), "labels": _hash(source.labels)},
        "target": _fingerprint(target),
    }


def _fingerprint(domain: Domain) -> dict[str, Any]:
    """Of each path the last part: a folder that moved is the same data, and a target's folders may be labels."""
    sample = domain.paths[:: max(1, len(domain.paths) // _MEASURED)]
    return {
        "images": len(domain),
        "names": _hash(os.path.basename(path) for path in domain.paths),
        "sizes": _hash(os.stat(path).st_size if os.path.exists(path) else None for path in sample),
    }


def _hash(parts: Iterable[Any]) -> str:
    digest = hashlib.blake2b(digest_size=8)
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

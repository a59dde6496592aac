"""Provenance: the configuration of a run, a fingerprint of its data, and the versions that its numbers depend on."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import yaml

from pmtrans.config import LOCATIONS, Config
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.packed import image_bytes
from pmtrans.errors import RunError, one_line
from pmtrans.files import write_json, write_text
from pmtrans.machine import choose_device
from pmtrans.run.folder import RunFolder
from pmtrans.texts import read_json, read_yaml
from pmtrans.version import __version__

# these do not change what is computed
MAY_CHANGE = (
    "data.workers",
    "data.cache",
    "train.checkpoint_activations",
    "train.device",
    "train.keep_checkpoints",
    "train.loggers",
    "train.sharding",
)
_WEIGHTS = "backbone.weights"
_MEASURED = 2000  # images of a domain whose sizes are compared: seconds, even on a slow network disk


def describe_run(folder: RunFolder, config: Config, data: dict[str, Any]) -> None:
    """Write the provenance of a new run."""
    write_json(folder.data, data)
    write_text(folder.config, config.to_yaml())


def refuse_differences(folder: RunFolder, config: Config, data: dict[str, Any]) -> None:
    """Refuse a configuration or data that differ from the run's, and show the difference.

    Where the data are may change: what they are is compared.
    """
    shown = one_line(folder.path)
    try:
        old = flatten(read_yaml(folder.config))
        before = read_json(folder.data)
        domains = {name: dict(before.get(name, {})) for name in {**before, **data}}
        if not {"source", "target"} <= before.keys():
            raise KeyError
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise RunError(
            f"Run folder {shown!r} has a config.yaml or data.json that cannot be read: --overwrite it."
        ) from None
    new = flatten(yaml.safe_load(config.to_yaml()))
    for key, value in flatten(yaml.safe_load(Config().to_yaml())).items():
        if key in new:
            old.setdefault(key, value)  # a setting that came later: the run had what is its default now
    ignored = (*MAY_CHANGE, *(f"data.{name}" for name in LOCATIONS))
    changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key) and key not in ignored]
    if old.get(_WEIGHTS) and os.path.abspath(old[_WEIGHTS]) == new[_WEIGHTS]:  # a run from before paths were absolute
        changed = [key for key in changed if key != _WEIGHTS]
    if changed:
        pairs = "; ".join(f"{key}: {one_line(old.get(key), 60)} -> {one_line(new.get(key), 60)}" for key in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise RunError(
            f"Run folder {shown!r} has another configuration ({pairs}{more}): choose another --out, or --overwrite it."
        )
    for name, then in domains.items():
        now = data.get(name, {})
        keys = now if then.keys() <= now.keys() else {**then, **now}
        differs = [
            f"{key}: {one_line(then.get(key), 40)} -> {now.get(key)}" for key in keys if then.get(key) != now.get(key)
        ]
        if differs:
            has = "have" if name.endswith("s") else "has"
            raise RunError(
                f"The {name} {has} changed since run {shown!r} began ({'; '.join(differs)}): "
                "put it back, choose another --out, or --overwrite it."
            )


def follow_data(folder: RunFolder, config: Config) -> None:
    """Write down where the data of a run are now."""
    tree = read_yaml(folder.config)
    now = {name: place for name, place in config.data.model_dump(mode="json").items() if name in LOCATIONS}
    if any(tree["data"].get(name) != place for name, place in now.items()):
        tree["data"] |= now
        write_text(folder.config, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))


def fingerprint(source: LabelledDomain, target: Domain, target_labels: Sequence[LabelledDomain] = ()) -> dict[str, Any]:
    """What training depends on in the data: names, sizes and source labels, and target labels only where given to it.

    ``target_labels``: those that train, and those that are kept for measuring.
    """
    given = {
        "images": sum(map(len, target_labels)),
        "names": _hash(os.path.basename(path) for part in target_labels for path in part.paths),
        "labels": _hash(part.labels for part in target_labels),
    }
    return {
        **({"target labels": given} if target_labels else {}),
        "source": {
            **_fingerprint(source.images),
            "labels": _hash(source.labels),
            **({"sources": len(source.sources), "origins": _hash(source.origins)} if source.sources else {}),
        },
        "target": _fingerprint(target),
    }


def fingerprint_target(target: Domain) -> dict[str, Any]:
    """The same of a target alone."""
    return _fingerprint(target)


def _fingerprint(domain: Domain) -> dict[str, Any]:
    """Of each path the last part: a folder that moved is the same data, and a target's folders may be labels."""
    sample = domain.paths[:: max(1, len(domain.paths) // _MEASURED)]
    return {
        "images": len(domain),
        "names": _hash(os.path.basename(path) for path in domain.paths),
        "sizes": _hash(image_bytes(path) for path in sample),
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


_LIBRARIES = ("torch", "torchvision", "timm", "accelerate", "numpy", "scikit-learn")


def environment() -> dict[str, str]:
    """Names and versions, as they are now."""
    found = {"pmtrans": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # built from source under another name
            continue
    device = choose_device(None)
    other = f"{platform.machine()} {device.type.upper()}"
    return {**found, "device": torch.cuda.get_device_name() if device.type == "cuda" else other}

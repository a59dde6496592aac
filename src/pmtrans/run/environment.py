"""``environment.json``: the versions and the device that a run's numbers depend on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import torch

import pmtrans

_LIBRARIES = ("torch", "torchvision", "timm", "accelerate", "numpy", "scikit-learn")


def environment() -> dict[str, str]:
    """Names and versions, as they are now."""
    found = {"pmtrans": pmtrans.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # built from source under another name
            continue
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine() + " CPU"
    return {**found, "device": device}

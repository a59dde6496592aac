"""Unsupervised domain adaptation with vision transformers: two folders in, a classifier for the second out.

>>> run = pmtrans.adapt(source="photos/shop", target="photos/phone", out="runs/phone")
>>> run = pmtrans.auto(source="photos/shop", target="photos/phone", out="runs/best", time="1h")
>>> run.predict(["photos/phone/0001.jpg"])[0].label
>>> pmtrans.load("runs/phone").predict("photos/phone/0002.jpg")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pmtrans.version import __version__

__all__ = [
    "__version__", "adapt", "auto", "check", "compare", "evaluate", "export", "label_these", "load", "report",
    "watch",
]  # fmt: skip

_PLACES = dict.fromkeys(__all__[1:], "pmtrans.api") | {"load": "pmtrans.inference.predictor"}

if TYPE_CHECKING:
    from pmtrans.api import adapt, auto, check, compare, evaluate, export, label_these, report, watch
    from pmtrans.inference.predictor import load


def __getattr__(name: str) -> Any:
    """They arrive with torch behind them, so they are imported when they are asked for."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'pmtrans' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""Unsupervised domain adaptation with vision transformers: two folders in, a model you can trust out.

>>> run = pmtrans.adapt(source="photos/shop", target="photos/phone", out="runs/phone")
>>> run.predict(["photos/phone/0001.jpg"])[0].label
>>> pmtrans.load("runs/phone").predict("photos/phone/0002.jpg")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pmtrans.version import __version__

__all__ = ["__version__", "adapt", "load"]

if TYPE_CHECKING:
    from pmtrans.api import adapt
    from pmtrans.inference.predictor import load


def __getattr__(name: str) -> Any:
    """``adapt`` and ``load`` arrive with torch behind them, so they are imported when they are asked for."""
    if name == "adapt":
        from pmtrans.api import adapt

        return adapt
    if name == "load":
        from pmtrans.inference.predictor import load

        return load
    raise AttributeError(f"module 'pmtrans' has no attribute {name!r}")

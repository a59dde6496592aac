"""Passes over the target that remember when they were asked for."""

from __future__ import annotations

from pmtrans.methods.method import TargetPass


def asking(asked: list[int], step: int, target: TargetPass) -> TargetPass:
    asked.append(step)
    return target

"""A share of the training that is source-only, so that a game begins on features worth adapting."""

from __future__ import annotations

from pydantic import Field

from pmtrans.methods.method import Moment, Options


class GameOptions(Options):
    """The switches that every game between features and adversaries has."""

    warmup: float = Field(0.0, ge=0, lt=1, description="share of the steps that are source-only before the game")


def first_step(moment: Moment, warmup: float) -> int:
    """Where the game begins."""
    return round(warmup * moment.steps)


def game_progress(moment: Moment, warmup: float) -> float:
    """From 0 to 1 over the steps of the game; 0 before it."""
    first = first_step(moment, warmup)
    return max(0, moment.step - first) / max(1, moment.steps - first)

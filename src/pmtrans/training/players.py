"""The players as parameter groups of one AdamW: who moves, how fast, and in which direction.

Learning rates are pure functions of the step, so resuming needs no state.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from pmtrans.backbones.backbone import backbones_in
from pmtrans.config import TrainConfig
from pmtrans.methods.method import Method, Player, check_players
from pmtrans.processes.sharding import by_sharding


def create_optimiser(method: Method, config: TrainConfig) -> torch.optim.AdamW:
    """One group per player and decay; ``maximize`` for a player that ascends, so no gradient reversal is needed.

    Sharded parameters have groups of their own.
    """
    players = method.players(config.head_ratio)
    check_players(players, method)
    undecayed = {b.get_parameter(name) for b in backbones_in(method) for name in b.names_without_decay()}
    groups = [group for player in players for group in _groups(player, config, undecayed)]
    return torch.optim.AdamW(groups, betas=(0.9, 0.999), fused=True)


def _groups(player: Player, config: TrainConfig, undecayed: set[nn.Parameter]) -> list[dict[str, Any]]:
    rate = player.learning_rate if player.learning_rate is not None else config.learning_rate * player.ratio
    names = {parameter: name for name, parameter in player.parameters}
    matrices = [p for p in names if player.decays and p.ndim > 1 and p not in undecayed]
    others = [p for p in names if not (player.decays and p.ndim > 1 and p not in undecayed)]
    return [
        {
            "player": player.name,
            "names": [names[parameter] for parameter in members],
            "params": members,
            "lr": rate,
            "base_rate": rate,
            "weight_decay": decay,
            "maximize": player.ascends,
        }
        for kind, decay in ((matrices, config.weight_decay), (others, 0.0))
        for members in by_sharding(kind)
    ]


def set_learning_rates(groups: list[dict[str, Any]], config: TrainConfig, step: int, steps: int) -> dict[str, float]:
    """Set the rates of this step, returned by player for the log; a rate of a player's own follows the same curve."""
    factor = learning_rate_factor(config.schedule, step, steps, config.warmup_steps)
    for group in groups:
        group["lr"] = group["base_rate"] * factor
    return {f"learning_rate.{group['player']}": group["lr"] for group in groups}


def descending(groups: list[dict[str, Any]]) -> list[nn.Parameter]:
    """Parameters whose gradients are clipped: those of the players that minimise."""
    return [p for group in groups if not group["maximize"] for p in group["params"]]


def ascending_gradients(groups: list[dict[str, Any]]) -> list[Tensor]:
    """Gradients of the players that maximise: not in the clipped norm, and checked beside it."""
    return [p.grad for group in groups if group["maximize"] for p in group["params"] if p.grad is not None]


def freeze_others(groups: list[dict[str, Any]], movers: tuple[str, ...] | None) -> None:
    """Players that do not move in this phase lose their gradients; the optimiser passes over them."""
    if movers is None:
        return
    for group in groups:
        if group["player"] not in movers:
            for parameter in group["params"]:
                parameter.grad = None


def learning_rate_factor(schedule: str, step: int, steps: int, warmup_steps: int | None) -> float:
    """What the base rate is multiplied with. ``inverse``: (1 + 0.001 i)^-0.75; ``cosine``: down to 0.

    ``warmup_steps`` None: 5 % of the steps, half a step rounded up; none in a training of less than 20 steps.
    """
    if warmup_steps is None:
        warmup_steps = (steps + 10) // 20 if steps >= 20 else 0
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if schedule == "inverse":
        return float((1 + 0.001 * step) ** -0.75)
    if schedule == "cosine":
        progress = (step - warmup_steps) / max(1, steps - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return 1.0

"""The players as parameter groups of one AdamW: who moves, how fast, and in which direction.

Learning rates are pure functions of the step, so resuming needs no state.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone, backbones_in
from pmtrans.backbones.blocks import layer_of, transformer_blocks
from pmtrans.backbones.lora import adapters_in
from pmtrans.config import TrainConfig
from pmtrans.methods.method import Method, Player, check_players
from pmtrans.mixing import LearnableBeta
from pmtrans.processes.sharding import by_sharding
from pmtrans.progress import Reporter


def create_optimiser(method: Method, config: TrainConfig) -> torch.optim.AdamW:
    """Groups by player, layer and decay; ``maximize`` for a player that ascends, so no gradient reversal is needed.

    Sharded parameters have groups of their own.
    """
    players = method.players(config.head_ratio)
    check_players(players, method)
    without_decay = {b.get_parameter(name) for b in backbones_in(method) for name in b.names_without_decay()}
    factors = layer_factors(method.model.backbone, config.layer_decay)
    factors |= {p: factors.get(p, 1.0) * config.head_ratio for p in adapters_in(method)}  # new layers, as the head is
    bottlenecks = [b.bottleneck for b in backbones_in(method) if b.bottleneck is not None]
    new = {parameter for bottleneck in bottlenecks for parameter in bottleneck.parameters()}
    groups = [
        group
        for player in players
        for group in _groups(player, config, without_decay, factors | dict.fromkeys(new, player.bottleneck_ratio))
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.999), fused=True)


def layer_factors(backbone: Backbone, layer_decay: float) -> dict[nn.Parameter, float]:
    """What the rate of each parameter is multiplied with: layer_decay^(L + 1 - i) in layer i of L blocks.

    Only the model's own backbone has them: a second one that another player owns (FixBi's) learns at one rate.
    """
    if layer_decay == 1:
        return {}
    last = len(transformer_blocks(backbone)) + 1
    return {parameter: layer_decay ** (last - layer) for parameter, layer in layer_of(backbone).items()}


def _groups(
    player: Player, config: TrainConfig, without_decay: set[nn.Parameter], factors: dict[nn.Parameter, float]
) -> list[dict[str, Any]]:
    own_rate = player.learning_rate if player.learning_rate is not None else config.learning_rate * player.ratio
    names = {parameter: name for name, parameter in player.parameters}
    kinds: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for parameter in names:
        still = not player.decays or parameter.ndim < 2 or parameter in without_decay
        kinds.setdefault((factors.get(parameter, 1.0), still), []).append(parameter)
    return [
        {
            "player": player.name,
            "names": [names[parameter] for parameter in members],
            "params": members,
            "lr": own_rate * factor,
            "base_rate": own_rate * factor,
            "weight_decay": 0.0 if still else config.weight_decay,
            "maximize": player.ascends,
        }
        for (factor, still), kind in sorted(kinds.items(), key=lambda item: item[0])
        for members in by_sharding(kind)
    ]


def set_learning_rates(groups: list[dict[str, Any]], config: TrainConfig, step: int, steps: int) -> dict[str, float]:
    """Set the rates of this step, returned by player for the log: its highest, that of its last layer.

    A rate of a player's own follows the same curve.
    """
    factor = learning_rate_factor(config.schedule, step, steps, config.warmup_steps)
    rates: dict[str, float] = {}
    for group in groups:
        group["lr"] = group["base_rate"] * factor
        name = f"learning_rate.{group['player']}"
        rates[name] = max(rates.get(name, 0.0), group["lr"])
    return rates


def fix_betas(method: Method, frozen_blocks: int, reporter: Reporter) -> None:
    """Fix the learnable Beta of a mixing whose images pass frozen blocks.

    Through these it gets no gradient, and what is left, through the label weights, is not that of the objective.
    """
    betas = [part for part in method.modules() if isinstance(part, LearnableBeta) and part.raw.requires_grad]
    if frozen_blocks and betas:
        for beta in betas:
            beta.requires_grad_(False)
        reporter.warn(f"train.freeze_blocks={frozen_blocks}: no gradient passes frozen blocks, so the Beta is fixed")


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

"""The game, made visible: how far are the three players from a Nash equilibrium?

At an equilibrium no player can gain by moving alone (Definition 2 of the paper). On fixed held-out pairs, with fixed
quantiles of the mixing ratios, so that only the players differ from one evaluation to the next:

``game.divergence``  CE between mixed patches and mixed labels: 0 when the domains are aligned (Theorem 1).
``game.p_gain``      how much P alone could still raise CE_{s,i,t}: the best of a grid over its closed range.
``game.f_gain``      how much F alone could still lower J with a few steps; ``game.c_gain`` the same for C.
``game.gradient_*``  norm of each player's gradient: F and C of J, P of CE_{s,i,t} in (b, g).

The target's labels are here the present predictions of the model, as no others exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from scipy.special import betaincinv
from torch import Tensor, nn

from pmtrans.backbones.encoding import Encoding
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain, LabelledDomain, sample_domain
from pmtrans.data.loader import image_batches
from pmtrans.data.sampling import Stream
from pmtrans.data.transforms import Preprocessing
from pmtrans.losses import classification_loss
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.mixing import Mixed
from pmtrans.mixing.hierarchical import patch_concentrations

PAIRS = 8
STEPS = 2


class Domains(Protocol):
    """What is needed of the data of a training."""

    @property
    def holdout(self) -> LabelledDomain: ...
    @property
    def target(self) -> Domain: ...
    @property
    def preprocessing(self) -> Preprocessing: ...


class GameObserver:
    """An observer of the loop for PMTrans; it leaves the players as it found them, bit for bit."""

    def __init__(self, method: PMTrans, batch: Batch, learning_rate: float) -> None:
        self.method, self.batch, self.learning_rate = method, batch, learning_rate
        pairs, patches = len(batch.source_images), method.model.backbone.patches
        generator = torch.Generator().manual_seed(0)
        drawn = 1 if method.options.mixing in ("mixup", "hierarchical") else patches
        self.quantiles = torch.rand(pairs, drawn, generator=generator).double().numpy()
        self.patch_quantiles = torch.rand(pairs, patches, generator=generator).double().numpy()

    def __call__(self, evaluation: Any) -> dict[str, float]:
        method = self.method
        was_training = method.training
        method.eval()
        try:
            labels_B = self._target_labels()
            start = self._costs(self._encode(), labels_B)
            objective = float(start["J"].detach())
            gradients = self._gradients(start["J"])
            best_of_p, gradient_p = self._look_around_p(labels_B)
            values = {
                "divergence": float(start["divergence"].detach()),
                "p_gain": best_of_p - float(start["cross_entropy"].detach()),
                "f_gain": objective - self._after_steps_of_f(gradients["f"], labels_B),
                "c_gain": objective - self._after_steps_of_c(labels_B),
                "gradient_f": _norm(gradients["f"]),
                "gradient_c": _norm(gradients["c"]),
                "gradient_p": gradient_p,
            }
        finally:
            method.train(was_training)
        return {f"game.{name}": value for name, value in values.items()}

    @torch.no_grad()
    def _target_labels(self) -> Tensor:
        predicted: Tensor = self.method.model(self.batch.target_images).argmax(1)
        return predicted

    def _encode(self) -> _Encoded:
        """The fixed pairs through the transformer, mixed by the present Beta."""
        backbone, batch = self.method.model.backbone, self.batch
        source, target = backbone.embed(torch.cat([batch.source_images, batch.target_images])).chunk(2)
        mixed = self._mix(source, target, tuple(self.method.mixing.beta.concentrations().tolist()))
        scored = 0 if self.method.options.attention == "uniform" else 2 * len(source)
        s, t, i = backbone.encode(torch.cat([source, target, mixed.tokens_BND]), scored).split(len(source))
        return _Encoded(mixed, s, t, i)

    def _costs(self, encoded: _Encoded, labels_B: Tensor) -> dict[str, Tensor]:
        """J, CE_{s,i,t} and the divergence."""
        method, head = self.method, self.method.model.head
        labels = self.batch.source_labels, labels_B
        ratio_BN, s, t, i = encoded.mixed.ratio_BN, encoded.s, encoded.t, encoded.i
        feature_space, label_space, _ = method.cross_entropy(ratio_BN, s, t, i, head(i.features_BF), labels)
        classification = classification_loss(head(s.features_BF), labels[0], method.options.label_smoothing)
        cross_entropy = feature_space + label_space
        return {
            "J": classification + torch.as_tensor(method.tradeoff.alpha(1.0)) * cross_entropy,
            "cross_entropy": cross_entropy,
            "divergence": label_space if method.options.label_loss else cross_entropy,
        }

    def _mix(self, source: Tensor, target: Tensor, concentrations: tuple[float, ...]) -> Mixed:
        """Ratios at the fixed quantiles of the Beta, whatever its concentrations: common random numbers."""
        ratios = betaincinv(*concentrations, self.quantiles)
        if self.method.options.mixing == "hierarchical":
            b, g = patch_concentrations(torch.from_numpy(ratios))
            ratios = betaincinv(b.numpy(), g.numpy(), self.patch_quantiles)
        ratio = torch.as_tensor(ratios, dtype=torch.float32, device=source.device)
        ratio_BN = ratio.expand(-1, source.shape[1])
        if self.method.options.ratio_weighs == "target":
            ratio_BN = 1 - ratio_BN
        return Mixed(torch.lerp(target, source, ratio_BN.unsqueeze(-1).to(source.dtype)), ratio_BN)

    @torch.no_grad()
    def _look_around_p(self, labels_B: Tensor) -> tuple[float, float]:
        """The largest CE over a grid of the closed range and the present point, and the norm of its gradient in (b, g).

        The gradient is a central difference: at fixed quantiles CE has no derivative that autograd knows. Parents are
        encoded once.
        """
        beta, backbone, batch = self.method.mixing.beta, self.method.model.backbone, self.batch
        low, high = beta.floor + 0.02, beta.ceiling
        grid = [low * (high / low) ** share for share in (0.0, 0.5, 1.0)]
        b, g = beta.concentrations().tolist()
        h = 0.02 * min(b, g)
        around = [(b + h, g), (b - h, g), (b, g + h), (b, g - h)]
        points = [*around, (b, g), *((other_b, other_g) for other_b in grid for other_g in grid)]
        source, target = backbone.embed(torch.cat([batch.source_images, batch.target_images])).chunk(2)
        pairs = len(source)
        scored = 0 if self.method.options.attention == "uniform" else 2 * pairs
        s, t = backbone.encode(torch.cat([source, target]), scored).split(pairs)
        mixes = [self._mix(source, target, point) for point in points]
        encoded = backbone.encode(torch.cat([mixed.tokens_BND for mixed in mixes]), 0).split(pairs)
        costs = [self._costs(_Encoded(m, s, t, i), labels_B) for m, i in zip(mixes, encoded, strict=True)]
        values = [float(cost["cross_entropy"]) for cost in costs]
        slopes = (values[0] - values[1]) / (2 * h), (values[2] - values[3]) / (2 * h)
        return max(values[len(around) :]), math.hypot(*slopes)

    def _gradients(self, objective: Tensor) -> dict[str, list[Tensor | None]]:
        """Of F and of C."""
        f, c = (_trainable(module) for module in (self.method.model.backbone, self.method.model.head))
        gradients: list[Tensor | None] = list(torch.autograd.grad(objective, [*f, *c], allow_unused=True))
        return {"f": gradients[: len(f)], "c": gradients[len(f) :]}

    def _after_steps_of_f(self, first: list[Tensor | None], labels_B: Tensor) -> float:
        """J after a few steps of F alone, the first along a gradient that is known already."""
        with borrowed(self.method.model.backbone) as parameters:
            optimiser = torch.optim.Adam(parameters, lr=self.learning_rate)
            gradients: Any = first
            for step in range(STEPS):
                if step > 0:
                    objective = self._costs(self._encode(), labels_B)["J"]
                    gradients = torch.autograd.grad(objective, parameters, allow_unused=True)
                _move(optimiser, parameters, gradients)
            with torch.no_grad():
                return float(self._costs(self._encode(), labels_B)["J"])

    def _after_steps_of_c(self, labels_B: Tensor) -> float:
        """J after a few steps of C alone: the features stand still, so they are computed once."""
        with torch.no_grad():
            encoded = self._encode()
        with borrowed(self.method.model.head) as parameters:
            optimiser = torch.optim.Adam(parameters, lr=self.learning_rate)
            for _ in range(STEPS):
                _move(optimiser, parameters, torch.autograd.grad(self._costs(encoded, labels_B)["J"], parameters))
            with torch.no_grad():
                return float(self._costs(encoded, labels_B)["J"])


def observe_game(method: PMTrans, task: Domains, seed: int, learning_rate: float) -> GameObserver | None:
    """An observer on fixed pairs; None where ratios have no quantiles, as those of a box."""
    if method.options.mixing not in ("patchmix", "hierarchical", "mixup"):
        return None
    pairs = fixed_pairs(task, seed).to(next(method.parameters()).device)
    return GameObserver(method, pairs, learning_rate)


@dataclass(frozen=True)
class _Encoded:
    mixed: Mixed
    s: Encoding
    t: Encoding
    i: Encoding


def fixed_pairs(task: Domains, seed: int) -> Batch:
    """A few held-out source images beside a few target images, under the evaluation transform."""
    holdout = sample_domain(task.holdout, PAIRS, seed)
    target = [Stream(seed, "game", len(task.target)).at(place).index for place in range(len(holdout))]
    paths = (*holdout.paths, *(task.target.paths[index] for index in target))
    images, _ = next(image_batches(paths, task.preprocessing, len(paths), workers=0))
    source_images, target_images = images.chunk(2)
    labels = torch.tensor(holdout.labels)
    return Batch(source_images, labels, torch.arange(len(labels)), target_images, torch.tensor(target))


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def _norm(gradients: Sequence[Tensor | None]) -> float:
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None))


def _move(optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimiser.step()


@contextmanager
def borrowed(player: nn.Module) -> Iterator[list[nn.Parameter]]:
    """A player's parameters, to be moved freely: afterwards they and their gradients are what they were."""
    parameters = _trainable(player)
    values = [p.detach().clone() for p in parameters]
    gradients = [p.grad for p in parameters]
    try:
        yield parameters
    finally:
        with torch.no_grad():
            for parameter, value, gradient in zip(parameters, values, gradients, strict=True):
                parameter.copy_(value)
                parameter.grad = gradient

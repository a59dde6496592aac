"""Many small adaptations with known truth, for ``benchmarks/trust.py``.

The backbone stays frozen: features of both domains are extracted once and cached. On them a linear probe, a
source-only model (a residual adapter and a head, trained on the source) and an adapted model (the same, trained further
by one of several losses) take a second together. What is known of each model is the evidence that a run would have; the
target's labels stay beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import timm.data
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from trust_line import accuracies_on_the_line

from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.digits_vit import weights_path
from pmtrans.data.demo.digits import write_digits
from pmtrans.data.domain import Domain, LabelledDomain, holdout_places, split_at
from pmtrans.data.reading.read import read_source
from pmtrans.data.transforms import preprocessing_for
from pmtrans.evaluation.linear_probe import fit_probe
from pmtrans.evaluation.passes import run_pass
from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels
from pmtrans.selection.evidence import Evidence

IMAGE_SIZES, DIGITS_SIZE, CROP = (128, 224), 24, 0.875
HOLDOUT = 0.1
BATCH, HIDDEN = 64, 64
SOURCE_STEPS, STEPS, EVALUATIONS = 100, 48, 4
SMOOTHING = 0.1
LAST_BLOCKS = 3

OFFICE_31 = {"A": "amazon", "D": "dslr", "W": "webcam"}


@dataclass(frozen=True)
class Features:
    """A domain as the untrained backbone sees it: its features, and what its last blocks have in their tokens."""

    features_MD: Tensor
    tokens_ME: Tensor  # class token and mean patch token of the last blocks: what fine-tuning could make use of
    labels_M: Tensor
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Adaptation:
    """The evidence of all models of one adaptation, and the truth, which nothing but a measurement may read."""

    task: str
    target: str  # all of its images, or how they were drawn
    method: str
    probe: Evidence
    source_only: Evidence
    evaluations: list[Evidence]
    labels_M: Tensor
    on_the_line: tuple[float, float]  # accuracy of probe and source-only model by agreement of all source models

    @property
    def name(self) -> str:
        return f"{self.task}, {self.target}, {self.method}"

    def accuracy(self, evidence: Evidence) -> float:
        return (evidence.target_predictions_M() == self.labels_M).double().mean().item()


def extract(folder: Path, backbone: str, weights: Path, image_size: int, cache: Path) -> Features:
    """Features of the images of ``folder``, from ``cache`` where they were extracted before."""
    domain = read_source(folder)
    facts = [str(weights.stat().st_size), backbone, str(image_size), *domain.paths]
    place = cache / f"{folder.name}-{hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:16]}.pt"
    if place.is_file():
        features_MD, tokens_ME = torch.load(place, weights_only=True)
    else:
        model = Model(create_backbone(backbone, str(weights), image_size), classes=2)
        settings = timm.data.resolve_data_config({}, model=model.backbone.trunk)
        seen: list[list[Tensor]] = [[] for _ in range(LAST_BLOCKS)]
        for rows, block in zip(seen, model.backbone.trunk.blocks[-LAST_BLOCKS:], strict=True):
            block.register_forward_hook(lambda _module, _inputs, out, rows=rows: rows.append(_pooled(out)))
        features_MD = run_pass(model, domain.paths, preprocessing_for(settings, image_size, CROP), 64, 0).features_MF
        tokens_ME = torch.cat([torch.cat(rows) for rows in seen], dim=1)
        cache.mkdir(parents=True, exist_ok=True)
        torch.save([features_MD, tokens_ME], place)
    return Features(features_MD, tokens_ME, torch.tensor(domain.labels), domain.classes)


def _pooled(tokens_BND: Tensor) -> Tensor:
    return torch.cat([tokens_BND[:, 0], tokens_BND[:, 1:].mean(1)], dim=1)


@dataclass(frozen=True)
class KnownTask:
    """Two domains at one image size; all sizes of a task have its name, so that they are left out together."""

    name: str
    pixels: int
    source: Features
    target: Features
    larger: tuple[Features, Features] | None = None  # both domains at the size of the weights, where that is another


def read_tasks(office: Path | None, weights: Path | None, cache: Path) -> list[KnownTask]:
    """Office-31's six at two image sizes, where it is given, and the demo's digits."""
    tasks = []
    if office is not None and weights is not None:
        small, large = (
            {
                letter: extract(office / folder, "deit_tiny_patch16_224", weights, pixels, cache)
                for letter, folder in OFFICE_31.items()
            }
            for pixels in IMAGE_SIZES
        )
        pairs = [(s, t) for s in OFFICE_31 for t in OFFICE_31 if s != t]
        tasks += [KnownTask(f"{s}2{t}", IMAGE_SIZES[0], small[s], small[t], (large[s], large[t])) for s, t in pairs]
        tasks += [KnownTask(f"{s}2{t}", IMAGE_SIZES[1], large[s], large[t]) for s, t in pairs]
    printed, handwritten = (
        extract(folder, "pmtrans_digits_vit", weights_path(), DIGITS_SIZE, cache)
        for folder in write_digits(cache / "digits")
    )
    return [*tasks, KnownTask("digits", DIGITS_SIZE, printed, handwritten)]


class Adapter(nn.Module):
    """g(f, e) = f + W2 gelu(W1 e), f the features and e the tokens of the last blocks, and a linear head on g."""

    def __init__(self, width: int, tokens: int, classes: int) -> None:
        super().__init__()
        self.width, self.tokens, self.classes = width, tokens, classes
        last = nn.Linear(HIDDEN, width)
        self.inner = nn.Sequential(nn.LayerNorm(tokens), nn.Linear(tokens, HIDDEN), nn.GELU(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.head = nn.Linear(width, classes)

    def features(self, x_BC: Tensor) -> Tensor:
        """``x`` holds features and tokens side by side."""
        adapted: Tensor = x_BC[:, : self.width] + self.inner(x_BC[:, self.width :])
        return adapted

    def forward(self, x_BC: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x_BC))
        return logits


@dataclass(frozen=True)
class Domains:
    """What an adaptation trains on."""

    source_PC: Tensor
    source_labels_P: Tensor
    holdout_NC: Tensor
    holdout_labels_N: Tensor
    target_MC: Tensor

    def evidence(self, model: Adapter) -> Evidence:
        with torch.no_grad():
            source_ND, target_MD = model.features(self.holdout_NC), model.features(self.target_MC)
            return Evidence(
                source_ND, model.head(source_ND), self.holdout_labels_N, target_MD, model.head(target_MD)
            )  # fmt: skip


Loss = Callable[[Adapter, Tensor, Tensor, Tensor, Tensor], Tensor]  # model, source, its labels, target, pseudo labels


def _supervised(model: Adapter, source_BD: Tensor, labels_B: Tensor) -> Tensor:
    return cross_entropy(model(source_BD), labels_B, label_smoothing=SMOOTHING)


def _information_maximisation(model: Adapter, s: Tensor, y: Tensor, t: Tensor, _: Tensor) -> Tensor:
    return _supervised(model, s, y) + information_maximisation_loss(model(t))


def _source_free(model: Adapter, _s: Tensor, _y: Tensor, t: Tensor, pseudo: Tensor) -> Tensor:
    logits = model(t)
    return information_maximisation_loss(logits) + 0.3 * cross_entropy(logits, pseudo)


def _pseudo_labels(model: Adapter, s: Tensor, y: Tensor, t: Tensor, pseudo: Tensor) -> Tensor:
    return _supervised(model, s, y) + cross_entropy(model(t), pseudo)


def _mixup(model: Adapter, s: Tensor, y: Tensor, t: Tensor, pseudo: Tensor) -> Tensor:
    """PMTrans' label-space loss with one ratio an image, on features: there are no patches to mix."""
    ratio = torch.rand(len(s), 1)
    logits = model(ratio * s + (1 - ratio) * t)
    mixed = ratio[:, 0] * cross_entropy(logits, y, reduction="none")
    mixed = mixed + (1 - ratio[:, 0]) * cross_entropy(logits, pseudo, reduction="none")
    return _supervised(model, s, y) + mixed.mean()


def _confusion(model: Adapter, s: Tensor, y: Tensor, t: Tensor, _: Tensor) -> Tensor:
    return _supervised(model, s, y) + minimum_class_confusion(model(t))


def _nuclear_norm(model: Adapter, s: Tensor, y: Tensor, t: Tensor, _: Tensor) -> Tensor:
    return _supervised(model, s, y) + batch_nuclear_norm_loss(model(t))


def _entropy(model: Adapter, s: Tensor, y: Tensor, t: Tensor, _: Tensor) -> Tensor:
    return _supervised(model, s, y) + _entropy_alone(model, s, y, t, y)


def _entropy_alone(model: Adapter, _s: Tensor, _y: Tensor, t: Tensor, _p: Tensor) -> Tensor:
    log_p = model(t).log_softmax(1)
    entropy: Tensor = -(log_p.exp() * log_p).sum(1).mean()
    return entropy


def _moments(model: Adapter, s: Tensor, y: Tensor, t: Tensor, _: Tensor) -> Tensor:
    """Means and covariances of both domains drawn together (CORAL): good for some tasks, bad under a label shift."""
    a, b = model.features(s), model.features(t)
    covariance = (a - a.mean(0)).T @ (a - a.mean(0)) / len(a) - (b - b.mean(0)).T @ (b - b.mean(0)) / len(b)
    return _supervised(model, s, y) + (a.mean(0) - b.mean(0)).square().mean() + covariance.square().mean()


def _wrong_labels(model: Adapter, s: Tensor, y: Tensor, t: Tensor, pseudo: Tensor) -> Tensor:
    """A third of the pseudo labels are those of another image of the batch: a bug somewhere, as it happens."""
    third = len(pseudo) // 3
    return _pseudo_labels(model, s, y, t, torch.cat([pseudo[:third].roll(1), pseudo[third:]]))


@dataclass(frozen=True)
class Setting:
    """A loss and a learning rate: good ones, and ones known to harm."""

    loss: Loss
    learning_rate: float
    refresh: bool = True  # whether pseudo labels are made again at each evaluation


SETTINGS = {
    "information maximisation": Setting(_information_maximisation, 1e-3),
    "source-free": Setting(_source_free, 1e-3),
    "source-free, rate x 10": Setting(_source_free, 1e-2),
    "pseudo labels": Setting(_pseudo_labels, 1e-3),
    "mixup": Setting(_mixup, 2e-3),
    "class confusion": Setting(_confusion, 1e-3),
    "nuclear norm": Setting(_nuclear_norm, 2e-3),
    "entropy": Setting(_entropy, 1e-3),
    "entropy alone, rate x 10": Setting(_entropy_alone, 1e-2),
    "moments": Setting(_moments, 2e-3),
    "wrong labels": Setting(_wrong_labels, 2e-3),
}

DRAWS = ("all", "long tail", "third of the classes", "300 images", "100 images", "40 images")


def draw_target(draw: str, labels_M: Tensor, classes: int, seed: int) -> Tensor:
    """Places of the target images of one version: all, label-shifted or few."""
    random = np.random.default_rng([seed, DRAWS.index(draw)])
    labels, places = labels_M.numpy(), np.arange(len(labels_M))
    if draw == "long tail":  # the rarest class keeps a twentieth of its images
        order = random.permutation(classes)
        share = 20.0 ** (-order / max(classes - 1, 1))
        places = places[random.random(len(labels)) < share[labels]]
    elif draw == "third of the classes":
        kept = random.permutation(classes)[: -(-classes // 3)]
        places = places[np.isin(labels, kept)]
    elif draw.endswith("images"):
        places = np.sort(random.permutation(places)[: int(draw.split()[0])])
    return torch.from_numpy(places)


def adapt(known: KnownTask, draw: str, names: list[str], seed: int) -> Iterator[Adaptation]:
    """One probe and one source-only model, and an adaptation from it by each of the settings."""
    task, source, target = known.name, known.source, known.target
    torch.manual_seed(1000 * seed + DRAWS.index(draw))
    classes, width = len(source.classes), source.features_MD.shape[1]
    images = Domain(Path(task), tuple(map(str, range(len(source.labels_M)))))
    numbered = LabelledDomain(images, tuple(source.labels_M.tolist()), source.classes)
    parts = split_at(numbered, holdout_places(numbered, HOLDOUT, seed))
    train, held = (torch.tensor([int(path) for path in part.paths]) for part in parts)
    places = draw_target(draw, target.labels_M, classes, seed)
    scale = source.features_MD.std(), source.tokens_ME.std(0)  # so that one learning rate serves every backbone
    source_MC, target_MC = (
        torch.cat([domain.features_MD / scale[0], domain.tokens_ME / scale[1]], dim=1) for domain in (source, target)
    )
    domains = Domains(
        source_MC[train], source.labels_M[train], source_MC[held], source.labels_M[held], target_MC[places]
    )
    probe = Adapter(width, source.tokens_ME.shape[1], classes)
    fitted = fit_probe(
        nn.Linear(width, classes), domains.source_PC[:, :width], domains.source_labels_P,
        domains.holdout_NC[:, :width], domains.holdout_labels_N, seed,
    )  # fmt: skip
    probe.head.load_state_dict(fitted.head.state_dict())
    of_probe = domains.evidence(probe)
    if known.larger is not None:
        of_source, of_target = (domain.features_MD for domain in known.larger)
        of_probe = replace(of_probe, source_ground_NG=of_source[held], target_ground_MG=of_target[places])
    source_only, supervised = _copy(probe), Setting(lambda m, s, y, t, p: _supervised(m, s, y), 1e-3)
    training = _train(source_only, domains, supervised, SOURCE_STEPS, EVALUATIONS)
    of_source_only = [domains.evidence(source_only) for _ in training]
    on_the_line = _on_the_line([of_probe, *of_source_only])
    for name in names:
        model = _copy(source_only)
        evaluations = [domains.evidence(model) for _ in _train(model, domains, SETTINGS[name], STEPS, EVALUATIONS)]
        truth_M = target.labels_M[places]
        yield Adaptation(task, draw, name, of_probe, of_source_only[-1], evaluations, truth_M, on_the_line)


def _on_the_line(models: list[Evidence]) -> tuple[float, float]:
    """Of the first and the last."""
    source, target = zip(*((one.source_predictions_N(), one.target_predictions_M()) for one in models), strict=True)
    found = accuracies_on_the_line(source, target, models[0].source_labels_N)
    return found[0], found[-1]


def _copy(model: Adapter) -> Adapter:
    copied = Adapter(model.width, model.tokens, model.classes)
    copied.load_state_dict(model.state_dict())
    return copied


def _train(model: Adapter, domains: Domains, setting: Setting, steps: int, evaluations: int) -> Iterator[int]:
    """Yields at each evaluation; noise on the features stands in for augmentation."""
    optimiser = torch.optim.Adam(model.parameters(), lr=setting.learning_rate)
    for step in range(steps):
        if step % (steps // evaluations) == 0:
            with torch.no_grad():
                features_MD = model.features(domains.target_MC)
                pseudo_M = kmeans_pseudo_labels(features_MD, logits_MK=model.head(features_MD))
        s = torch.randint(len(domains.source_PC), (BATCH,))
        t = torch.randint(len(domains.target_MC), (BATCH,))
        noisy = [x + 0.3 * torch.randn_like(x) for x in (domains.source_PC[s], domains.target_MC[t])]
        loss = setting.loss(model, noisy[0], domains.source_labels_P[s], noisy[1], pseudo_M[t])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if (step + 1) % (steps // evaluations) == 0:
            yield step + 1

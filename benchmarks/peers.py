"""DANN, CDAN, MDD, MCC and BNM with the modules of public packages, beside ours: accuracies of the same training.

    python benchmarks/peers.py --source DATA/amazon --target DATA/dslr --out runs/peers --tllib CHECKOUT \
        --seeds 0,1,2 --json runs/peers.json train.max_steps=160 train.batch_size=32

A peer's domain loss, discriminator, reversal, conditioning and confusion are the package's own (tllib from a checkout,
pytorch-adapt as installed); all around it is shared: backbone, source stage, head, label smoothing, optimiser, rates,
data order and budget. So what differs is the method as that package has it. Ours has the reversal's schedule of theirs
(2 / (1 + exp(-i / 1000)) - 1 at step i). Known differences: tllib's discriminator has batch normalisation, ours
dropout, pytorch-adapt's neither; pytorch-adapt divides the nuclear norm by the images, ours by the lesser of images and
classes; tllib has no BNM, pytorch-adapt no MDD.

Finished runs are skipped, so the same command resumes where it was stopped. The target needs labels, to measure with.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from pmtrans.bench.rendering import markdown_rows
from pmtrans.data.batch import Batch
from pmtrans.methods import METHODS, MethodEntry
from pmtrans.methods.method import Method, Moment, Options, Player, Sizes, named
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.summary import read_summary
from pmtrans.settings import load_config
from pmtrans.training.train import train

NAMES = ("dann", "cdan", "mdd", "mcc", "bnm")
HIDDEN, SKETCH, LARGEST_PRODUCT = 1024, 1024, 4096
MARGIN, MDD_REVERSAL, TEMPERATURE = 4.0, 0.1, 2.5
Terms = tuple[Tensor, Tensor, Tensor, Tensor]  # features of source and target, logits of source and target
Build = Callable[[int, int], nn.Module]  # (features, classes) -> a module called with (*terms, step)


class PeerOptions(Options):
    """What every method has: a peer is tried as its package has it."""


class Peer(Method):
    """L_cls + the transfer loss of a public package, called with features and logits of both domains and the step."""

    paper = "a public package"
    year = 2023
    needs = "one pass of 2B"
    build: Build

    def __init__(self, model: Model, options: PeerOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.transfer = type(self).build(model.backbone.features, sizes.classes)

    def players(self, head_ratio: float) -> list[Player]:
        own = named(self.transfer, "transfer")
        return [*super().players(head_ratio), *([Player("peer", own, ratio=head_ratio)] if own else [])]

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        features, logits = self.model.features_and_logits(torch.cat([batch.source_images, batch.target_images]))
        (f_s, f_t), (z_s, z_t) = features.chunk(2), logits.chunk(2)
        classification = self.source_loss(z_s, batch.source_labels, self.options.label_smoothing)
        transfer = self.transfer(f_s, f_t, z_s, z_t, moment.step)
        return {"loss": classification + transfer, "classification": classification.detach()}


def peer_entry(name: str, build: Build) -> MethodEntry:
    """A method of the registry, for this process."""
    kind = type(f"Peer_{name}", (Peer,), {"title": name, "build": staticmethod(build)})
    return MethodEntry(kind, PeerOptions, strength=None)


# ---- tllib


def open_tllib(checkout: Path) -> dict[str, Any]:
    """Its single modules, without the packages around them, which import what is not needed here."""
    root = checkout / "tllib" if (checkout / "tllib" / "alignment").is_dir() else checkout
    if not (root / "alignment" / "dann.py").is_file():
        raise SystemExit(f"{checkout} is no checkout of tllib: alignment/dann.py is missing.")
    for package in ("", ".alignment", ".modules", ".self_training", ".utils"):
        empty = types.ModuleType(f"tllib{package}")
        empty.__path__ = [str(root / package.removeprefix("."))]
        sys.modules.setdefault(f"tllib{package}", empty)
    sys.modules.setdefault("prettytable", types.ModuleType("prettytable"))  # it prints tables that nobody asks for
    losses = ("alignment.dann", "alignment.cdan", "alignment.mdd", "self_training.mcc")
    wanted = (*losses, "modules.grl", "modules.domain_discriminator")
    found: dict[str, Any] = {name.rpartition(".")[2]: importlib.import_module(f"tllib.{name}") for name in wanted}
    found["grl"].np = types.SimpleNamespace(exp=math.exp, float=float)  # numpy has no `float` any more
    return found


class TllibAdversary(nn.Module):
    """DANN or CDAN: the package's loss, whose reversal counts its calls; here it is a function of the step."""

    def __init__(self, loss: nn.Module, conditional: bool) -> None:
        super().__init__()
        self.loss, self.conditional = loss, conditional

    def forward(self, f_s: Tensor, f_t: Tensor, z_s: Tensor, z_t: Tensor, step: int) -> Tensor:
        reversal: Any = self.loss.grl
        reversal.iter_num = step
        found: Tensor = self.loss(z_s, f_s, z_t, f_t) if self.conditional else self.loss(f_s, f_t)
        return found


class TllibMargin(nn.Module):
    """MDD: the package's disparity behind its reversal, with the adversarial head of its ImageClassifier."""

    def __init__(self, modules: dict[str, Any], features: int, classes: int) -> None:
        super().__init__()
        self.disparity = modules["mdd"].ClassificationMarginDisparityDiscrepancy(MARGIN)
        self.reversal: Any = modules["grl"].WarmStartGradientReverseLayer(1.0, 0.0, MDD_REVERSAL, 1000)
        self.head = nn.Sequential(
            nn.Linear(features, HIDDEN), nn.ReLU(), nn.Dropout(0.5), nn.Linear(HIDDEN, classes)
        )  # fmt: skip

    def forward(self, f_s: Tensor, f_t: Tensor, z_s: Tensor, z_t: Tensor, step: int) -> Tensor:
        self.reversal.iter_num = step
        a_s, a_t = self.head(self.reversal(torch.cat([f_s, f_t]))).chunk(2)
        found: Tensor = -self.disparity(z_s, a_s, z_t, a_t)
        return found


class OnTarget(nn.Module):
    """A loss of the target's logits alone."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, f_s: Tensor, f_t: Tensor, z_s: Tensor, z_t: Tensor, step: int) -> Tensor:
        found: Tensor = self.loss(z_t)
        return found


def tllib_peers(checkout: Path) -> dict[str, Build]:
    modules = open_tllib(checkout)

    def dann(features: int, classes: int) -> nn.Module:
        judge = modules["domain_discriminator"].DomainDiscriminator(features, HIDDEN)
        return TllibAdversary(modules["dann"].DomainAdversarialLoss(judge), conditional=False)

    def cdan(features: int, classes: int) -> nn.Module:
        sketched = features * classes > LARGEST_PRODUCT
        judge = modules["domain_discriminator"].DomainDiscriminator(SKETCH if sketched else features * classes, HIDDEN)
        sizes = {"num_classes": classes, "features_dim": features, "randomized_dim": SKETCH}
        loss = modules["cdan"].ConditionalDomainAdversarialLoss(judge, randomized=sketched, **sizes)
        return TllibAdversary(loss, conditional=True)

    return {
        "dann": dann,
        "cdan": cdan,
        "mdd": lambda features, classes: TllibMargin(modules, features, classes),
        "mcc": lambda features, classes: OnTarget(modules["mcc"].MinimumClassConfusionLoss(TEMPERATURE)),
    }


# ---- pytorch-adapt


class AdaptAdversary(nn.Module):
    """DANN or CDAN of pytorch-adapt's discriminator, reversal and, where it is large, randomised product."""

    def __init__(self, features: int, classes: int, conditional: bool) -> None:
        super().__init__()
        layers: Any = importlib.import_module("pytorch_adapt.layers")
        models: Any = importlib.import_module("pytorch_adapt.models")
        self.conditional, width = conditional, features
        self.product: Any = None
        if conditional and features * classes > LARGEST_PRODUCT:
            self.product, width = layers.RandomizedDotProduct([features, classes], SKETCH), SKETCH
        elif conditional:
            width = features * classes
        self.reversal: Any = layers.GradientReversal()
        self.discriminator = models.Discriminator(width, HIDDEN)

    def forward(self, f_s: Tensor, f_t: Tensor, z_s: Tensor, z_t: Tensor, step: int) -> Tensor:
        self.reversal.update_weight(2 / (1 + math.exp(-step / 1000)) - 1)
        features, predictions = self.reversal(torch.cat([f_s, f_t])), torch.cat([z_s, z_t]).detach().softmax(1)
        if self.product is not None:
            features = self.product(features, predictions)
        elif self.conditional:
            features = (features[:, :, None] * predictions[:, None, :]).flatten(1)
        domains = self.discriminator(features)
        wanted = torch.cat([domains.new_ones(len(f_s)), domains.new_zeros(len(f_t))])
        return F.binary_cross_entropy_with_logits(domains, wanted)


def adapt_peers() -> dict[str, Build]:
    layers: Any = importlib.import_module("pytorch_adapt.layers")
    return {
        "dann": lambda features, classes: AdaptAdversary(features, classes, conditional=False),
        "cdan": lambda features, classes: AdaptAdversary(features, classes, conditional=True),
        "mcc": lambda features, classes: OnTarget(layers.MCCLoss(T=TEMPERATURE)),
        "bnm": lambda features, classes: OnTarget(layers.BNMLoss()),
    }


# ---- the comparison


def compare(
    out: Path, seeds: Sequence[int], peers: dict[str, dict[str, Build]], names: Sequence[str], settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """Every implementation from one source stage a seed; a record of each run."""
    records = []
    for seed in seeds:
        source = out / str(seed) / "source_only"
        records.append(run("source_only", "ours", seed, source, None, {**settings, "method.name": "source_only"}))
        for name in names:
            own = {**settings, "method.name": name, **of_theirs(name, settings)}
            records.append(run(name, "ours", seed, out / str(seed) / name, source, own))
            for library, known in peers.items():
                if name in known:
                    METHODS[f"{library}-{name}"] = peer_entry(f"{library}-{name}", known[name])
                    theirs = {**settings, "method.name": f"{library}-{name}"}
                    folder = out / str(seed) / f"{library}-{name}"
                    records.append(run(name, library, seed, folder, source, theirs))
    return records


def of_theirs(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Our reversal with the schedule of theirs: 10,000 steps, whatever the batch."""
    images = 10_000 * int(settings.get("train.batch_size", 32))
    return {"method.reversal_images": images} if name in ("dann", "cdan", "mdd") else {}


def run(
    name: str, library: str, seed: int, folder: Path, source: Path | None, settings: dict[str, Any]
) -> dict[str, Any]:
    if not RunFolder(folder).summary.is_file():
        print(f"{name} of {library}, seed {seed} ...", file=sys.stderr)
        train(load_config(None, [], {**settings, "seed": seed}), folder, Reporter(quiet=True), start_from=source)
    summary = read_summary(RunFolder(folder).summary)
    seconds = json.loads(RunFolder(folder).finished.read_text(encoding="utf-8"))["seconds"]
    accuracies = {"label_free": summary.adapted, "last": summary.last, "oracle": summary.oracle}
    return {"method": name, "library": library, "seed": seed, **accuracies, "seconds": seconds}


def table(records: Sequence[dict[str, Any]], measure: str = "last") -> str:
    """Means over seeds with their deviation, and our mean minus theirs on the same seeds."""
    ours = {(one["method"], one["seed"]): one[measure] for one in records if one["library"] == "ours"}
    rows = []
    for method, library in dict.fromkeys((one["method"], one["library"]) for one in records):
        own = {r["seed"]: r[measure] for r in records if (r["method"], r["library"]) == (method, library)}
        gaps = [100 * (ours[method, seed] - value) for seed, value in own.items()]
        values = [100 * value for value in own.values()]
        rows.append([method, library, spread(values), "" if library == "ours" else spread(gaps), str(len(values))])
    head = ("Method", "Modules of", f"Accuracy ({measure}, %)", "Ours minus theirs", "Seeds")
    return "\n".join(markdown_rows(head, rows, left=2)) + "\n"


def spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def main() -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tllib", type=Path, help="a checkout of tllib; without it pytorch-adapt alone")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(NAMES))
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    parser.add_argument("--json", type=Path, help="write all records to this file")
    parser.add_argument("overrides", nargs="*", help="any setting, such as train.max_steps=160")
    given = parser.parse_args()
    peers = {"pytorch-adapt": adapt_peers()}
    if given.tllib is not None:
        peers = {"tllib": tllib_peers(given.tllib), **peers}
    settings: dict[str, Any] = {"data.source": given.source, "data.target": given.target, "selection.ship": "adapted"}
    settings["method.label_smoothing"] = 0.1  # one for all, whatever the default of each is
    settings |= {key: yaml.safe_load(value) for key, value in (one.split("=", 1) for one in given.overrides)}
    records = compare(given.out, given.seeds, peers, given.methods, settings)
    if given.json is not None:
        given.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    print(table(records))


if __name__ == "__main__":
    main()

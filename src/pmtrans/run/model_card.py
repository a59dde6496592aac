"""The README of a model folder: what the model was made from, what it can do, and what not to expect of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jinja2

from pmtrans.config import Config
from pmtrans.data.domain import Domain
from pmtrans.errors import one_line

_SHOWN_CLASSES = 100
# What the numbers of an evaluation mean; others are not shown, as nobody would know how to read them.
_MEANINGS = {
    "oracle_accuracy": "accuracy on the target, overall (its labels were used for this number only)",
    "oracle_per_class_mean": "accuracy on the target, mean of classes (its labels were used for this number only)",
    "score.source_accuracy": "accuracy on held-out source images",
}


@dataclass(frozen=True)
class ModelCard:
    """What only the training knows. Names of domains, not paths: the card may be published."""

    method: str | None = None
    source: str | None = None
    source_images: int | None = None
    target: str | None = None
    target_images: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)  # an evaluation, under the names of metrics.jsonl


def describe_training(config: Config, source: Domain, target: Domain, numbers: Mapping[str, Any]) -> ModelCard:
    """A card from what a training has at hand; ``numbers`` is its last evaluation."""
    train = config.train
    settings = {
        "epochs": train.epochs if train.max_steps is None else f"{train.epochs}, at most {train.max_steps} steps",
        "batch": f"{train.batch_size * train.accumulate} pairs",
        "learning rate": f"{train.learning_rate:g}, new layers x {train.head_ratio:g}, {train.schedule}",
        "seed": config.seed,
    }
    names = source.origin.name, target.origin.name
    if config.data.given is not None:  # no source: what stands for it are target images
        numbers = {name: value for name, value in numbers.items() if name != "score.source_accuracy"}
        return ModelCard(str(config.method["name"]), None, None, names[1], len(target), settings, numbers)
    return ModelCard(str(config.method["name"]), names[0], len(source), names[1], len(target), settings, numbers)


def render_card(config: Mapping[str, Any], card: ModelCard) -> str:
    """Markdown with the front matter that model hubs read. ``config`` is the folder's ``config.json``."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pmtrans.run", "."),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML: ``line`` takes away what would break it
    )
    environment.filters["line"] = lambda text: one_line(text).replace("`", "'").replace("|", "/")
    ours, timm_config = config["pmtrans"], config["pretrained_cfg"]
    classes = timm_config["label_names"]
    return environment.get_template("model_card.md.j2").render(
        card=card,
        config=config,
        ours=ours,
        timm=timm_config,
        classes=classes[:_SHOWN_CLASSES],
        more_classes=max(0, len(classes) - _SHOWN_CLASSES),
        licence=_licence(ours["weights"], timm_config.get("license")),
        numbers=[
            (meaning, 100 * card.numbers[name])
            for name, meaning in _MEANINGS.items()
            if isinstance(card.numbers.get(name), float)
        ],
        registered_here=config["architecture"].startswith("pmtrans_"),
    )


def _licence(weights: str, of_backbone: str | None) -> str:
    if weights == "none":
        return "Trained from random weights: no licence of a pretrained backbone applies."
    known = (
        f"`{of_backbone}`, as timm states it for its own weights of this architecture" if of_backbone else "not known"
    )
    if weights == "timm":
        return f"Licence of the pretrained backbone: {known}."
    origin = f"The pretrained weights came from `{one_line(weights)}`: see there for their licence"
    return f"{origin} (the backbone's: {known})."

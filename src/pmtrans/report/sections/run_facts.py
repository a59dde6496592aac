"""Facts of the run: data, configuration, versions, seed, time."""

from __future__ import annotations

import yaml

from pmtrans.errors import one_line
from pmtrans.report.material import Material
from pmtrans.report.section import Section
from pmtrans.run.provenance import environment, flatten


def facts(material: Material) -> Section:
    """All that is needed to repeat the run."""
    config = material.config
    rows = [
        ("Method", material.method),
        ("Backbone", f"{config.backbone.name}, weights {config.backbone.weights}, {config.data.image_size} px"),
        ("Seed", str(config.seed)),
        ("Source", _domain(" and ".join(config.data.sources), material, "source")),
        ("Target", _domain(config.data.target, material, "target")),
        ("Classes", str(len(material.classes)) if material.classes else "?"),
        ("Steps", _steps(material)),
        ("Time", _time(material)),
        ("Run folder", one_line(material.folder)),
    ]
    values = {
        "rows": [(name, one_line(value)) for name, value in rows],
        "versions": material.environment or environment(),
        "recorded": bool(material.environment),
        "settings": [(key, _as_typed(value)) for key, value in flatten(yaml.safe_load(config.to_yaml())).items()],
    }
    return Section("facts", "What was run", "facts.html", values=values)


def _as_typed(value: object) -> str:
    """A value as written in a recipe or in ``section.key=value``."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return one_line(text.removesuffix("\n").removesuffix("\n..."), 200)


def _domain(spec: str | None, material: Material, name: str) -> str:
    if material.data is None:
        return str(spec)
    data = material.data
    if name == "source" and material.config.data.given is not None:
        return f"none: a model was moved without it; {len(data.holdout)} target images stand for it in the selection"
    if name == "source":
        return f"{spec}: {len(data.source)} images to train on, {len(data.holdout)} held out"
    labelled = len(material.target_labels)
    known = f"{labelled} of them have labels, read for evaluation only" if labelled else "no labels"
    return f"{spec}: {len(data.target.domain)} images, {known}"


def _steps(material: Material) -> str:
    done = material.metrics[-1]["step"] if material.metrics else 0
    total = f" of {material.steps}" if material.steps else ""
    return f"{done}{total}, batches of {material.config.train.batch_size} pairs"


def _time(material: Material) -> str:
    seconds = sum(
        next((line["seconds"] for line in reversed(lines) if line.get("seconds") is not None), 0.0)
        for lines in (material.metrics, material.baseline_metrics)
    )
    hours, rest = divmod(round(seconds), 3600)
    text = f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
    return f"{text} of training, the baseline included" if material.baseline_metrics else f"{text} of training"

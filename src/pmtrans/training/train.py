"""From a configuration to a finished run folder: data, model, baseline, adaptation, summary."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm.data
import torch
from accelerate import Accelerator

from pmtrans.backbones.create import create_backbone
from pmtrans.config import Config
from pmtrans.data.domain import LabelledDomain
from pmtrans.data.holdout import split_holdout
from pmtrans.data.read import Target, read_source, read_target
from pmtrans.data.transforms import preprocessing_for
from pmtrans.errors import ConfigError, DataError, one_line
from pmtrans.evaluation.oracle import Oracle
from pmtrans.inference.model_card import describe_training
from pmtrans.inference.model_folder import TrainedModel, save_model
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.model import Model
from pmtrans.run.files import write_json
from pmtrans.run.folder import Opened, RunFolder, fingerprint, open_run, prepare
from pmtrans.run.lock import run_lock
from pmtrans.run.summary import Summary, read_summary
from pmtrans.training.checkpoint import BrokenCheckpoint, checkpoints, load_snapshot
from pmtrans.training.loop import Loop, Task
from pmtrans.training.progress import Reporter
from pmtrans.training.signals import StopRequest, stop_on_signals


@dataclass(frozen=True)
class Data:
    """Both domains as read, the source split; target labels stay in ``target.labelled``, for the oracle only."""

    source: LabelledDomain
    holdout: LabelledDomain
    target: Target


def train(config: Config, out: Path, reporter: Reporter, overwrite: bool = False) -> Summary:
    """Train, or go on with, the run in ``out``."""
    data = read_data(config, reporter)
    folder = RunFolder(out)
    prepare(folder, overwrite)
    with run_lock(out), stop_on_signals() as stop:
        state = open_run(folder, config, fingerprint(data.source, data.target.domain))
        if state is Opened.FINISHED:
            reporter.note(f"Run {one_line(out)} is finished already.")
            return read_summary(folder.summary)
        write_json(folder.classes, list(data.source.classes))
        return _train_both(config, folder, data, reporter, stop)


def read_data(config: Config, reporter: Reporter) -> Data:
    """Both domains; everything that a user can get wrong with data is said before the first step."""
    settings = config.data
    if settings.source is None or settings.target is None:
        raise ConfigError("Give both domains: --source DIR and --target DIR (or data.source and data.target).")
    source = read_source(settings.source, root=settings.root, classes=settings.classes)
    target = read_target(settings.target, source.classes, root=settings.root)
    for warning in target.warnings:
        reporter.warn(warning)
    training, holdout = split_holdout(source, settings.holdout, config.seed)
    if len(target.domain) < 2:
        raise DataError(f"{one_line(settings.target)}: {len(target.domain)} image is too few to adapt to.")
    return Data(training, holdout, target)


def _train_both(config: Config, folder: RunFolder, data: Data, reporter: Reporter, stop: StopRequest) -> Summary:
    begin = time.monotonic()
    baseline = None
    if config.train.baseline and config.method["name"] != "source_only":
        plain = config.model_copy(update={"method": _baseline_switches(config)})
        baseline = _train_one("source only", plain, folder.baseline, data, reporter, stop)
    adapted = _train_one(config.method["name"], config, folder.path, data, reporter, stop)
    only = adapted if config.method["name"] == "source_only" else baseline
    summary = Summary(
        method=config.method["name"],
        source_only=only.accuracy if only else None,
        adapted=adapted.accuracy,
        seconds=round(adapted.seconds + (baseline.seconds if baseline else 0.0), 3),
        evaluations={"adapted": adapted.details, "source_only": only.details if only else None},
    )
    write_json(folder.summary, summary.to_json())
    reporter.note(f"Finished in {time.monotonic() - begin:.0f} s: {one_line(folder.path)}")
    return summary


def _baseline_switches(config: Config) -> dict[str, Any]:
    shared: dict[str, Any] = {
        name: config.method[name] for name in ("head", "label_smoothing") if name in config.method
    }
    return {"name": "source_only", **shared}


@dataclass(frozen=True)
class _Trained:
    accuracy: float | None
    seconds: float
    details: dict[str, Any]


def _train_one(title: str, config: Config, folder: Path, data: Data, reporter: Reporter, stop: StopRequest) -> _Trained:
    """One method, from its last whole checkpoint on."""
    accelerator = Accelerator(mixed_precision=precision(config.train.precision), cpu=not torch.cuda.is_available())
    method, task, trained = build(config, data, reporter)
    oracle = Oracle(data.target, reporter, title) if data.target.labelled else None
    loop = Loop(title, method, task, config, folder, accelerator, reporter, stop, [oracle] if oracle else [])
    folder.mkdir(exist_ok=True)
    _resume(loop, folder / "checkpoints", reporter)
    loop.fit()
    details = dict(loop.evaluations[-1])
    save_model(folder / "model", trained, describe_training(config, data.source, data.target.domain, details))
    return _Trained(details.get("oracle_accuracy"), loop.seconds, details)


def _resume(loop: Loop, folder: Path, reporter: Reporter) -> None:
    for path in reversed(checkpoints(folder)):
        try:
            snapshot = load_snapshot(path)
        except BrokenCheckpoint as error:
            reporter.warn(f"checkpoint {path.name} is passed over: {error}")
            continue
        loop.resume(snapshot)
        reporter.note(f"Going on with {loop.title} from step {snapshot.step} of {loop.steps}.")
        return


def build(config: Config, data: Data, reporter: Reporter) -> tuple[Method, Task, TrainedModel]:
    """Model, method and task; the same seed gives the same first weights to every method."""
    torch.manual_seed(config.seed)
    size = config.data.image_size
    backbone = create_backbone(config.backbone.name, config.backbone.weights, size, config.backbone.options)
    switches = {key: value for key, value in config.method.items() if key != "name"}
    entry = METHODS[config.method["name"]]
    options = entry.options.model_validate(switches)
    model = Model(backbone, len(data.source.classes), switches.get("head", "linear"))
    sizes = Sizes(len(data.source.classes), len(data.source), len(data.target.domain))
    method = entry.create(model, options, sizes)
    timm_config = timm.data.resolve_data_config({}, model=backbone.trunk)
    preprocessing = preprocessing_for(timm_config, size, config.data.crop_ratio)
    batch_size = min(config.train.batch_size, len(data.source), len(data.target.domain))
    if batch_size < config.train.batch_size:
        reporter.warn(f"batch size {config.train.batch_size} is more than a domain has: {batch_size} is used")
    task = Task(data.source, data.holdout, data.target.domain, preprocessing, batch_size)
    return method, task, TrainedModel(model, data.source.classes, preprocessing, config.backbone)


def precision(wanted: str) -> str:
    """accelerate's name; ``auto``: bf16 on a GPU that has it, float32 elsewhere (bf16 is emulated on most CPUs)."""
    if wanted == "auto":
        return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    return "no" if wanted == "fp32" else wanted

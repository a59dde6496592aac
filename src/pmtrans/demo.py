"""The demo: adapt from printed to handwritten digits, next to a source-only model with the same budget."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pmtrans.backbones.digits_vit import weights_path
from pmtrans.config import Config, settings_from_flags
from pmtrans.data.demo.digits import write_digits
from pmtrans.data.domains import read_data
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder, claim
from pmtrans.run.metrics import read_metrics
from pmtrans.run.model_folder import load_model
from pmtrans.run.summary import Summary
from pmtrans.settings import load_config
from pmtrans.training.train import train

SETTINGS: dict[str, Any] = {
    "data.image_size": 24,
    "data.crop_ratio": 0.875,
    "data.flip": False,
    "data.workers": 0,
    "backbone.name": "pmtrans_digits_vit",
    "train.batch_size": 64,
    "train.epochs": 16,
    "train.learning_rate": 1e-3,
    "train.head_ratio": 1.0,
    "train.evaluate_every": 56,
}


def known_balance(method: str, overrides: list[str]) -> list[str]:
    """Settings of PMTrans for this target: who has digits written knows that each comes as often as the others.

    A preset that the user names is left as it is.
    """
    if method != "pmtrans" or any(one.startswith("method.preset=") for one in overrides):
        return []
    return ["method.pseudo_labels=transport", "method.prior=uniform"]


def demo_config(source: Path, target: Path, seed: int, method: str, overrides: list[str]) -> Config:
    """``SETTINGS`` on the two domains, then the overrides."""
    flags = settings_from_flags(source=source, target=target, weights=weights_path(), method=method, seed=seed)
    return load_config(None, overrides, {**flags, **SETTINGS})


def run_demo(
    out: Path, seed: int, method: str, overrides: list[str], reporter: Reporter, overwrite: bool = False
) -> Summary:
    """Write the data, train, draw the figures."""
    with claim(RunFolder(out), overwrite):
        for incomplete in out.glob(".data-*"):  # of an interrupted demo
            shutil.rmtree(incomplete)
        reporter.note("Writing printed digits (source) and handwritten digits (target) ...")
        source, target = write_digits(out / "data", seed=0)
    config = demo_config(source, target, seed, method, [*known_balance(method, overrides), *overrides])
    summary = train(config, out, reporter)
    _draw(config, out, reporter)
    return summary


def _draw(config: Config, out: Path, reporter: Reporter) -> None:
    """Losses, the Beta distribution, accuracy and mixed images, in ``out/figures``."""
    from pmtrans.report.run_figures import mixed_figure, write_figures  # matplotlib: loaded only after training

    trained = load_model(out / "model")
    with_beta = [line for line in read_metrics(RunFolder(out).metrics) if line.get("beta_b")]
    mixed = None
    if with_beta:
        data = read_data(config, Reporter(quiet=True))
        mixed = mixed_figure(
            data.source.paths,
            data.target.domain.paths,
            trained.preprocessing,
            trained.model.backbone.grid,
            config.method["mixing"],
            (with_beta[-1]["beta_b"], with_beta[-1]["beta_g"]),
        )
    write_figures(out, mixed)
    reporter.note(f"Figures: {out / 'figures'}")

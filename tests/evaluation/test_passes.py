"""One pass over images: the rows do not depend on how many go through the network at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from pmtrans.data.transforms import preprocessing_for
from pmtrans.evaluation.passes import run_pass
from pmtrans.model import Model
from tiny_data import write_domain


def test_a_batch_larger_than_all_images_is_all_images(tiny: Callable[..., Model], tmp_path: Path) -> None:
    write_domain(tmp_path / "images", ["ant", "bee"], 2, tint=0)
    paths = sorted(map(str, (tmp_path / "images").rglob("*.png")))
    model = tiny()
    preprocessing = preprocessing_for({"mean": (0.5,) * 3, "std": (0.5,) * 3}, model.backbone.image_size, 1.0)
    whole, halves = (run_pass(model, paths, preprocessing, size, 0).logits_MK for size in (10**21, 2))
    torch.testing.assert_close(whole, halves)

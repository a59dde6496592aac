from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pmtrans.config import Config
from pmtrans.errors import ModelError
from pmtrans.progress import Reporter
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.train import train
from tiny_run import assert_same_run


def test_a_second_training_in_one_process_may_have_another_precision() -> None:
    first = create_accelerator("fp32")
    second = create_accelerator("bf16")
    with second.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == torch.bfloat16
    with first.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_a_device_that_is_named_is_taken_and_one_that_is_not_there_is_one_line() -> None:
    before = dict(os.environ)
    assert create_accelerator("fp32", "cpu").device == torch.device("cpu")
    assert create_accelerator("fp32").device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert create_accelerator("fp32", "meta").device == torch.device("meta")  # any device that torch has
    assert create_accelerator("fp32").device.type != "meta"
    for name in ("warp", "cuda:99"):
        with pytest.raises(ModelError, match=f"Device '{name}' cannot be used here"):
            create_accelerator("fp32", name)
    assert dict(os.environ) == before


def test_a_run_may_resume_on_another_device_and_a_wrong_one_writes_nothing(
    configure: Callable[..., Config], tmp_path: Path, cut: Path, undisturbed: Path
) -> None:
    with pytest.raises(ModelError, match="cannot be used here"):
        train(configure(train__device="cuda:99"), tmp_path / "new", Reporter(quiet=True))
    assert not (tmp_path / "new").exists()
    train(configure(train__device="cpu"), cut, Reporter(quiet=True))
    assert_same_run(cut, undisturbed)

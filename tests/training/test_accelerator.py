from __future__ import annotations

import torch

from pmtrans.training.accelerator import create_accelerator


def test_a_second_training_in_one_process_may_have_another_precision() -> None:
    first = create_accelerator("fp32")
    second = create_accelerator("bf16")
    with second.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == torch.bfloat16
    with first.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax

from pmtrans.backbones.attention import AttentionCall, AttentionMode


def call(mask: str = "none", scale: float | None = None) -> AttentionCall:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 3, 2, 5, 4).unbind(0)
    masks = {
        "none": None,
        "bias": torch.randn(1, 2, 5, 5),
        "per image": torch.randn(3, 2, 5, 5),
        "kept": (torch.rand(5, 5) < 0.5) | torch.eye(5, dtype=torch.bool),
    }
    return AttentionCall(query, key, value, masks[mask], scale=scale)


@pytest.mark.parametrize("mask", ["none", "bias", "per image", "kept"])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("rows", [None, 2])
def test_the_first_row_is_that_of_the_dense_attention(mask: str, scale: float | None, rows: int | None) -> None:
    one = call(mask, scale)
    found = one.first_row(rows).numpy()
    assert found.shape == (rows or 3, 2, 5)
    for image in range(rows or 3):
        for head in range(2):
            scores = one.query[image, head].numpy() @ one.key[image, head].numpy().T * (scale or 1 / math.sqrt(4))
            if one.attn_mask is not None and one.attn_mask.dtype == torch.bool:
                scores = np.where(one.attn_mask.numpy(), scores, -np.inf)
            elif one.attn_mask is not None:
                scores = scores + one.attn_mask.expand(3, -1, -1, -1)[image, head].numpy()
            dense = softmax(scores, axis=1)
            assert np.allclose(found[image, head], dense[0], atol=1e-6)
            assert np.allclose(one.run()[image, head].numpy(), dense @ one.value[image, head].numpy(), atol=1e-5)


def test_every_fused_attention_inside_is_answered_and_none_outside() -> None:
    class Double(AttentionMode):
        def attend(self, call: AttentionCall) -> torch.Tensor:
            return 2 * call.run()

    one = call()
    with Double() as inside:
        doubled = torch.nn.functional.scaled_dot_product_attention(one.query, one.key, one.value, dropout_p=0.0)
    assert inside.calls == 1
    assert torch.allclose(doubled, 2 * one.run())

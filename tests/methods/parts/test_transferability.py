from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import entr, expit
from torch import Tensor

from pmtrans.errors import ModelError
from pmtrans.methods.parts.transferability import encode_by_transferability, head_width, transferability
from pmtrans.model import Model


def test_transferability_is_the_entropy_of_the_discriminator_in_bits() -> None:
    logits = torch.tensor([-60.0, -3.0, -0.5, 0.0, 2.0, 40.0, 200.0])
    p = expit(logits.numpy().astype(float))
    expected = (entr(p) + entr(1 - p)) / np.log(2)
    found = transferability(logits)
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert float(found[3]) == 1


def test_the_gradient_of_transferability_is_that_of_finite_differences_and_finite_at_the_ends() -> None:
    logits = torch.tensor([-200.0, -3.0, -0.5, 0.0, 2.0, 200.0], requires_grad=True)
    transferability(logits).sum().backward()
    p = [expit(np.array([d - 1e-4, d + 1e-4])) for d in logits.tolist()]
    entropies = [(entr(pair) + entr(1 - pair)) / np.log(2) for pair in p]
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([(after - before) / 2e-4 for before, after in entropies], abs=1e-5)


@pytest.mark.parametrize(("family", "special"), [("vit", 1), ("distilled", 2)])
def test_the_class_token_of_the_last_block_looks_through_the_weights(
    family: str, special: int, lively: Callable[[str], Model]
) -> None:
    """The last block again with dense attention: only the first row changes, and it is not renormalised."""
    backbone = lively(family).backbone
    torch.manual_seed(1)
    tokens = backbone.embed(torch.randn(3, 3, 32, 32))
    judge_weights = torch.randn(16)

    def judge(keys: Tensor) -> Tensor:
        return 0.3 * keys @ judge_weights

    trunk = backbone.trunk
    x = trunk.blocks[0](trunk._pos_embed(tokens))
    block = trunk.blocks[1]
    qkv = block.attn.qkv(block.norm1(x)).view(3, -1, 3, 2, 16)
    rows = []
    logits = []
    for image in range(3):
        heads = []
        for head in range(2):
            q, k, v = (qkv[image, :, n, head] for n in range(3))
            a = (q @ k.T / 4).softmax(1)
            d = 0.3 * k[special:] @ judge_weights
            p = d.double().sigmoid()
            entropy = -(p * p.log2() + (1 - p) * (1 - p).log2())
            a = torch.cat([a[:1] * torch.cat([torch.ones(special), entropy.float()]), a[1:]])
            heads.append(a @ v)
            logits.append(d)
        rows.append(torch.cat(heads, 1))
    x = x + block.attn.proj(torch.stack(rows))
    x = x + block.mlp(block.norm2(x))
    expected = trunk.forward_head(trunk.norm(x), pre_logits=True)
    features, domain_logits = encode_by_transferability(backbone, tokens, judge)
    assert torch.allclose(features, expected, atol=1e-5)
    assert torch.allclose(domain_logits, torch.stack(logits).view(3, 2, -1), atol=1e-5)


def test_a_confused_judge_changes_nothing(lively: Callable[[str], Model]) -> None:
    for family in ("vit", "registers", "rotary"):
        backbone = lively(family).backbone
        images = torch.randn(2, 3, backbone.image_size, backbone.image_size)
        features, logits = encode_by_transferability(backbone, backbone.embed(images), lambda keys: 0 * keys[..., 0])
        assert torch.allclose(features, backbone(images), atol=1e-5)
        assert logits.shape == (2, 2, backbone.patches)
        assert head_width(backbone) == (24 if family == "rotary" else 16)


def test_a_backbone_without_a_class_token_gets_one_line(lively: Callable[[str], Model]) -> None:
    with pytest.raises(ModelError, match="has no class token whose attention could be weighed"):
        head_width(lively("swin").backbone)

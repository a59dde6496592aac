from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pmtrans.backbones.attention import use_fused_attention
from pmtrans.backbones.create import create_backbone
from pmtrans.errors import ModelError
from pmtrans.methods.parts.cross_attention import encode_three_branches
from pmtrans.model import Model


def attention(block: Any, of_queries: Tensor, of_values: Tensor) -> Tensor:
    """Dense attention of one timm block, head by head: Q from one stream, K and V from another."""
    attn = block.attn
    q_in, kv_in = block.norm1(of_queries), block.norm1(of_values)
    width = q_in.shape[-1]
    weight, bias = attn.qkv.weight, attn.qkv.bias
    q, k, v = (
        x @ weight[n * width : (n + 1) * width].T + bias[n * width : (n + 1) * width]
        for n, x in enumerate((q_in, kv_in, kv_in))
    )
    size = width // attn.num_heads
    heads = []
    for head in range(attn.num_heads):
        part = slice(head * size, (head + 1) * size)
        heads.append((q[..., part] @ k[..., part].transpose(1, 2) / size**0.5).softmax(-1) @ v[..., part])
    out: Tensor = attn.proj(torch.cat(heads, -1))
    return out


def test_the_cross_branch_asks_with_the_source_and_sees_the_target_in_every_block(
    lively: Callable[[str], Model],
) -> None:
    backbone = lively("vit").backbone
    torch.manual_seed(1)
    tokens_s, tokens_t = backbone.embed(torch.randn(4, 3, 32, 32)).chunk(2)
    trunk = backbone.trunk
    s, t, c = (trunk._pos_embed(tokens) for tokens in (tokens_s, tokens_t, tokens_t))
    for block in trunk.blocks:
        s, t, c = s + attention(block, s, s), t + attention(block, t, t), c + attention(block, s, t)
        s, t, c = (x + block.mlp(block.norm2(x)) for x in (s, t, c))
    expected = [trunk.norm(x)[:, 0] for x in (s, t, c)]
    for found, wanted in zip(encode_three_branches(backbone, tokens_s, tokens_t), expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-5)
    assert not torch.allclose(expected[1], expected[2], atol=0.1)


@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "rotary", "swin"])
def test_source_and_target_branch_are_the_plain_model(family: str, lively: Callable[[str], Model]) -> None:
    backbone = lively(family).backbone
    use_fused_attention(backbone)
    images_s, images_t = torch.randn(2, 2, 3, backbone.image_size, backbone.image_size).unbind(0)
    tokens_s, tokens_t = backbone.embed(images_s), backbone.embed(images_t)
    source, target, cross = encode_three_branches(backbone, tokens_s, tokens_t)
    assert torch.allclose(source, backbone(images_s), atol=1e-5)
    assert torch.allclose(target, backbone(images_t), atol=1e-5)
    assert not torch.allclose(cross, target, atol=0.01)
    same = encode_three_branches(backbone, tokens_t, tokens_t)
    assert torch.allclose(same[2], target, atol=1e-5)  # a target that meets itself


def test_a_backbone_with_blocks_that_keep_to_themselves_gets_one_line() -> None:
    backbone = create_backbone("cait_xxs24_224", "none", 64)
    use_fused_attention(backbone)
    tokens = backbone.embed(torch.zeros(1, 3, 64, 64))
    with pytest.raises(ModelError, match="blocks that cannot look across") as caught:
        encode_three_branches(backbone, tokens, tokens)
    assert "\n" not in str(caught.value)

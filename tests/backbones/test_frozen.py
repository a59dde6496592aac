from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.frozen import freeze_blocks, is_frozen
from pmtrans.backbones.recompute import checkpoint_blocks, in_pieces
from pmtrans.errors import ConfigError, ModelError
from pmtrans.model import Model
from tiny_data import TINY

FROZEN = {  # what the names of the frozen weights start with: embedding, tokens and the first of two blocks
    "swin": ("stem.", "trunk.layers.0."),
    **dict.fromkeys(("vit", "distilled", "registers", "rotary"), ("stem.", "trunk.blocks.0.")),
}
TOKENS = ("trunk.cls_token", "trunk.reg_token", "trunk.dist_token", "trunk.pos_embed")


def passed(backbone: Backbone, learns_before: bool = False) -> tuple[Tensor, dict[str, Tensor], int]:
    """Features, gradients, and the bytes kept for the backward pass; as if something before the blocks were learned."""
    torch.manual_seed(1)
    images = torch.randn(3, 3, backbone.image_size, backbone.image_size)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        tokens_BND = backbone.embed(images)
        tokens_BND = tokens_BND * torch.ones((), requires_grad=True) if learns_before else tokens_BND
        features_BF = backbone.encode(tokens_BND, scored=3).features_BF
    features_BF.square().sum().backward()
    return (
        features_BF.detach(),
        {n: p.grad for n, p in backbone.named_parameters() if p.grad is not None},
        sum(kept.values()),
    )


@pytest.mark.parametrize("learns_before", [False, True])
@pytest.mark.parametrize("family", TINY)
def test_frozen_blocks_give_the_same_features_without_gradients_or_activations(
    family: str, learns_before: bool, lively: Callable[..., Model]
) -> None:
    backbone = lively(family).backbone
    features, gradients, kept = passed(copy.deepcopy(backbone), learns_before)
    freeze_blocks(backbone, 1)
    found, found_gradients, kept_now = passed(backbone, learns_before)
    assert torch.equal(found, features)
    frozen = {name for name in gradients if name in TOKENS or name.startswith(FROZEN[family])}
    assert frozen
    assert found_gradients.keys() == gradients.keys() - frozen
    assert all(torch.equal(value, gradients[name]) for name, value in found_gradients.items())
    assert {name for name, p in backbone.named_parameters() if not p.requires_grad} == frozen
    assert kept_now < 0.75 * kept  # of two blocks, one


@pytest.mark.parametrize("pieces", [1, 3])
def test_frozen_blocks_beside_recomputed_ones(pieces: int, lively: Callable[..., Model]) -> None:
    backbone = lively("vit").backbone
    freeze_blocks(backbone, 1)
    features, gradients, kept = passed(copy.deepcopy(backbone))
    calls: list[int] = []
    backbone.trunk.blocks[0].attn.register_forward_hook(lambda *_: calls.append(1))
    checkpoint_blocks(block for block in backbone.trunk.blocks if not is_frozen(block))
    with in_pieces(pieces):
        found, found_gradients, kept_now = passed(backbone)
    assert torch.allclose(found, features, atol=1e-6)
    assert found_gradients.keys() == gradients.keys()
    assert all(torch.allclose(value, gradients[n], rtol=1e-4, atol=1e-4) for n, value in found_gradients.items())
    assert kept_now < kept
    assert len(calls) == (1 if pieces == 1 else 2 * pieces)  # a piece is run again as a whole


def test_a_copy_of_a_frozen_backbone_runs_its_own_weights(tiny: Callable[..., Model]) -> None:
    backbone = tiny().backbone.eval()
    freeze_blocks(backbone, 1)
    twin = copy.deepcopy(backbone)
    image = torch.randn(1, 3, 32, 32)
    assert torch.equal(twin(image), backbone(image))
    with torch.no_grad():
        twin.trunk.blocks[0].attn.qkv.weight.mul_(3)
    assert not torch.equal(twin(image), backbone(image))


def test_all_blocks_may_be_frozen_and_no_more(tiny: Callable[..., Model]) -> None:
    backbone = tiny().backbone
    with pytest.raises(ConfigError, match=r"^train\.freeze_blocks=3: backbone 'vit_tiny_patch16_224' has only 2 bl"):
        freeze_blocks(backbone, 3)
    freeze_blocks(backbone, 0)
    assert all(parameter.requires_grad for parameter in backbone.parameters())
    freeze_blocks(backbone, 2)
    assert {n for n, p in backbone.named_parameters() if p.requires_grad} == {"trunk.norm.weight", "trunk.norm.bias"}


def test_a_backbone_without_a_row_of_blocks_gets_one_line() -> None:
    with pytest.raises(ModelError, match="has no blocks in sequence"):
        freeze_blocks(create_backbone("pit_ti_224", "none", 224), 1)

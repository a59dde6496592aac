from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.before_block import before_block
from pmtrans.backbones.blocks import check_growing_batch, layer_of, transformer_blocks
from pmtrans.backbones.create import create_backbone
from pmtrans.errors import ModelError
from pmtrans.model import Model

FAMILIES = ["vit", "distilled", "registers", "rotary", "swin"]


@pytest.mark.parametrize("family", FAMILIES)
def test_images_that_join_before_any_block_come_out_like_those_that_were_there(
    family: str, tiny: Callable[..., Model]
) -> None:
    backbone = tiny(family).backbone.eval()
    images = torch.randn(2, 3, backbone.image_size, backbone.image_size)
    plain = backbone(images)
    blocks = transformer_blocks(backbone)
    assert len(blocks) == 2
    for block in blocks:
        with before_block(block, lambda hidden: torch.cat([hidden, hidden.flip(0)])):
            grown = backbone(images)
        assert torch.allclose(grown, torch.cat([plain, plain.flip(0)]), atol=1e-5)
    assert torch.equal(backbone(images), plain)  # nothing is left behind


def test_the_change_acts_on_what_enters_the_block(tiny: Callable[..., Model]) -> None:
    backbone = tiny("vit").backbone.eval()
    tokens = backbone.embed(torch.randn(1, 3, 32, 32))
    trunk = backbone.trunk
    hidden = trunk.blocks[0](trunk.norm_pre(trunk._pos_embed(tokens)))
    expected = trunk.forward_head(trunk.norm(trunk.blocks[1](2 * hidden)), pre_logits=True)
    with before_block(transformer_blocks(backbone)[1], lambda states: 2 * states):
        assert torch.allclose(backbone.encode(tokens, scored=0).features_BF, expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_known_families_may_grow_their_batch(family: str, tiny: Callable[..., Model]) -> None:
    backbone = tiny(family).backbone
    check_growing_batch(backbone)
    assert backbone.training


@pytest.mark.parametrize(("name", "said"), [("pvt_v2_b0", "keeps its batch fixed"), ("pit_ti_224", "has no blocks")])
def test_other_backbones_get_one_line(name: str, said: str) -> None:
    backbone = create_backbone(name, "none", 64 if name == "pvt_v2_b0" else 224)
    with pytest.raises(ModelError, match=said) as caught:
        check_growing_batch(backbone)
    assert "\n" not in str(caught.value)


def layers_by_name(backbone: Backbone) -> dict[str, int]:
    layers = layer_of(backbone)
    assert len(layers) == len(list(backbone.parameters()))
    return {name: layers[parameter] for name, parameter in backbone.named_parameters()}


@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "rotary"])
def test_layers_of_a_plain_transformer_are_embedding_blocks_and_the_rest(
    family: str, tiny: Callable[..., Model]
) -> None:
    for name, layer in layers_by_name(tiny(family).backbone).items():
        part = name.split(".")
        if part[:2] == ["trunk", "blocks"]:
            assert layer == int(part[2]) + 1
        else:
            assert layer == (3 if name.startswith("trunk.norm.") else 0), name


def test_layers_of_a_hierarchical_transformer_go_through_its_stages() -> None:
    options = {"embed_dim": 16, "depths": (1, 2), "num_heads": (1, 2), "window_size": 4}
    layers = layers_by_name(create_backbone("swin_tiny_patch4_window7_224", "none", 32, options))
    starts = {
        "stem.": 0,
        "trunk.layers.0.blocks.0.": 1,
        "trunk.layers.1.downsample.": 2,
        "trunk.layers.1.blocks.0.": 2,
        "trunk.layers.1.blocks.1.": 3,
        "trunk.norm.": 4,
    }
    for name, layer in layers.items():
        assert [number for start, number in starts.items() if name.startswith(start)] == [layer], name
    assert all(any(name.startswith(start) for name in layers) for start in starts)


def test_what_follows_the_blocks_of_a_stage_belongs_to_its_last() -> None:
    layers = layers_by_name(create_backbone("pvt_v2_b0", "none", 64))
    found = [layers[f"trunk.stages.{stage}.norm.weight"] for stage in range(4)]
    assert found == [layers[f"trunk.stages.{stage}.blocks.1.norm1.weight"] for stage in range(4)] == [2, 4, 6, 8]
    assert layers["trunk.stages.1.downsample.proj.weight"] == layers["trunk.stages.1.blocks.0.norm1.weight"] == 3

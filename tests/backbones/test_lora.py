from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.frozen import freeze_blocks
from pmtrans.backbones.lora import adapters_in, add_adapters, merge_adapters, merged_state
from pmtrans.errors import ConfigError
from pmtrans.model import Model
from tiny_data import TINY

FAMILIES = {
    **TINY,
    "pvt": ("pvt_v2_b0", {"depths": (1, 1, 1, 1)}, 32),
    "beit": ("beit_base_patch16_224", {"depth": 1, "embed_dim": 32, "num_heads": 2}, 32),
    "swin v2": (
        "swinv2_tiny_window8_256", {"embed_dim": 16, "depths": (1, 1), "num_heads": (1, 2), "window_size": 4}, 32,
    ),
}  # fmt: skip
READ_BY_THE_BLOCK = {"beit": "trunk.blocks.0.attn.qkv", "swin v2": "trunk.layers.0.blocks.0.attn.qkv"}


def backbone_of(family: str) -> Backbone:
    torch.manual_seed(0)
    name, options, size = FAMILIES[family]
    backbone = create_backbone(name, "none", size, {**options, "drop_path_rate": 0.0})
    with torch.no_grad():
        for key, parameter in backbone.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.2)
            elif "norm" in key or "gamma" in key:  # some begin at 0, and would hide the block
                parameter.fill_(1.0)
    return backbone


def moved(backbone: Backbone) -> None:
    """As after some steps: neither A nor B is what it was."""
    with torch.no_grad():
        for parameter in adapters_in(backbone):
            parameter.add_(torch.randn_like(parameter), alpha=0.05)


def images_for(backbone: Backbone) -> Tensor:
    return torch.randn(3, 3, backbone.image_size, backbone.image_size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_begin_as_nothing_learn_alone_and_merge_into_the_weights(family: str) -> None:
    backbone = backbone_of(family)
    images, names = images_for(backbone), backbone.state_dict().keys()
    without = backbone(images)
    before = copy.deepcopy(backbone.state_dict())
    add_adapters(backbone, 2)
    torch.testing.assert_close(backbone(images), without, atol=1e-6, rtol=1e-6)

    moved(backbone)
    features = backbone(images)
    features.square().sum().backward()
    learned = {name for name, parameter in backbone.named_parameters() if parameter.grad is not None}
    assert learned == {name for name in backbone.state_dict() if name.endswith((".lora_a", ".lora_b"))}
    assert all(parameter.grad.abs().sum() > 0 for parameter in adapters_in(backbone) if parameter.grad is not None)
    assert (features - without).abs().max() > 0.01

    judged = backbone.eval()(images)
    state = merged_state(backbone)
    changed = {name for name, value in state.items() if not value.equal(before[name])}
    expected = {name: p for name, p in backbone.state_dict().items() if name.endswith("lora_b")}
    assert changed == {name.replace("lora_b", "weight") for name in expected}
    for name, b in expected.items():
        a, weight = backbone.state_dict()[name.replace("lora_b", "lora_a")], name.replace("lora_b", "weight")
        torch.testing.assert_close(state[weight].double(), before[weight].double() + b.double() @ a.double())
    merge_adapters(backbone)
    assert backbone(images).equal(judged)
    torch.testing.assert_close(backbone.train()(images), features, atol=1e-5, rtol=1e-5)
    assert state.keys() == backbone.state_dict().keys() == names
    assert {type(part) for part in backbone.modules() if isinstance(part, nn.Linear)} == {nn.Linear}


@pytest.mark.parametrize("family", READ_BY_THE_BLOCK)
def test_a_layer_whose_weights_the_block_reads_itself_learns_too(family: str) -> None:
    backbone = backbone_of(family)
    add_adapters(backbone, 2)
    backbone(images_for(backbone)).square().sum().backward()
    gradient = backbone.get_parameter(f"{READ_BY_THE_BLOCK[family]}.lora_b").grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


def test_layers_that_make_numbers_per_head_have_no_adapter() -> None:
    backbone = backbone_of("swin v2")
    add_adapters(backbone, 1)
    names = {name for name in backbone.state_dict() if "lora" in name}
    kinds = {name.split(".")[-2] for name in names}
    assert kinds == {"qkv", "proj", "fc1", "fc2"}
    assert len(names) == 2 * 4 * 2


def test_frozen_blocks_have_no_adapters(tiny: Callable[..., Model]) -> None:
    backbone = tiny().backbone
    freeze_blocks(backbone, 1)
    add_adapters(backbone, 4, 1)
    assert {name.split(".")[2] for name, p in backbone.named_parameters() if p.requires_grad} == {"1"}
    assert sum(p.numel() for p in backbone.parameters() if p.requires_grad) == 4 * (
        (32 + 96) + (32 + 32) + (32 + 128) + (128 + 32)
    )


@pytest.mark.parametrize(
    ("rank", "frozen", "said"),
    [
        (32, 0, "train.lora=32: no layer is wider than 32 in backbone 'vit_tiny_patch16_224'."),
        (4, 2, "train.lora=4: no block with linear layers is left to adapt in backbone 'vit_tiny_patch16_224'."),
    ],
)
def test_adapters_that_adapt_nothing_are_refused(rank: int, frozen: int, said: str, tiny: Callable[..., Model]) -> None:
    with pytest.raises(ConfigError) as refused:
        add_adapters(tiny().backbone, rank, frozen)
    assert str(refused.value) == said


def test_under_autocast_the_sum_is_that_of_the_merged_weights() -> None:
    backbone = backbone_of("vit")
    add_adapters(backbone, 2)
    moved(backbone)
    layer = backbone.get_submodule("trunk.blocks.0.mlp.fc1")
    with torch.autocast("cpu", torch.bfloat16):
        assert isinstance(layer.weight, Tensor)
        assert layer.weight.equal(merged_state(backbone)["trunk.blocks.0.mlp.fc1.weight"])

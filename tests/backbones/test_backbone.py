from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from timm.layers import set_fused_attn
from torch.overrides import TorchFunctionMode

from pmtrans.backbones.create import create_backbone
from pmtrans.errors import ModelError
from pmtrans.model import Model
from tiny_data import TINY

FAMILIES = list(TINY)
CLASS_TOKEN = ["vit", "distilled", "registers", "rotary"]


@pytest.mark.parametrize("family", FAMILIES)
def test_embed_then_encode_is_the_timm_model(family: str, tiny: Callable[..., Model]) -> None:
    backbone = tiny(family).backbone.eval()
    name, options, size = TINY[family]
    whole = timm.create_model(name, img_size=size, num_classes=0, **options).eval()
    whole.load_state_dict(backbone.timm_state_dict())
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        assert torch.allclose(backbone(images), whole(images), atol=1e-6)


class SlowAttention(TorchFunctionMode):
    """Computes every full attention map beside the fused kernel, as timm's own unfused branch does."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.softmax:
            result = func(*args, **(kwargs or {}))
            self.maps.append(result)
            return result
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", CLASS_TOKEN)
def test_class_token_scores_equal_the_full_map_computed_the_slow_way(family: str, tiny: Callable[..., Model]) -> None:
    backbone = tiny(family).backbone.eval()
    images = torch.randn(3, 3, backbone.image_size, backbone.image_size)
    with torch.no_grad():
        fast = backbone.encode(backbone.embed(images), scored=3).attention_BN
        for module in backbone.modules():
            if hasattr(module, "fused_attn"):
                setattr(module, "fused_attn", False)  # noqa: B010
        with SlowAttention() as slow:
            backbone(images)
    assert fast is not None
    special = int(backbone.trunk.num_prefix_tokens)
    assert len(slow.maps) == 2  # one per layer
    for image in range(3):
        scores = [0.0] * backbone.patches
        for layer in slow.maps:
            heads = layer.shape[1]
            for head in range(heads):
                for patch in range(backbone.patches):
                    scores[patch] += float(layer[image, head, 0, special + patch]) / heads / len(slow.maps)
        total = sum(scores)
        assert fast[image].tolist() == pytest.approx([score / total for score in scores], abs=1e-6)


class CountFused(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is F.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", CLASS_TOKEN)
def test_fused_attention_stays_on_while_scores_are_taken(family: str, tiny: Callable[..., Model]) -> None:
    set_fused_attn(False)  # whatever was set before: creating a backbone switches it on
    backbone = tiny(family).backbone
    assert all(module.fused_attn for module in backbone.modules() if hasattr(module, "fused_attn"))
    with CountFused() as count:
        backbone.encode(backbone.embed(torch.randn(2, 3, backbone.image_size, backbone.image_size)), scored=2)
    assert count.calls == 2  # one kernel per layer, no second


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_swin_activation_map_is_the_classifier_applied_to_each_token(head: str, tiny: Callable[..., Model]) -> None:
    model = tiny("swin", head=head).eval()
    backbone = model.backbone
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([2, 0])
    with torch.no_grad():
        encoding = backbone.encode(backbone.embed(images), scored=2)
        scores = backbone.attention_scores(encoding, model.head, labels)
        final = backbone.trunk.forward_features(backbone.stem(images))  # B, 4, 4, F
        assert final.shape[1:3] == (4, 4)
        for image in range(2):
            logit = [[float(model.head(final[image, y, x])[labels[image]]) for x in range(4)] for y in range(4)]
            weights = torch.tensor(logit).flatten().softmax(0).view(4, 4)
            expected = torch.zeros(8, 8)
            for y in range(8):
                for x in range(8):
                    expected[y, x] = weights[y // 2, x // 2] / 4  # nearest neighbour, renormalised
            assert scores[image].tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-6)


def test_the_bias_of_a_linear_head_drops_out_of_the_activation_map(tiny: Callable[..., Model]) -> None:
    model = tiny("swin").eval()
    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([2, 0])
    with torch.no_grad():
        encoding = model.backbone.encode(model.backbone.embed(images), scored=2)
        before = model.backbone.attention_scores(encoding, model.head, labels)
        model.head.get_parameter("bias").add_(torch.tensor([5.0, -3.0, 1.0]))
        after = model.backbone.attention_scores(encoding, model.head, labels)
    assert torch.allclose(before, after, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_detached_distributions_over_patches(family: str, tiny: Callable[..., Model]) -> None:
    model = tiny(family)
    images = torch.randn(4, 3, model.backbone.image_size, model.backbone.image_size)
    first, second = model.backbone.encode(model.backbone.embed(images), scored=2).split(2)
    scores = model.backbone.attention_scores(first, model.head, torch.tensor([0, 1]))
    assert scores.shape == (2, model.backbone.patches)
    assert scores.sum(1).tolist() == pytest.approx([1, 1])
    assert not scores.requires_grad
    assert second.attention_BN is None  # no map for rows that nobody asked to score
    assert second.features_BF.requires_grad


@pytest.mark.parametrize("name", ["pvt_v2_b0", "gcvit_xxtiny", "swinv2_tiny_window8_256", "cait_xxs24_224"])
def test_other_transformers_of_timm_work_too(name: str) -> None:
    options = {"swinv2_tiny_window8_256": {"embed_dim": 24, "depths": (1, 1, 1, 1)}}.get(name, {})
    backbone = create_backbone(name, "none", 64, options)
    images = torch.randn(2, 3, 64, 64)
    encoding = backbone.encode(backbone.embed(images), scored=2)
    head = torch.nn.Linear(backbone.features, 3)
    assert backbone.attention_scores(encoding, head, torch.tensor([0, 2])).shape == (2, backbone.patches)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resnet18", "is not a transformer"),
        ("mixer_s16_224", "is not a transformer"),
        ("deit_tiny_patch16_242", "Did you mean 'deit_tiny_patch16_224'"),
        ("vit_tiny_patch16_224.augreg_in21", "Did you mean 'augreg_in21k'"),
        ("twins_svt_small", "no single patch embedding"),
    ],
)
def test_a_name_that_does_not_serve_gets_one_line(name: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        create_backbone(name, "none", 64 if name != "mixer_s16_224" else 224)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("deit_tiny_patch16_224.safetensors", "By its name it is for --backbone deit_tiny_patch16_224."),
        ("deit_tiny_patch16_224.fb_in1k.safetensors", "By its name it is for --backbone deit_tiny_patch16_224."),
        ("vit_tiny_patch16_224.safetensors", ""),
        ("weights.safetensors", ""),
    ],
)
def test_weights_of_another_backbone_are_one_line_that_names_it(file: str, hint: str, tmp_path: Path) -> None:
    options = {"depth": 1, "embed_dim": 24, "num_heads": 2}
    other = create_backbone("vit_tiny_patch16_224", "none", 32, {**options, "embed_dim": 12}).trunk
    safetensors.torch.save_file(other.state_dict(), tmp_path / file)
    with pytest.raises(ModelError, match=r"does not fit backbone 'vit_tiny_patch16_224': .* wrong shape") as caught:
        create_backbone("vit_tiny_patch16_224", str(tmp_path / file), 32, options)
    assert str(caught.value).endswith(hint or ").")

"""The demo's backbone as timm sees it, and its packaged weights."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from pmtrans.backbones.digits_vit import weights_path


def test_timm_makes_it_by_name_with_six_by_six_patches_and_a_class_token() -> None:
    model = timm.create_model("pmtrans_digits_vit", num_classes=10)
    images = torch.randn(2, 3, 24, 24)
    assert model.patch_embed.grid_size == (6, 6)
    assert model.patch_embed(images).shape == (2, 36, 64)
    features = model.forward_features(images)
    assert features.shape == (2, 37, 64)
    assert model.forward_head(features, pre_logits=True).shape == (2, 64)
    assert model(images).shape == (2, 10)


def test_the_usual_arguments_of_timm_are_obeyed() -> None:
    model = timm.create_model("pmtrans_digits_vit", num_classes=5, img_size=32, in_chans=1)
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 5)
    model.reset_classifier(3)
    assert model(torch.randn(2, 1, 32, 32)).shape == (2, 3)
    with pytest.raises(ValueError, match="patch_size must be 4"):
        timm.create_model("pmtrans_digits_vit", patch_size=8)


def test_a_token_depends_on_its_own_image_only() -> None:
    model = timm.create_model("pmtrans_digits_vit").train()
    images = torch.randn(4, 3, 24, 24)
    alone = model.patch_embed(images[:1])
    torch.testing.assert_close(model.patch_embed(images)[:1], alone)


def test_the_packaged_weights_fit_the_model_exactly_but_for_the_head() -> None:
    model = timm.create_model("pmtrans_digits_vit", num_classes=10)
    result = model.load_state_dict(load_file(weights_path()), strict=False)
    assert sorted(result.missing_keys) == ["head.bias", "head.weight"]
    assert result.unexpected_keys == []


def test_pretrained_reads_the_packaged_weights() -> None:
    stored = load_file(weights_path())
    model = timm.create_model("pmtrans_digits_vit", pretrained=True, num_classes=10)
    for name, value in stored.items():
        torch.testing.assert_close(model.state_dict()[name], value.float(), rtol=0, atol=0)
    assert model(torch.randn(1, 3, 24, 24)).isfinite().all()


def test_the_packaged_weights_are_small_and_say_that_only_letters_made_them() -> None:
    assert weights_path().stat().st_size < 1_500_000
    with safe_open(weights_path(), framework="pt") as file:
        made_from = file.metadata()["made_from"]
    assert made_from.startswith("printed letters ")
    assert made_from.removeprefix("printed letters ").isalpha()

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import entr, log_softmax, softmax

from pmtrans.data.batch import Batch
from pmtrans.errors import ModelError
from pmtrans.methods import Sizes
from pmtrans.methods.method import Moment
from pmtrans.methods.parts.transferability import encode_by_transferability
from pmtrans.methods.tvt import TVT, TVTOptions
from pmtrans.model import Model

MOMENT = Moment(step=50, steps=100, steps_per_epoch=10)
SIZES = Sizes(classes=3, source_images=12, target_images=9)


def test_the_objective_has_two_adversaries_and_information_in_bits(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    options = TVTOptions(global_adversary=0.7, patch_adversary=0.3, information=0.2)
    method, batch = TVT(model, options, SIZES).eval(), batch_for(model)
    outputs = method(batch, MOMENT)
    features, patches = [], []
    for images in (batch.source_images, batch.target_images):
        f, d = encode_by_transferability(model.backbone, model.backbone.embed(images), method.patch_discriminator)
        features.append(f)
        patches.append(d.detach().numpy())
    whole = [method.global_discriminator(f).detach().numpy() for f in features]
    z_s, z_t = (model.head(f).detach().numpy() for f in features)
    classification = np.mean([-log_softmax(z_s[i])[int(batch.source_labels[i])] for i in range(4)])
    adversaries = [
        (np.log1p(np.exp(-source)).mean() + np.log1p(np.exp(target)).mean()) / 2 for source, target in (whole, patches)
    ]
    p = softmax(z_t, axis=1)
    information = (entr(p).sum(1).mean() - entr(p.mean(0)).sum()) / np.log(2)
    assert patches[0].shape == (4, 2, 4)
    assert float(outputs["global_adversary"]) == pytest.approx(adversaries[0], rel=1e-4)
    assert float(outputs["patch_adversary"]) == pytest.approx(adversaries[1], rel=1e-4)
    assert float(outputs["information"]) == pytest.approx(information, rel=1e-3, abs=1e-6)
    expected = classification + 0.7 * adversaries[0] + 0.3 * adversaries[1] + 0.2 * information
    assert float(outputs["loss"].detach()) == pytest.approx(expected, rel=1e-4)


def test_both_discriminators_descend_and_the_features_ascend_on_them(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """Against finite steps: a little along the gradient that training follows."""
    model = tiny().eval()
    method = TVT(model, TVTOptions(global_adversary=1.0, patch_adversary=1.0, information=0.0), SIZES).eval()
    with torch.no_grad():
        for module in (method.global_discriminator, method.patch_discriminator, model.backbone):
            for parameter in module.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.2)
        model.head.get_parameter("weight").zero_()  # the classification loss moves no feature then
    batch = batch_for(model)

    def after_a_step_of(module: torch.nn.Module) -> float:
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(1e-3 * parameter.grad)
            outputs = method(batch, MOMENT)
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.add_(1e-3 * parameter.grad)
        return float(outputs["global_adversary"] + outputs["patch_adversary"])

    outputs = method(batch, MOMENT)
    outputs["loss"].backward()
    before = float(outputs["global_adversary"] + outputs["patch_adversary"])
    assert after_a_step_of(method.global_discriminator) < before
    assert after_a_step_of(method.patch_discriminator) < before
    assert after_a_step_of(model.backbone) > before


def test_the_patch_discriminator_also_learns_from_what_its_weights_do_to_the_attention(
    lively: Callable[[str], Model], batch_for: Callable[..., Batch]
) -> None:
    model = lively("vit").eval()
    method = TVT(model, TVTOptions(global_adversary=0.0, patch_adversary=0.0, information=0.0), SIZES).eval()
    method(batch_for(model), MOMENT)["loss"].backward()
    slope = method.get_parameter("patch_discriminator.layers.0.weight").grad
    assert slope is not None
    assert slope.any()


def test_the_discriminators_move_at_the_rate_of_the_backbone(tiny: Callable[..., Model]) -> None:
    ratios = {player.name: player.ratio for player in TVT(tiny(), TVTOptions(), SIZES).players(10.0)}
    assert ratios == {"feature_extractor": 1, "classifier": 10, "discriminators": 1}


def test_a_backbone_without_a_class_token_is_refused_at_once(tiny: Callable[..., Model]) -> None:
    with pytest.raises(ModelError, match="no class token"):
        TVT(tiny("swin"), TVTOptions(), SIZES)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, rel_entr, softmax

from pmtrans.data.batch import Batch
from pmtrans.errors import ConfigError
from pmtrans.methods import Sizes
from pmtrans.methods.method import Context, Moment
from pmtrans.methods.ssrt import SSRT, SSRTOptions
from pmtrans.model import Model

MOMENT = Moment(step=60, steps=1600, steps_per_epoch=10)  # the period is 80 steps
SIZES = Sizes(classes=3, source_images=12, target_images=9)


def create(model: Model, **switches: Any) -> SSRT:
    return SSRT(model, SSRTOptions(**switches), SIZES)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])  # the two ways the coin falls
def test_the_objective_is_that_of_the_paper_image_by_image(
    layer: int, seed: int, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    with torch.no_grad():
        model.head.get_parameter("weight").mul_(100)
    method, batch = create(model, layers=(layer,), confidence=0.4).eval(), batch_for(model)
    torch.manual_seed(seed)
    outputs = method(batch, MOMENT)
    torch.manual_seed(seed)
    torch.randint(1, ())
    forwards = bool(torch.rand(()) < 0.5)
    assert forwards == (seed == 1)

    r = np.sin(np.pi / 2 * 60 / 80)
    trunk, head = model.backbone.trunk, model.head
    hidden = [trunk._pos_embed(model.backbone.embed(image[None])) for image in batch.target_images]
    if layer == 1:
        hidden = [trunk.blocks[0](one) for one in hidden]
    perturbed = []
    for i in range(4):
        x = hidden[i] + 0.3 * r * (hidden[3 - i] - hidden[i])
        for block in trunk.blocks[layer:]:
            x = block(x)
        perturbed.append(head(trunk.norm(x)[:, 0])[0].detach().numpy())
    z_s, z_t = (head(model.backbone(images)).detach().numpy() for images in (batch.source_images, batch.target_images))
    classification = np.mean([-log_softmax(z_s[i])[int(batch.source_labels[i])] for i in range(4)])
    d = [
        method.discriminator(model.backbone(images)).detach().numpy()
        for images in (batch.source_images, batch.target_images)
    ]
    adversary = np.log1p(np.exp(-d[0])).mean() + np.log1p(np.exp(d[1])).mean()
    p, q = softmax(z_t, axis=1), softmax(np.stack(perturbed), axis=1)
    p, q = (p, q) if forwards else (q, p)
    kept = [rel_entr(p[i], q[i]).sum() for i in range(4) if p[i].max() > 0.4]
    assert kept
    assert float(outputs["classification"]) == pytest.approx(classification, rel=1e-4)
    assert float(outputs["adversary"]) == pytest.approx(adversary, rel=1e-4)
    assert float(outputs["refinement"]) == pytest.approx(np.mean(kept), rel=1e-3, abs=1e-7)
    expected = classification + adversary + 0.2 * r * np.mean(kept)
    assert float(outputs["loss"].detach()) == pytest.approx(expected, rel=1e-4)
    assert float(outputs["diversity"]) == len(set(z_t.argmax(1).tolist()))


def test_the_features_ascend_on_the_discriminator_and_it_descends(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    gradients = {}
    for reversal in (0.1, 0.2):
        method = create(model, reversal=reversal, refinement=0.0).eval()
        torch.manual_seed(3)
        for parameter in method.discriminator.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        torch.manual_seed(0)
        outputs = method(batch, MOMENT)
        method.zero_grad()
        classification = torch.nn.functional.cross_entropy(model(batch.source_images), batch.source_labels)
        gradients[reversal] = torch.autograd.grad(
            outputs["loss"] - classification,
            [model.backbone.get_parameter("stem.proj.weight"), method.get_parameter("discriminator.layers.0.weight")],
        )
    assert torch.allclose(2 * gradients[0.1][0], gradients[0.2][0], rtol=1e-3, atol=1e-6)
    assert torch.allclose(gradients[0.1][1], gradients[0.2][1])


def test_the_discriminator_has_one_hidden_layer_as_the_authors(tiny: Callable[..., Model]) -> None:
    shapes = [tuple(p.shape) for p in create(tiny()).discriminator.parameters()]
    assert shapes == [(1024, 32), (1024,), (1, 1024), (1,)]


def test_a_collapse_is_undone(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    """Two periods of four steps; at the start of the second the classifier begins to say one class only."""
    model = tiny()
    method, batch = create(model, period=4, tolerance=0.5), batch_for(model)
    restored = []
    for step in range(9):
        context = Context(lambda: pytest.fail("no pass is needed"))
        method.before_step(Moment(step, 100, 10), context)
        restored += [step] * ("restored" in context.metrics)
        if step == 4:
            with torch.no_grad():
                model.head.get_parameter("bias")[0] += 1000
        if step < 4:
            method.safe.record(torch.eye(3)[torch.arange(4) % 3], Moment(step, 100, 10), 4)
        else:
            method(batch, Moment(step, 100, 10))
    assert restored == [8]
    assert model.head.get_parameter("bias").tolist() == [0, 0, 0]


def test_without_safety_there_is_no_second_set_of_weights(tiny: Callable[..., Model]) -> None:
    assert not [name for name in create(tiny(), safe=False).state_dict() if "snapshot" in name]
    assert [name for name in create(tiny()).state_dict() if "snapshot" in name]


def test_layers_default_to_thirds_of_the_depth_and_others_must_exist(tiny: Callable[..., Model]) -> None:
    assert create(tiny()).layers == (0, 0, 1)
    with pytest.raises(ConfigError, match=r"blocks are 0 to 1"):
        create(tiny(), layers=(0, 2))


@pytest.mark.parametrize("family", ["swin", "distilled", "rotary"])
def test_other_families_train_too(family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny(family)
    outputs = create(model)(batch_for(model), MOMENT)
    outputs["loss"].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())

"""DANN and CDAN: who moves against whom, and what the discriminator sees."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import entr, expit, softmax

from gradients import gradient
from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.cdan import CDAN, CDANOptions, OuterProduct, RandomSketch
from pmtrans.methods.dann import DANN, DANNOptions
from pmtrans.methods.method import Method, Moment
from pmtrans.model import Model

MOMENT = Moment(step=30, steps=100, steps_per_epoch=10)
SIZES = Sizes(classes=3, source_images=12, target_images=9)


def binary_cross_entropies(method: Method, source: torch.Tensor, target: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """-log D(source), -log(1 - D(target)), in numpy."""
    with torch.no_grad():
        d_s, d_t = (method.get_submodule("discriminator")(inputs).double().numpy() for inputs in (source, target))
    return -np.log(expit(d_s)), -np.log(1 - expit(d_t))


def features_of(model: Model, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        return model.backbone(batch.source_images), model.backbone(batch.target_images)


def test_the_objective_of_dann_is_classification_and_domain_loss(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    method = DANN(model, DANNOptions(weight=0.7, hidden=8), SIZES).eval()
    f_s, f_t = features_of(model, batch)
    log_s, log_t = binary_cross_entropies(method, f_s, f_t)
    classification = float(classification_loss(model.head(f_s), batch.source_labels, 0.1).detach())
    outputs = method(batch, MOMENT)
    assert float(outputs["domain"]) == pytest.approx((log_s.mean() + log_t.mean()) / 2, rel=1e-4)
    assert float(outputs["loss"].detach()) == pytest.approx(classification + 0.7 * float(outputs["domain"]), rel=1e-4)


def test_dann_reverses_the_gradient_of_the_features_and_not_that_of_the_discriminator(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """Against finite differences of the domain loss itself, in one parameter of each player."""
    model = tiny().double().eval()
    batch = batch_for(model)
    batch.source_images, batch.target_images = batch.source_images.double(), batch.target_images.double()
    method = DANN(model, DANNOptions(hidden=8, reversal_images=None), SIZES).double().eval()

    def slope(parameter: torch.Tensor, part: str) -> float:
        with torch.no_grad():
            flat = parameter.view(-1)
            flat[0] += 1e-5
            above = float(method(batch, MOMENT)[part])
            flat[0] -= 2e-5
            below = float(method(batch, MOMENT)[part])
            flat[0] += 1e-5
        return (above - below) / 2e-5

    method(batch, MOMENT)["loss"].backward()
    ramp = 2 / (1 + math.exp(-10 * 0.3)) - 1
    in_features = model.backbone.get_parameter("stem.proj.weight")
    in_discriminator = method.get_parameter("discriminator.layers.0.weight")
    assert float(gradient(in_discriminator).view(-1)[0]) == pytest.approx(slope(in_discriminator, "domain"), rel=1e-3)
    expected = slope(in_features, "classification") - ramp * slope(in_features, "domain")
    assert float(gradient(in_features).view(-1)[0]) == pytest.approx(expected, rel=1e-3)


def test_the_outer_product_has_every_product_of_feature_and_prediction() -> None:
    f, g = torch.randn(2, 3), torch.randn(2, 4).softmax(1)
    expected = np.stack([np.outer(a, b).ravel() for a, b in zip(f.numpy(), g.numpy(), strict=True)])
    assert np.allclose(OuterProduct(3, 4)(f, g), expected)


def test_a_random_sketch_keeps_inner_products_of_the_outer_product() -> None:
    torch.manual_seed(0)
    f, g = torch.randn(4, 5), torch.randn(4, 3).softmax(1)
    exact, sketch = OuterProduct(5, 3)(f, g), RandomSketch(5, 3, 60_000)(f, g)
    assert torch.allclose(sketch @ sketch.T, exact @ exact.T, atol=0.15)


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("largest_product", [0, 4096])
def test_cdan_discriminates_features_and_predictions_together(
    entropy: bool, largest_product: int, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    with torch.no_grad():
        model.head.get_parameter("weight").mul_(50)  # predictions of differing certainty
    batch = batch_for(model)
    options = CDANOptions(entropy=entropy, hidden=8, sketch=16, largest_product=largest_product)
    method = CDAN(model, options, SIZES).eval()
    assert isinstance(method.conditioning, OuterProduct if largest_product else RandomSketch)
    f_s, f_t = features_of(model, batch)
    p_s, p_t = (softmax(model.head(f).detach().numpy(), 1) for f in (f_s, f_t))
    joint = (method.conditioning(f, torch.tensor(p)) for f, p in ((f_s, p_s), (f_t, p_t)))
    log_s, log_t = binary_cross_entropies(method, *joint)
    w_s, w_t = (1 + np.exp(-entr(p).sum(1)) if entropy else np.ones(4) for p in (p_s, p_t))
    expected = ((w_s * log_s).sum() / w_s.sum() + (w_t * log_t).sum() / w_t.sum()) / 2
    assert float(method(batch, MOMENT)["domain"]) == pytest.approx(expected, rel=1e-4)


def test_the_predictions_that_cdan_conditions_on_are_not_trained_by_it(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    gradients = []
    for weight in (0.0, 5.0):
        model.zero_grad()
        torch.manual_seed(0)
        CDAN(model, CDANOptions(entropy=True, hidden=8, weight=weight), SIZES).eval()(batch, MOMENT)["loss"].backward()
        gradients.append(gradient(model.head.get_parameter("weight")).clone())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("name", ["dann", "cdan", "ila", "dwl", "mdd"])
def test_the_reversal_follows_the_images_seen_and_not_the_length_of_the_training(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """The features' gradient less that of step 0 is the reversal's share; long after its ramp it is at its top."""
    model = tiny().eval()
    method = METHODS[name].create(model, METHODS[name].options(), SIZES).eval()
    batch = batch_for(model)
    in_features = model.backbone.get_parameter("stem.proj.weight")

    def slope(step: int, steps: int, pairs: int) -> torch.Tensor:
        moment = Moment(step, steps, 10, "features_1" if name == "dwl" else "joint", pairs=pairs)
        found: torch.Tensor = torch.autograd.grad(method(batch, moment)["loss"], in_features)[0]
        return found

    start, top = slope(0, 100, 32), slope(10**7, 10**7, 32)

    def share(step: int, steps: int, pairs: int) -> float:
        along = (top - start).flatten()
        return float((slope(step, steps, pairs) - start).flatten() @ along / (along @ along))

    batch_size = 32 if name == "mdd" else 36  # of the published recipe, whose ramp is exp(-i / 1000)
    for step in (29, 100, 2944):
        published = 2 / (1 + math.exp(-step / 1000)) - 1
        assert share(step, 10**4, batch_size) == pytest.approx(published, abs=2e-3)
        assert share(step, step, batch_size) == pytest.approx(published, abs=2e-3)  # in a training of any length
    assert share(2944, 10**4, batch_size) == pytest.approx(0.9, abs=2e-3)
    assert share(1472, 10**4, 2 * batch_size) == pytest.approx(0.9, abs=2e-3)  # twice the batch, half the steps


def test_the_top_of_the_reversal_is_a_setting(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    moment = Moment(10**6, 10**6, 10, pairs=36)
    slopes = []
    for reversal in (0.0, 0.1, 1.0):
        torch.manual_seed(0)
        method = DANN(model, DANNOptions(hidden=8, reversal=reversal), SIZES).eval()
        parameters = [
            model.backbone.get_parameter("stem.proj.weight"),
            method.get_parameter("discriminator.layers.0.weight"),
        ]
        slopes.append(torch.autograd.grad(method(batch, moment)["loss"], parameters))
    (none, tenth, whole), in_discriminator = ([one[place] for one in slopes] for place in (0, 1))
    assert torch.allclose(tenth - none, 0.1 * (whole - none), atol=1e-7)
    assert torch.equal(in_discriminator[0], in_discriminator[2])

"""Under bf16 the mixing interpolates in float32, and so does the Beta get its gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Moment
from pmtrans.mixing import MIXINGS, LearnableBeta
from pmtrans.mixing.mixing import Mixing, interpolate
from pmtrans.model import Model

PAIRS, PATCHES, WIDTH = 3, 16, 64
ROUNDED = 2.0**-8  # of a number, at most, is lost when it becomes bf16
LEARNING = ("patchmix", "hierarchical", "mixup")  # the others have masks, which have no gradient


def tokens(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(PAIRS, PATCHES, WIDTH, generator=generator).bfloat16()


def mixing_of(name: str) -> Mixing:
    return MIXINGS[name](LearnableBeta((1.3, 0.8), floor=0.3, ceiling=5.0), (4, 4))


def test_an_interpolation_is_rounded_once() -> None:
    first, second = tokens(0), tokens(1)
    ratio = torch.rand(PAIRS, PATCHES, 1, generator=torch.Generator().manual_seed(2), requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = interpolate(first, second, ratio)
    assert mixed.dtype == torch.bfloat16
    slope = tokens(3)
    mixed.backward(slope)
    assert ratio.grad is not None
    for b in range(PAIRS):
        for n in range(PATCHES):
            weight, gradient, size = ratio[b, n, 0].item(), 0.0, 0.0
            for d in range(WIDTH):
                one, other = first[b, n, d].item(), second[b, n, d].item()
                expected = weight * one + (1 - weight) * other
                assert abs(mixed[b, n, d].item() - expected) <= 1.0001 * ROUNDED * abs(expected) + 1e-6
                gradient += slope[b, n, d].item() * (one - other)
                size += abs(slope[b, n, d].item() * (one - other))
            assert ratio.grad[b, n, 0].item() == pytest.approx(gradient, abs=1e-6 * size)


@pytest.mark.parametrize("name", LEARNING)
def test_the_beta_gets_the_gradient_of_float32(name: str) -> None:
    mixing, slope = mixing_of(name), tokens(3)

    def gradient(first: Tensor, second: Tensor, half: bool) -> Tensor:
        mixing.zero_grad()
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            mixed = mixing(first, second)
        assert mixed.ratio_BN.dtype == torch.float32
        mixed.tokens_BND.backward(slope.to(mixed.tokens_BND.dtype))
        assert mixing.beta.raw.grad is not None
        assert mixing.beta.raw.grad.dtype == torch.float32
        return mixing.beta.raw.grad.clone()

    expected = gradient(tokens(0).float(), tokens(1).float(), half=False)
    assert gradient(tokens(0), tokens(1), half=True).tolist() == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("name", ["patchmix", "manifold_mixup"])
def test_a_step_mixes_in_float32(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the blocks compute in: what is interpolated, and by what."""
    kinds = []
    lerp = torch.lerp

    def witness(second: Tensor, first: Tensor, ratio: Tensor) -> Tensor:
        kinds.extend([second.dtype, first.dtype, ratio.dtype])
        return lerp(second, first, ratio)

    model, entry = tiny(), METHODS["pmtrans"]
    method = entry.create(model, entry.options.model_validate({"mixing": name}), Sizes(3, 12, 9)).train()
    monkeypatch.setattr(torch, "lerp", witness)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        method(batch_for(model), Moment(50, 100, 10))
    assert kinds == [torch.float32] * 3

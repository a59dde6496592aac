"""Manifold Mixup, CutOut, TransMix and TokenMix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.encoding import Encoding
from pmtrans.data.batch import Batch
from pmtrans.errors import ModelError
from pmtrans.methods import Sizes
from pmtrans.methods.method import Moment
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.mixing import MIXINGS, LearnableBeta, Scores
from pmtrans.mixing.mixing import Mixing
from pmtrans.model import Model

MOMENT = Moment(step=50, steps=100, steps_per_epoch=10)
SIZES = Sizes(classes=3, source_images=12, target_images=9)


def mixing(kind: str, grid: tuple[int, int], weighs: str = "source", start: tuple[float, float] = (1.0, 1.0)) -> Mixing:
    return MIXINGS[kind](LearnableBeta(start, 0.3, 5.0), grid, weighs)  # type: ignore[arg-type]


def test_tokenmix_replaces_the_drawn_share_by_blocks_all_over_the_image() -> None:
    torch.manual_seed(0)
    module = mixing("tokenmix", (15, 15))
    shares = module.beta.sample((200, 1)).detach()
    module.beta.sample = lambda shape: shares  # type: ignore[method-assign]
    ratio = module.ratios(200)
    for share, row in zip(shares[:, 0].tolist(), ratio, strict=True):
        assert set(row.tolist()) <= {0.0, 1.0}
        assert int(row.sum()) == pytest.approx(225 * share, abs=0.51)
    grid = ratio.view(200, 15, 15)
    assert all(0.3 < float(grid[:, y, x].mean()) < 0.7 for y in range(15) for x in range(15))  # no favoured place
    half = grid[(shares[:, 0] - 0.5).abs() < 0.2]
    alike = (half[:, :, 1:] == half[:, :, :-1]).float().mean()
    assert 0.7 < float(alike) < 0.95  # independent patches would agree half the time, one box nearly always


def test_tokenmix_weighs_labels_by_the_activation_of_both_parents() -> None:
    torch.manual_seed(0)
    module = mixing("tokenmix", (4, 4))
    ratio = module.ratios(3)
    scores = Scores(torch.rand(3, 16).softmax(1), torch.rand(3, 16).softmax(1))
    w_s, w_t = module.label_weights(ratio, scores)
    for n in range(3):
        own = sum(float(scores.source_BN[n, k]) for k in range(16) if ratio[n, k] == 1)
        other = sum(float(scores.target_BN[n, k]) for k in range(16) if ratio[n, k] == 0)
        assert float(w_s[n]) == pytest.approx(own / (own + other), abs=1e-5)
        assert float(w_s[n] + w_t[n]) == pytest.approx(1)


def test_cutout_blanks_a_box_of_one_image_and_keeps_its_label() -> None:
    torch.manual_seed(0)
    source, target = torch.full((300, 12, 5), 3.0), torch.full((300, 12, 5), 7.0)
    mixed = mixing("cutout", (3, 4))(source, target)
    chosen = mixed.ratio_BN[:, 0]
    assert 0.4 < float(chosen.mean()) < 0.6
    blanks = 0
    for tokens, ratio in zip(mixed.tokens_BND, mixed.ratio_BN, strict=True):
        assert len(set(ratio.tolist())) == 1
        assert set(tokens.unique().tolist()) <= {0.0, 3.0 if ratio[0] else 7.0}
        blank = (tokens[:, 0] == 0).view(3, 4).numpy()
        rows, columns = np.flatnonzero(blank.any(1)), np.flatnonzero(blank.any(0))
        blanks += int(blank.sum())
        if blank.any():  # a full rectangle
            assert blank[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    assert 0.2 < blanks / (300 * 12) < 0.5
    w_s, _ = mixing("cutout", (3, 4)).label_weights(
        mixed.ratio_BN, Scores(torch.full((300, 12), 1 / 12), torch.full((300, 12), 1 / 12))
    )
    assert torch.allclose(w_s, chosen)


def test_transmix_averages_area_and_attention_of_the_mixed_image() -> None:
    torch.manual_seed(0)
    module = mixing("transmix", (3, 4))
    ratio, attention = module.ratios(5), torch.rand(5, 12).softmax(1)
    w_s, w_t = module.label_weights(ratio, Scores(attention, attention, attention))
    for n in range(5):
        inside = [k for k in range(12) if ratio[n, k] == 1]
        expected = (len(inside) / 12 + sum(float(attention[n, k]) for k in inside)) / 2
        assert float(w_s[n]) == pytest.approx(expected, abs=1e-6)
        assert float(w_t[n]) == pytest.approx(1 - expected, abs=1e-6)


def test_transmix_looks_at_the_last_block_of_the_mixed_image(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """The class token's dense attention, head by head, in the last of two blocks."""
    model = tiny().eval()
    with torch.no_grad():
        for block in model.backbone.trunk.blocks:
            block.attn.qkv.weight.normal_(std=0.3)  # far from an even attention, and each block another one
    method = PMTrans(model, PMTransOptions(preset="paper", mixing="transmix"), SIZES)
    batch = batch_for(model)
    torch.manual_seed(7)
    outputs = method(batch, MOMENT)
    torch.manual_seed(7)
    backbone, trunk = model.backbone, model.backbone.trunk
    source, target = backbone.embed(batch.source_images), backbone.embed(batch.target_images)
    mixed = method.mixing(source, target)
    x = trunk.blocks[0](trunk._pos_embed(mixed.tokens_BND))
    block = trunk.blocks[1]
    qkv = block.attn.qkv(block.norm1(x)).view(4, 5, 3, 2, 16)
    weights = []
    for n in range(4):
        rows = [(qkv[n, 0, 0, h] @ qkv[n, :, 1, h].T / 4).softmax(0)[1:] for h in range(2)]
        row = (rows[0] + rows[1]) / 2
        mass = (row / row.sum() * mixed.ratio_BN[n]).sum()
        weights.append(float((mixed.ratio_BN[n].mean() + mass).detach() / 2))
    assert float(outputs["label_weight_mean"]) == pytest.approx(np.mean(weights), abs=1e-5)
    assert float(outputs["label_weight_spread"]) == pytest.approx(np.std(weights), abs=1e-5)


@pytest.mark.parametrize("weighs", ["source", "target"])
@pytest.mark.parametrize("family", ["vit", "swin"])
def test_manifold_mixup_mixes_what_enters_a_random_block(family: str, weighs: str, tiny: Callable[..., Model]) -> None:
    backbone = tiny(family).backbone.eval()
    module = mixing("manifold_mixup", backbone.grid, weighs, start=(4.0, 1.0))
    torch.manual_seed(1)
    source, target = backbone.embed(torch.randn(4, 3, 32, 32)).chunk(2)
    plain = [backbone.encode(tokens, scored=0).features_BF for tokens in (source, target)]
    layers = set()
    for seed in range(6):
        torch.manual_seed(seed)
        mixed = module(source, target)
        encoding, ratio = module.encode(backbone, source, target, mixed, scored=4), mixed.ratio_BN
        torch.manual_seed(seed)
        drawn = module.ratios(2)
        layer = int(torch.randint(2, ()))
        layers.add(layer)
        assert torch.equal(ratio, drawn if weighs == "source" else 1 - drawn)
        s, t, i = encoding.split(2)
        assert isinstance(i, Encoding)
        assert torch.allclose(s.features_BF, plain[0], atol=1e-5)
        assert torch.allclose(t.features_BF, plain[1], atol=1e-5)
        expected = _by_hand(backbone, source, target, ratio, layer)
        assert torch.allclose(i.features_BF, expected, atol=1e-5)
    assert layers == {0, 1}


def _by_hand(
    backbone: Any, source: torch.Tensor, target: torch.Tensor, ratio: torch.Tensor, layer: int
) -> torch.Tensor:
    trunk = backbone.trunk
    if hasattr(trunk, "blocks"):
        units = [*trunk.blocks]
        s, t = trunk._pos_embed(source), trunk._pos_embed(target)
        weight = ratio[:, :1, None]
    else:  # two stages of one block each; the second begins with a merging of patches
        units = [*trunk.layers]
        s, t = (x.unflatten(1, backbone.grid) for x in (source, target))
        weight = ratio[:, :1, None, None]
    for number, unit in enumerate(units):
        if not hasattr(trunk, "blocks"):
            s, t = unit.downsample(s), unit.downsample(t)
            unit = unit.blocks
        if number == layer:
            mixed = weight * s + (1 - weight) * t
            for rest_number, rest in enumerate(units[number:]):
                if not hasattr(trunk, "blocks"):
                    mixed = mixed if rest_number == 0 else rest.downsample(mixed)
                    rest = rest.blocks
                mixed = rest(mixed)
            features: torch.Tensor = trunk.forward_head(trunk.norm(mixed), pre_logits=True)
            return features
        s, t = unit(s), unit(t)
    raise AssertionError


def test_manifold_mixup_refuses_a_backbone_that_it_cannot_enter() -> None:
    model = Model(create_backbone("pvt_v2_b0", "none", 64), 3)
    with pytest.raises(ModelError, match="keeps its batch fixed"):
        PMTrans(model, PMTransOptions(preset="paper", mixing="manifold_mixup"), SIZES)


@pytest.mark.parametrize("kind", ["manifold_mixup", "cutout", "transmix", "tokenmix"])
@pytest.mark.parametrize("family", ["vit", "swin"])
@pytest.mark.parametrize("attention", ["scores", "uniform", "softmaxed"])
def test_pmtrans_trains_with_each(
    kind: str, family: str, attention: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny(family)
    method = PMTrans(model, PMTransOptions(preset="paper", mixing=kind, attention=attention), SIZES)
    outputs = method(batch_for(model), MOMENT)
    outputs["loss"].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())
    assert 0 <= float(outputs["label_weight_mean"]) <= 1
    moves = method.mixing.beta.raw.grad is not None
    assert moves == (kind == "manifold_mixup")

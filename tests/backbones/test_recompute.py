from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.blocks import refuse_undividable, transformer_blocks
from pmtrans.backbones.class_token import ClassTokenBackbone
from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.recompute import checkpoint_blocks, in_pieces
from pmtrans.data.batch import Batch
from pmtrans.errors import ModelError
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from tiny_data import TINY

MEET_INSIDE = {  # images meet inside the transformer, or attention is answered differently there
    "manifold": ("pmtrans", {"mixing": "manifold_mixup"}),
    "cdtrans": ("cdtrans", {}),
    "tvt": ("tvt", {}),
    "ssrt": ("ssrt", {}),
}


def dropping(family: str) -> Backbone:
    """With a drop path of 0.4 and lively weights, in training."""
    torch.manual_seed(0)
    name, options, size = TINY[family]
    backbone = create_backbone(name, "none", size, {**options, "drop_path_rate": 0.4})
    with torch.no_grad():
        for parameter in backbone.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.2)
    return backbone.train()


def encoded(backbone: Backbone, pieces: int = 1) -> tuple[dict[str, Tensor], int]:
    """Features, scores, gradients and the generator's next number; and the bytes kept for the backward pass."""
    torch.manual_seed(1)
    tokens_BND = torch.randn(6, backbone.patches, backbone.embed(_image(backbone)).shape[-1], requires_grad=True)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), in_pieces(pieces):
        encoding = backbone.encode(tokens_BND, scored=4)
    next_number = torch.rand(1)
    (
        encoding.features_BF * torch.linspace(-1, 1, encoding.features_BF.numel()).view_as(encoding.features_BF)
    ).sum().backward()
    assert tokens_BND.grad is not None
    head = nn.Linear(backbone.features, 3)
    nn.init.ones_(head.weight)
    found = {
        "features": encoding.features_BF,
        "scores": backbone.attention_scores(encoding, head, torch.zeros(4, dtype=torch.long)),
        "tokens": tokens_BND.grad,
        "next": next_number,
        **{f"gradient.{name}": p.grad for name, p in backbone.named_parameters() if p.grad is not None},
    }
    return {name: value.detach().clone() for name, value in found.items()}, sum(kept.values())


def _image(backbone: Backbone) -> Tensor:
    return torch.zeros(1, 3, backbone.image_size, backbone.image_size)


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-6 + 1e-5 * float(value.abs().max())), name


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("how", ["blocks", "pieces", "both"])
def test_recomputed_passes_are_the_kept_one_with_less_memory(family: str, how: str) -> None:
    expected, kept = encoded(dropping(family))
    backbone = dropping(family)
    if how != "pieces":
        checkpoint_blocks(transformer_blocks(backbone))
    found, kept_now = encoded(backbone, pieces=1 if how == "blocks" else 3)
    assert_same(found, expected)
    assert kept_now < kept / 2


def test_scores_of_recomputed_blocks_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from pmtrans.backbones import class_token

    backbone = dropping("vit")
    checkpoint_blocks(transformer_blocks(backbone))
    taken: list[int] = []
    attend = class_token._RecordClassToken.attend

    def counted(row: Any, call: Any) -> Any:
        taken.append(1)
        return attend(row, call)

    monkeypatch.setattr(class_token._RecordClassToken, "attend", counted)
    encoded(backbone)
    assert isinstance(backbone, ClassTokenBackbone)
    assert len(taken) == 2  # blocks, and not again in the backward pass


def gradients(method: Method, batch: Batch, pieces: int = 1) -> dict[str, Tensor]:
    torch.manual_seed(3)
    for phase in method.phases(Moment(50, 100, 10)):
        with in_pieces(pieces):
            loss = method(batch, Moment(50, 100, 10, phase))["loss"]
        loss.backward()
    return {name: p.grad for name, p in method.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("case", MEET_INSIDE)
def test_images_that_meet_inside_the_transformer_meet_again(
    case: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    name, switches = MEET_INSIDE[case]
    model = tiny()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.2)
    method = METHODS[name].create(model, METHODS[name].options.model_validate(switches), Sizes(3, 12, 9)).train()
    batch = batch_for(model)
    again, divided = copy.deepcopy(method), copy.deepcopy(method)
    expected = gradients(method, batch)
    checkpoint_blocks(transformer_blocks(again.model.backbone))
    assert_same(gradients(again, batch), expected)
    assert_same(gradients(divided, batch, pieces=2), expected)


def test_batch_normalisation_cannot_be_divided(tiny: Callable[..., Model]) -> None:
    backbone = tiny().backbone
    refuse_undividable([backbone])
    backbone.trunk.blocks[0].norm1 = nn.BatchNorm1d(5)
    with pytest.raises(ModelError, match=r"train\.accumulation=plain"):
        refuse_undividable([backbone])

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from by_hand import class_confusion, masked, masked_consistency
from pmtrans.data.batch import Batch
from pmtrans.ema import EMATeacher
from pmtrans.methods.parts.additions import Additions
from pmtrans.methods.parts.masked_teacher import MaskedConsistency
from pmtrans.model import Model


def test_the_teacher_is_a_plain_mean_at_first_and_then_an_exponential_one(tiny: Callable[..., Model]) -> None:
    model = tiny()
    teacher = EMATeacher(model, rate=0.6)
    weight, bias = model.head.get_parameter("weight"), model.head.get_parameter("bias")
    # by hand: 1; (1 + 5) / 2; from here on, as 2/3 is above the rate, 0.6 of the last and 0.4 of the new
    means = {1.0: 1.0, 5.0: 3.0, 2.0: 2.6, -4.0: -0.04, 10.0: 3.976, 0.0: 2.3856}
    for step, (value, mean) in enumerate(means.items()):
        with torch.no_grad():
            weight.fill_(value)
            bias.fill_(-value)
        teacher.follow(model, step)
        assert teacher.model.head.get_parameter("weight").unique().tolist() == pytest.approx([mean], abs=1e-5)
        assert teacher.model.head.get_parameter("bias").unique().tolist() == pytest.approx([-mean], abs=1e-5)


def test_the_teacher_shares_nothing_trains_nothing_and_never_drops_out(tiny: Callable[..., Model]) -> None:
    model = tiny(head="mlp")
    teacher = EMATeacher(model).train()
    images = torch.randn(2, 3, 32, 32)
    assert not teacher.model.training
    assert torch.equal(teacher(images), teacher(images))
    assert not any(p.requires_grad for p in teacher.parameters())
    before = teacher(images)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert torch.equal(teacher(images), before)
    assert teacher.state_dict()  # a checkpoint holds it


@pytest.mark.parametrize(("size", "squares"), [(32, 4), (35, 3), (24, 1)])
def test_the_mask_hides_whole_squares_in_the_asked_share(size: int, squares: int, tiny: Callable[..., Model]) -> None:
    torch.manual_seed(0)
    masked = MaskedConsistency(tiny(), block=1 / squares, ratio=0.7).mask(torch.ones(400, 3, size, size))
    assert set(masked.unique().tolist()) == {0.0, 1.0}
    assert float(1 - masked.mean()) == pytest.approx(0.7, abs=0.05)
    for image in masked[:3, 0]:
        for row in range(squares):
            for column in range(squares):
                inside = [
                    float(image[y, x])
                    for y in range(size)
                    for x in range(size)
                    if y * squares // size == row and x * squares // size == column
                ]
                assert len(set(inside)) == 1


def test_additions_of_weight_zero_are_not_there(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny()
    batch = batch_for(model)
    nothing = Additions(model, {"class_confusion": 0.0, "masked_consistency": 0.0})
    features = model.backbone(batch.target_images)
    assert nothing(model, batch.target_images, features) == (0, {})
    assert not nothing.state_dict()
    torch.manual_seed(0)
    both, parts = Additions(model, {"class_confusion": 0.5, "masked_consistency": 2.0})(
        model, batch.target_images, features
    )
    torch.manual_seed(0)
    seen = torch.rand(4, 1, 4, 4)[:, 0] >= 0.7
    with torch.no_grad():
        logits = model(batch.target_images)
        expected = {
            "class_confusion": class_confusion(logits, 2.5),
            "masked_consistency": masked_consistency(model(masked(batch.target_images, seen)), logits),
        }
    assert {name: float(value) for name, value in parts.items()} == pytest.approx(expected, rel=1e-4)
    added = 0.5 * expected["class_confusion"] + 2 * expected["masked_consistency"]
    assert float(both.detach()) == pytest.approx(added, rel=1e-4)

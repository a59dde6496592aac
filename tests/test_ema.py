from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pmtrans.data.batch import Batch
from pmtrans.ema import EMATeacher
from pmtrans.methods.parts.additions import Additions
from pmtrans.methods.parts.masked_teacher import MaskedConsistency
from pmtrans.model import Model


def test_the_teacher_is_a_plain_mean_at_first_and_then_an_exponential_one(tiny: Callable[..., Model]) -> None:
    model = tiny()
    teacher = EMATeacher(model, rate=0.6)
    weight = model.head.get_parameter("weight")
    history, expected = [], 0.0
    for step in range(6):
        with torch.no_grad():
            weight.add_(torch.randn(weight.shape))
        teacher.follow(model, step)
        history.append(weight[0, 0].item())
        rate = min(step / (step + 1), 0.6)
        expected = rate * expected + (1 - rate) * history[-1]
        assert float(teacher.model.head.get_parameter("weight")[0, 0]) == pytest.approx(expected, abs=1e-5)
        if step < 2:  # 1 - 1/3 is above 0.6
            assert expected == pytest.approx(sum(history) / len(history), abs=1e-5)


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
    nothing = Additions(model, 0.0, 0.0)
    features = model.backbone(batch.target_images)
    assert nothing(model, batch.target_images, features) == (0, {})
    assert not nothing.state_dict()
    torch.manual_seed(0)
    both, parts = Additions(model, 0.5, 2.0)(model, batch.target_images, features)
    assert set(parts) == {"class_confusion", "masked_consistency"}
    expected = 0.5 * float(parts["class_confusion"]) + 2 * float(parts["masked_consistency"])
    assert float(both.detach()) == pytest.approx(expected)

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from by_hand import class_confusion, cross_entropy, masked, masked_consistency
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.methods import Sizes
from pmtrans.methods.mcc import MCC, MCCOptions
from pmtrans.methods.method import Moment
from pmtrans.methods.mic import MIC, MICOptions
from pmtrans.methods.parts.masked_teacher import MaskedConsistency
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.model import Model
from pmtrans.training.players import create_optimiser

MOMENT = Moment(step=50, steps=100, steps_per_epoch=10)
SIZES = Sizes(classes=3, source_images=12, target_images=9)


def test_mcc_adds_the_confusion_of_the_target(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    outputs = MCC(model, MCCOptions(weight=0.5, temperature=2.0), SIZES)(batch, MOMENT)
    with torch.no_grad():
        confusion = class_confusion(model(batch.target_images), 2.0)
        classification = float(cross_entropy(model(batch.source_images), batch.source_labels.tolist()))
    assert float(outputs["class_confusion"]) == pytest.approx(confusion, rel=1e-5)
    assert float(outputs["loss"].detach()) == pytest.approx(classification + 0.5 * confusion, rel=1e-5)


@pytest.mark.parametrize("mcc", [0.0, 0.5])
def test_mic_asks_the_student_of_a_masked_image_for_the_label_of_the_teacher(
    mcc: float, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    method, batch = MIC(model, MICOptions(weight=2.0, mcc=mcc), SIZES), batch_for(model)
    with torch.no_grad():
        teacher = model(batch.target_images)  # before the student moves away from it
        model.head.get_parameter("weight").add_(0.1 * torch.randn(3, 32))
    torch.manual_seed(5)
    outputs = method(batch, MOMENT)
    torch.manual_seed(5)
    seen = torch.rand(4, 1, 4, 4)[:, 0] >= 0.7  # squares of 64 of 224 pixels: four on a side
    with torch.no_grad():
        consistency = masked_consistency(model(masked(batch.target_images, seen)), teacher)
        classification = float(cross_entropy(model(batch.source_images), batch.source_labels.tolist()))
        confusion = class_confusion(model(batch.target_images), 2.5)
    assert float(outputs["masked_consistency"]) == pytest.approx(consistency, rel=1e-5)
    expected = classification + 2 * consistency + mcc * confusion
    assert float(outputs["loss"].detach()) == pytest.approx(expected, rel=1e-5)


def test_the_teacher_of_mic_follows_after_each_step_and_no_gradient_reaches_it(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    method, batch = MIC(model, MICOptions(teacher_rate=0.5), SIZES), batch_for(model)
    optimiser = create_optimiser(method, TrainConfig())
    first = model.head.get_parameter("weight").detach().clone()
    method(batch, MOMENT)["loss"].backward()
    assert all(p.grad is None for p in method.masked.parameters())
    optimiser.step()
    method.after_step(MOMENT)
    expected = (first + model.head.get_parameter("weight").detach()) / 2
    assert torch.allclose(method.masked.teacher.model.head.get_parameter("weight"), expected)


def test_the_teacher_of_mic_has_the_rate_of_the_published_classification_runs(tiny: Callable[..., Model]) -> None:
    """0.999 is that of segmentation: in a training of some hundred steps such a teacher is still where it began."""
    assert MICOptions().teacher_rate == 0.9
    assert MaskedConsistency(tiny()).teacher.rate == 0.9, "as an addition to PMTrans too"


def test_pmtrans_takes_both_by_a_switch_and_is_the_same_without(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)

    def outputs(**switches: float) -> dict[str, torch.Tensor]:
        method = PMTrans(model, PMTransOptions(preset="paper", alpha="fixed", **switches), SIZES)
        torch.manual_seed(7)
        found: dict[str, torch.Tensor] = method(batch, MOMENT)
        return found

    plain, both = outputs(), outputs(mcc=0.5, mic=2.0)
    assert not {"class_confusion", "masked_consistency"} & set(plain)
    torch.manual_seed(7)
    PMTrans(model, PMTransOptions(alpha="fixed"), SIZES)(batch, MOMENT)  # draws its ratios before the mask
    seen = torch.rand(4, 1, 4, 4)[:, 0] >= 0.7
    with torch.no_grad():
        logits = model(batch.target_images)  # of the student and of the teacher, which is still the same
        confusion = class_confusion(logits, 2.5)
        consistency = masked_consistency(model(masked(batch.target_images, seen)), logits)
    assert float(both["class_confusion"]) == pytest.approx(confusion, rel=1e-4)
    assert float(both["masked_consistency"]) == pytest.approx(consistency, rel=1e-4)
    added = 0.5 * confusion + 2 * consistency
    assert float(both["loss"].detach()) == pytest.approx(float(plain["loss"].detach()) + added, rel=1e-5)


def test_the_teacher_beside_pmtrans_follows_from_the_first_step_on(tiny: Callable[..., Model]) -> None:
    model = tiny()
    method = PMTrans(model, PMTransOptions(mic=1.0), SIZES)
    with torch.no_grad():
        model.head.get_parameter("weight").fill_(3.0)
    method.after_step(Moment(0, 100, 10))
    assert method.additions.masked is not None
    assert method.additions.masked.teacher.model.head.get_parameter("weight").unique().tolist() == [3.0]

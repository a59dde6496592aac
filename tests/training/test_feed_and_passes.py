"""What the loop is fed with, and the passes that it offers between steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from fed import parts_of
from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domains import read_data
from pmtrans.evaluation import passes as domain_passes
from pmtrans.methods.method import SecondView
from pmtrans.progress import Reporter
from pmtrans.training import passes as training_passes
from pmtrans.training.build import build_model, build_untrained, second_view_size


def indices(batches: list[Batch]) -> list[tuple[list[int], list[int]]]:
    return [(batch.source_index.tolist(), batch.target_index.tolist()) for batch in batches]


@pytest.mark.parametrize("method", ["pmtrans", "can"])  # one that takes what comes, one that chooses its pairs
def test_a_feed_that_begins_later_gives_what_the_whole_one_gives_there(
    method: str, configure: Callable[..., Config]
) -> None:
    _, feed = parts_of(configure(train__accumulate=2, train__max_steps=7, method__name=method))
    whole = [(indices(batches), batches) for batches in feed.steps(0)]
    assert len(whole) == 7
    assert all(len(found) == 2 for found, _ in whole)
    assert len({str(found) for found, _ in whole}) == 7
    later = [(indices(batches), batches) for batches in feed.steps(4)]
    assert [found for found, _ in later] == [found for found, _ in whole[4:]]
    for (_, ours), (_, theirs) in zip(later, whole[4:], strict=True):
        assert all(torch.equal(a.source_images, b.source_images) for a, b in zip(ours, theirs, strict=True))
    assert feed.images_per_second > 0
    assert 0 < feed.waiting_share < 1


def test_a_balanced_source_has_every_class_in_each_batch_from_any_step_on(
    configure: Callable[..., Config], images: Path
) -> None:
    for picture in sorted((images / "source" / "cat").iterdir())[2:]:
        picture.unlink()
    _, feed = parts_of(configure(data__balance="classes", data__holdout=0.0, train__max_steps=6))
    whole = [batch for (batch,) in feed.steps(0)]
    assert all(sorted(batch.source_labels.tolist()) == [0, 0, 1, 1] for batch in whole)
    assert not torch.equal(whole[0].source_images, whole[1].source_images)
    later = [batch for (batch,) in feed.steps(3)]
    assert [batch.source_index.tolist() for batch in later] == [batch.source_index.tolist() for batch in whole[3:]]
    assert all(torch.equal(a.source_images, b.source_images) for a, b in zip(later, whole[3:], strict=True))
    _, plain = parts_of(configure(data__holdout=0.0, train__max_steps=6))
    assert all(a.target_index.equal(b.target_index) for (a,), b in zip(plain.steps(0), whole, strict=True))


def test_an_evaluation_does_not_slow_the_rate_that_is_shown(configure: Callable[..., Config]) -> None:
    _, feed = parts_of(configure(train__max_steps=3))
    rates = []
    for step, _ in enumerate(feed.steps(0)):
        rates.append(feed.images_per_second)
        time.sleep(0.05)
        if step == 1:
            with feed.paused():
                time.sleep(1.0)
    rates.append(feed.images_per_second)
    images = 2 * 4  # of a step: four pairs
    assert rates[0] == 0  # no step has ended yet
    assert all(images / 1.0 < rate <= images / 0.05 for rate in rates[1:])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each pass saw, so far."""
    made: list[int] = []

    def counted(model: object, paths: list[str], *rest: object) -> domain_passes.Pass:
        made.append(len(paths))
        return domain_passes.run_pass(model, paths, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(training_passes, "run_pass", counted)
    return made


def test_a_pass_is_made_once_until_the_model_moves(configure: Callable[..., Config], made: list[int]) -> None:
    passes, _ = parts_of(configure())
    first, context = passes.target(), passes.context()
    assert torch.equal(context.target_pass().logits_MK, first.logits_MK)
    assert passes.evaluation(0).target.logits_MK is first.logits_MK
    assert made.count(10) == 1  # the whole target; the others are parts of the source
    with torch.no_grad():
        passes.model.head.get_parameter("weight").add_(1)
    assert torch.equal(passes.target().logits_MK, first.logits_MK)  # nobody said that it moved
    passes.forget()
    assert not torch.equal(passes.target().logits_MK, first.logits_MK)
    source = passes.source()
    assert source.labels_N.tolist() == list(passes.task.source.labels)
    assert len(source.logits_NK) == len(passes.task.source)


@pytest.mark.parametrize("stays", [True, False])
def test_a_moved_head_classifies_kept_features_as_a_new_pass_would(
    stays: bool, configure: Callable[..., Config]
) -> None:
    passes, _ = parts_of(configure())
    before = passes.target()
    torch.nn.init.normal_(passes.model.head.get_parameter("weight"))
    with passes.another_head(stays):
        moved = passes.target()
    after = passes.target()
    passes.forget()
    new = passes.target()
    assert torch.equal(moved.features_MF, before.features_MF)
    assert not torch.allclose(moved.logits_MK, before.logits_MK)
    assert torch.allclose(moved.logits_MK, new.logits_MK, atol=1e-5)
    assert torch.equal(after.logits_MK, moved.logits_MK if stays else before.logits_MK)


def test_the_target_under_the_untrained_backbone_is_seen_once_and_disturbs_nothing(
    configure: Callable[..., Config], made: list[int]
) -> None:
    config = configure()
    passes, _ = parts_of(config)
    assert passes.context().second_view is None  # nobody knows what the model was
    first = passes.target().features_MF
    with torch.no_grad():
        next(passes.model.backbone.parameters()).add_(1)
    data = read_data(config, Reporter(quiet=True))
    passes.untrained = lambda: build_untrained(config, data, config.data.image_size)
    passes.forget()
    context, random = passes.context(), torch.get_rng_state()
    assert context.second_view is not None
    assert torch.equal(context.second_view(None).features_MF, first)
    passes.forget()
    assert torch.equal(context.second_view(None).features_MF, first)
    assert made.count(10) == 2
    assert torch.equal(torch.get_rng_state(), random)
    assert not torch.equal(passes.target().features_MF, first)


def test_behind_a_bottleneck_the_untrained_features_are_those_of_the_backbone_alone(
    configure: Callable[..., Config],
) -> None:
    plain, narrow = configure(), configure(backbone__bottleneck=6)
    data = read_data(plain, Reporter(quiet=True))
    images = torch.rand(2, 3, plain.data.image_size, plain.data.image_size)
    size = plain.data.image_size
    found = [build_untrained(config, data, size)[0].eval().features_and_logits(images)[0] for config in (plain, narrow)]
    assert torch.equal(*found)
    assert build_model(narrow, data).model.backbone.features == 6


def test_the_second_view_sees_images_as_large_as_the_pretrained_weights_did(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    options = configure().backbone.options
    trunk = timm.create_model("vit_tiny_patch16_224", num_classes=0, **options).eval()
    save_file(trunk.state_dict(), tmp_path / "w.safetensors")
    pretrained = {"backbone__weights": str(tmp_path / "w.safetensors"), "data__crop_ratio": 1.0}
    second = {size: seen_by(configure(**pretrained, method__second_view_size=size)) for size in ("pretrained", "same")}
    paths = read_data(configure(), Reporter(quiet=True)).target.domain.paths
    pictures = [Image.open(path).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC) for path in paths]
    pixels = torch.stack([torch.tensor(np.asarray(picture)).permute(2, 0, 1) / 255 for picture in pictures])
    with torch.no_grad():
        expected = trunk((pixels - 0.5) / 0.5)
    torch.testing.assert_close(second["pretrained"].features_MF, expected, rtol=1e-3, atol=2e-2)
    assert second["pretrained"].logits_MK is not None
    assert second["pretrained"].logits_MK.shape == (len(paths), 2)
    assert second["same"].logits_MK is None
    assert not torch.allclose(second["same"].features_MF, expected, atol=2e-2)
    random = seen_by(configure(method__second_view_size="pretrained"))
    assert random.logits_MK is None  # random weights were trained on images of no size


def test_the_classifier_of_the_second_view_learns_known_labels_of_the_target(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    trunk = timm.create_model("vit_tiny_patch16_224", num_classes=0, **configure().backbone.options)
    save_file(trunk.state_dict(), tmp_path / "w.safetensors")
    config = configure(backbone__weights=str(tmp_path / "w.safetensors"), method__second_view_size="pretrained")
    before = seen_by(config).logits_MK
    assert before is not None
    known = 1 - before.argmax(1)  # of two classes the other one
    known[4:] = -1
    after = seen_by(config, known).logits_MK
    assert after is not None
    towards = known[:4].clamp_min(0)[:, None]
    margins = [logits[:4].log_softmax(1).gather(1, towards).mean() for logits in (before, after)]
    assert margins[1] > margins[0]


def seen_by(config: Config, known_M: Tensor | None = None) -> SecondView:
    passes, _ = parts_of(config)
    data = read_data(config, Reporter(quiet=True))
    passes.untrained = lambda: build_untrained(config, data, second_view_size(config, passes.model))
    return passes.second_view(known_M)

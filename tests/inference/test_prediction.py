"""What is said of an image, computed beside it in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import timm.data
import torch
from PIL import Image

import pmtrans
from pmtrans.data.cache import open_cache, read_image
from pmtrans.errors import ModelError
from pmtrans.inference.export.images import images_for_parity
from pmtrans.inference.prediction import predictions, unreadable
from pmtrans.selection.calibration import read_temperature

LOGITS = [[2.0, 0.0, -1.0], [0.1, 0.2, 0.15]]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_probability_entropy_and_abstention_follow_from_tempered_logits(temperature: float) -> None:
    judged = list(predictions(torch.tensor(LOGITS), ("a", "b", "c"), temperature, abstain_below=0.5))
    for row, prediction in zip(LOGITS, judged, strict=True):
        powers = [math.exp(value / temperature) for value in row]
        expected = [power / sum(powers) for power in powers]
        assert prediction.label == "abc"[expected.index(max(expected))]
        assert prediction.probability == pytest.approx(max(expected), abs=1e-6)
        assert prediction.entropy == pytest.approx(-sum(p * math.log(p) for p in expected), abs=1e-6)
        assert prediction.abstain == (max(expected) < 0.5)
        assert prediction.top(2)[1][1] == pytest.approx(sorted(expected)[1], abs=1e-6)
    assert [prediction.abstain for prediction in judged] == [False, True]


def test_a_class_that_is_certain_has_no_entropy() -> None:
    (judged,) = predictions(torch.tensor([[1000.0, 0.0]]), ("a", "b"))
    assert (judged.probability, judged.entropy) == (1.0, 0.0)


def test_half_precision_logits_are_judged_in_float32() -> None:
    (judged,) = predictions(torch.tensor([[1.0, 0.0]], dtype=torch.float16), ("a", "b"))
    assert judged.probability == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-6)


def test_an_unreadable_image_abstains_and_does_not_repeat_its_path() -> None:
    row = unreadable("x.png", "x.png: empty file")
    assert (row.error, row.abstain, row.label) == ("empty file", True, None)


@pytest.mark.parametrize("stored", [0, -1.5, float("nan"), float("inf"), "1", None, True])
def test_a_temperature_that_is_no_positive_number_is_refused(stored: object) -> None:
    with pytest.raises(ModelError, match="temperature"):
        read_temperature({"temperature": stored})


def test_without_a_stored_temperature_it_is_one() -> None:
    assert read_temperature({}) == 1.0


def test_files_and_decoded_images_get_the_same_answer_and_bad_files_keep_their_place(
    saved_model: Callable[..., Path], tmp_path: Path
) -> None:
    predictor = pmtrans.load(saved_model(temperature=2.0))
    random = np.random.default_rng(0)
    images = [Image.fromarray(random.integers(0, 256, (40, 50, 3), dtype=np.uint8)) for _ in range(3)]
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number}.png")
    (tmp_path / "bad.png").write_text("no image")
    names = ["0.png", "bad.png", "1.png", "gone.png", "2.png"]
    rows = predictor.predict([tmp_path / name for name in names], batch_size=2)
    assert [Path(row.path).name for row in rows] == names
    assert [row.error is None for row in rows] == [True, False, True, False, True]
    assert rows[3].error == "no such file"
    again = predictor.predict_images(images)
    for row, other in zip((rows[0], rows[2], rows[4]), again, strict=True):
        assert row.label == other.label
        assert row.probability == pytest.approx(other.probability, abs=1e-6)


def test_attention_maps_sum_to_one_and_come_with_the_same_logits(saved_model: Callable[..., Path]) -> None:
    for family, grid in (("vit", (2, 2)), ("swin", (8, 8))):
        predictor = pmtrans.load(saved_model(family, name=family))
        images = torch.randn(3, 3, 32, 32)
        logits, maps = predictor.logits_and_attention(images)
        assert maps.shape == (3, *grid)
        torch.testing.assert_close(maps.sum((1, 2)), torch.ones(3))
        torch.testing.assert_close(logits, predictor.logits(images))


def test_a_device_that_is_not_there_is_one_line(saved_model: Callable[..., Path]) -> None:
    with pytest.raises(ModelError, match="cannot be used here") as caught:
        pmtrans.load(saved_model(), device="warp:9")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [(40, 30), (129, 64), (300, 260), (640, 480), (1301, 977)])
def test_a_jpeg_of_any_size_is_decoded_as_timm_and_the_exported_graph_see_it(
    size: tuple[int, int], saved_model: Callable[..., Path], tmp_path: Path
) -> None:
    noise = np.random.default_rng(sum(size)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    path = tmp_path / "photo.jpg"
    Image.fromarray(noise).save(path, quality=90)
    folder = saved_model()
    predictor = pmtrans.load(folder)
    config = timm.data.resolve_data_config({}, model=timm.create_model(f"local-dir:{folder}"))
    with Image.open(path) as image:
        whole = image.convert("RGB")
    expected = timm.data.create_transform(**config)(whole)
    preprocessing = predictor.trained.preprocessing
    cached = read_image(str(path), preprocessing, open_cache(str(tmp_path / "cache"), pytest.fail))
    for decoded in (read_image(str(path), preprocessing, None), cached):
        torch.testing.assert_close(predictor.transform(decoded), expected, rtol=0, atol=1e-5)  # a grey level: 8e-3
    (for_parity,), _ = images_for_parity(folder, str(path))
    assert for_parity.tobytes() == whole.tobytes()

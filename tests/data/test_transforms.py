from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from pmtrans.data.transforms import Preprocessing, evaluation_transform, preprocessing_for, training_transform

PREPROCESSING = Preprocessing(32, 36, "bicubic", (0.5, 0.4, 0.3), (0.2, 0.25, 0.5))


def picture(width: int = 60, height: int = 50) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_evaluation_is_resize_to_a_square_centre_crop_and_normalise() -> None:
    got = evaluation_transform(PREPROCESSING)(picture())
    resized = picture().resize((36, 36), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized.crop((2, 2, 34, 34)), dtype=np.float32) / 255
    expected = (pixels - np.array([0.5, 0.4, 0.3])) / np.array([0.2, 0.25, 0.5])
    assert torch.allclose(got, torch.from_numpy(expected).float().permute(2, 0, 1), atol=1e-5)


@pytest.mark.parametrize("name", ["paper", "none", "resized_crop", "randaugment", "autoaugment", "augmix"])
def test_every_augmentation_gives_a_picture_of_the_right_size(name: str) -> None:
    torch.manual_seed(0)
    got = training_transform(PREPROCESSING, name, flip=True, random_erasing=0.5)(picture())
    assert got.shape == (3, 32, 32)
    assert got.dtype == torch.float32
    assert got.isfinite().all()


def test_paper_takes_every_crop_and_flips_half_the_time() -> None:
    gradient = Image.fromarray(np.tile(np.arange(36, dtype=np.uint8) * 7, (36, 1))).convert("RGB")
    transform = training_transform(PREPROCESSING, "paper")
    torch.manual_seed(0)
    seen = [transform(gradient)[0, 0] for _ in range(200)]
    flipped = sum(bool(row[0] > row[-1]) for row in seen)
    assert 70 < flipped < 130
    assert len({round(float(min(row[0], row[-1])), 3) for row in seen}) == 5  # offsets 0 to 4
    unflipped = [training_transform(PREPROCESSING, "paper", flip=False)(gradient)[0, 0] for _ in range(20)]
    assert all(bool(row[0] < row[-1]) for row in unflipped)


def test_mean_std_and_interpolation_are_the_backbones_own() -> None:
    config = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "interpolation": "bilinear", "crop_pct": 0.9}
    own = preprocessing_for(config, 224, None)
    assert (own.mean, own.std, own.interpolation) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear")
    assert own.resize_to == 249
    assert preprocessing_for(config, 224, 0.875).resize_to == 256

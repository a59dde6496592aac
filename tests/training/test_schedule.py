from __future__ import annotations

import pytest

from pmtrans.config import TrainConfig
from pmtrans.data.sampling import count_steps


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"epochs": 3}, (30, 10)),  # the longer domain has 100 images, 10 pairs a step
        ({"epochs": 3, "accumulate": 2}, (15, 5)),
        ({"epochs": 3, "max_steps": 7}, (7, 10)),
        ({"epochs": 3, "epoch_steps": 4}, (12, 4)),
        ({"epochs": 3, "epoch_steps": 4, "max_steps": 5, "accumulate": 2}, (5, 4)),
    ],
)
def test_an_epoch_is_the_longer_domain_once_or_so_many_steps(train: dict[str, int], expected: tuple[int, int]) -> None:
    assert count_steps(TrainConfig.model_validate(train), 100, 30, batch_size=10) == expected

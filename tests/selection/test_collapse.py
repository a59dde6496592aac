from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pmtrans.selection.collapse import collapse_signs, share_of_dying


def predicted(labels: list[int], classes: int, confidence: float = 0.9) -> Tensor:
    rest = (1 - confidence) / (classes - 1)
    return one_hot(torch.tensor(labels), classes) * (confidence - rest) + rest


EVEN = [c for c in range(10) for _ in range(8)]


def test_a_healthy_model_shows_no_sign() -> None:
    assert collapse_signs(predicted(EVEN, 10)) == []
    assert collapse_signs(predicted(EVEN, 10), predicted(EVEN[::-1], 10)) == []


def test_few_predicted_classes_are_a_sign() -> None:
    signs = collapse_signs(predicted([c % 3 for c in range(80)], 10))
    assert signs == ["Only 3 of 10 classes are predicted."]


def test_one_class_taking_over_is_a_sign() -> None:
    assert "Class mug takes 95% of the images." in collapse_signs(
        predicted([2] * 76 + [0, 1, 3, 4], 5), classes=["a", "b", "mug", "d", "e"]
    )


def test_a_dying_class_is_named_with_its_numbers() -> None:
    now = predicted([0 if c == 7 else c for c in EVEN], 10)
    (sign,) = collapse_signs(now, predicted(EVEN, 10))
    assert sign == ("Class 7 is dying: 8 images before, 0 now (mean probability 0.100 before, 0.011 now).")


def test_dying_classes_share_a_line_the_largest_first() -> None:
    before = [c for c in range(12) for _ in range(12 + c)]
    (*_, sign) = collapse_signs(predicted([0] * len(before), 13), predicted(before, 13))
    assert sign.startswith("Classes are dying: 11 (23 images before, 0 now), 10 (22 images before, 0 now), ")
    assert sign.endswith(", 2 (14 images before, 0 now) and 1 more.")


def test_what_was_so_before_is_a_property_of_the_target() -> None:
    narrow = predicted([0] * 78 + [1, 2], 10)
    assert len(collapse_signs(narrow)) == 2
    assert collapse_signs(narrow, narrow) == []


def test_a_halved_spread_is_a_sign_even_where_every_class_survives() -> None:
    now = predicted([0] * 71 + list(range(1, 10)), 10, confidence=0.999)
    before = predicted(EVEN, 10, confidence=0.999)
    signs = collapse_signs(now, before)
    assert any(sign.startswith("Predictions spread over") for sign in signs)


@pytest.mark.parametrize(("images", "classes"), [(1, 2), (1, 50), (2, 2)])
def test_a_target_too_small_to_show_all_classes_is_not_called_collapsed(images: int, classes: int) -> None:
    assert not any(sign.startswith("Only") for sign in collapse_signs(predicted(list(range(images)), classes)))


def test_every_sign_is_one_line() -> None:
    signs = collapse_signs(predicted([0] * 80, 10), predicted(EVEN, 10))
    assert len(signs) == 3 + 1
    assert not any("\n" in sign for sign in signs)


def test_the_share_of_dying_counts_the_images_their_classes_held() -> None:
    now = [0 if c in (7, 8) else c for c in EVEN]
    assert share_of_dying(predicted(now, 10), predicted(EVEN, 10)) == pytest.approx(16 / 80)

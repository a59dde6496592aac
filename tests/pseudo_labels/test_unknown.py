"""Images of no known class: their score and the threshold, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from pmtrans.pseudo_labels import otsu_threshold, strangeness, unknown_scores


def plain_otsu(scores: list[float]) -> float:
    best, threshold = -1.0, math.inf
    ordered = sorted(scores)
    for cut in range(1, len(ordered)):
        low, high = ordered[:cut], ordered[cut:]
        gap = sum(low) / len(low) - sum(high) / len(high)
        if len(low) * len(high) * gap * gap > best:
            best, threshold = len(low) * len(high) * gap * gap, (low[-1] + high[0]) / 2
    return threshold


@pytest.mark.parametrize("images", [2, 3, 20, 101])
def test_the_threshold_separates_the_groups_that_differ_most(images: int) -> None:
    torch.manual_seed(images)
    scores = torch.cat([torch.randn(images), 4 + torch.randn(images // 2)])
    assert otsu_threshold(scores) == pytest.approx(plain_otsu(scores.double().tolist()))


def test_a_single_score_has_no_threshold() -> None:
    assert otsu_threshold(torch.zeros(1)) == math.inf


def test_strangeness_is_the_lack_of_a_high_logit() -> None:
    assert strangeness(torch.tensor([[1.0, 3.0], [-2.0, -5.0]])).tolist() == [-3.0, 2.0]


def test_scores_equal_plain_loops() -> None:
    torch.manual_seed(0)
    features, logits = torch.randn(24, 4), 2 * torch.randn(24, 3)
    rows = [[value / math.sqrt(sum(v * v for v in row)) for value in row] for row in features.tolist()]
    strange = [-max(row) for row in logits.tolist()]
    median = sorted(strange)[(len(strange) - 1) // 2]
    centres = []
    for k in range(3):
        members = [
            row
            for row, logit, score in zip(rows, logits.tolist(), strange, strict=True)
            if score <= median and logit.index(max(logit)) == k
        ]
        if members:
            total = [sum(column) for column in zip(*members, strict=True)]
            centres.append([value / math.sqrt(sum(v * v for v in total)) for value in total])
    distance = [1 - max(sum(a * b for a, b in zip(row, centre, strict=True)) for centre in centres) for row in rows]

    def standardised(values: list[float]) -> list[float]:
        mean = sum(values) / len(values)
        spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
        return [(value - mean) / spread for value in values]

    own = [a + b for a, b in zip(standardised(strange), standardised(distance), strict=True)]
    expected = []
    for m, row in enumerate(rows):
        cosine = {o: sum(a * b for a, b in zip(row, other, strict=True)) for o, other in enumerate(rows) if o != m}
        near = sorted(cosine, key=lambda o: -cosine[o])[:10]
        expected.append((own[m] + sum(own[o] for o in near) / len(near)) / 2)
    assert unknown_scores(features, logits).tolist() == pytest.approx(expected, abs=1e-4)


def test_images_of_a_new_class_are_told_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(15)
    features = 3 * torch.eye(4)[labels] + 0.5 * torch.randn(60, 4, generator=generator)
    logits = 2 * features[:, :3]  # the fourth class has no output
    scores = unknown_scores(features, logits)
    assert ((scores > otsu_threshold(scores)) == (labels == 3)).all()


def test_one_image_has_a_score() -> None:
    assert torch.isfinite(unknown_scores(torch.ones(1, 2), torch.zeros(1, 2))).all()


def test_the_strangeness_of_one_image_is_a_number() -> None:
    assert float(strangeness(torch.tensor([1.0, 4.0, 2.0]))) == -4.0
    assert strangeness(torch.zeros(2, 3, 4)).shape == (2, 3)


def test_two_scores_are_parted_between_them_and_two_images_are_neighbours() -> None:
    assert otsu_threshold(torch.tensor([3.0, 1.0])) == 2.0
    scores = unknown_scores(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[3.0, 0.0], [1.0, 0.0]]))
    assert scores.tolist() == pytest.approx([0.0, 0.0], abs=1e-5)  # each is averaged with the other
    assert not unknown_scores(torch.ones(3, 2), torch.zeros(3, 2, requires_grad=True)).requires_grad


def test_a_class_of_one_familiar_image_has_a_centre_and_one_of_none_has_not() -> None:
    """Class 1 has one familiar image; class 2 has none, and its centre of zeros would be nearer than any other."""
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, -0.2], [-1.0, -0.3]])
    logits = torch.tensor([[9.0, 0.0, 0.0], [8.0, 0.0, 0.0], [0.0, 7.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 1.0]])
    unit = torch.nn.functional.normalize(features, dim=1)
    centres = torch.stack([torch.nn.functional.normalize(unit[:2].sum(0), dim=0), unit[2]])
    distance = 1 - (unit @ centres.T).max(1).values
    strange = torch.tensor([-9.0, -8.0, -7.0, -2.0, -1.0])
    own = sum((part - part.mean()) / part.std(unbiased=False) for part in (strange, distance))
    assert isinstance(own, torch.Tensor)
    others = [[float(own[o]) for o in range(5) if o != m] for m in range(5)]
    expected = [(float(own[m]) + sum(rest) / 4) / 2 for m, rest in enumerate(others)]
    assert unknown_scores(features, logits).tolist() == pytest.approx(expected, abs=1e-4)

"""Folds of a small source, by which a choice is made on all of its images where too few are held out."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

FOLDS = 5


def block_folds(features_NF: Tensor, labels_N: Tensor) -> Tensor:
    """A fold of each image: the images of a class in their order, cut into blocks.

    Images that were taken one after the other look alike and lie beside each other in a folder, so a block keeps them
    together, and nothing is judged by its neighbour. Equal rows are one image. The first fold of a class is the next of
    the class before, so that small classes fill all folds alike.
    """
    members: defaultdict[int, dict[bytes, list[int]]] = defaultdict(dict)
    rows = features_NF.cpu().numpy()
    for place, label in enumerate(labels_N.tolist()):
        members[label].setdefault(rows[place].tobytes(), []).append(place)
    fold_N = torch.zeros(len(labels_N), dtype=torch.long)
    for number, label in enumerate(sorted(members)):
        images = list(members[label].values())
        for place, copies in enumerate(images):
            fold_N[copies] = (number + place * min(FOLDS, len(images)) // len(images)) % FOLDS
    return fold_N

"""Classes that an unlabelled target seems to miss, by the features of a backbone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_IMAGES_PER_CLASS = 5
_SHARE = 0.1


def missing_classes(
    source_features: NDArray[np.floating],
    source_labels: NDArray[np.integer],
    target_features: NDArray[np.floating],
) -> list[int]:
    """The source classes nearest to hardly any target image: to at most a tenth of an equal share.

    Nearest is the mean of the class, by cosine. Cautious: it names some of the classes that are missing and
    hardly ever one that is there. With fewer than 5 target images per class it says nothing.
    """
    labels = np.unique(source_labels)
    if len(target_features) < _IMAGES_PER_CLASS * len(labels):
        return []
    source = _unit(source_features)
    means = _unit(np.stack([source[source_labels == label].mean(axis=0) for label in labels]))
    nearest = (_unit(target_features) @ means.T).argmax(axis=1)
    counts = np.bincount(nearest, minlength=len(labels))
    few = counts <= _SHARE * len(target_features) / len(labels)
    return [int(label) for label in labels[few]]


def _unit(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    lengths: NDArray[np.floating] = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.floating] = rows / np.maximum(lengths, 1e-12)
    return unit

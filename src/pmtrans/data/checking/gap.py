"""How far apart two domains are: the proxy A-distance of Ben-David et al. (2006), 2 (1 - 2 error).

Classes that an unlabelled target seems to miss, by the features of a backbone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 1000  # images of each domain: the number hardly moves beyond, the time does
LEAST = 10
_FOLDS = 5


def proxy_a_distance(source_features: NDArray[np.floating], target_features: NDArray[np.floating], seed: int) -> float:
    """2 (1 - 2 error) of a linear classifier that tells source from target, cross-validated.

    0: the domains cannot be told apart; 2: they always can. Equally many images of each domain are drawn,
    so that a large domain is not a large distance.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    count = min(len(source_features), len(target_features), MOST)
    if count < LEAST:
        raise ValueError(f"{count} images are too few for a distance: at least {LEAST} of each domain")
    generator = np.random.default_rng(seed)
    drawn = [
        features[generator.choice(len(features), count, replace=False)]
        for features in (source_features, target_features)
    ]
    domain = np.repeat([0, 1], count)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    accuracy = cross_val_score(classifier, np.concatenate(drawn).astype(np.float64), domain, cv=folds).mean()
    return float(max(0.0, 2 * (1 - 2 * (1 - accuracy))))


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

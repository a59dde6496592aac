"""The domain gap: the proxy A-distance of Ben-David et al. (2006), and source classes missing from the target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_IMAGES = 1000  # of each domain: more cost time and hardly change the distance
MIN_IMAGES = 10  # of each domain
_FOLDS = 5
_IMAGES_PER_CLASS = 5  # target images per class, below which no class is called missing
_SHARE = 0.1  # of an equal share of the target: a class with at most this many nearest images is called missing


def proxy_a_distance(source_features: NDArray[np.floating], target_features: NDArray[np.floating], seed: int) -> float:
    """2 (1 - 2 error), with the cross-validated error of a linear classifier of source against target.

    0: the domains are indistinguishable; 2: always distinguishable. The same number of images is drawn from each
    domain, so that the distance does not depend on their sizes.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    count = min(len(source_features), len(target_features), MAX_IMAGES)
    if count < MIN_IMAGES:
        raise ValueError(
            f"{count} images are too few for the proxy A-distance: at least {MIN_IMAGES} of each domain are needed"
        )
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


def missing_classes(
    source_features: NDArray[np.floating],
    source_labels: NDArray[np.integer],
    target_features: NDArray[np.floating],
) -> list[int]:
    """Source classes that are nearest to few target images: at most a tenth of an equal share.

    Nearest by cosine similarity to the class mean. Conservative: it finds some of the missing classes and rarely names
    one that is present. With fewer than 5 target images per class it returns nothing.
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


def unfit_share(
    source_features: NDArray[np.floating],
    source_labels: NDArray[np.integer],
    target_features: NDArray[np.floating],
    seed: int,
) -> float:
    """Share of the target that fits its class less than 5 % of held-out source images do.

    A linear classifier is fitted on four fifths of the source; an image fits by its largest decision value.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    order = np.random.default_rng(seed).permutation(len(source_labels))
    held, used = order[: len(order) // 5], order[len(order) // 5 :]
    if len(held) < MIN_IMAGES or len(np.unique(source_labels[used])) < 3:
        return 0.0
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200))
    classifier.fit(source_features[used].astype(np.float64), source_labels[used])
    fits, fits_target = (
        classifier.decision_function(rows.astype(np.float64)).max(axis=1)
        for rows in (source_features[held], target_features)
    )
    return float((fits_target < np.quantile(fits, 0.05)).mean())


def _unit(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    lengths: NDArray[np.floating] = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.floating] = rows / np.maximum(lengths, 1e-12)
    return unit

"""A joint t-SNE of both domains under several models (van der Maaten and Hinton, JMLR 2008).

Two models see the same image in two spaces whose axes have nothing in common. For a joint embedding, each
space is centred on its source images, scaled, and rotated to the first model's by the rotation that brings the source
images closest together (orthogonal Procrustes). Rotations change no distance within a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

Points = NDArray[np.floating]
SIDE = 1000.0


def common_embedding(models: Sequence[tuple[Points, Points]], seed: int = 0) -> list[Points]:
    """For each model's (source, target) features one array of points in [0, 1000]^2, source first."""
    spaces = aligned(models)
    together = np.concatenate(spaces)
    width = min(50, *together.shape)
    if together.shape[1] > width:
        together = PCA(width, random_state=seed).fit_transform(together)
    perplexity = min(30.0, max(2.0, (len(together) - 1) / 4))
    plane = TSNE(2, init="pca", perplexity=perplexity, random_state=seed, learning_rate="auto").fit_transform(together)
    low, high = plane.min(0), plane.max(0)
    placed = 20 + (plane - low) / np.maximum(high - low, 1e-9) * (SIDE - 40)
    return np.split(placed, np.cumsum([len(space) for space in spaces])[:-1])


def aligned(models: Sequence[tuple[Points, Points]]) -> list[Points]:
    """Source and target rows of each model, in the axes of the first."""
    spaces: list[Points] = []
    for source, target in models:
        reference = source if len(source) else target
        both = np.concatenate([source, target]).astype(np.float64) - reference.mean(0)
        both /= max(float(np.sqrt((both**2).sum(1).mean())), 1e-12)
        if spaces and spaces[0].shape == both.shape:
            rows = slice(0, len(reference))
            both = both @ orthogonal_procrustes(both[rows], spaces[0][rows])[0]
        spaces.append(both)
    return spaces

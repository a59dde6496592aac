"""Reverse (circular) validation (Zhong et al., Cross Validation Framework to Choose amongst Models and
Datasets for Transfer Learning, ECML 2010; Ganin et al., JMLR 2016, Sec. 5.1.2).

Target images with their predicted labels become the training set, the labelled source hold-out the test
set: labels that were carried over rightly carry back. The affordable form: logistic regression on features.
"""

from __future__ import annotations

import warnings

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pmtrans.selection.evidence import Evidence


def reverse(evidence: Evidence, *, limit: int = 10_000, inverse_penalty: float = 0.1) -> float:
    """Source hold-out accuracy of a classifier trained on target predictions, in [0, 1]; higher is better.

    More than ``limit`` target images are thinned evenly; a domain's order is fixed, so the result is too.
    """
    images = len(evidence.target_logits_MK)
    kept = torch.linspace(0, images - 1, min(images, limit), dtype=torch.float64).round().long()
    labels_R = evidence.target_predictions_M()[kept]
    if bool((labels_R == labels_R[0]).all()):  # nothing to learn: everything is called by the one class
        return (evidence.source_labels_N == labels_R[0]).double().mean().item()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=inverse_penalty, max_iter=200, tol=1e-3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few images per class, or not fully converged: a score, not a product
        model.fit(evidence.target_features_MD[kept].float().numpy(), labels_R.numpy())
    return float(model.score(evidence.source_features_ND.float().numpy(), evidence.source_labels_N.numpy()))

"""Deep embedded validation (You et al., Towards Accurate Model Selection in Deep Unsupervised Domain
Adaptation, ICML 2019, Algorithm 1).

The loss on held-out source images, weighted by the density ratio target/source of their features, is an
unbiased estimate of the target risk; a control variate (the mean weight is known to be 1) tames its variance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy

from pmtrans.errors import UserError
from pmtrans.selection.evidence import Evidence

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # inverse strengths tried: wide features separate any two domains
HOLD_OUT = 5  # every fifth image judges the penalties

Floats = NDArray[np.float64]


def dev(evidence: Evidence) -> float:
    """-R_DEV: the negative estimate of the target cross-entropy; higher is better."""
    if evidence.source_train_features_PD is None:
        raise UserError("DEV needs source_train_features_PD, the features of source images used in training.")
    weights_N = density_ratio(
        evidence.source_train_features_PD.float().numpy(),
        evidence.target_features_MD.float().numpy(),
        evidence.source_features_ND.float().numpy(),
    )
    losses_N = cross_entropy(evidence.source_logits_NK.double(), evidence.source_labels_N, reduction="none")
    return -controlled_risk(weights_N, losses_N.numpy())


def controlled_risk(weights_N: Floats, losses_N: Floats) -> float:
    """mean(w l) + eta mean(w) - eta with eta = -Cov(w l, w) / Var(w): the variance-reduced weighted loss."""
    weighted_N = weights_N * losses_N
    variance = weights_N.var(ddof=1) if len(weights_N) > 1 else 0.0
    if variance == 0.0:
        return float(weighted_N.mean())
    eta = -np.cov(weighted_N, weights_N, ddof=1)[0, 1] / variance
    return float(weighted_N.mean() + eta * weights_N.mean() - eta)


def density_ratio(source_PD: Floats, target_MD: Floats, at_ND: Floats) -> Floats:
    """Target density / source density at points, by a logistic regression that tells the domains apart."""
    images_RD = np.concatenate([source_PD, target_MD])
    is_target_R = np.repeat([0, 1], [len(source_PD), len(target_MD)])
    judged_R = np.arange(len(images_RD)) % HOLD_OUT == 0
    if len(np.unique(is_target_R[judged_R])) < 2 or len(np.unique(is_target_R[~judged_R])) < 2:
        judged_R = np.zeros_like(judged_R)  # too few images to spare some: the middle penalty, unjudged

    models = [_fit(images_RD[~judged_R], is_target_R[~judged_R], penalty) for penalty in PENALTIES]
    if judged_R.any():
        loss = [log_loss(is_target_R[judged_R], m.predict_proba(images_RD[judged_R])) for m in models]
        model = models[int(np.argmin(loss))]
    else:
        model = models[len(models) // 2]
    log_odds_N: Floats = model.decision_function(at_ND).astype(np.float64)
    # Sizes as the model saw them: its odds contain the share of target images among those it was fitted on.
    target_share = is_target_R[~judged_R].mean()
    ratio_N: Floats = np.exp(log_odds_N) * (1.0 - target_share) / target_share
    return ratio_N


def _fit(images_RD: Floats, is_target_R: NDArray[np.int64], penalty: float) -> Pipeline:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=500, tol=1e-3))
    return model.fit(images_RD, is_target_R)

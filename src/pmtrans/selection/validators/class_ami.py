"""ClassAMI: do the predicted classes follow the clusters of the features?

Musgrave et al., Three New Validators and a Large-Scale Benchmark Ranking for Unsupervised Domain
Adaptation (2022), Sec. 3: adjusted mutual information of predicted classes and k-means clusters.
"""

from __future__ import annotations

import warnings

from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_mutual_info_score
from torch.nn.functional import normalize

from pmtrans.selection.evidence import Evidence


def class_ami(evidence: Evidence, *, seed: int = 0) -> float:
    """AMI(argmax p, k-means with k = K of the L2-normalised target features), at most 1; higher is better."""
    features_MD = normalize(evidence.target_features_MD.float(), dim=1).numpy()
    clusters = min(evidence.classes, len(features_MD))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct images than classes
        found_M = KMeans(clusters, n_init=1, max_iter=100, random_state=seed).fit_predict(features_MD)
    return float(adjusted_mutual_info_score(evidence.target_predictions_M().numpy(), found_M))

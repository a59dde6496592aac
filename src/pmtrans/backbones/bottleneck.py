"""The bottleneck of the published rivals: linear, batch normalisation, ReLU, after the transformer's features.

It is applied to the features of a whole batch: ``Backbone.encode`` gathers the rows of all processes and of all pieces
first, so that the statistics are those of one process. Shapes: B images, P final tokens, F width of the features.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmtrans.backbones.encoding import Encoding


class Bottleneck(nn.Module):
    """F -> ``width``. In evaluation, and for a batch of one image, the running statistics are used."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, width, bias=False)  # the mean of a batch takes a bias away again
        self.norm = nn.BatchNorm1d(width)
        self.bare = False  # what comes before the normalisation, for ``settle``
        nn.init.trunc_normal_(self.linear.weight, std=features**-0.5)

    def forward(self, features_BF: Tensor) -> Tensor:
        hidden: Tensor = self.linear(features_BF)
        if self.bare:
            return hidden
        if self.training and len(hidden) > 1:
            normalised: Tensor = self.norm(hidden)
            return normalised.relu()
        return self._by_running_statistics(hidden)

    def narrow(self, encoding: Encoding) -> Encoding:
        """The same encoding with narrow features; single tokens, which an activation map looks at, leave no trace."""
        tokens = encoding.tokens_BPF
        if tokens is not None:
            with torch.no_grad():
                flat = self._by_running_statistics(self.linear(tokens.flatten(0, 1)))
            tokens = flat.unflatten(0, tokens.shape[:2])
        return replace(encoding, features_BF=self(encoding.features_BF), tokens_BPF=tokens)

    @torch.no_grad()
    def settle(self, hidden_NF: Tensor) -> None:
        """Statistics of many images at once, made ``bare``: before the first step there are no others."""
        mean, variance, count = self.norm.running_mean, self.norm.running_var, self.norm.num_batches_tracked
        assert mean is not None
        assert variance is not None
        assert count is not None
        mean.copy_(hidden_NF.mean(0))
        variance.copy_(hidden_NF.var(0, unbiased=len(hidden_NF) > 1))
        count.fill_(1)

    def _by_running_statistics(self, hidden_BF: Tensor) -> Tensor:
        norm = self.norm
        return F.batch_norm(
            hidden_BF, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
        ).relu()

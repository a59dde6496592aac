"""Drop path (stochastic depth) whose random numbers do not depend on how a batch is divided."""

from __future__ import annotations

from timm.layers import DropPath
from torch import Tensor, nn

from pmtrans.processes.rows import division, piece


class WholeBatchDropPath(DropPath):  # type: ignore[misc]  # timm has no types
    """timm's drop path, with the random numbers of the whole batch for any number of processes and pieces."""

    def forward(self, x: Tensor) -> Tensor:
        shared, part = division(), piece()
        if (shared is None and part is None) or self.drop_prob == 0.0 or not self.training:
            dropped: Tensor = super().forward(x)
            return dropped
        keep = 1 - self.drop_prob

        def draw(rows: int) -> Tensor:
            whole = x.new_empty(rows * (shared.count if shared else 1), *[1] * (x.ndim - 1)).bernoulli_(keep)
            return shared.mine(whole) if shared else whole

        kept = draw(len(x)) if part is None else part.take(draw)
        return x * (kept / keep if self.scale_by_keep and keep > 0 else kept)


def draw_for_whole_batches(model: nn.Module) -> None:
    """Replace every timm drop path; in one process both draw the same numbers."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is DropPath:
                replacement = WholeBatchDropPath(child.drop_prob, child.scale_by_keep)
                setattr(parent, name, replacement.train(child.training))

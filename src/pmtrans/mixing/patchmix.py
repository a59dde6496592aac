"""PatchMix (Definition 1): one ratio per patch and pair."""

from __future__ import annotations

from torch import Tensor

from pmtrans.mixing.mixing import Mixing


class PatchMix(Mixing):
    """lambda_k ~ Beta(b, g), independent over patches: global and local mixing in one."""

    def ratios(self, pairs: int) -> Tensor:
        return self.beta.sample((pairs, self.grid[0] * self.grid[1]))

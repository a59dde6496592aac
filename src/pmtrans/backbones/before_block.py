"""Change the hidden states that enter a transformer block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

_active = 0  # number of active ``before_block`` contexts

Change = Callable[[Tensor], Tensor]  # hidden states, images first, in the layout of the family -> the same


@contextmanager
def before_block(block: nn.Module, change: Change) -> Iterator[None]:
    """Inside this context, ``change`` is applied to the hidden states that enter ``block``; it may grow the batch."""
    global _active
    hook = block.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))
    _active += 1
    try:
        yield
    finally:
        _active -= 1
        hook.remove()


def couples_rows() -> bool:
    """Whether a ``before_block`` is active: its change needs the whole batch, which then must not be divided."""
    return _active > 0

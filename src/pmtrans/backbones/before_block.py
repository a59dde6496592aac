"""A way to change the hidden states that enter a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

_changed = 0  # how many changes are in force

Change = Callable[[Tensor], Tensor]  # hidden states, images first, in the layout of the family -> the same


@contextmanager
def before_block(block: nn.Module, change: Change) -> Iterator[None]:
    """While it lasts, ``change`` acts on the hidden states that enter ``block``; it may add images to the batch."""
    global _changed
    hook = block.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))
    _changed += 1
    try:
        yield
    finally:
        _changed -= 1
        hook.remove()


def couples_rows() -> bool:
    """Whether hidden states are changed on their way: a change sees the whole batch, so it must not be divided."""
    return _changed > 0

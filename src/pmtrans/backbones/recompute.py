"""Activation recomputation: less memory for more time.

``checkpoint_blocks`` stores only the input of each transformer block and recomputes its inside in the backward pass.
``encode_in_pieces`` encodes a batch in pieces of rows and stores only the tokens: the loss sees the whole batch, at the
memory of one piece. This is gradient caching (Gao et al., "Scaling deep contrastive learning batch size under memory
limited setup", RepL4NLP 2021). Rows are independent in the transformer, so the result does not change, whatever a
method does with the features. (Dropout of units is drawn per piece; drop path, one number per row, as for the batch.)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from pmtrans.backbones.before_block import couples_rows
from pmtrans.backbones.encoding import Encoding
from pmtrans.processes.rows import Division, Piece, divided_as, division, piece

Encode = Callable[[Tensor, int], Encoding]

_pieces = 1


def checkpoint_blocks(blocks: Iterable[nn.Module]) -> None:
    """Recompute the inside of every block in the backward pass.

    ``forward`` is wrapped, not ``__call__``: hooks on the inputs stay outside and run once.
    """
    for block in blocks:
        setattr(block, "forward", functools.partial(_checkpointed, block.forward))  # noqa: B010


def _checkpointed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=_contexts, **kwargs)


def _contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts of the forward pass and of its recomputation, which restores active modes and row divisions."""
    modes: list[TorchFunctionMode] = [
        copy.copy(mode) for mode in _get_current_function_mode_stack() if getattr(mode, "changes_results", False)
    ]
    return nullcontext(), _Restored(modes, division(), copy.copy(piece()))


class _Restored(AbstractContextManager[None]):
    """Enters copies of the recorded modes and division, once for each backward pass."""

    def __init__(self, modes: list[TorchFunctionMode], shared: Division | None, part: Piece | None) -> None:
        self._modes, self._shared, self._part = modes, shared, part
        self._stacks: list[ExitStack] = []

    def __enter__(self) -> None:
        self._stacks.append(ExitStack())
        self._stacks[-1].enter_context(divided_as(self._shared, self._part))
        for mode in self._modes:
            self._stacks[-1].enter_context(copy.copy(mode))

    def __exit__(self, *error: Any) -> None:
        self._stacks.pop().close()


@contextmanager
def in_pieces(pieces: int) -> Iterator[None]:
    """Inside this context, ``encode`` divides its rows into ``pieces`` whenever gradients are enabled."""
    global _pieces
    before, _pieces = _pieces, pieces
    try:
        yield
    finally:
        _pieces = before


def encode_in_pieces(encode: Encode, tokens_BND: Tensor, scored: int) -> Encoding:
    """``encode`` all rows; inside ``in_pieces``, piece by piece.

    Not divided where rows interact inside the transformer (Manifold Mixup, SSRT, CDTrans, TVT): that would be wrong.
    """
    if _pieces == 1 or not torch.is_grad_enabled() or couples_rows() or _attention_is_changed():
        return encode(tokens_BND, scored)
    total, drawn = len(tokens_BND), list[Tensor]()
    parts = []
    for start in range(0, total, rows := -(-total // _pieces)):
        tokens = tokens_BND[start : start + rows]
        scored_here = min(max(scored - start, 0), len(tokens))
        part = Piece(start, len(tokens), total, drawn)
        parts.append(checkpoint(_encode_piece, encode, tokens, scored_here, division(), part, use_reentrant=False))
    return type(parts[0]).join(parts)


def _encode_piece(encode: Encode, tokens: Tensor, scored: int, shared: Division | None, part: Piece) -> Encoding:
    with divided_as(shared, part):
        return encode(tokens, scored)


def _attention_is_changed() -> bool:
    return any(getattr(mode, "changes_results", False) for mode in _get_current_function_mode_stack())

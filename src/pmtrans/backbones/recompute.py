"""Memory for time: what lies between two points is not kept for the backward pass but computed again there.

``checkpoint_blocks`` keeps only what enters each transformer block. ``encode_in_pieces`` runs the transformer over a
batch in pieces of rows and keeps only the tokens: the loss sees the whole batch, the memory is that of one piece. This
is gradient caching (Gao et al., "Scaling deep contrastive learning batch size under memory limited setup", RepL4NLP
2021) at the seam where rows do not know of each other, so it changes nothing, whatever a method does with the features.
(Dropout of single units is drawn piece by piece; drop path, which is one number a row, as for the whole batch.)
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
    """From now on the inside of every block is computed again in the backward pass.

    A block's ``forward`` is wrapped, not its call: what hooks do with its inputs stays outside and is done once.
    """
    for block in blocks:
        setattr(block, "forward", functools.partial(_again_in_backward, block.forward))  # noqa: B010


def _again_in_backward(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=_same_answers, **kwargs)


def _same_answers() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """What answers a call differently, or divides rows, must do so again, from the state that it is in now."""
    modes: list[TorchFunctionMode] = [
        copy.copy(mode) for mode in _get_current_function_mode_stack() if getattr(mode, "changes_results", False)
    ]
    return nullcontext(), _Again(modes, division(), copy.copy(piece()))


class _Again(AbstractContextManager[None]):
    """Enters copies of what was there, as often as there are backward passes."""

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
    """While it lasts, ``encode`` divides its rows into so many pieces wherever gradients are asked for."""
    global _pieces
    before, _pieces = _pieces, pieces
    try:
        yield
    finally:
        _pieces = before


def encode_in_pieces(encode: Encode, tokens_BND: Tensor, scored: int) -> Encoding:
    """``encode`` of all rows, piece by piece inside ``in_pieces``.

    Left whole where rows meet inside the transformer (Manifold Mixup, SSRT, CDTrans, TVT): right, but not smaller.
    """
    if _pieces == 1 or not torch.is_grad_enabled() or couples_rows() or _answered():
        return encode(tokens_BND, scored)
    total, drawn = len(tokens_BND), list[Tensor]()
    parts = []
    for start in range(0, total, rows := -(-total // _pieces)):
        tokens = tokens_BND[start : start + rows]
        here = min(max(scored - start, 0), len(tokens))
        part = Piece(start, len(tokens), total, drawn)
        parts.append(checkpoint(_encode_piece, encode, tokens, here, division(), part, use_reentrant=False))
    return type(parts[0]).join(parts)


def _encode_piece(encode: Encode, tokens: Tensor, scored: int, shared: Division | None, part: Piece) -> Encoding:
    with divided_as(shared, part):
        return encode(tokens, scored)


def _answered() -> bool:
    return any(getattr(mode, "changes_results", False) for mode in _get_current_function_mode_stack())

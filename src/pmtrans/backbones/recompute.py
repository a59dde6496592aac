"""Memory for time: what lies between two points is not kept for the backward pass but computed again there.

``checkpoint_blocks`` keeps only what enters each transformer block. ``divided`` runs the transformer over a batch in
pieces of rows and keeps only the tokens: the loss sees the whole batch, the memory is that of one piece. This is
gradient caching (Gao et al., "Scaling deep contrastive learning batch size under memory limited setup", RepL4NLP 2021)
at the seam where rows do not know of each other, so it changes nothing, whatever the method does with the features.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from pmtrans.backbones.blocks import couples_rows, transformer_blocks
from pmtrans.errors import ModelError

if TYPE_CHECKING:
    from pmtrans.backbones.backbone import Backbone, Encoding

_pieces = 1


def checkpoint_blocks(backbone: Backbone) -> None:
    """From now on the inside of every block is computed again in the backward pass.

    A block's ``forward`` is wrapped, not its call: what hooks do with its inputs stays outside and is done once.
    """
    for block in transformer_blocks(backbone):
        setattr(block, "forward", functools.partial(_again_in_backward, block.forward))  # noqa: B010


def _again_in_backward(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=_same_answers, **kwargs)


def _same_answers() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Modes that answer a call differently must do so again, from the state that they are in now."""
    modes: list[TorchFunctionMode] = [
        copy.copy(mode) for mode in _get_current_function_mode_stack() if getattr(mode, "changes_results", False)
    ]
    return nullcontext(), _Again(modes)


class _Again(AbstractContextManager[None]):
    """Enters copies of modes, as often as there are backward passes."""

    def __init__(self, modes: list[TorchFunctionMode]) -> None:
        self._modes = modes
        self._stacks: list[ExitStack] = []

    def __enter__(self) -> None:
        self._stacks.append(ExitStack())
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


def refuse_undividable(backbones: Iterable[Backbone]) -> None:
    """Batch normalisation sees the rows of a piece only: the result would not be that of the whole batch."""
    for backbone in backbones:
        if any(isinstance(module, _BatchNorm) for module in backbone.trunk.modules()):
            raise ModelError(
                f"Backbone {backbone.name!r} has batch normalisation, so its batch cannot be divided without a "
                "change: take train.accumulation=plain."
            )


def divided(encode: Callable[[Tensor, int], Encoding], tokens_BND: Tensor, scored: int) -> Encoding:
    """``encode`` of all rows, piece by piece inside ``in_pieces``.

    Left whole where rows meet inside the transformer (Manifold Mixup, SSRT, CDTrans, TVT): right, but not smaller.
    """
    if _pieces == 1 or not torch.is_grad_enabled() or couples_rows() or _answered():
        return encode(tokens_BND, scored)
    draws: list[Tensor] = []
    rows = -(-len(tokens_BND) // _pieces)
    parts = []
    for start in range(0, len(tokens_BND), rows):
        piece = tokens_BND[start : start + rows]
        mode = _WholeBatchDraws(draws, start, len(piece), len(tokens_BND))
        here = min(max(scored - start, 0), len(piece))
        parts.append(checkpoint(_encode_piece, encode, piece, here, mode, use_reentrant=False))
    return type(parts[0]).join(parts)


def _answered() -> bool:
    return any(getattr(mode, "changes_results", False) for mode in _get_current_function_mode_stack())


def _encode_piece(
    encode: Callable[[Tensor, int], Encoding], piece: Tensor, scored: int, draws: _WholeBatchDraws
) -> Encoding:
    with copy.copy(draws):  # at its first draw each time, also in the backward pass
        return encode(piece, scored)


class _WholeBatchDraws(TorchFunctionMode):
    """Drop path draws one number a row: the first piece draws them for the whole batch, the others take theirs.

    So the numbers are those of an undivided pass, and so is the state of the generator after it. Dropout of single
    units is drawn piece by piece.
    """

    changes_results = True

    def __init__(self, drawn: list[Tensor], start: int, rows: int, total: int) -> None:
        super().__init__()
        self.drawn, self.start, self.rows, self.total = drawn, start, rows, total
        self.next = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not Tensor.bernoulli_ or not (len(args[0]) == args[0].numel() == self.rows):
            return func(*args, **(kwargs or {}))
        into, *rest = args
        if self.start == 0:  # in the backward pass too, as the generator must move on; the numbers are the same
            whole = into.new_empty(self.total, *into.shape[1:])
            self.drawn[self.next : self.next + 1] = [whole.bernoulli_(*rest, **(kwargs or {}))]
        into.copy_(self.drawn[self.next][self.start : self.start + self.rows])
        self.next += 1
        return into


def backbones_in(module: nn.Module) -> list[Backbone]:
    """All backbones of a method: most have one, some a second or a teacher."""
    from pmtrans.backbones.backbone import Backbone  # it reads this file

    return [part for part in module.modules() if isinstance(part, Backbone)]

"""The seam between a timm model and everything else: images -> embed -> tokens -> encode -> features.

A timm transformer is cut in two at its first layer: ``stem`` (the patch embedding) and ``trunk`` (the same
timm model with a pass-through where the stem was). So whatever timm does after the patch embedding, position
embedding, class and register tokens, rotary embedding, windows, runs unchanged on tokens that we hand in.

Shapes: B images, N patches, D width of the patch embedding, F width of the features, P final tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pmtrans.backbones.encoding import Encoding
from pmtrans.backbones.recompute import encode_in_pieces
from pmtrans.processes.rows import division, undivided

Head = Callable[[Tensor], Tensor]


class _Passthrough(nn.Module):
    """Stands where the stem was, and still answers for it when timm asks for its grid or its ratio."""

    def __init__(self, stem: nn.Module) -> None:
        super().__init__()
        self._stem = (stem,)  # in a tuple: the stem's parameters are not registered a second time

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_stem"][0], name)

    def forward(self, tokens: Tensor, *_: Any, **__: Any) -> Tensor:
        return tokens


class Backbone(nn.Module, ABC):
    """A timm transformer as two functions. ``embed`` gives BND tokens; ``encode`` takes them.

    A family of transformers says which models it ``accepts``, and implements ``_encode`` and ``attention_scores``.
    """

    def __init__(self, model: Any, stem_name: str, image_size: int) -> None:
        super().__init__()
        self.stem_name = stem_name
        self.stem: nn.Module = getattr(model, stem_name)
        setattr(model, stem_name, _Passthrough(self.stem))
        self.trunk: Any = model  # timm's models share an interface, not a type
        self.image_size = image_size
        self.features = int(model.num_features)
        with torch.no_grad():  # the layout of the embedding is read off one empty image
            embedded = self.stem(torch.zeros(1, 3, image_size, image_size))
        self._extras: tuple[Any, ...] = ()  # some stems also return the size of their grid: handed on as it is
        if isinstance(embedded, tuple):
            embedded, *extras = embedded
            self._extras = tuple(extras)
        self._native_shape = tuple(embedded.shape[1:])
        if len(self._native_shape) == 2:
            side = round(self._native_shape[0] ** 0.5)
            self.grid = (side, self._native_shape[0] // side)
        else:
            self.grid = self._native_shape[:2] if self._channels_last else self._native_shape[1:]
        self.patches = self.grid[0] * self.grid[1]

    @classmethod
    @abstractmethod
    def accepts(cls, model: Any) -> bool:
        """Whether this timm model, still whole, is of the family."""

    def embed(self, images: Tensor) -> Tensor:
        """Patch-embed images: tokens_BND, before position embedding and special tokens."""
        embedded = self.stem(images)
        tokens: Tensor = embedded[0] if self._extras else embedded
        if tokens.ndim == 3:
            return tokens
        return tokens.flatten(1, 2) if self._channels_last else tokens.flatten(2).transpose(1, 2)

    def embed_each(self, *images: Tensor) -> tuple[Tensor, ...]:
        """Tokens of several equal batches, without a copy of their pixels.

        A stem with batch normalisation sees them in one batch, as its statistics are those of all.
        """
        if any(isinstance(module, _BatchNorm) for module in self.stem.modules()):
            return self.embed(torch.cat(images)).chunk(len(images))
        return tuple(self.embed(one) for one in images)

    @property
    def _channels_last(self) -> bool:
        return bool(self._native_shape[0] == self._native_shape[1])

    def final_tokens(self, tokens_BND: Tensor) -> Any:
        """timm's ``forward_features`` from tokens on, in whatever layout the model ends with."""
        native = tokens_BND
        if len(self._native_shape) == 3 and self._channels_last:
            native = tokens_BND.unflatten(1, self.grid)
        elif len(self._native_shape) == 3:
            native = tokens_BND.transpose(1, 2).unflatten(2, self.grid)
        return self.trunk.forward_features((native, *self._extras) if self._extras else native)

    def forward(self, images: Tensor) -> Tensor:
        """Features of images; no scores are computed."""
        return self.encode(self.embed(images), scored=0).features_BF

    def encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        """Run the transformer; what attention scores need is kept for the first ``scored`` rows only.

        Where several processes share a batch, each runs its own rows and all get the encoding of the whole.
        """
        shared = division()
        if shared is None:
            return encode_in_pieces(self._encode, tokens_BND, scored)
        if not (shared.divides(len(tokens_BND)) and shared.divides(scored)):
            with undivided():  # some odd number of images: every process encodes them all
                return encode_in_pieces(self._encode, tokens_BND, scored)
        own = encode_in_pieces(self._encode, shared.mine(tokens_BND), scored // shared.count)
        optional = (own.attention_BN, own.last_attention_BN, own.tokens_BPF)
        gathered = (value if value is None else shared.gather(value) for value in optional)
        return Encoding(shared.gather(own.features_BF), *gathered)

    @abstractmethod
    def _encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        """The same for these rows, at once."""

    @property
    def name(self) -> str:
        """timm's name of the architecture."""
        return str(self.trunk.pretrained_cfg["architecture"])

    @abstractmethod
    def attention_scores(self, encoding: Encoding, head: Head, labels_B: Tensor, last: bool = False) -> Tensor:
        """Scores_BN of the patches, each row a distribution; detached: weights, not something to train.

        ``last``: of the last layer alone; an activation map is that already.
        """

    def timm_state_dict(self) -> dict[str, Tensor]:
        """The weights under timm's own names, without the classifier."""
        stem = {f"{self.stem_name}.{name}": value for name, value in self.stem.state_dict().items()}
        return {**stem, **self.trunk.state_dict()}

    def load_timm_state_dict(self, state: dict[str, Tensor]) -> None:
        """Weights under timm's own names, all of them, back into stem and trunk."""
        prefix = f"{self.stem_name}."
        stem = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        self.stem.load_state_dict(stem)
        self.trunk.load_state_dict({name: value for name, value in state.items() if not name.startswith(prefix)})


def backbones_in(module: nn.Module) -> list[Backbone]:
    """All backbones of a method: most have one, some a second or a teacher."""
    return [part for part in module.modules() if isinstance(part, Backbone)]

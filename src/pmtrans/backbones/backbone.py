"""The interface between timm and everything else: images -> embed -> tokens -> encode -> features.

A timm transformer is split after its first layer: ``stem`` (the patch embedding) and ``trunk`` (the same timm model
with a pass-through in place of the stem). So all that timm does after the patch embedding (position embedding, class
and register tokens, rotary embedding, windows) runs unchanged on the tokens passed in.

Shapes: B images, N patches, D width of the patch embedding, F width of the features, P final tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pmtrans.backbones.bottleneck import Bottleneck
from pmtrans.backbones.encoding import Encoding
from pmtrans.backbones.recompute import encode_in_pieces
from pmtrans.processes.rows import division, undivided

Head = Callable[[Tensor], Tensor]

_WITHOUT_DECAY = ("relative_position_bias_table", "pos_embed", "cls_token", "reg_token", "dist_token")


class _Passthrough(nn.Module):
    """Takes the place of the stem, and forwards attributes that timm reads from it, such as its grid size."""

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
    """A timm transformer as two functions: ``embed`` returns tokens_BND, ``encode`` takes them.

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
        self.bottleneck: Bottleneck | None = None
        with torch.no_grad():  # the layout of the embedding, from one empty image
            embedded = self.stem(torch.zeros(1, 3, image_size, image_size))
        self._extras: tuple[Any, ...] = ()  # some stems also return their grid size: passed on to the trunk
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

    def narrow(self, width: int) -> None:
        """Features through a new bottleneck of this width from now on."""
        self.bottleneck = Bottleneck(self.features, width)
        self.features = width

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
        """Tokens of several batches of equal size, without concatenating their pixels.

        A stem with batch normalisation gets one concatenated batch, for joint statistics.
        """
        if any(isinstance(module, _BatchNorm) for module in self.stem.modules()):
            return self.embed(torch.cat(images)).chunk(len(images))
        return tuple(self.embed(batch) for batch in images)

    @property
    def _channels_last(self) -> bool:
        return bool(self._native_shape[0] == self._native_shape[1])

    def final_tokens(self, tokens_BND: Tensor) -> Any:
        """The rest of timm's ``forward_features``, from tokens to the final tokens in the model's own layout."""
        native = tokens_BND
        if len(self._native_shape) == 3 and self._channels_last:
            native = tokens_BND.unflatten(1, self.grid)
        elif len(self._native_shape) == 3:
            native = tokens_BND.transpose(1, 2).unflatten(2, self.grid)
        return self.trunk.forward_features((native, *self._extras) if self._extras else native)

    def forward(self, images: Tensor) -> Tensor:
        """Features of images, without attention scores."""
        return self.encode(self.embed(images), scored=0).features_BF

    def encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        """Run the transformer; only the first ``scored`` rows keep what attention scores need.

        If several processes share a batch, each encodes its own rows and all get the encoding of the whole batch.
        """
        encoding = self._encode_all(tokens_BND, scored)
        return encoding if self.bottleneck is None else self.bottleneck.narrow(encoding)

    def _encode_all(self, tokens_BND: Tensor, scored: int) -> Encoding:
        shared = division()
        if shared is None:
            return encode_in_pieces(self._encode, tokens_BND, scored)
        if not (shared.divides(len(tokens_BND)) and shared.divides(scored)):
            with undivided():  # not divisible by the number of processes: every process encodes all rows
                return encode_in_pieces(self._encode, tokens_BND, scored)
        own = encode_in_pieces(self._encode, shared.mine(tokens_BND), scored // shared.count)
        optional = (own.attention_BN, own.last_attention_BN, own.tokens_BPF)
        gathered = (value if value is None else shared.gather(value) for value in optional)
        return Encoding(shared.gather(own.features_BF), *gathered)

    @abstractmethod
    def _encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        """``encode`` on this process, in one piece."""

    @property
    def name(self) -> str:
        """timm's architecture name."""
        return str(self.trunk.pretrained_cfg["architecture"])

    @abstractmethod
    def attention_scores(self, encoding: Encoding, head: Head, labels_B: Tensor, last: bool = False) -> Tensor:
        """Scores_BN of the patches, each row a distribution; detached, as they serve as constant weights.

        ``last``: of the last layer only (an activation map always is).
        """

    def names_without_decay(self) -> set[str]:
        """Parameters that weight decay would harm: positions and special tokens, by their names in this module.

        Those that the timm model names in ``no_weight_decay``, where a module stands for all of its parameters, and
        those that some models forget there.
        """
        said = set(getattr(self.trunk, "no_weight_decay", set)())
        found = set()
        for name, _ in self.named_parameters():
            part, _, rest = name.partition(".")
            path = (f"{self.stem_name}.{rest}" if part == "stem" else rest).split(".")
            named = any(".".join(path[:length]) in said for length in range(1, len(path) + 1))
            if named or path[-1] in _WITHOUT_DECAY:
                found.add(name)
        return found

    def timm_state_dict(self) -> dict[str, Tensor]:
        """The weights under timm's names, without bottleneck and classifier, which timm does not know."""
        stem = {f"{self.stem_name}.{name}": value for name, value in self.stem.state_dict().items()}
        return {**stem, **self.trunk.state_dict()}

    def load_timm_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load all weights, under timm's names, into stem and trunk."""
        prefix = f"{self.stem_name}."
        stem = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        self.stem.load_state_dict(stem)
        self.trunk.load_state_dict({name: value for name, value in state.items() if not name.startswith(prefix)})


def backbones_in(module: nn.Module) -> list[Backbone]:
    """All backbones of a method: most have one, some also a teacher."""
    return [part for part in module.modules() if isinstance(part, Backbone)]

"""The one place where objects cross processes: as JSON and as the bytes of tensors.

Never as pickles: whoever gets into the group could then run code in every process of it. What arrives is built from
plain values and from the classes that the receiver names, and from nothing else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from enum import Enum
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pmtrans.errors import TrainingError

Kind = type[Any]  # a dataclass or an Enum


def broadcast(value: Any, source: int, *kinds: Kind) -> Any:
    """``value`` of process ``source``, in all of them; ``kinds`` are the classes of ours that may be in it."""
    is_source = dist.get_rank() == source
    tensors: list[Tensor] = []
    said = json.dumps(_as_json(value, tensors, kinds)).encode("ascii") if is_source else b""
    length = torch.tensor(len(said))
    dist.broadcast(length, source)
    text = torch.frombuffer(bytearray(said), dtype=torch.uint8) if is_source else _bytes(int(length))
    dist.broadcast(text, source)
    for tensor in tensors:
        _send(_as_bytes(tensor), source)
    if is_source:
        return value

    def receive(dtype: str, shape: list[int]) -> Tensor:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        _send(_as_bytes(tensor), source)
        return tensor

    return _from_json(json.loads(text.numpy().tobytes()), receive, {kind.__name__: kind for kind in kinds})


def prove_membership(secret: bytes, attempt: str) -> None:
    """Before anything else is exchanged, each process shows that it knows the group's secret."""
    count = dist.get_world_size()
    mine = torch.frombuffer(bytearray(_proof(secret, attempt, dist.get_rank())), dtype=torch.uint8)
    proofs = [_bytes(len(mine)) for _ in range(count)]
    dist.all_gather(proofs, mine)
    for rank, proof in enumerate(proofs):
        if not hmac.compare_digest(proof.numpy().tobytes(), _proof(secret, attempt, rank)):
            raise TrainingError(f"Process {rank} of {count} does not know the secret of this run: all ends here.")


def _proof(secret: bytes, attempt: str, rank: int) -> bytes:
    return hmac.new(secret, f"{attempt} {rank}".encode(), hashlib.sha256).digest()


def _bytes(length: int) -> Tensor:
    return torch.empty(length, dtype=torch.uint8)


def _as_bytes(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor on the CPU."""
    return tensor.reshape(-1).view(torch.uint8)


def _send(memory: Tensor, source: int) -> None:
    if len(memory):
        dist.broadcast(memory, source)


def _as_json(value: Any, tensors: list[Tensor], kinds: tuple[Kind, ...]) -> Any:
    """Plain values as they are, all else as ``{name of its kind: content}``; tensors are left in ``tensors``."""
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, list):
        return [_as_json(one, tensors, kinds) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_as_json(one, tensors, kinds) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[_as_json(one, tensors, kinds) for one in item] for item in value.items()]}
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, Tensor):
        tensors.append(value.detach().cpu().contiguous())
        return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape)]}
    if type(value) in kinds and isinstance(value, Enum):
        return {type(value).__name__: value.name}
    if type(value) in kinds and dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {type(value).__name__: [_as_json(getattr(value, name), tensors, kinds) for name in names]}
    raise TypeError(f"{type(value).__name__} may not cross processes")


def _from_json(said: Any, receive: Any, kinds: dict[str, Kind]) -> Any:
    if isinstance(said, list):
        return [_from_json(one, receive, kinds) for one in said]
    if not isinstance(said, dict):
        return said
    ((name, content),) = said.items()
    if name == "tensor":
        return receive(*content)
    if name == "path":
        return Path(content)
    if name == "dict":
        return {_from_json(key, receive, kinds): _from_json(one, receive, kinds) for key, one in content}
    if name == "tuple":
        return tuple(_from_json(one, receive, kinds) for one in content)
    kind = kinds[name]
    return kind[content] if issubclass(kind, Enum) else kind(*(_from_json(one, receive, kinds) for one in content))

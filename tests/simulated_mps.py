"""Apple's MPS without a Mac: a simulated device that has neither float64 nor every operation.

``FakeTensorMode`` makes tensors of ``mps`` anywhere, and takes what MPS would refuse. ``Mps`` refuses it: float64, a
copy that the host does not wait for, and an operation that torch lists without a kernel for MPS. Autograd asks for the
streams of a device, which only a torch built for MPS has; so torch's C++ is told of a device that needs none, and what
it makes there is made on MPS. Python sees MPS alone. Backward passes are real, and looked at as well.

What this cannot tell: whether Apple's kernels are right, and how fast they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import torch
import yaml
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from simulated_cuda import COPIES, Watch

DEVICE = "mps:0"  # with its number, which torch would otherwise ask the driver for
ASKED_BY_CPP = torch.ops.prim.device.default
TOLD_TO_CPP = torch.device("lazy")
LACKED = {  # in torch 2.6, the oldest that the package allows; 2.15 has them
    "_cdist_backward",
    "_dirichlet_grad",
    "_linalg_eigh",
    "_linalg_svd",
    "_sample_dirichlet",
    "_standard_gamma",
    "_standard_gamma_grad",
    "linalg_cholesky_ex",
}


class UnsupportedByMps(AssertionError):
    """MPS would refuse it, or do it wrong."""


class Mps(Watch):
    """Raises where MPS could not; ``used`` are the operations that it was asked for."""

    def __init__(self) -> None:
        super().__init__("mps")
        self.used: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ASKED_BY_CPP:
            device = func(*args)
            return TOLD_TO_CPP if device.type == "mps" else device
        args, kwargs = tree_map(_known_to_python, (args, kwargs or {}))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        if here := [tensor for tensor in tensors if tensor.device.type == "mps"]:
            self._check(func, here, kwargs.get("non_blocking", False))
        return result

    def _check(self, func: Any, here: list[Tensor], non_blocking: bool) -> None:
        name = func.overloadpacket._qualified_op_name.removeprefix("aten::")
        self.used.add(name)
        if any(tensor.dtype in (torch.float64, torch.complex128) for tensor in here):
            raise UnsupportedByMps(f"{func}: MPS has no float64")
        if func.overloadpacket in COPIES and non_blocking:
            raise UnsupportedByMps(f"{func}: MPS would copy memory that may be freed by then")
        if name in LACKED or not has_kernel(func):
            raise UnsupportedByMps(f"{func}: MPS has no kernel for it")


def _known_to_python(value: Any) -> Any:
    return torch.device(DEVICE) if isinstance(value, torch.device) and value == TOLD_TO_CPP else value


def has_kernel(func: Any) -> bool:
    """Whether this torch has one for MPS or makes the operation of others; it lists all operations of its own."""
    return _kernels().get(f"{func.overloadpacket._qualified_op_name}.{func._overloadname}", True)


@functools.cache
def _kernels() -> dict[str, bool]:
    listed = files("torchgen") / "packaged" / "ATen" / "native" / "native_functions.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = {_full_name(one["func"]): one for one in yaml.load(listed.read_text(encoding="utf-8"), loader)}

    def is_on_mps(entry: dict[str, Any]) -> bool:
        if "structured_delegate" in entry:
            return is_on_mps(entries[_full_name(entry["structured_delegate"])])
        keys = [key.strip() for keys in entry.get("dispatch", {}) for key in keys.split(",")]
        return not keys or any(key == "MPS" or key.startswith("Composite") for key in keys)

    return {name: is_on_mps(entry) for name, entry in entries.items()}


def _full_name(schema: str) -> str:
    name = schema.partition("(")[0]
    return "aten::" + (name if "." in name else f"{name}.default")


@contextmanager
def simulated_mps() -> Iterator[Mps]:
    """While it lasts, tensors are simulated; those that were there before count as the host's."""
    with FakeTensorMode(allow_non_fake_inputs=True), Mps() as mps:
        yield mps

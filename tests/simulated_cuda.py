"""A device that computes nothing: tensors with shape, type and place, and a watch over what the host waits for.

``FakeTensorMode`` refuses tensors of two devices in one operation, and to read a number. It lets pass what CUDA would
refuse or wait for: copies between host and device, an index from the host, solvers that say whether they succeeded.
``Watch`` has these too. Autograd has no thread for a GPU that is not there, so on CUDA ``without_autograd`` leaves the
gradients that a backward pass would; one on the CPU is real, and there the watch counts the same waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
READS = {aten._local_scalar_dense, aten.equal}
SIZED_BY_VALUE = {  # the host learns from the device how much memory the result takes
    aten.nonzero,
    aten.masked_select,
    aten.bincount,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.repeat_interleave,
}
SOLVERS = {aten._linalg_svd, aten._linalg_eigh, aten._linalg_eigvals, aten.linalg_eig, aten._linalg_check_errors}
COPIES = {aten._to_copy, aten.copy_}
INDEXING = {aten.index, aten.index_put, aten.index_put_}
WITHOUT_RULE = {aten._sample_dirichlet, aten._dirichlet_grad}  # torch does not say what shape they return: their first


class MixedDevicesError(AssertionError):
    """CUDA would refuse it, or wait for a copy from the host."""


class Watch(TorchDispatchMode):
    """Notes in ``waits`` each operation that makes the host wait for ``device``; a number that is read is 1, or True.

    Where a mask chooses rows, it chooses all.
    """

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, packet = kwargs or {}, func.overloadpacket
        if torch.is_inference_mode_enabled() and func.namespace == "aten":
            with self:  # there, operations arrive that are made of others
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        here = [tensor for tensor in tensors if tensor.device.type == self.device]
        if packet in COPIES:
            result = func(*args, **kwargs)
            if _crosses(tensors[-1], result, self.device) and not _may_overlap(packet, args, kwargs, result):
                self._note(packet)
            return result
        if here and any(tensor.ndim and tensor.device.type != self.device for tensor in tensors):
            raise MixedDevicesError(f"{packet} of tensors on {', '.join(str(tensor.device) for tensor in tensors)}")
        if here and (packet in READS | SIZED_BY_VALUE | SOLVERS or _is_by_mask(packet, args)):
            self._note(packet)
        if packet in READS:
            return True if packet is aten.equal or args[0].dtype is torch.bool else 1
        if packet is aten.bincount:
            return args[0].new_empty(args[2] if len(args) > 2 else kwargs.get("minlength", 0))
        if packet is aten.index and _is_by_mask(packet, args):
            return func(args[0], [None if index is None else _every_row(index) for index in args[1]])
        return torch.empty_like(args[0]) if packet in WITHOUT_RULE else func(*args, **kwargs)

    def _note(self, packet: Any) -> None:
        self.waits.append(packet._qualified_op_name.removeprefix("aten::"))


def _crosses(origin: Tensor, result: Tensor, device: str) -> bool:
    return origin.device.type != result.device.type and device in (origin.device.type, result.device.type)


def _may_overlap(packet: Any, args: Any, kwargs: Any, result: Tensor) -> bool:
    """Whether it is a copy to the device that the host does not wait for."""
    asynchronous = args[2] if packet is aten.copy_ and len(args) > 2 else kwargs.get("non_blocking", False)
    return bool(asynchronous) and result.device.type != "cpu"


def _is_by_mask(packet: Any, args: Any) -> bool:
    """Rows chosen by a mask are counted first."""
    return packet in INDEXING and any(index is not None and index.dtype is torch.bool for index in args[1])


def _every_row(index: Tensor) -> Tensor:
    return torch.arange(len(index), device=index.device) if index.dtype is torch.bool else index


@contextmanager
def simulated(device: str = "cuda") -> Iterator[Watch]:
    """While it lasts, tensors are simulated; those that were there before count as the host's."""
    with FakeTensorMode(allow_non_fake_inputs=True), Watch(device) as watch:
        yield watch


def place(module: nn.Module, device: str) -> None:
    """Parameters and buffers, simulated on a device; also on the CPU, where ``to`` would leave them as they are."""
    module._apply(lambda tensor: torch.empty_like(tensor, device=device))


@contextmanager
def without_autograd() -> Iterator[None]:
    """In place of a backward pass: a gradient on the device of each parameter that it would reach."""

    def backward(loss: Tensor, **_: Any) -> None:
        for parameter in _reached(loss):
            parameter.grad = torch.empty_like(parameter)

    def grad(loss: Tensor, inputs: Sequence[Tensor], create_graph: bool = False) -> tuple[Tensor, ...]:
        return tuple(torch.ones_like(one) * (loss if create_graph else loss.detach()) for one in inputs)

    with patch.object(Tensor, "backward", backward), patch.object(torch.autograd, "grad", grad):
        yield


def _reached(loss: Tensor) -> Iterator[Tensor]:
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [earlier for earlier, _ in node.next_functions]
            if hasattr(node, "variable"):
                yield node.variable

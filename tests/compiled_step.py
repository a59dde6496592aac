"""A step that is compiled is the step that is not."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from pmtrans.data.batch import Batch
from pmtrans.methods.method import Method, Moment
from pmtrans.training.accelerator import compiled


def assert_one_graph(method: Method, batch: Batch, moment: Moment) -> None:
    """Compiled as one graph, a step has the same loss and gives gradients to the same parameters."""
    torch._dynamo.reset()
    counters.clear()
    losses, moved = [], []
    for run in (method, compiled(method, torch.device("cpu"), backend="aot_eager")):
        torch.manual_seed(0)
        loss = run(batch, moment)["loss"]
        loss.backward()
        losses.append(float(loss.detach()))
        moved.append({name for name, p in method.named_parameters() if p.grad is not None})
        method.zero_grad()
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert moved[0] == moved[1]
    assert not counters["graph_break"]

"""How often DDP exchanges gradients: once per step and phase, however many micro-batches the step has."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.players import create_optimiser
from pmtrans.training.step import Step

GUARD = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()))


@pytest.fixture
def group_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("method_name", "phases"), [("pmtrans", 1), ("mcd", 6)])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_gradients_are_exchanged_once_a_phase_and_are_those_of_all_micro_batches(
    method_name: str,
    phases: int,
    micro_batches: int,
    tiny: Callable[..., Model],
    batch_for: Callable[..., Batch],
    group_of_one: None,
) -> None:
    config = TrainConfig(accumulate=micro_batches, learning_rate=1e-3)
    batches = [batch_for(tiny(), seed=seed) for seed in range(micro_batches)]
    exchanged: list[Tensor] = []

    def note(
        _: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        exchanged.append(bucket.buffer())
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    weights = []
    for wrap in (False, True):
        entry = METHODS[method_name]
        method = entry.create(tiny(), entry.options(), Sizes(3, 12, 9)).train()
        assert len(method.phases(Moment(50, 100, 10))) == phases
        module = DistributedDataParallel(method, find_unused_parameters=True) if wrap else method
        if isinstance(module, DistributedDataParallel):
            module.register_comm_hook(None, note)
        step = Step(method, module, create_optimiser(method, config), Accelerator(cpu=True), config, GUARD)
        for number in (50, 51):
            torch.manual_seed(number)
            step(batches, Moment(number, 100, 10))
        weights.append(torch.cat([parameter.detach().flatten() for parameter in method.parameters()]))
    assert len(exchanged) == 2 * phases  # of a model this small all gradients travel together
    assert weights[0].equal(weights[1])

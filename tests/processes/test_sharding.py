from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from gradients import gradient
from pmtrans.errors import ConfigError
from pmtrans.model import Model
from pmtrans.processes.group import Processes
from pmtrans.processes.sharding import by_sharding, clip_gradients
from pmtrans.settings import load_config
from pmtrans.training.accelerator import refuse_unshardable


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_a_transformer_whose_blocks_have_weights_of_their_own_can_be_sharded(
    tiny: Callable[..., Model], family: str
) -> None:
    refuse_unshardable(tiny(family))


def test_blocks_that_share_weights_or_have_scalars_are_refused_in_one_line(tiny: Callable[..., Model]) -> None:
    shared, scalar, rowless = tiny(), tiny(), tiny()
    shared.backbone.trunk.blocks[1].norm1 = shared.backbone.trunk.blocks[0].norm1
    scalar.backbone.trunk.blocks[0].register_parameter("gain", nn.Parameter(torch.ones(())))
    rowless.backbone.trunk.blocks = nn.Identity()
    for model in (shared, scalar, rowless):
        with pytest.raises(ConfigError, match=r"^train\.sharding=full cannot divide .*: train with .*none\.$"):
            refuse_unshardable(model)


def test_plain_gradients_are_clipped_as_torch_clips_them() -> None:
    ours, theirs = (nn.Parameter(torch.zeros(3)) for _ in range(2))
    for parameter in (ours, theirs):
        parameter.grad = torch.tensor([3.0, 0.0, 4.0])
    assert clip_gradients([ours], 1.0) == pytest.approx(5.0)
    torch.nn.utils.clip_grad_norm_([theirs], 1.0)
    assert torch.equal(gradient(ours), gradient(theirs))
    assert by_sharding([ours, theirs]) == [[ours, theirs]]
    assert by_sharding([]) == []


@pytest.mark.parametrize(("images", "count"), [(1, 3), (5, 4), (12, 4), (7, 2), (9, 1)])
def test_all_processes_look_at_as_many_images_and_together_at_all_in_order(images: int, count: int) -> None:
    parts = [Processes(rank, count).part_of(images) for rank in range(count)]
    assert len({len(part) for part in parts}) == 1
    assert [place for part in parts for place in part][:images] == list(range(images))


def test_sharded_blocks_are_not_compiled() -> None:
    with pytest.raises(ConfigError, match=r"^Key 'train\.sharding' cannot be 'full': .* leave train.compile off"):
        load_config(None, ["train.compile=true", "train.sharding=full"])

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from pmtrans.config import Config
from pmtrans.errors import TrainingError, is_out_of_memory
from pmtrans.training.checkpoint import checkpoints
from pmtrans.training.failures import OutOfMemory, explained_memory
from pmtrans.training.train import train
from tiny_run import Witness, assert_same_run, once_saved

Configure = Callable[..., Config]
LARGE = {  # the images of a step are tensors of 6 MB
    "data__image_size": 224, "train__batch_size": 10, "train__max_steps": 4, "selection__game": False,
}  # fmt: skip


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set by /proc, which only Linux has")
def test_memory_that_runs_out_is_one_line_and_the_run_resumes_once_there_is_more(
    tmp_path: Path, configure: Configure
) -> None:
    """The real thing: the system refuses the memory that step 4 asks for."""
    config, run = configure(**LARGE, data__holdout=0.0), tmp_path / "run"
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken: list[torch.Tensor] = []

    def no_more() -> None:
        """Nothing new from the system, and of what was freed before no piece of 6 MB."""
        resource.setrlimit(resource.RLIMIT_AS, (address_space(), hard))
        with suppress(RuntimeError):
            while True:
                taken.append(torch.empty(1_000_000, dtype=torch.uint8))
        del taken[-2:]

    try:
        with pytest.raises(OutOfMemory) as caught:
            train(config, run, Witness({3: once_saved(run, "step-00000002", no_more)}))
    finally:
        taken.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    said = str(caught.value)
    assert "\n" not in said
    for part in (
        "train.batch_size=10 (pairs), data.image_size=224, backbone.name=vit_tiny_patch16_224 on cpu",
        "Checkpoint checkpoints/step-00000002 is whole.", "train.checkpoint_activations=true",
        "train.batch_size=5 train.accumulate=2 train.accumulation=cached", "--dry-run",
    ):  # fmt: skip
        assert part in said
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-00000002"]
    again = Witness()
    train(config, run, again)
    assert again.steps == [3, 4]
    train(config, tmp_path / "undisturbed", Witness())
    assert_same_run(run, tmp_path / "undisturbed")


def test_what_the_libraries_raise_when_memory_runs_out_is_known() -> None:
    with pytest.raises(RuntimeError) as of_torch:
        torch.empty(10**16)
    with pytest.raises(MemoryError) as of_python:
        bytearray(10**16)
    assert is_out_of_memory(of_torch.value)
    assert is_out_of_memory(of_python.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert is_out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))  # a loader process that cannot start


def test_other_errors_stay_what_they_are(configure: Configure) -> None:
    for error in (
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        OSError(errno.ENOSPC, "No space left on device"),
        TrainingError("A loader process was killed (most often: out of memory)"),
        ValueError("out of memory"),
    ):
        with pytest.raises(type(error)) as caught, explained_memory(configure()):
            raise error
        assert caught.value is error


def test_tensors_of_the_step_that_failed_are_free_when_the_line_is_said(configure: Configure) -> None:
    import gc
    import weakref

    watched: list[weakref.ref[torch.Tensor]] = []

    def step() -> None:
        tensor = torch.ones(3)
        watched.append(weakref.ref(tensor))
        torch.empty(10**16)

    with pytest.raises(OutOfMemory), explained_memory(configure()):
        step()
    gc.collect()
    assert watched[0]() is None


def test_a_model_that_is_too_large_to_be_built_is_no_mistake_in_its_name(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pmtrans.backbones.create.refuse_absurd", lambda options: None)  # which knows not all sizes
    config = configure(backbone__options={"embed_dim": 10**11, "num_heads": 1, "depth": 1})  # 300 TB
    with pytest.raises(OutOfMemory, match=r"Nothing was saved yet. Try .* smaller data.image_size or backbone.name"):
        train(config, tmp_path / "run", Witness())


def test_a_single_pair_cannot_be_made_fewer(configure: Configure) -> None:
    with pytest.raises(OutOfMemory) as caught, explained_memory(configure(train__batch_size=1)):
        raise MemoryError
    assert "accumulate" not in str(caught.value)

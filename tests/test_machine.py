"""Which device is chosen, and what is asked of it by its kind. MPS is stood in for: torch has it on a Mac alone."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from pmtrans import machine
from pmtrans.errors import ConfigError
from pmtrans.machine import (
    CORES,
    available_memory,
    avoid_broken_tiles,
    choose_device,
    copy_to,
    cores,
    fallback_device,
    forget_peak,
    keep_freed_memory,
    loader_workers,
    peak_memory,
    used_memory,
    wait_for,
)
from pmtrans.training.accelerator import precision

MPS, CUDA, CPU = torch.device("mps"), torch.device("cuda:1"), torch.device("cpu")


def pretend(monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False, group: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: group)


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_cuda_is_chosen_before_mps_and_mps_before_the_cpu(
    cuda: bool, mps: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, cuda=cuda, mps=mps)
    assert choose_device(None) == torch.device(chosen)


def test_a_device_that_is_named_is_taken_before_a_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, mps=True)
    assert choose_device("cpu") == CPU


def test_several_processes_leave_mps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, mps=True, group=True)
    assert choose_device(None) == CPU
    pretend(monkeypatch, cuda=True, group=True)
    assert choose_device(None) == torch.device("cuda")


def test_only_mps_falls_back_to_the_cpu() -> None:
    assert [fallback_device(device) for device in (CPU, CUDA, MPS)] == [CPU, CUDA, CPU]


@pytest.mark.parametrize(("device", "asynchronous"), [(CPU, False), (CUDA, True), (MPS, False)])
def test_only_copies_to_cuda_are_not_waited_for(
    device: torch.device, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[torch.device, bool]] = []

    def to(tensor: torch.Tensor, device: torch.device, non_blocking: bool) -> torch.Tensor:
        asked.append((device, non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", to)
    copy_to(torch.zeros(1), device)
    assert asked == [(device, asynchronous)]


def test_auto_is_float32_on_mps_and_bf16_needs_macos_14(monkeypatch: pytest.MonkeyPatch) -> None:
    assert precision("auto", MPS) == "no"
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: major <= 14)
    assert precision("bf16", MPS) == "bf16"
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: major <= 13)
    with pytest.raises(ConfigError, match="macOS 14"):
        precision("bf16", MPS)


class Metal:
    """300 bytes of tensors, 500 held by the driver, of which emptying the cache leaves those of tensors."""

    def __init__(self, limit: int) -> None:
        self.held, self.limit, self.waits = 500, limit, 0

    def current_allocated_memory(self) -> int:
        return 300

    def driver_allocated_memory(self) -> int:
        return self.held

    def recommended_max_memory(self) -> int:
        return self.limit

    def empty_cache(self) -> None:
        self.held = 300

    def synchronize(self) -> None:
        self.waits += 1


@pytest.mark.parametrize(("limit", "available"), [(1000, 1000), (10_000, 500 + 2000)])
def test_memory_of_mps_is_what_metal_holds(limit: int, available: int, monkeypatch: pytest.MonkeyPatch) -> None:
    metal = Metal(limit)
    monkeypatch.setattr(torch, "mps", metal)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Free", (), {"available": 2000}))
    assert (used_memory(MPS), peak_memory(MPS), available_memory(MPS)) == (300, 500, available)
    forget_peak(MPS)
    assert peak_memory(MPS) == 300
    wait_for(MPS)
    assert metal.waits == 1


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(machine, "_CPU_QUOTAS", ())
    for name in (CORES, "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["250000 100000\n"], 3),
        (["max 100000\n"], 16),
        (["50000 100000"], 1),
        (["200000\n", "100000\n"], 2),
        (["-1\n", "100000\n"], 16),  # the older kind's "no quota"
        ([], 16),
    ],
)
def test_cores_are_no_more_than_the_quota_of_a_container(
    texts: list[str], expected: int, sixteen_cores: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = [tmp_path / str(number) for number in range(max(1, len(texts)))]
    for file, text in zip(files, texts, strict=False):
        file.write_text(text)
    sixteen_cores.setattr(machine, "_CPU_QUOTAS", (tuple(files),))
    assert cores() == expected


@pytest.mark.parametrize(
    ("own", "processes", "beside_a_gpu", "on_the_cpu"),
    [
        *[("1", "1", 0, 0), ("2", "1", 1, 1), ("4", "1", 3, 1), ("8", "1", 7, 2), ("16", "1", 8, 4), ("16", "8", 1, 1)],
        *[("16", "16", 0, 0), ("99", "1", 8, 4), ("few", "many", 8, 4), ("16", "9" * 5000, 8, 4)],
    ],
)
def test_loader_processes_are_chosen_from_the_cores_of_this_process_and_the_device(
    own: str, processes: str, beside_a_gpu: int, on_the_cpu: int, sixteen_cores: pytest.MonkeyPatch
) -> None:
    sixteen_cores.setenv(CORES, own)
    sixteen_cores.setenv("LOCAL_WORLD_SIZE", processes)
    assert [loader_workers(device) for device in (CUDA, MPS, CPU)] == [beside_a_gpu, beside_a_gpu, on_the_cpu]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_a_large_tensor_takes_the_memory_of_the_one_before() -> None:
    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.zeros(12 * 2**20).add_(1)  # 48 MB, more than glibc keeps by itself
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    pages = 48 * 2**20 // resource.getpagesize()
    keep_freed_memory()
    # of 10 tensors the first fault; a system that is short of memory may take pages away meanwhile, hence several tries
    assert min(faults() for _ in range(5)) < 3 * pages


class TestMatrixTiles:
    """AMX that a CPU announces and cannot execute: the product is a process that ends as on such a machine, or well."""

    @pytest.fixture(autouse=True)
    def _announced(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
        (tmp_path / "cpuinfo").write_text("flags : fpu amx_bf16 amx_tile\n")
        monkeypatch.setattr(machine, "_CPU_FLAGS", tmp_path / "cpuinfo")
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
        avoid_broken_tiles.cache_clear()
        yield
        avoid_broken_tiles.cache_clear()

    def test_broken_ones_are_kept_from_onednn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "_BF16_PRODUCT", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
        assert avoid_broken_tiles()
        assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"

    @pytest.mark.parametrize("product", ["pass", "raise SystemExit(1)"])
    def test_working_ones_and_other_failures_change_nothing(
        self, product: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(machine, "_BF16_PRODUCT", product)
        assert not avoid_broken_tiles()
        assert "ONEDNN_MAX_CPU_ISA" not in os.environ

    def test_what_the_user_has_set_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
        monkeypatch.setattr(machine, "_BF16_PRODUCT", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
        assert not avoid_broken_tiles()
        assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"

    def test_a_cpu_without_tiles_is_not_asked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "cpuinfo").write_text("flags : fpu avx2\n")
        monkeypatch.setattr(machine, "_BF16_PRODUCT", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
        assert not avoid_broken_tiles()

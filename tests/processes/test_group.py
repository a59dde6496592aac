"""A group of processes, and the GPUs of this machine."""

from __future__ import annotations

import pytest
import torch

from pmtrans.errors import ConfigError, MistakeReportedByMainProcess
from pmtrans.processes.environment import FOLDER
from pmtrans.processes.group import joined

SECOND = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
LAUNCHED = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", FOLDER: "/nowhere"}


@pytest.mark.parametrize(
    ("environment", "refusal"),
    [
        (SECOND, ConfigError),
        ({**LAUNCHED, "RANK": "0", "LOCAL_RANK": "0"}, ConfigError),
        ({**LAUNCHED, "RANK": "1", "LOCAL_RANK": "1"}, MistakeReportedByMainProcess),
    ],
)
def test_more_processes_than_gpus_are_one_line(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], refusal: type[Exception]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(refusal, match=r"^2 processes here, 1 GPU: take --processes 1\.$"), joined(environment):
        pass

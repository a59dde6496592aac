"""A hub that cannot be reached is asked once: no minute of retries, and a line that says what to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from pmtrans.backbones.create import create_backbone
from pmtrans.errors import ModelError


class DeadHub:
    """A server that hangs up on everyone, and counts them."""

    def __init__(self) -> None:
        self.calls = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            caller.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def dead_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeadHub]:
    hub = DeadHub()
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))  # nothing was downloaded before
    yield hub
    hub.close()


@pytest.mark.parametrize("weights", ["timm", "hf-hub:timm/vit_tiny_patch16_224.augreg_in21k"])
def test_offline_is_noticed_after_one_try(dead_hub: DeadHub, weights: str) -> None:
    with pytest.raises(ModelError) as refused:
        create_backbone("vit_tiny_patch16_224", weights, 32)
    assert dead_hub.calls == 1
    said = str(refused.value)
    assert f"{dead_hub.address} cannot be reached" in said
    assert said.endswith("Give a local file instead: --weights FILE.")
    assert not constants.HF_HUB_OFFLINE  # of this attempt only: the network may come back

"""The served page in a real browser."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image

from browser import complaints, requests, wait_for
from pmtrans.inference.predictor import load
from pmtrans.serving.app import create_app

DROP = """
  const files = arguments[0];
  const transfer = new DataTransfer();
  for (const [name, type, data] of files)
    transfer.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], name, { type }));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
"""


@pytest.fixture
def address(saved_model: Callable[..., Path]) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(load(saved_model())), log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_dropped_images_show_class_confidence_and_attention_and_a_text_file_its_error(
    browser: Any, address: str, tmp_path: Path
) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    encoded = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    complaints(browser)
    requests(browser)
    browser.get(address)
    browser.execute_script(DROP, [["a.png", "image/png", encoded], ["<b>.txt", "text/plain", "aGVsbG8="]])

    def shown(selector: str) -> list[Any]:
        found: list[Any] = browser.find_elements("css selector", selector)
        return found

    wait_for(lambda: shown("canvas[data-attention=drawn]") and shown(".card.bad"))
    (refusal,) = complaints(browser)
    assert "status of 415" in refusal
    assert shown(".card:not(.bad) .label")[0].text in ("ant", "bee", "cat")
    assert len(shown(".card:not(.bad) .row")) == 3
    assert shown(".card.bad .label")[0].text == "not an image, or an unsupported format"
    assert [element.text for element in shown(".name")] == ["a.png", "<b>.txt"]
    pixels = "return [...document.querySelector('canvas').getContext('2d').getImageData(0, 0, 80, 60).data]"
    with_map = browser.execute_script(pixels)
    shown("#overlay")[0].click()
    plain = browser.execute_script(pixels)
    assert with_map != plain
    expected = np.asarray(Image.open(tmp_path / "a.png").convert("RGBA")).astype(int)
    assert np.abs(np.array(plain).reshape(60, 80, 4) - expected).max() <= 1
    assert all(url.startswith((address, "blob:")) for url in requests(browser))

"""The page in a real browser. Needs playwright and its Chromium; without them, this file alone is passed over."""

from __future__ import annotations

import base64
import json
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

from pmtrans.inference.predictor import load
from pmtrans.serving.app import create_app

DROP = """files => {
  const transfer = new DataTransfer();
  for (const [name, type, data] of files)
    transfer.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], name, { type }));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
}"""


@pytest.fixture
def page() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as browsers:
        try:
            browser = browsers.chromium.launch()
        except playwright.Error:
            pytest.skip("Chromium is not installed: playwright install chromium")
        yield browser.new_page()
        browser.close()


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
    page: Any, address: str, tmp_path: Path
) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    encoded = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    page.evaluate(DROP, [["a.png", "image/png", encoded], ["<b>.txt", "text/plain", "aGVsbG8="]])
    page.wait_for_selector("canvas[data-attention=drawn]")
    page.wait_for_selector(".card.bad")
    assert page.inner_text(".card:not(.bad) .label") in ("ant", "bee", "cat")
    assert page.locator(".card:not(.bad) .row").count() == 3
    assert page.inner_text(".card.bad .label") == "<b>.txt: not an image, or of a kind that cannot be read"
    pixels = "() => [...document.querySelector('canvas').getContext('2d').getImageData(0, 0, 80, 60).data]"
    with_map = page.evaluate(pixels)
    page.uncheck("#overlay")
    plain = page.evaluate(pixels)
    assert json.dumps(with_map) != json.dumps(plain)
    expected = np.asarray(Image.open(tmp_path / "a.png").convert("RGBA")).astype(int)
    assert np.abs(np.array(plain).reshape(60, 80, 4) - expected).max() <= 1
    assert all(url.startswith((address, "data:", "blob:")) for url in requested)

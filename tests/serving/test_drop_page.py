"""The served page in a real browser."""

from __future__ import annotations

import base64
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image

from browser import complaints, requests, wait_for
from pmtrans.inference.predictor import load
from pmtrans.serving.app import create_app
from pmtrans.serving.keys import ApiKeys

DROP = """
  const files = arguments[0];
  const transfer = new DataTransfer();
  for (const [name, type, data] of files)
    transfer.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], name, { type }));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
"""


KEY = "a-key-of-the-shop-0123"


@pytest.fixture
def address(saved_model: Callable[..., Path], request: pytest.FixtureRequest) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(load(saved_model()), keys=getattr(request, "param", None))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
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
    assert not shown("#key")[0].is_displayed()
    with_map = browser.execute_script(pixels)
    shown("#overlay")[0].click()
    plain = browser.execute_script(pixels)
    assert with_map != plain
    expected = np.asarray(Image.open(tmp_path / "a.png").convert("RGBA")).astype(int)
    assert np.abs(np.array(plain).reshape(60, 80, 4) - expected).max() <= 1
    assert all(url.startswith((address, "blob:")) for url in requests(browser))


@pytest.mark.parametrize("address", [ApiKeys((sha256(KEY.encode()).digest(),))], indirect=True)
def test_where_keys_are_needed_the_page_asks_for_one_and_forgets_it(browser: Any, address: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), "red").save(buffer, "PNG")
    file = ["a.png", "image/png", base64.b64encode(buffer.getvalue()).decode()]
    browser.get(address)
    key = browser.find_element("id", "key")
    wait_for(key.is_displayed)

    def answers() -> list[str]:
        found: list[str] = browser.execute_script(
            "return [...document.querySelectorAll('.label')].map(l => l.innerText)"
        )
        return found

    browser.execute_script(DROP, [file])
    wait_for(lambda: [text for text in answers() if text.startswith("an API key is needed")])
    key.send_keys(KEY)
    browser.execute_script(DROP, [file])
    wait_for(lambda: {"ant", "bee", "cat"} & set(answers()))
    browser.refresh()
    assert browser.find_element("id", "key").get_attribute("value") == ""
    assert browser.execute_script("return [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    complaints(browser)

"""The labelling page in a real browser: a key per class, undo, and entries that survive a reload."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from browser import complaints, requests
from pmtrans.labelling.choice import Pick
from pmtrans.labelling.worksheet import write_folder
from tiny_run import write_images

CLASSES = ["cat", 'dog, "large"', "owl"]
VALUES = "return [...document.querySelectorAll('input[data-path]')].map(field => field.value)"
CURRENT = "return [...document.querySelectorAll('figure')].findIndex(figure => figure.classList.contains('current'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("labelling")
    write_images(home / "images", ("a",), 4)
    paths = [str(path) for path in sorted((home / "images").rglob("*.png"))]
    picks = [Pick(index, "drawn", 1.0, 0.5, 0.5) for index in range(4)]
    return write_folder(home / "out", picks, paths, CLASSES).parent / "index.html"


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def test_keys_label_undo_takes_back_and_a_reload_keeps_all(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    complaints(browser)
    requests(browser)
    browser.get(page.as_uri())
    assert complaints(browser) == []
    assert requests(browser) == {page.as_uri()}
    assert browser.execute_script(VALUES) == ["", "", "", ""]

    press(browser, "2", "1")
    assert browser.execute_script(VALUES) == [CLASSES[1], "cat", "", ""]
    assert browser.execute_script(CURRENT) == 2
    press(browser, Keys.BACKSPACE)
    assert browser.execute_script(VALUES) == [CLASSES[1], "", "", ""]
    assert browser.execute_script(CURRENT) == 1
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, "3")
    assert browser.execute_script(VALUES) == [CLASSES[1], "", "", "owl"]
    assert browser.execute_script(CURRENT) == 1  # the first one without a label

    field = browser.find_elements("css selector", "input[data-path]")[1]
    field.click()
    field.send_keys("cat1")  # a digit that is typed is no key
    field.send_keys(Keys.ENTER)
    assert browser.execute_script(VALUES) == [CLASSES[1], "cat1", "", "owl"]
    assert "3 of 4 labelled, 1 not among the classes" in browser.execute_script("return document.body.innerText")
    press(browser, Keys.BACKSPACE)
    assert browser.execute_script(VALUES) == [CLASSES[1], "", "", "owl"]

    assert reopened(browser, page, [CLASSES[1], "", "", "owl"]) == [CLASSES[1], "", "", "owl"]
    assert browser.execute_script(CURRENT) == 1
    written = browser.execute_script("return table()")
    rows = written.splitlines()
    assert rows[0] == "path,label"
    assert rows[1].endswith('0.png,"dog, ""large"""')
    assert rows[4].endswith("3.png,owl")
    browser.execute_script("localStorage.clear()")


def reopened(browser: Any, page: Path, expected: list[str]) -> list[str]:
    """Values of the page, opened anew: maybe by another process of the browser, which hears of what was kept later."""
    for _ in range(50):
        browser.get(page.as_uri())
        values: list[str] = browser.execute_script(VALUES)
        if values == expected:
            break
        time.sleep(0.1)
    return values


def test_what_the_browser_kept_cannot_break_the_page(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    for kept in ("not json", json.dumps({"a": 1}), json.dumps([1, None, ["x"], "owl"])):
        browser.execute_script("localStorage.setItem(place, arguments[0])", kept)
        last = "owl" if "owl" in kept else ""
        assert reopened(browser, page, ["", "", "", last]) == ["", "", "", last]
    browser.execute_script("localStorage.clear()")


def test_of_an_open_run_a_key_says_that_an_image_is_of_no_class(tmp_path: Path) -> None:
    write_images(tmp_path / "images", ("a",), 1)
    (path,) = map(str, (tmp_path / "images").rglob("*.png"))
    pick = [Pick(0, "drawn", 1.0, 0.5, 0.5)]
    page = write_folder(tmp_path / "open", pick, [path], CLASSES, is_open=True).parent / "index.html"
    assert 'data-key="-" data-class="unknown"' in page.read_text()
    assert '<option value="unknown">' in page.read_text()
    same = write_folder(tmp_path / "same", pick, [path], CLASSES).parent / "index.html"
    assert "unknown" not in same.read_text()

"""A real browser for tests of pages: Chromium, headless, through Debian's chromium and chromium-driver."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "No browser here, so no page was opened in one (apt-get install chromium chromium-driver)."
SEVERE = ("SEVERE", "WARNING")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A missing browser is said in a line that no option hides."""
    if not (CHROMIUM and DRIVER):
        terminalreporter.write_line(MISSING)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A selenium driver that keeps its console and its requests."""
    if not (CHROMIUM and DRIVER):
        pytest.skip(MISSING)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


def requests(browser: Any) -> set[str]:
    """Addresses that the browser asked for since the last look."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return {address for address in sent if not address.startswith("data:")}


def complaints(browser: Any) -> list[str]:
    """Errors and warnings of the console since the last look."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in SEVERE]


def wait_for(happened: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What ``happened`` answers once it is true; it is asked again and again."""
    deadline = time.monotonic() + seconds
    while not (answer := happened()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return answer

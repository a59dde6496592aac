from __future__ import annotations

import json

from typer.testing import CliRunner

from pmtrans.cli import app
from pmtrans.methods import METHODS


def test_methods_json_lists_every_method_with_the_promised_keys() -> None:
    result = CliRunner().invoke(app, ["methods", "--json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows] == list(METHODS)
    assert all(set(row) == {"name", "title", "paper", "year", "needs"} for row in rows)
    dann = next(row for row in rows if row["name"] == "dann")
    assert (dann["title"], dann["year"]) == ("DANN", 2016)
    assert "Domain-Adversarial Training" in dann["paper"]


def test_methods_without_json_is_for_people() -> None:
    result = CliRunner().invoke(app, ["methods"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in METHODS)
    assert "needs one pass of 2B; a discriminator" in result.stdout

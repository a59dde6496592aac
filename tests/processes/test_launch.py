"""Processes that are started together, and how each of them ended."""

from __future__ import annotations

import subprocess

import pytest

from pmtrans.processes.launch import _wait


def test_a_signal_without_a_name_is_told_by_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert _wait([subprocess.Popen(["sh", "-c", "kill -40 $$"])]) == 128 + 40
    assert capsys.readouterr().err == "error: process 0 of 1 was ended by signal 40.\n"

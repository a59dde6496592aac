"""Strange environments and numbers on the command line: one line each, or nothing at all where nothing is wrong."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import pwd
import socket
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pmtrans import cli
from pmtrans.automatic.leaderboard import source_rows
from pmtrans.bench.engine import LocalProcesses
from pmtrans.data.reading.shard_index import index_folder
from pmtrans.errors import ConfigError, RunError
from pmtrans.inference.predictor import Predictor
from pmtrans.machine import cores, refuse_many, threads_for
from pmtrans.processes.launch import launch
from pmtrans.processes.pool import LocalPool
from pmtrans.processes.rendezvous import meeting_point
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import load_model
from pmtrans.serving.app import create_app
from pmtrans.serving.connections import RateLimitedLog
from pmtrans.serving.decoders import Decoders
from pmtrans.serving.limits import Limits
from pmtrans.training.finished import read_stored


@pytest.mark.parametrize(
    ("value", "threads"),
    [("3", 3), ("4,2", 4), (" 5 , 1", 5), ("", None), ("many", None), ("0", None), ("9" * 40, None)],
)
def test_threads_are_what_openmp_reads_or_a_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, value: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    expected = threads or max(1, cores() // 2)
    assert threads_for(2) == expected
    assert LocalProcesses(2).threads == expected


def test_more_processes_than_a_machine_could_use_are_one_line() -> None:
    refuse_many(64)
    for start in (LocalPool, LocalProcesses, lambda count: launch(["train"], count)):
        with pytest.raises(ConfigError, match=r"^9999 processes: this machine has \d+ cores, at most \d+ are possible"):
            start(9999)


def test_a_user_without_a_home_is_told_where_to_name_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("PMTRANS_CACHE", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(ConfigError, match="PMTRANS_CACHE"):
        index_folder()
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path))
    assert index_folder() == tmp_path / "shards"


@pytest.mark.parametrize("address", ["x" * 64 + ".invalid", "nobody.invalid"])
def test_a_meeting_point_that_cannot_be_found_is_told_at_once(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    real = socket.getaddrinfo

    def asked(host: str, *rest: object) -> object:
        if host == "nobody.invalid":  # whatever the network of this machine would say, and when
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    environment = {"MASTER_ADDR": address, "WORLD_SIZE": "2", "RANK": "1"}
    with pytest.raises(ConfigError, match=r"^MASTER_ADDR .* is no machine that can be found: ") as caught:
        meeting_point(environment, timedelta(minutes=10))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, [], 7, {}, {"seconds": None}, {"seconds": "x"}, {"seconds": float("inf")}])
def test_a_changed_record_of_a_finished_training_is_one_line(tmp_path: Path, content: object) -> None:
    (tmp_path / "finished.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RunError, match=r"finished\.json' cannot be read \(.*\): remove the folder") as caught:
        read_stored(RunFolder(tmp_path))
    assert "\n" not in str(caught.value)


def test_the_leaderboard_reads_no_changed_record(trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_bytes((trained_run / "summary.json").read_bytes())
    (tmp_path / "finished.json").write_text("null", encoding="utf-8")
    with pytest.raises(RunError, match="cannot be read"):
        source_rows(tmp_path)


@pytest.mark.parametrize("value", ["inf", "nan"])
@pytest.mark.parametrize("command", [["serve", "run", "--max-megabytes"], ["watch", "run", "--images", "x", "--every"]])
def test_a_number_that_is_not_finite_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], value: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["pmtrans", *command, value])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert command[-1] in said
    if command[0] == "watch" and value == "inf":  # an option without an upper end
        assert said == "error: --every is inf, not a finite number.\n"


def test_what_a_stream_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(cli, "app", lambda: print("café ─ \udcff"))
    cli.main()
    stream.flush()
    assert written.getvalue() == b"caf\\xe9 \\u2500 \\udcff\n"


def test_a_request_that_a_stop_cancels_leaves_no_traceback() -> None:
    def record(error: BaseException) -> logging.LogRecord:
        described = (type(error), error, error.__traceback__)
        return logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "Exception in ASGI application", (), described)

    log = RateLimitedLog()
    assert not log.filter(record(asyncio.CancelledError("Task cancelled, timeout graceful shutdown exceeded")))
    assert log.filter(record(ValueError("a bug")))


def test_decoders_are_held_once_each_has_taken_too_long() -> None:
    async def scenario() -> None:
        may_end, patient, impatient = threading.Event(), Decoders(2, 3600.0), Decoders(2, 0.0)
        for decoders, expected in ((patient, False), (impatient, True)):
            started = [threading.Event(), threading.Event()]

            def hold(started: threading.Event) -> str:
                started.set()
                may_end.wait()
                return "image"

            first = asyncio.create_task(decoders(hold, started[0]))
            await asyncio.to_thread(started[0].wait)
            assert not decoders.are_held  # one is free
            second = asyncio.create_task(decoders(hold, started[1]))
            await asyncio.to_thread(started[1].wait)
            assert decoders.are_held is expected
            may_end.set()
            assert list(await asyncio.gather(first, second)) == ["image", "image"]
            assert not decoders.are_held
            may_end.clear()
            decoders.shutdown()

    asyncio.run(scenario())


def test_a_service_whose_decoders_are_held_is_not_ready(
    saved_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(Predictor(load_model(saved_model()), "cpu"), Limits(decode_seconds=7), decoding_threads=3)
    with TestClient(app) as client:
        assert client.get("/ready").status_code == 200
        monkeypatch.setattr(Decoders, "are_held", True)
        answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json() == {"detail": "each of 3 decoders has held one image for 7 s"}

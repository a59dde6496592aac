from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pmtrans.config import Config
from pmtrans.methods.method import Context, Moment
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.signals import Interrupted, stop_on_signals
from pmtrans.training.checkpoint import checkpoints
from pmtrans.training.train import train
from tiny_run import Witness, assert_same_run, once_saved


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_and_saves_it(
    number: int, code: int, tmp_path: Path, configure: Callable[..., Config], undisturbed: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted) as interrupted:
        train(configure(), run, Witness({3: send(number)}))
    assert interrupted.value.exit_code == code
    assert not interrupted.value.at_once
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-00000002", "step-00000003"]
    witness = Witness()
    train(configure(), run, witness)
    assert witness.steps == [4, 5, 6]
    assert_same_run(run, undisturbed)


def test_a_second_signal_stops_at_once_and_loses_nothing_older(
    tmp_path: Path, configure: Callable[..., Config], undisturbed: Path
) -> None:
    def twice() -> None:
        send(signal.SIGINT)()
        send(signal.SIGTERM)()

    run = tmp_path / "run"
    with pytest.raises(Interrupted) as interrupted:
        train(configure(), run, Witness({3: once_saved(run, "step-00000002", twice)}))
    assert interrupted.value.exit_code == 143
    assert interrupted.value.at_once
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-00000002"]
    train(configure(), run, Witness())
    assert_same_run(run, undisturbed)


def test_a_signal_while_the_first_step_is_prepared_stops_it_there(
    tmp_path: Path, configure: Callable[..., Config], undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(method: PMTrans, moment: Moment, context: Context) -> None:
        send(signal.SIGTERM)()
        context.check_stop()
        pytest.fail("not heard")

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(PMTrans, "before_step", prepare)
        with pytest.raises(Interrupted):
            train(configure(), run, Witness())
    train(configure(), run, Witness())
    assert_same_run(run, undisturbed)


def test_code_that_forgives_any_error_does_not_forgive_a_signal() -> None:
    def forgiving() -> None:
        with stop_on_signals(), suppress(Exception):
            send(signal.SIGINT)()
            send(signal.SIGINT)()

    with pytest.raises(Interrupted):
        forgiving()


def test_a_second_signal_while_python_cleans_up_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``__del__`` raises Python prints and forgets: so the first signal's stop goes its way."""

    class Loader:
        def __del__(self) -> None:
            self._join()

        def _join(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    printed: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", printed.append)
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        Loader()
        with pytest.raises(Interrupted) as interrupted:
            stop.check()
    assert not printed
    assert interrupted.value.exit_code == 130
    assert not interrupted.value.at_once


def test_the_handlers_that_were_there_before_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as request:
        assert signal.getsignal(signal.SIGTERM) is request
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before

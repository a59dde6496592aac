"""How the command line ends after a signal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from pmtrans import cli


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def end_with(ending: BaseException) -> None:
    def command() -> None:
        raise ending

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_main", command)
        with pytest.raises(SystemExit) as end:
            cli.main()
    sys.stderr.write(f"exit code {end.value.code}\n")


@pytest.mark.parametrize("ending", [SystemExit(130), SystemExit(143), KeyboardInterrupt()])
def test_another_ctrl_c_after_a_signal_is_no_traceback(
    ending: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    end_with(ending)
    signal.raise_signal(signal.SIGINT)
    code = 143 if str(ending) == "143" else 130
    assert capsys.readouterr().err.endswith(f"exit code {code}\n")


@pytest.mark.parametrize("code", [0, 1, 2])
def test_any_other_end_can_be_interrupted(code: int) -> None:
    end_with(SystemExit(code))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

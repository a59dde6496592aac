"""Where a server listens: an address that is none is one line."""

from __future__ import annotations

import os

import pytest

from pmtrans.errors import ConfigError
from pmtrans.serving.server import listen


@pytest.mark.parametrize("host", ["x" * 64, "a..b", os.fsdecode(b"\xff"), "a\0b"])
def test_a_host_that_cannot_be_a_name_is_one_line(host: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^Cannot listen on .* port 0: .*\. Choose another --host or --port\.$"
    ) as caught:
        listen(host, 0)
    assert "\n" not in str(caught.value)

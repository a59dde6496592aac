"""Weights from the Hugging Face hub, where a network may be missing: the hub is asked once, not for a minute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]  # public, though not in its __all__

PATIENCE = 10.0  # seconds, for a network that answers nothing at all


@contextmanager
def asked_once() -> Iterator[str | None]:
    """None; or, where the hub does not answer, that in words: inside, only files of earlier downloads are found."""
    unreachable = _unreachable()
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or unreachable is not None
    try:
        yield unreachable
    finally:
        constants.HF_HUB_OFFLINE = before


def _unreachable() -> str | None:
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # the client is httpx or requests, by the version of the hub's library
        return f"{constants.ENDPOINT} cannot be reached, and there is no earlier download"
    return None

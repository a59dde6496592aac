"""What the world does to a run, said in one line: a full or read-only disk, a loader process that was killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from pmtrans.errors import TrainingError, one_line
from pmtrans.run.folder import RunFolder
from pmtrans.training.checkpoint import checkpoints
from pmtrans.training.saver import as_os_error


@contextmanager
def explained_faults(folder: RunFolder) -> Iterator[None]:
    """Faults of the machine become ``TrainingError``; bugs stay what they are."""
    try:
        yield
    except (ConnectionError, EOFError):  # the loader's pipe ended in the middle of a batch
        raise TrainingError(_worker_died(folder)) from None
    except SafetensorError as error:
        raise TrainingError(_not_written(folder, as_os_error(error))) from None
    except OSError as error:
        raise TrainingError(_not_written(folder, error)) from None
    except RuntimeError as error:
        if str(error).startswith("DataLoader worker"):
            raise TrainingError(_worker_died(folder)) from None
        raise


def _not_written(folder: RunFolder, error: OSError) -> str:
    return (
        f"Run folder {one_line(folder.path)!r} cannot be written: {one_line(error.strerror or error, 150)}; "
        f"{kept(folder)}. Mend it, then give the same command again."
    )


def _worker_died(folder: RunFolder) -> str:
    return (
        f"A loader process was killed (most often: memory ran out); {kept(folder)}. "
        "Give the same command again, if needed with fewer data.workers."
    )


def kept(folder: RunFolder) -> str:
    """What can be gone on from."""
    newest = [*checkpoints(RunFolder(folder.baseline).checkpoints), *checkpoints(folder.checkpoints)][-1:]
    return f"checkpoint {one_line(newest[0].relative_to(folder.path))} is whole" if newest else "nothing was saved yet"

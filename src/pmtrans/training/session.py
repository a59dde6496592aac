"""What all stages of a run share."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from pmtrans.data.domains import Data
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import load_model
from pmtrans.signals import StopRequest
from pmtrans.training.build import Weights
from pmtrans.training.finished import Finished, read_finished
from pmtrans.training.old_places import OldPlace


@dataclass(frozen=True)
class Session:
    """The data, and how this process talks, stops and agrees with the others."""

    data: Data
    reporter: Reporter
    stop: StopRequest
    processes: Processes
    old: tuple[OldPlace, ...] = ()  # where the model worked before it was moved

    def finished(self, title: str, stage: RunFolder) -> tuple[bool, Finished | None]:
        """Whether a stage is finished already, known to all processes, and what came of it, for the main one."""
        done = read_finished(stage) if self.processes.is_main else None
        if done is not None:
            self.reporter.note(f"{title.capitalize()} is finished already.")
            shutil.rmtree(stage.candidates, ignore_errors=True)
        elif self.processes.is_main and stage.finished.is_file():
            self.reporter.warn(
                f"{title}: {stage.finished.name} or {stage.evidence.name} was changed since it was written, "
                "so this stage does not count as finished"
            )
        return bool(self.processes.highest(done is not None)), done

    def is_adopted(self, stage: RunFolder) -> bool:
        """Whether the model of a stage was taken over from another run, and is still to be evaluated here."""
        return bool(self.processes.highest(self.processes.is_main and stage.origin.is_file()))

    def weights_of(self, stage: RunFolder) -> Weights:
        """The model of a stage, for all processes, as the main one reads it."""
        return self.processes.on_main(lambda: load_model(stage.model).model.state_dict())

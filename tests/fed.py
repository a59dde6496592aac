"""The passes and the feed of a configuration, as a training would have them."""

from __future__ import annotations

import torch
from accelerate import Accelerator

from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.training.build import build
from pmtrans.training.feed import Feed
from pmtrans.training.passes import Passes


def parts_of(config: Config) -> tuple[Passes, Feed]:
    quiet = Reporter(quiet=True)
    method, task, _ = build(config, read_data(config, quiet), quiet)
    passes = Passes(method.model, task, 0, Accelerator(cpu=True), Processes())
    return passes, Feed(method, task, config, torch.device("cpu"), Processes(), passes)

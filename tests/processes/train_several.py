"""Trains a list of runs, one after the other, as one process of a group: ``python train_several.py PLAN.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from pmtrans.config import load_config
from pmtrans.processes.group import joined
from pmtrans.training.progress import Reporter
from pmtrans.training.train import train

if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined():
        for settings, out in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
            train(load_config(None, [], settings), Path(out), Reporter(quiet=True))

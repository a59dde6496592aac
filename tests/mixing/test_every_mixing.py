"""What every mixing must do: a new entry in MIXINGS is tested here without another line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pmtrans.data.batch import Batch
from pmtrans.methods import Sizes
from pmtrans.methods.method import Moment
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.mixing import MIXINGS, LearnableBeta
from pmtrans.model import Model

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
PARAGRAPH = re.search(r"^### Mixing modules of PMTrans.*?\n(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
every_mixing = pytest.mark.parametrize("name", MIXINGS)


@every_mixing
def test_ratios_are_shares_of_the_source_one_per_patch(name: str) -> None:
    torch.manual_seed(0)
    for concentrations in ((0.4, 4.0), (1.0, 1.0), (4.0, 0.4)):
        ratio_BN = MIXINGS[name](LearnableBeta(concentrations, 0.3, 5.0), (3, 4)).ratios(50)
        assert ratio_BN.shape == (50, 12)
        assert ratio_BN.dtype == torch.float32
        assert 0 <= float(ratio_BN.detach().min()) <= float(ratio_BN.detach().max()) <= 1


@every_mixing
@pytest.mark.parametrize("family", ["vit", "swin"])
def test_pmtrans_takes_a_step_with_it(
    name: str, family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny(family)
    method = PMTrans(model, PMTransOptions(mixing=name), Sizes(classes=3, source_images=12, target_images=9))
    outputs = method(batch_for(model), Moment(50, 100, 10))
    outputs["loss"].backward()
    assert all(value.isfinite() for value in outputs.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())
    assert 0 <= float(outputs["label_weight_mean"]) <= 1


@every_mixing
def test_the_page_of_methods_says_what_it_mixes(name: str) -> None:
    assert PARAGRAPH is not None
    words = PARAGRAPH[1].replace("\n", " ").replace(" ", "").lower()
    assert MIXINGS[name].__name__.lower() in words

"""Catalogues have tens of thousands of classes: nothing takes their square, and what is left out is said."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from made_up_evidence import EvidenceMaker, made_up  # noqa: F401  (a fixture)
from pmtrans.data.reading import read
from pmtrans.data.reading.classes import describe_misspelt, match_classes, read_classes
from pmtrans.evaluation.accuracy import measure_accuracy
from pmtrans.methods.method import SourcePass, TargetPass
from pmtrans.methods.parts import head_alignment
from pmtrans.selection.arbitration import arbitrate
from pmtrans.selection.calibration import fit_temperature
from pmtrans.selection.collapse import collapse_signs
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import ENTRIES, MANY_CLASSES, even_sample
from pmtrans.selection.validators import score_all
from pmtrans.selection.validators.bnm import bnm
from pmtrans.selection.validators.softmax_correlation import softmax_correlation
from pmtrans.signals import Interrupted, StopRequest

CLASSES = 6_000


def seconds(action: Callable[[], object]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def test_the_names_of_fifty_thousand_classes_are_read_and_matched_in_no_time(tmp_path: Path) -> None:
    names = [f"Product {number}" for number in range(50_000)]
    (tmp_path / "classes.txt").write_text("\n".join(names), encoding="utf-8")
    assert seconds(lambda: read_classes(tmp_path / "classes.txt")) < 2
    found = [name.lower().replace(" ", "_") for name in names]
    assert seconds(lambda: match_classes(found, names)) < 8
    assert match_classes(found[:3], names).index == {found[0]: 0, found[1]: 1, found[2]: 2}


class Counted(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_a_source_of_many_classes_looks_each_name_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search through a list would compare each of 2,000 names with half of the others: two million times."""
    names = [f"product {number:05}" for number in range(2_000)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *(f"{n}.jpg,{n}" for n in names)]), encoding="utf-8")
    for name in names:
        (tmp_path / f"{name}.jpg").touch()
    counted = {name: Counted(name) for name in names}
    monkeypatch.setattr(read, "names_by_folders", lambda _: counted)
    source = read.read_source(tmp_path / "list.csv")
    assert source.labels == tuple(range(2_000))
    assert Counted.compared < 100_000


def test_names_are_compared_for_misspelt_ones_up_to_a_number() -> None:
    known = [f"product {number}" for number in range(20_000)]
    said = describe_misspelt([f"produkt {number}" for number in range(20_000)], known)
    assert "'produkt 0' for 'product 0'" in said
    assert "19990 more unknown names" in said
    assert describe_misspelt(["x" * 100_000], ["x" * 100_001]) == ""


@pytest.mark.parametrize("classes", [350, 10_000, 10**9])
def test_a_step_of_the_aligned_head_sees_a_bounded_number_of_logits(classes: int) -> None:
    rows = torch.arange(head_alignment.ROWS)
    portions = [head_alignment._portion(rows, classes, step) for step in range(100)]
    assert max(map(len, portions)) * classes <= max(head_alignment.LOGITS, classes)
    if classes == 350:
        assert all(torch.equal(portion, rows) for portion in portions)
    if classes == 10_000:
        assert torch.cat(portions).unique().equal(rows)


def test_a_head_of_many_classes_is_aligned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_alignment, "LOGITS", 60)
    seen: list[int] = []
    head = torch.nn.Linear(2, 6)
    head.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs.numel()))
    labels = torch.arange(40) % 6
    source = SourcePass(torch.randn(40, 2), torch.zeros(40, 6), labels)
    target = TargetPass(torch.randn(70, 2), torch.zeros(70, 6))
    head_alignment.align_head(head, source, target, 0.1)
    head_alignment.refit_head(head, source, target, torch.arange(70) % 6, 0.1)
    assert len(seen) == 4 * head_alignment.STEPS
    assert max(seen) <= 60


def test_aligning_a_head_hears_a_signal_and_leaves_the_head_as_it_was() -> None:
    request, head = StopRequest(), torch.nn.Linear(2, 6)
    before = head.weight.detach().clone()
    head.register_forward_hook(lambda *_: request(signal.SIGTERM, None) if request.signal is None else None)
    source = SourcePass(torch.randn(40, 2), torch.zeros(40, 6), torch.arange(40) % 6)
    target = TargetPass(torch.randn(40, 2), torch.zeros(40, 6))
    with pytest.raises(Interrupted):
        head_alignment.align_head(head, source, target, 0.1, None, request.check)
    assert torch.equal(head.weight, before)


def test_accuracy_of_thirty_thousand_classes_takes_no_matrix_of_them() -> None:
    labels = torch.arange(30_000)
    accuracy = measure_accuracy(labels.roll(1).where(labels % 2 == 0, labels), labels, [str(k) for k in range(30_000)])
    assert accuracy.overall == pytest.approx(0.5)
    assert accuracy.per_class["1"] == 1.0
    assert accuracy.per_class["2"] == 0.0


def test_a_run_with_six_thousand_classes_is_judged_in_seconds(made_up: EvidenceMaker) -> None:  # noqa: F811
    before = made_up(targets=300, classes=CLASSES, sources=256)
    after = made_up(targets=300, classes=CLASSES, sources=256, sharpness=2.0)
    scores: dict[str, float] = {}
    assert seconds(lambda: scores.update(score_all(after, before))) < 20
    assert {"source_accuracy", "entropy", "bnm", "snd", "arbitration"} <= scores.keys()
    assert not {"reverse", "class_ami", "dev"} & scores.keys()
    assert all(math.isfinite(score) for score in scores.values())
    assert seconds(lambda: arbitrate(before, after)) < 5
    assert seconds(lambda: estimate_accuracy(after, before)) < 40
    assert seconds(lambda: fit_temperature(after.source_logits_NK, after.source_labels_N)) < 20


def test_the_sample_is_even_and_bounded() -> None:
    kept = even_sample(100_000, CLASSES)
    assert len(kept) * CLASSES <= ENTRIES
    assert kept[0] == 0
    assert kept[-1] == 99_999
    assert even_sample(7, CLASSES).tolist() == list(range(7))


def test_the_norms_of_many_classes_are_those_of_the_whole_matrix(made_up: EvidenceMaker) -> None:  # noqa: F811
    evidence = made_up(targets=40, classes=MANY_CLASSES + 2, sources=20)
    p = evidence.target_logits_MK.double().softmax(1)
    assert bnm(evidence) == pytest.approx(torch.linalg.svdvals(p).sum().item() / math.sqrt(40 * 40))
    gram = p.T @ p
    expected = gram.trace() / gram.norm() / math.sqrt(MANY_CLASSES + 2)
    assert softmax_correlation(evidence) == pytest.approx(expected.item())


def test_dying_classes_are_named_up_to_a_number() -> None:
    before = torch.eye(100).repeat_interleave(30, 0)
    after = torch.zeros(3000, 100)
    after[:, 0] = 1.0
    signs = collapse_signs(after, before)
    assert signs[-1].startswith("Classes are dying: ")
    assert signs[-1].endswith(" and 89 more.")

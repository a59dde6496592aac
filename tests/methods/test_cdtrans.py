from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from pmtrans.backbones.create import create_backbone
from pmtrans.data.batch import Batch
from pmtrans.errors import ModelError
from pmtrans.methods import Sizes
from pmtrans.methods.cdtrans import CDTrans, CDTransOptions, nearest
from pmtrans.methods.method import Context, Moment, SourcePass, TargetPass
from pmtrans.methods.parts.cross_attention import encode_three_branches
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels

SIZES = Sizes(classes=3, source_images=12, target_images=9)


def create(model: Model, **switches: Any) -> CDTrans:
    return CDTrans(model, CDTransOptions(**switches), SIZES)


def context(seed: int = 0, labels: torch.Tensor | None = None) -> Context:
    torch.manual_seed(seed)
    target = TargetPass(torch.randn(9, 32), torch.randn(9, 3))
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 3), torch.arange(12) % 3 if labels is None else labels)
    return Context(lambda: target, lambda: source)


def test_nearest_is_by_cosine_whatever_the_chunk() -> None:
    torch.manual_seed(0)
    queries, others = torch.randn(11, 5), torch.randn(7, 5)
    expected = []
    for query in queries.numpy():
        cosine = [query @ o / np.linalg.norm(query) / np.linalg.norm(o) for o in others.numpy()]
        expected.append(int(np.argmax(cosine)))
    for chunk in (1, 4, 100):
        assert nearest(queries, others, chunk).tolist() == expected


def test_pairs_are_two_way_and_kept_where_both_labels_agree(tiny: Callable[..., Model]) -> None:
    method, offered = create(tiny()), context()
    source, target = offered.source_pass(), offered.target_pass()  # type: ignore[misc]
    pseudo = kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK)
    f_s, f_t = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (source.features_NF.numpy(), target.features_MF))
    cosine = f_s @ np.asarray(f_t).T
    pairs = [(s, int(cosine[s].argmax())) for s in range(12)] + [(int(cosine[:, t].argmax()), t) for t in range(9)]
    expected = [(s, t) for s, t in pairs if int(source.labels_N[s]) == int(pseudo[t])]
    assert 0 < len(expected) < len(pairs)
    chosen = method.choose_pairs(Moment(0, 40, 10), offered).tolist()
    assert sorted(map(tuple, chosen)) == sorted(expected)
    assert list(map(tuple, chosen)) != expected  # neighbours in the list are not neighbours in a batch


def test_a_run_that_is_continued_in_the_midst_of_an_epoch_gets_the_same_pairs(tiny: Callable[..., Model]) -> None:
    method = create(tiny())
    chosen = method.choose_pairs(Moment(10, 40, 10), context(0)).clone()
    other = create(tiny())
    other.load_state_dict(method.state_dict())
    assert torch.equal(other.choose_pairs(Moment(14, 40, 10), context(1)), chosen)


def test_pairs_are_chosen_anew_every_so_many_epochs_and_reordered_between(tiny: Callable[..., Model]) -> None:
    method = create(tiny(), refresh_epochs=2)
    epochs = [method.choose_pairs(Moment(10 * e, 40, 10), context(e)).tolist() for e in range(3)]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]
    assert sorted(epochs[2]) != sorted(epochs[1])


def test_without_any_agreement_all_pairs_are_kept(tiny: Callable[..., Model]) -> None:
    method = create(tiny())
    unknown = torch.full((12,), 7)
    assert len(method.choose_pairs(Moment(0, 40, 10), context(0, unknown))) == 21


def test_the_objective_has_three_branches(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny().eval()
    method, batch = create(model, distillation=0.5), batch_for(model)
    outputs = method(batch, Moment(50, 100, 10))
    tokens = model.backbone.embed(batch.source_images), model.backbone.embed(batch.target_images)
    z_s, z_t, z_c = (model.head(f).detach().numpy() for f in encode_three_branches(model.backbone, *tokens))
    y = batch.source_labels.tolist()
    source = np.mean([-log_softmax(z_s[i])[y[i]] for i in range(4)])
    target = np.mean([-log_softmax(z_t[i])[y[i]] for i in range(4)])
    distillation = np.mean([-(softmax(z_c[i]) * log_softmax(z_t[i])).sum() for i in range(4)])
    assert float(outputs["classification"]) == pytest.approx(source, rel=1e-4)
    assert float(outputs["target_classification"]) == pytest.approx(target, rel=1e-4)
    assert float(outputs["distillation"]) == pytest.approx(distillation, rel=1e-4)
    assert float(outputs["loss"].detach()) == pytest.approx(source + target + 0.5 * distillation, rel=1e-4)


def test_swin_trains_and_a_family_that_cannot_look_across_is_refused_at_once(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny("swin")
    create(model)(batch_for(model), Moment(50, 100, 10))["loss"].backward()
    with pytest.raises(ModelError, match="cannot look across"):
        create(Model(create_backbone("cait_xxs24_224", "none", 64), 3))

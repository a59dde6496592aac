"""The paper's ablations, and two of our own, as entries of a suite: each name is that of the paper's row."""

from __future__ import annotations

from dataclasses import dataclass

from pmtrans.bench.entry import Entry, split_outside_brackets
from pmtrans.bench.paper import table, table_names
from pmtrans.bench.paper.numbers import simplify
from pmtrans.errors import ConfigError, nearest, one_line

DEFAULT_SUITE = "office-home"  # the benchmark of the paper's ablations, except the batch size


@dataclass(frozen=True)
class Ablation:
    """Variants by name; ``name`` is that of the paper's table too, where it has one."""

    name: str
    variants: dict[str, Entry]

    @property
    def paper(self) -> str | None:
        return self.name if self.name in table_names() else None

    @property
    def suite(self) -> str:
        return table(self.name).benchmark if self.paper else DEFAULT_SUITE

    def choose(self, wanted: str | None = None) -> list[Entry]:
        """All variants, or those named; ``beta-1-1`` finds ``Beta(1,1)``."""
        if wanted is None:
            return list(self.variants.values())
        known = {simplify(name): entry for name, entry in self.variants.items()}
        names = split_outside_brackets(wanted, ",")
        for name in names:
            if simplify(name) not in known:
                raise ConfigError(
                    f"Ablation {self.name!r} has no variant {one_line(name)!r}: {', '.join(self.variants)}."
                )
        return [known[simplify(name)] for name in names]


def _pmtrans(**variants: str) -> dict[str, Entry]:
    return {name: Entry("pmtrans", None, tuple(switches.split())) for name, switches in variants.items()}


ABLATIONS: dict[str, Ablation] = {
    ablation.name: ablation
    for ablation in (
        Ablation(
            "losses",
            {
                "L_cls": Entry("source_only"),  # J without its game is what source-only minimises
                **_pmtrans(
                    **{
                        "L_cls + L_f": "feature_loss=true label_loss=false",
                        "L_cls + L_l": "feature_loss=false label_loss=true",
                        "L_cls + L_f + L_l": "feature_loss=true label_loss=true",
                    }
                ),
            },
        ),
        Ablation(
            "beta",
            _pmtrans(**{"Beta(1,1)": "beta=fixed(1,1)", "Beta(2,2)": "beta=fixed(2,2)", "learned": "beta=ascend"}),
        ),
        Ablation("mixing", _pmtrans(Mixup="mixing=mixup", CutMix="mixing=cutmix", PatchMix="mixing=patchmix")),
        Ablation(
            "attention",
            _pmtrans(**{"with attention scores": "attention=scores", "without attention scores": "attention=uniform"}),
        ),
        Ablation(
            "class-information",
            _pmtrans(
                **{
                    "without class information": "class_information=false",
                    "with class information": "class_information=true",
                }
            ),
        ),
        Ablation(
            "batch-size",
            _pmtrans(**{f"batch size {size}": f"train.batch_size={size}" for size in (8, 16, 24, 32)}),
        ),
        Ablation(
            "alpha",
            _pmtrans(**{f"alpha {kind}": f"alpha={kind}" for kind in ("learned", "ramp", "fixed", "softplus")}),
        ),
        Ablation(
            "pseudo-labels",
            _pmtrans(**{"k-means": "pseudo_labels=kmeans", "neighbours": "pseudo_labels=neighbours"}),
        ),
    )
}  # fmt: skip


def ablation_named(name: str) -> Ablation:
    if name not in ABLATIONS:
        raise ConfigError(f"No ablation {one_line(name)!r}.{nearest(name, ABLATIONS)} Known: {', '.join(ABLATIONS)}.")
    return ABLATIONS[name]

"""One method a file. A new method is a new file, an entry here, and a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pmtrans.methods.cdtrans import CDTrans, CDTransOptions
from pmtrans.methods.mcc import MCC, MCCOptions
from pmtrans.methods.method import Method, Options, Sizes
from pmtrans.methods.mic import MIC, MICOptions
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.methods.source_only import SourceOnly, SourceOnlyOptions
from pmtrans.methods.ssrt import SSRT, SSRTOptions
from pmtrans.methods.tvt import TVT, TVTOptions
from pmtrans.model import Model


@dataclass(frozen=True)
class MethodEntry:
    """A method and its switches."""

    method: Any  # called as method(model, options, sizes)
    options: type[Options]

    def create(self, model: Model, options: Options, sizes: Sizes) -> Method:
        created: Method = self.method(model, options, sizes)
        return created


METHODS: dict[str, MethodEntry] = {
    "pmtrans": MethodEntry(PMTrans, PMTransOptions),
    "source_only": MethodEntry(SourceOnly, SourceOnlyOptions),
    "ssrt": MethodEntry(SSRT, SSRTOptions),
    "cdtrans": MethodEntry(CDTrans, CDTransOptions),
    "tvt": MethodEntry(TVT, TVTOptions),
    "mcc": MethodEntry(MCC, MCCOptions),
    "mic": MethodEntry(MIC, MICOptions),
}

__all__ = ["METHODS", "Method", "MethodEntry", "Options", "Sizes"]

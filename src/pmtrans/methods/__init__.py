"""One method a file. A new method is a new file, an entry here, and a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pmtrans.methods.bnm import BNM, BNMOptions
from pmtrans.methods.can import CAN, CANOptions
from pmtrans.methods.cdan import CDAN, CDANOptions
from pmtrans.methods.cdtrans import CDTrans, CDTransOptions
from pmtrans.methods.cgdm import CGDM, CGDMOptions
from pmtrans.methods.ckb import CKB, CKBOptions
from pmtrans.methods.dann import DANN, DANNOptions
from pmtrans.methods.dwl import DWL, DWLOptions
from pmtrans.methods.fixbi import FixBi, FixBiOptions
from pmtrans.methods.ila import ILA, ILAOptions
from pmtrans.methods.mcc import MCC, MCCOptions
from pmtrans.methods.mcd import MCD, MCDOptions
from pmtrans.methods.mdd import MDD, MDDOptions
from pmtrans.methods.method import Method, Options, Sizes
from pmtrans.methods.mic import MIC, MICOptions
from pmtrans.methods.pct import PCT, PCTOptions
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_game import observe_game
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.methods.scda import SCDA, SCDAOptions
from pmtrans.methods.shot import SHOT, SHOTOptions
from pmtrans.methods.source_free import SourceFree, SourceFreeOptions
from pmtrans.methods.source_only import SourceOnly, SourceOnlyOptions
from pmtrans.methods.ssrt import SSRT, SSRTOptions
from pmtrans.methods.swd import SWD, SWDOptions
from pmtrans.methods.symnets import SymNets, SymNetsOptions
from pmtrans.methods.tsa import TSA, TSAOptions
from pmtrans.methods.tvt import TVT, TVTOptions
from pmtrans.model import Model


@dataclass(frozen=True)
class MethodEntry:
    """A method, its switches, and, where it is a game, who measures how far its players are from rest.

    ``strength``: the switch that says how much the method's own loss counts, which `pmtrans bench --tune` tries; None:
    it has none.
    """

    method: Any  # called as method(model, options, sizes)
    options: type[Options]
    observe: Any = (
        None  # called as observe(method, task, seed, learning_rate); gives an observer of evaluations or None
    )
    strength: str | None = "weight"

    def create(self, model: Model, options: Options, sizes: Sizes) -> Method:
        created: Method = self.method(model, options, sizes)
        return created


METHODS: dict[str, MethodEntry] = {
    "pmtrans": MethodEntry(PMTrans, PMTransOptions, observe_game, strength="alpha_value"),
    "source_only": MethodEntry(SourceOnly, SourceOnlyOptions, strength=None),
    # transformers
    "ssrt": MethodEntry(SSRT, SSRTOptions, strength="refinement"),
    "cdtrans": MethodEntry(CDTrans, CDTransOptions, strength="distillation"),
    "tvt": MethodEntry(TVT, TVTOptions, strength="global_adversary"),
    # additions that also stand alone
    "mcc": MethodEntry(MCC, MCCOptions),
    "mic": MethodEntry(MIC, MICOptions),
    # adversaries and discrepancies
    "dann": MethodEntry(DANN, DANNOptions, strength="reversal"),
    "cdan": MethodEntry(CDAN, CDANOptions, strength="reversal"),
    "mcd": MethodEntry(MCD, MCDOptions),
    "swd": MethodEntry(SWD, SWDOptions),
    "mdd": MethodEntry(MDD, MDDOptions, strength="reversal"),
    "symnets": MethodEntry(SymNets, SymNetsOptions, strength=None),
    "dwl": MethodEntry(DWL, DWLOptions),
    "cgdm": MethodEntry(CGDM, CGDMOptions),
    "scda": MethodEntry(SCDA, SCDAOptions),
    # statistics and prototypes
    "bnm": MethodEntry(BNM, BNMOptions),
    "can": MethodEntry(CAN, CANOptions),
    "pct": MethodEntry(PCT, PCTOptions),
    "ckb": MethodEntry(CKB, CKBOptions),
    "tsa": MethodEntry(TSA, TSAOptions, strength="strength"),
    "ila": MethodEntry(ILA, ILAOptions, strength="contrastive_weight"),
    # self-training
    "fixbi": MethodEntry(FixBi, FixBiOptions, strength=None),
    "source_free": MethodEntry(SourceFree, SourceFreeOptions, strength="alpha"),
    "shot": MethodEntry(SHOT, SHOTOptions),
}

__all__ = ["METHODS", "Method", "MethodEntry", "Options", "Sizes"]

"""Knowing that adaptation worked without target labels: validators, the choice, the estimate, the verdict."""

from pmtrans.selection.assessment import Estimate
from pmtrans.selection.collapse import collapse_signs
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.rule import Choice, choose, disagreement
from pmtrans.selection.validators import VALIDATORS, Validator, score_all

__all__ = [
    "VALIDATORS",
    "Choice",
    "Estimate",
    "Evidence",
    "Validator",
    "choose",
    "collapse_signs",
    "disagreement",
    "estimate_accuracy",
    "score_all",
]

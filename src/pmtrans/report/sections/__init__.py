"""The sections of the page, in the order in which they are read."""

from __future__ import annotations

from pmtrans.report.section import SectionMaker
from pmtrans.report.sections.cautions import cautions
from pmtrans.report.sections.curves import accuracy, pseudo_labels, training
from pmtrans.report.sections.feature_map import feature_map
from pmtrans.report.sections.game import game, mixing
from pmtrans.report.sections.headline import headline
from pmtrans.report.sections.per_class import confusion, per_class
from pmtrans.report.sections.pictures import attention, certainty, mixed_images
from pmtrans.report.sections.run_facts import facts
from pmtrans.report.sections.sources import sources
from pmtrans.report.sections.target_labels import target_labels
from pmtrans.report.sections.validators import validators

SECTIONS: tuple[SectionMaker, ...] = (
    headline, cautions, facts, sources, target_labels, accuracy, validators, feature_map, confusion, per_class,
    certainty, attention,
    training, mixing, mixed_images, pseudo_labels, game,
)  # fmt: skip

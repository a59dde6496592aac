"""The settings of a run as one typed tree, from a YAML recipe, then flags, then ``section.key=value`` overrides."""

from pmtrans.config.load import LOCATIONS, settings_from_flags, with_absolute_paths
from pmtrans.config.recipes import find_study, packaged_recipes, read_recipe
from pmtrans.config.sections import BackboneConfig, Config, DataConfig, SelectionConfig, TrainConfig

__all__ = [
    "LOCATIONS",
    "BackboneConfig",
    "Config",
    "DataConfig",
    "SelectionConfig",
    "TrainConfig",
    "find_study",
    "packaged_recipes",
    "read_recipe",
    "settings_from_flags",
    "with_absolute_paths",
]

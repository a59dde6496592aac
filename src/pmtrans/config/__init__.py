"""One typed tree for everything that a run depends on: YAML recipe, then flags, then ``section.key=value``."""

from pmtrans.config.recipes import packaged_recipes, read_recipe
from pmtrans.config.sections import BackboneConfig, Config, DataConfig, SelectionConfig, TrainConfig

__all__ = [
    "BackboneConfig",
    "Config",
    "DataConfig",
    "SelectionConfig",
    "TrainConfig",
    "packaged_recipes",
    "read_recipe",
]

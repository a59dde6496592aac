"""The demo's backbone: a small timm vision transformer for 24-pixel characters, with packaged weights.

Importing this module registers ``pmtrans_digits_vit`` with timm. ``pretrained=True`` reads the packaged file,
trained on printed letters by ``scripts/pretrain_digits_vit.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timm.layers import PatchEmbed
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import nn


def weights_path() -> Path:
    """The packaged weights: safetensors, float16, under timm's names, without a head."""
    return Path(__file__).with_name("digits_vit.safetensors")


class ConvolutionalStem(PatchEmbed):  # type: ignore[misc]
    """Patch tokens from three small convolutions: a linear patch embedding learns far too slowly here.

    Group normalisation, not batch normalisation: a token must not depend on the rest of the batch.
    """

    def __init__(self, in_chans: int = 3, embed_dim: int = 64, patch_size: int = 4, **settings: Any) -> None:
        super().__init__(in_chans=in_chans, embed_dim=embed_dim, patch_size=patch_size, **settings)
        if self.patch_size != (4, 4):
            raise ValueError(f"the stem halves the image twice: patch_size must be 4, not {patch_size}")
        self.proj = nn.Sequential(
            nn.Conv2d(in_chans, embed_dim // 4, kernel_size=3, padding=1),
            nn.GroupNorm(1, embed_dim // 4),
            nn.GELU(),
            nn.Conv2d(embed_dim // 4, embed_dim // 2, kernel_size=3, stride=2, padding=1),
            nn.GroupNorm(1, embed_dim // 2),
            nn.GELU(),
            nn.Conv2d(embed_dim // 2, embed_dim, kernel_size=3, stride=2, padding=1),
        )


default_cfgs = generate_default_cfgs(
    {
        "pmtrans_digits_vit.letters": {
            "file": str(weights_path()),
            "num_classes": 0,
            "input_size": (3, 24, 24),
            "pool_size": None,
            "crop_pct": 1.0,
            "interpolation": "bilinear",
            "fixed_input_size": True,
            "mean": (0.5, 0.5, 0.5),
            "std": (0.5, 0.5, 0.5),
            "first_conv": "patch_embed.proj.0",
            "classifier": "head",
            "license": "apache-2.0",
        }
    }
)


@register_model  # type: ignore[untyped-decorator]
def pmtrans_digits_vit(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """6x6 patches of a 24-pixel image, a class token, width 64, 4 blocks of 2 heads: 0.2 million weights."""
    architecture = {"img_size": 24, "patch_size": 4, "embed_dim": 64, "depth": 4, "num_heads": 2}
    return build_model_with_cfg(
        VisionTransformer,
        "pmtrans_digits_vit",
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": 3, "feature_cls": "getter"},
        **{**architecture, "embed_layer": ConvolutionalStem, **kwargs},
    )

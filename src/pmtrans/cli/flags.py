"""The flags that several verbs have: one name, one meaning, one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.completion import complete_recipe, complete_setting

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[section.key=value]...",
        autocompletion=complete_setting,
        help="Any setting, such as `train.epochs=10`.",
        show_default=False,
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIR",
        help="Labelled images: class folders, a list file, a table or shards (`shop-{000..127}.tar`). Given "
        "several times: all of them, their classes matched by name.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="Unlabelled images. Class folders in it are used for evaluation only.", show_default=False),
]
TargetLabels = Annotated[
    str | None,
    typer.Option(
        help="Labels of some target images, which train: the table that `label-these` writes, a list, or class "
        "folders. Without it, no target label trains anything.",
        show_default=False,
    ),
]
Root = Annotated[
    str | None, typer.Option(help="Folder that the paths of list files and tables start from.", show_default=False)
]
Cache = Annotated[
    str | None,
    typer.Option(help="A folder for a cache of resized images: later epochs need not decode.", show_default=False),
]
Backbone = Annotated[
    str | None, typer.Option(help="A timm transformer, such as `deit_tiny_patch16_224`.", show_default=False)
]
Weights = Annotated[
    str | None,
    typer.Option(help="`none`, `timm`, `hf-hub:ORG/NAME`, or a safetensors / pth file.", show_default=False),
]
Recipe = Annotated[
    Path | None,
    typer.Option(
        help="A YAML file of settings, or a packaged recipe: `office-31/deit`.",
        autocompletion=complete_recipe,
        show_default=False,
    ),
]
Seed = Annotated[int | None, typer.Option(help="Same seed, same weights, bit for bit (on a CPU).", show_default=False)]
Device = Annotated[
    str | None, typer.Option(help="`cpu`, `cuda`, `cuda:1`, `mps`; default: a GPU if any.", show_default=False)
]
Resume = Annotated[
    str, typer.Option(metavar="HOW", help="`auto`: the run in `--out`; `never`; or a run or checkpoint to resume.")
]
Processes = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Processes (GPUs) of this machine that share each batch; same result up to rounding."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in `--out`.")]
Silent = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
AllowAddress = Annotated[  # a received run reaches no other system by itself
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="Read images of the run from this address of another system (`s3://bucket`); may be repeated.",
        show_default=False,
    ),
]

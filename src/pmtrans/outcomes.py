"""What a run can end with, by name: its models, and the verdict on the trained one. Light: every command reads them."""

from __future__ import annotations

from typing import Literal

Name = Literal["probe", "source_only", "adapted"]
SourceName = Literal["probe", "source_only"]  # of the models that have not seen the target
Answer = Literal["helped", "unchanged", "hurt", "cannot tell"]

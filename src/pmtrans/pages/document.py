"""HTML that needs no other file, nor a network; every name in it is escaped.

A page forbids itself all requests and all scripts but its own, by a content security policy: should a name ever slip
through the escaping, a browser still would not run it.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pmtrans.version import __version__

_TEMPLATES = Path(__file__).parent / "templates"


def render_document(template: str, script: str, **values: Any) -> str:
    """A template with the style sheet, one script and the policy that allows nothing else."""
    code = (_TEMPLATES / script).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode("ascii")
    return environment().get_template(template).render(
        style=Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8")),
        script=Markup(code),
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        made=datetime.now().strftime("%Y-%m-%d %H:%M"),
        version=__version__,
        **values,
    )  # fmt: skip


def environment() -> jinja2.Environment:
    """Where all templates lie; what is written into them is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: "–" if value is None else f"{100 * value:.1f} %"
    environment.filters["number"] = lambda value: "–" if value is None else f"{value:.4g}"
    environment.filters["count"] = lambda value: "–" if value is None else f"{value:,}".replace(",", "\u202f")
    return environment

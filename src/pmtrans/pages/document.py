"""Self-contained HTML pages: no other file, no network, all values escaped.

A content security policy forbids all requests and all scripts but the page's own, so that a browser would not run a
script in a name even if the escaping failed.
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
    """Render a template with the style sheet, one script, and a policy that allows no other script."""
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
    """The Jinja environment of all templates, with autoescaping."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: "–" if value is None else f"{100 * value:.1f} %"
    environment.filters["points"] = lambda value: f"{100 * value:+.1f}" if isinstance(value, float) else "–"
    environment.filters["number"] = lambda value: "–" if value is None else f"{value:.4g}"
    environment.filters["count"] = lambda value: "–" if value is None else f"{value:,}".replace(",", "\u202f")
    return environment

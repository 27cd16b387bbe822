"""The page's templates, style and script, read once; and the headers under which they are served.

Everything is served from this listener. The policy lets a browser run the one script and apply the
one style sheet that come from here, and nothing that stands in a page: text that slipped through as
markup could still do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

from fastapi import Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from proxy.page import plain

_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ALWAYS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_NONE: Mapping[str, str] = {}
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Assets:
    """`files` holds bytes by name, `version` changes with any of them."""

    templates: Environment
    files: Mapping[str, bytes]
    version: str

    def render(self, template: str, **values: Any) -> str:
        return self.templates.get_template(template).render(version=self.version, **values)

    def file(self, name: str) -> Response | None:
        if name not in self.files:
            return None
        headers = {**_ALWAYS, "cache-control": _FOR_EVER}
        return Response(self.files[name], media_type=_TYPES[name], headers=headers)


def read() -> Assets:
    found = {name: files("proxy.page").joinpath("static", name).read_bytes() for name in _TYPES}
    version = sha256(b"".join(found.values())).hexdigest()[:12]
    return Assets(_environment(), found, version)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("proxy.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.filters |= {
        "count": plain.count,
        "numbered": plain.numbered,
        "short": plain.short,
        "percent": plain.percent,
        "moment": plain.moment,
    }
    return environment


def html(text: str, status: int = 200, headers: Mapping[str, str] = _NONE) -> HTMLResponse:
    """A page or a piece of one."""
    return HTMLResponse(text, status, {**_ALWAYS, "cache-control": "no-store", **headers})

"""The web page: files that everybody can load from the HTTP port. Private data comes only from the API, after a login.

The files are not built, and load nothing from elsewhere. The content security policy lets the browser run and load only the
files of this folder: no script or style in the text of the page, no frames, no forms, and no text that becomes HTML.
Source: W3C, "Content Security Policy Level 3" and "Trusted Types".
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_NAMES: Final = (
    "index.html",
    "icon.svg",
    "page.css",
    "page.js",
    "calls.js",
    "elements.js",
    "editor.js",
    "answer.js",
    "chart.js",
    "views.js",
)

HEADERS: Final = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file with its media type."""

    content: bytes
    type: str


FILES: Final = {
    name: PageFile(
        files(__name__).joinpath(name).read_bytes(), f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    )
    for name in _NAMES
}
"""The files by name; other names are unknown paths."""

"""Add the documents at the root of the repository to the site, and adapt links to it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PROJECT = {
    "README.md": "project/overview.md",
    "PRIVACY.md": "project/privacy.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
}
"""The page of each document at the root."""
_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the documents at the root as pages."""
    for name, page in PROJECT.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links of the repository into links of the site. A link to a file that is no page keeps its words alone."""
    here = page.file.src_uri
    origin = next((name for name, of in PROJECT.items() if of == here), f"docs/{here}")

    def fitted(link: re.Match[str]) -> str:
        image, words, path, anchor = link.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        on_site = target.startswith("docs/") and target.endswith((".md", ".svg"))
        if target not in PROJECT and not on_site:
            return words
        there = PROJECT.get(target) or target.removeprefix("docs/")
        return f"{image}[{words}]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{anchor or ''})"

    return _LINK.sub(fitted, markdown)

"""What the site has besides docs/: the documents at the root of the repository, and links that fit the site."""

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
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the documents at the root as pages."""
    for name, page in PROJECT.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes links of the repository links of the site; of files that are no pages, only the words stay."""
    here = page.file.src_uri
    origin = next((name for name, of in PROJECT.items() if of == here), f"docs/{here}")

    def fitted(link: re.Match[str]) -> str:
        words, path, anchor = link.groups()
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        if target not in PROJECT and not (target.startswith("docs/") and target.endswith(".md")):
            return words
        there = PROJECT.get(target) or target.removeprefix("docs/")
        return f"[{words}]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{anchor or ''})"

    return _LINK.sub(fitted, markdown)

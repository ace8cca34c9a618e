"""Format docstrings for the site: doctests as code, and Claim, Why and Source as separate paragraphs."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"(?m)(?:^>>> .*\n?(?:^(?!>>> |\s*$).*\n?)*)+")
_PART = re.compile(r"(?m)^\**(Claim|Why|Source)(?::|\.\**) ")


class Docstrings(Extension):
    """Change the docstring of each object that is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Mark the parts of a docstring in Markdown."""
        if obj.docstring is not None:
            text = re.sub(r"<(?=\w+>)", "&lt;", obj.docstring.value)  # <table> is no tag
            text = _PART.sub(r"\n**\1.** ", text)
            obj.docstring.value = _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)

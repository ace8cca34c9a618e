"""Names and texts as DuckDB's SQL writes them."""

from __future__ import annotations


def identifier(name: str) -> str:
    """A name in quotes.

    >>> print(identifier('a "word" more'))
    "a ""word"" more"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in quotes.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"

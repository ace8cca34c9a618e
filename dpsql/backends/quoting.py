"""Names and texts as DuckDB's SQL writes them."""

from __future__ import annotations


def identifier(name: str) -> str:
    """A name in quotes.

    >>> print(identifier('a "word" more'))
    "a ""word"" more"
    """
    return '"' + name.replace('"', '""') + '"'


def table_name(name: str) -> str:
    """A declared table's name in quotes, after that of its schema where it has one.

    >>> print(table_name("visits"), table_name("emr.visits"))
    "visits" "emr"."visits"
    """
    return ".".join(map(identifier, name.split(".")))


def literal(text: str) -> str:
    """A text in quotes.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"

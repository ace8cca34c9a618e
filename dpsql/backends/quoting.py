"""Quote names and texts for SQL."""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """Quote a name.

    >>> print(quote_identifier('a "word" more'))
    "a ""word"" more"
    """
    return '"' + name.replace('"', '""') + '"'


def quote_table_name(name: str) -> str:
    """Quote a declared table's name, qualified with its schema if it has one.

    >>> print(quote_table_name("visits"), quote_table_name("emr.visits"))
    "visits" "emr"."visits"
    """
    return ".".join(map(quote_identifier, name.split(".")))


def quote_literal(text: str) -> str:
    """Quote a text.

    >>> quote_literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"

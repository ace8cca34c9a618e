"""Cells of files: the SQL that reads a text as the policy declares its column.

Claim: whatever a text is, it is read as a value of its column's type or as NULL, and decides over no other cell.
Why: each expression is a guarded cast (TRY_CAST, TRY_STRPTIME) of the column alone, with constant patterns; the texts are read
by a materialized table expression, into which the optimizer pushes no cast.
Source: attack A44, one cell of a file; DuckDB's documentation, "Casting" and "Date Format Functions".
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.policy.names import quote_identifier, quote_literal
from dpsql.policy.readings import CellReading, TableReading

PLAIN = {
    "integer": "CASE WHEN regexp_full_match({0}, '\\s*[-+]?[0-9]+\\s*') THEN TRY_CAST({0} AS BIGINT) END",
    **{
        name: f"TRY_CAST({{0}} AS {name.upper()})"
        for name in ("double", "date", "timestamp", "time", "uuid", "boolean")
    },
}
"""How a text of a file is read as a type of the policy: what is none of the type is NULL."""
_CURRENCY = r"(?:\p{Sc}|kr\.?|zł|Kč|Fr\.?|R\$|EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|BGN|TRY|ILS|ZAR|BRL|MXN|KRW|SGD|HKD)"
_SPACE = r"[\s\x{A0}\x{202F}]*"
_MINUS = r"[-\x{2212}]"
_THOUSANDS = (r"[ \x{A0}\x{202F}\x{2009}]", r"['\x{2019}]")
"""Signs between groups of three digits in every country; the comma or the point is one where it is not the decimal sign."""


def build_cell(reading: CellReading, text: str) -> str:
    """Return the SQL expression that reads an expression of a text as the policy declares the column."""
    if reading.null_values:
        listed = ", ".join(map(quote_literal, reading.null_values))
        text = f"CASE WHEN trim({text}) NOT IN ({listed}) THEN {text} END"
    if reading.decimal is not None:
        return _build_number(reading.kind, reading.decimal, text)
    if reading.formats:
        return _build_moment(reading.kind, reading.formats, text)
    return PLAIN.get(reading.kind, "{0}").format(text)


def _build_number(kind: str, decimal: str, text: str) -> str:
    """Return the number of a text: a sign before or behind it or parentheses, thousands in groups of three, a currency.

    A text of which any sign is left over is NULL: `1.23,4`, `12 %`, `12 apples`.
    """
    point, group = (r"\.", ",") if decimal == "." else (",", r"\.")
    whole = "|".join([*(f"[0-9]{{1,3}}(?:{each}[0-9]{{3}})+" for each in (group, *_THOUSANDS)), "[0-9]+"])
    rest = f"(?:{point}0*)?" if kind == "integer" else rf"(?:{point}[0-9]*)?(?:[eE][-+]?[0-9]+)?"
    first = rf"{point}[0-9]+|" if kind == "double" else ""
    number = f"(?:{first}(?:{whole}){rest})"
    sign, currency = f"(?:{_MINUS}|[+])?", rf"{_SPACE}(?:{_CURRENCY})?{_SPACE}"
    shapes = (
        rf"{_SPACE}{sign}{currency}{number}{currency}",
        rf"{currency}{sign}{_SPACE}{number}{currency}",
        rf"{currency}{number}{_MINUS}{currency}",
        rf"{_SPACE}\({currency}{number}{currency}\){_SPACE}",
    )
    shape = quote_literal("|".join(f"(?:{each})" for each in shapes))
    core = f"regexp_extract({text}, {quote_literal(number)})"
    if kind == "integer":
        digits = (
            f"regexp_replace(regexp_replace({core}, {quote_literal(f'{point}.*$')}, ''), '[^0-9]', '', 'g')"
        )
        target = "BIGINT"
    else:
        plain = f"regexp_replace({core}, {quote_literal(f'[^-+0-9eE{decimal}]')}, '', 'g')"
        digits, target = f"replace({plain}, {quote_literal(decimal)}, '.')", "DOUBLE"
    outside = f"regexp_replace({text}, {quote_literal(number)}, '')"
    minus = f"CASE WHEN regexp_matches({outside}, '{_MINUS}|[(]') THEN '-' ELSE '' END"
    return f"CASE WHEN regexp_full_match({text}, {shape}) THEN TRY_CAST({minus} || {digits} AS {target}) END"


def _build_moment(kind: str, formats: Sequence[str], text: str) -> str:
    """Return the date, timestamp or time of a text in the first of some formats that reads it.

    A year of two digits is not read where the format has four: 25 would be a year of antiquity, within no bounds.
    """
    tried = [f"TRY_STRPTIME({text}, {quote_literal(each)})" for each in formats]
    guarded = [
        f"CASE WHEN regexp_matches({text}, '(?:^|[^0-9])[0-9]{{4}}|[0-9]{{8}}') THEN {each} END" if "%Y" in declared else each
        for each, declared in zip(tried, formats, strict=True)
    ]  # fmt: skip
    return f"TRY_CAST(COALESCE({', '.join(guarded)}, NULL) AS {kind.upper()})"


def build_typed_query(names: Sequence[str], reading: TableReading, rows: str) -> str:
    """Return the query of columns of texts that reads each as the policy declares it.

    The optimizer pushes a cast into the reader of a file, where one text that is none of the type ends the reading. It
    cannot push it below a common table expression that is materialized.
    """
    columns = ", ".join(
        f"{build_cell(reading.find_cell(column), quote_identifier(column))} AS {quote_identifier(column)}"
        for column in names
    )
    return f'WITH "#texts" AS MATERIALIZED (SELECT * FROM {rows}) SELECT {columns} FROM "#texts"'

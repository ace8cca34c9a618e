"""Names: how the engine compares those of tables and columns, how accounts compare more broadly, and how SQL quotes them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")

DEFAULT_SCHEMA = "main"
"""The schema of tables that are named without one."""
SHARED_ACCOUNT = "shared budget"
"""The name, in the ledger, of the account that tables share (`budget: {shared: true}`). No private table may have it."""
_UNSEEN = frozenset({"Cf", "Cn"})
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def normalize_name(name: str) -> str:
    """Return the form under which two names are the same name: ASCII letters in lower case.

    DuckDB holds `é` and `É`, or `straße` and `strasse`, to be different columns, so `str.casefold`
    would take an undeclared table for a declared one.

    >>> normalize_name("Straße"), normalize_name("É") == normalize_name("é")
    ('straße', False)
    """
    return name.translate(_ASCII_LOWER)


def normalize_account_name(name: str) -> str:
    """Return the form under which two names of tables or of analysts have one account.

    Names that differ in case, in spaces, in Unicode's form or in characters that do not show must not have a budget
    each, whatever the engine or a login holds to be the same. `str.casefold` and NFKC: Unicode 15, chapter 3.13, D145
    (canonical caseless matching), with compatibility forms.

    >>> normalize_account_name(" Bob\u200b  Ross ") == normalize_account_name("BOB ROSS"), normalize_account_name("e\u0301") == normalize_account_name("É")
    (True, True)
    """
    visible = "".join(letter for letter in name if unicodedata.category(letter) not in _UNSEEN)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return " ".join(folded.split())


class NameMap(Mapping[str, V]):
    """An immutable, hashable mapping whose lookup ignores case as `normalize_name` does.

    Iteration gives the names as declared. The names must differ by more than case: see
    `list_name_problems`.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, V]) -> None:
        self._entries = {normalize_name(name): (name, value) for name, value in entries.items()}

    def __getitem__(self, name: str) -> V:
        return self._entries[normalize_name(name)][1]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and normalize_name(name) in self._entries

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.values()))

    def __repr__(self) -> str:
        return f"NameMap({dict(self)!r})"


def find_declared_name(name: str, names: Iterable[str]) -> str | None:
    """Return the spelling among `names` of `name`, or None when it is not among them."""
    return next((other for other in names if normalize_name(other) == normalize_name(name)), None)


def find_name_problem(name: object, kind: str, *, dots: bool) -> str | None:
    """Return the problem of one name of a `kind` ("table", "column"), or None."""
    if not isinstance(name, str):
        return f"the name of a {kind} must be text, not {name!r}"
    if not name.strip():
        return f"the name of a {kind} is empty"
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        return f"the name of a {kind} holds a NUL or surrogate character, which SQL does not allow"
    if "." in name and not dots:
        return _find_schema_problem(name, kind)
    return None


def split_table_name(name: str) -> tuple[str, str]:
    """Return the schema of a declared table, empty for the default one, and its name there.

    >>> split_table_name("emr.visits"), split_table_name("visits")
    (('emr', 'visits'), ('', 'visits'))
    """
    schema, _, table = name.rpartition(".")
    return schema, table


def _find_schema_problem(name: str, kind: str) -> str | None:
    """Return the problem of a table's name with dots: one dot follows a schema, and the default schema is not written."""
    schema, *rest = name.split(".")
    if kind != "table" or len(rest) != 1 or not schema.strip() or not rest[0].strip() or '"' in name:
        return f"the name of a {kind} must not hold a dot, except as <schema>.<name> of a table"
    if normalize_name(schema) == DEFAULT_SCHEMA:
        return f"tables of the default schema {schema} are named without a dot: write {rest[0]}"
    return None


def is_row(unit: object) -> bool:
    """Return whether the value of a `unit` key says that each row is a privacy unit."""
    return isinstance(unit, str) and normalize_name(unit) == "row"


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

"""Count the texts of files that are not values of their column's type, for the data's owner alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from dpsql.backends.duckdb.cells import PLAIN, build_cell
from dpsql.backends.duckdb.files import FileTable, make_file_table
from dpsql.backends.duckdb.guesses import guess_cell
from dpsql.policy.names import NameMap, quote_identifier, quote_literal
from dpsql.policy.readings import CellReading, TableReading

_SAMPLE = 1_000
"""Texts from which a format is guessed."""


@dataclass(frozen=True, slots=True)
class UnreadTexts:
    """The texts of a column that are not values of its type: how many of how many, and the first one, in which row.

    `proposed` is a reading that reads most of them, if there is just one.
    """

    column: str
    reading: CellReading
    n_unread: int
    n_texts: int
    first_row: int
    first_text: str
    proposed: CellReading | None = None


def count_unread_texts(name: str, table: FileTable, reading: TableReading) -> list[UnreadTexts]:
    """Count the texts of each column that are none of the policy's type: they are read as NULL.

    Blank texts and the declared `null_values` are left out, since missing values are written so. Files that state their
    types have no such texts.
    """
    if table.format.has_types:
        return []
    columns = NameMap(dict.fromkeys(reading.cells, CellReading("varchar")))
    with duckdb.connect() as scratch:
        make_file_table(scratch, name, table, TableReading(columns, reading.file))
        return list(_iterate_unread_texts(scratch, name, reading))


def _iterate_unread_texts(
    connection: duckdb.DuckDBPyConnection, table: str, reading: TableReading
) -> Iterator[UnreadTexts]:
    described = connection.execute(f"DESCRIBE {quote_identifier(table)}").fetchall()
    for column, *_ in described:
        cell, text = reading.find_cell(str(column)), quote_identifier(str(column))
        if cell.kind not in PLAIN:
            continue
        listed = ", ".join(map(quote_literal, ("", *cell.null_values)))
        written = f"trim({text}) NOT IN ({listed})"
        unread = f"{written} AND ({build_cell(cell, text)}) IS NULL"
        ((many, whole, first, example),) = connection.execute(
            f"SELECT COUNT(*) FILTER (WHERE {unread}), COUNT(*) FILTER (WHERE {written}), MIN(rowid) FILTER (WHERE {unread}),"
            f" ARG_MIN({text}, rowid) FILTER (WHERE {unread}) FROM {quote_identifier(table)}"
        ).fetchall()
        if not many:
            continue
        texts = connection.execute(
            f"SELECT {text} FROM {quote_identifier(table)} WHERE {unread} ORDER BY rowid LIMIT {_SAMPLE}"
        ).fetchall()
        found, _ = guess_cell(connection, [str(each) for (each,) in texts])
        fits = found.has_options and (
            found.kind == cell.kind or {found.kind, cell.kind} <= {"integer", "double"}
        )
        proposed = found if fits and found != cell else None
        yield UnreadTexts(str(column), cell, int(many), int(whole), int(first) + 1, str(example), proposed)

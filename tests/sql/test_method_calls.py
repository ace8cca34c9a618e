"""A function after a dot takes the value before the dot as its first argument."""

from __future__ import annotations

from dpsql.api.connection import Connection
from tests.sql.study import prepare


def test_function_after_a_dot_is_the_function(connection: Connection) -> None:
    """The plan is that of the call that is written out."""
    dotted = (
        "SELECT COUNT(*) FROM visits v WHERE v.note.trim().lower() = 'fever' AND lower(note).contains('e')"
    )
    plain = "SELECT COUNT(*) FROM visits v WHERE LOWER(TRIM(v.note)) = 'fever' AND CONTAINS(LOWER(note), 'e')"
    assert prepare(connection, dotted).outer == prepare(connection, plain).outer

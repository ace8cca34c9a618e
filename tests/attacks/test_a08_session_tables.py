"""A8, name games with tables of a session: no name shadows a private table, and no option or comment hides a statement."""

from __future__ import annotations

import pytest
from worlds import person, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.sql.parse.session_statement import CreateTable, parse_session_statement

CREATE = "CREATE SYNTHETIC TABLE x AS SELECT city FROM people"
REFUSED = {
    "CREATE SYNTHETIC TABLE people AS SELECT city FROM people WITH (epsilon = 1)": "session_table",
    'CREATE LOCAL TABLE "PEOPLE" AS SELECT RANDOMIZE(city) FROM people WITH (epsilon = 1)': "session_table",
    "CREATE OR REPLACE SYNTHETIC TABLE Regions AS SELECT city FROM people WITH (epsilon = 1)": "session_table",
    "CREATE SYNTHETIC TABLE main.x AS SELECT city FROM people WITH (epsilon = 1)": "syntax",
    "CREATE SYNTHETIC TABLE information_schema.tables AS SELECT city FROM people": "syntax",
    'CREATE SYNTHETIC TABLE "a b" AS SELECT city FROM people WITH (epsilon = 1)': "session_table",
    "CREATE SYNTHETIC TABLE pеople AS SELECT city FROM people WITH (epsilon = 1)": "session_table",
    'CREATE SYNTHETIC TABLE "" AS SELECT city FROM people WITH (epsilon = 1)': "session_table",
    "CREATE SYNTHETIC TABLE 'x' AS SELECT city FROM people WITH (epsilon = 1)": "syntax",
    "CREATE SYNTHETIC TABLE x (a) AS SELECT city FROM people WITH (epsilon = 1)": "syntax",
    f"{CREATE} WITH (epsilon = -1)": "constant",
    f"{CREATE} WITH (epsilon = 0)": "constant",
    f"{CREATE} WITH (epsilon = 'NaN')": "constant",
    f"{CREATE} WITH (epsilon = NaN)": "constant",
    f"{CREATE} WITH (epsilon = 1e999999999)": "constant",
    f"{CREATE} WITH (epsilon = (SELECT 1))": "constant",
    f"{CREATE} WITH (epsilon = ?)": "constant",
    f"{CREATE} WITH (epsilon = 1) WITH (epsilon = 2)": "ambiguous",
    f"{CREATE} WITH (epsilon = 1, EPSILON = 2)": "ambiguous",
    f"{CREATE} WITH (epsilon = 1, delta = 0.5)": "clause",
    f'{CREATE} WITH ("epsilon" = 1)': "clause",
    f"{CREATE} WITH (epsilon = 1) LIMIT 1": "clause",
    f"{CREATE} WITH (epsilon = 1": "clause",
    f"{CREATE} WITH (": "clause",
    f"{CREATE} WITH": "syntax",
    f"{CREATE} WITH (epsilon = 1, workload = '(city')": "constant",
    f"{CREATE} WITH (epsilon = 1, workload = '(city) x')": "constant",
    f"{CREATE} WITH (epsilon = 1); DROP TABLE people": "one_statement",
    f"{CREATE} WITH (epsilon = 1); SELECT 1 WITH (epsilon = 1)": "one_statement",
    f"SELECT 1; {CREATE}": "one_statement",
    f"EXPLAIN EXPLAIN {CREATE} WITH (epsilon = 1)": "not_a_select",
    f"EXPLAIN ANALYZE {CREATE} WITH (epsilon = 1)": "not_a_select",
    "CREATE SYNTHETIC TABLE x AS WITH (epsilon = 1)": "syntax",
    "CREATE SYNTHETIC TABLE x AS INSERT INTO people SELECT 1": "syntax",
    "CREATE SYNTHETIC TABLE x AS SELECT city FROM read_csv('x') WITH (epsilon = 1)": "table",
    "CREATE SYNTHETIC TABLE x AS SELECT city FROM 'x.csv' WITH (epsilon = 1)": "table",
    "CREATE SYNTHETIC TABLE x AS SELECT city FROM people) AS a GROUP BY ALL -- WITH (epsilon = 1)": "syntax",
    "CREATE TABLE x AS SELECT city FROM people": "not_a_select",
    "CREATE TEMP TABLE x AS SELECT city FROM people": "not_a_select",
    "CREATE VIEW x AS SELECT city FROM people": "not_a_select",
    "CREATE 'SYNTHETIC' TABLE x AS SELECT city FROM people": "not_a_select",
    "DROP TABLE people": "session_table",
    "DROP TABLE people CASCADE": "syntax",
    "DROP TABLE x, people": "syntax",
    "DROP TABLE": "syntax",
    "DROP VIEW people": "not_a_select",
    "CREATE LOCAL TABLE x AS SELECT RANDOMIZE(city) FROM people UNION ALL SELECT city FROM people": "randomize",
    "CREATE LOCAL TABLE x AS SELECT RANDOMIZE(city), member FROM people": "randomize",
    "CREATE LOCAL TABLE x AS SELECT RANDOMIZE(city) || word FROM people": "randomize",
    "CREATE LOCAL TABLE x AS SELECT RANDOMIZE(city), RANDOMIZE(city, member) FROM people": "randomize",
    'CREATE LOCAL TABLE x AS SELECT "RANDOMIZE"(city) FROM people': "randomize",
    "CREATE LOCAL TABLE x AS SELECT * FROM (SELECT RANDOMIZE(city) FROM people)": "randomize",
    "CREATE LOCAL TABLE x AS SELECT RANDOMIZE(word) FROM people": "synthetic_domain",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_statement_is_read_whole_or_refused(town: Connection, sql: str) -> None:
    """A refused statement charges nothing, makes no table, and points into the analyst's text."""
    before = len(town.engine.ledger.list_entries())
    with pytest.raises(dpsql.Error) as caught:
        town.query(sql, [1] if "?" in sql else ())
    assert caught.value.code == REFUSED[sql]
    assert caught.value.position is None or caught.value.text == sql
    assert len(town.engine.ledger.list_entries()) == before
    assert not town.list_session_tables()


def test_comments_hide_nothing() -> None:
    """Options in comments are none, and what is left of the text stands where it stood."""
    sql = "/* CREATE */ create -- WITH (epsilon = 9)\nSynthetic table /* t */ T2 as SELECT a /* , b */ FROM t\nWITH (epsilon = 0.5) ; -- end"
    found = parse_session_statement(sql)
    assert isinstance(found, CreateTable)
    assert (found.name, found.options, found.replaces) == ("T2", {"epsilon": 1 / 2}, False)
    start = sql.index("SELECT a")
    assert len(found.query) == len(sql)
    assert found.query.strip() == "SELECT a /* , b */ FROM t"
    assert found.query[start:].startswith("SELECT a")


@pytest.mark.parametrize(
    "sql", ["SELECT 'create synthetic table'", "SELECT 1 AS drop_table", "create_table", "DROP"]
)
def test_statement_words_in_quotes_are_ignored(sql: str) -> None:
    """Words in texts and names make no statement about tables."""
    assert parse_session_statement(sql) is None


def test_session_table_shadows_no_table() -> None:
    """Private tables stay private whatever session tables exist, and many writes are refused."""
    con = world(*(person(who) for who in range(30)))
    con.query("CREATE SYNTHETIC TABLE x AS SELECT city FROM people WITH (epsilon = 3)")
    for sql in (
        "SELECT x.city FROM people AS x",
        "SELECT city FROM main.people",
        "SELECT city FROM x, main.people",
        "SELECT city FROM x WHERE city IN (SELECT word FROM memory.main.people)",
        "SELECT * FROM main.x",
        "SELECT * FROM information_schema.tables, x",
        "WITH x AS (SELECT * FROM x) SELECT * FROM x",
        "WITH x AS (SELECT city FROM people) SELECT city FROM x",
    ):
        with pytest.raises(dpsql.QueryRejected):
            con.query(sql, epsilon=1)
    with pytest.raises(dpsql.NotSupportedError):
        con.cursor().executemany("CREATE SYNTHETIC TABLE y AS SELECT city FROM people", [()])
    for planned in (con.plan, con.combine, con.budget):
        with pytest.raises(dpsql.QueryRejected):
            planned("CREATE SYNTHETIC TABLE y AS SELECT city FROM people WITH (epsilon = 1)")  # type: ignore[operator]
    assert len(con.engine.ledger.list_entries()) == 1


def test_successive_sessions_share_no_tables() -> None:
    """A connection that several sessions use keeps nothing of one for the next."""
    con = world(person(1))
    con.disable_session_tables()
    with pytest.raises(dpsql.QueryRejected, match="session tables are not supported on a server"):
        con.query("CREATE SYNTHETIC TABLE x AS SELECT city FROM people WITH (epsilon = 1)")
    with pytest.raises(dpsql.QueryRejected, match="session tables are not supported on a server"):
        con.plan("CREATE SYNTHETIC TABLE x AS SELECT city FROM people WITH (epsilon = 1)")
    assert not con.engine.ledger.list_entries()

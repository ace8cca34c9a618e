"""Other dialects are read as what they mean in DuckDB's SQL, or refused; nothing changes its meaning silently."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from typing import Any

import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.dialects import TITLES
from dpsql.policy.request.query import Query
from dpsql.sql.parse import translated_places
from dpsql.sql.parse.typed_calls import PREFIX
from tests.sql.damage import damage
from tests.sql.fixture_files import Fixture, dialects, fixtures
from tests.sql.study import NO_NOISE, NOON, prepare, study


def prepared(connection: Connection, fixture: Fixture) -> QueryRun:
    """Everything that is decided about a query in the dialect of its file."""
    loss = Fraction(NO_NOISE)
    user_query = Query(fixture.query, fixture.parameters, None, default=loss, dialect=fixture.file, time=NOON)
    return plan_and_match(connection.engine, user_query)


def those(field: str) -> list[Fixture]:
    """The fixtures that say `field`."""
    return [fixture for fixture in dialects() if fixture.field(field) is not None]


@pytest.mark.parametrize("fixture", those("duckdb"), ids=str)
def test_translation_means_the_duckdb_query(connection: Connection, fixture: Fixture) -> None:
    """The plan is that of the query in DuckDB's SQL, and so is the answer, which DuckDB computes."""
    theirs = prepare(connection, fixture.field("duckdb") or "", fixture.parameters)
    assert prepared(connection, fixture).outer == theirs.outer
    result = connection.query(fixture.query, fixture.parameters, dialect=fixture.file)
    assert result.rows == connection.query(fixture.field("duckdb") or "", fixture.parameters).rows
    assert result.receipt.query == fixture.query


@pytest.mark.parametrize("fixture", those("value"), ids=str)
def test_results_are_those_of_the_manual(connection: Connection, fixture: Fixture) -> None:
    """Run in DuckDB, a query on constants has the value that it has where it was written."""
    result = connection.query(fixture.query, dialect=fixture.file)
    assert list(result.rows) == eval(fixture.field("value") or "", {"dt": dt})


@pytest.mark.parametrize("fixture", those("code"), ids=str)
def test_refused_query_names_its_position(connection: Connection, fixture: Fixture) -> None:
    """An ambiguous query is refused at its position in the user's or the translated text."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(connection, fixture)
    assert caught.value.code == fixture.field("code")
    place = fixture.field("at")
    assert place is None or place == f"{caught.value.position}".replace("line ", "").replace(", column ", ":")


def test_each_dialect_has_a_file() -> None:
    """The five dialects, and no others, have fixtures of all three kinds."""
    for field in ("duckdb", "value", "code"):
        assert {fixture.file for fixture in those(field)} == set(TITLES)


def test_error_after_translation_shows_the_text_of_the_user(connection: Connection) -> None:
    """An error that is found in the translation has its place in the text that was sent."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.query("SELECT plan,\n AVG(csot::float8) AS c FROM visits GROUP BY 1", dialect="postgres")
    assert str(caught.value).splitlines() == [
        "there is no column csot (line 2, column 6)",
        "   AVG(csot::float8) AS c FROM visits GROUP BY 1",
        "       ^",
        "hint: did you mean cost?",
    ]


@pytest.mark.parametrize("dialect", ["postgres", "tsql"])
def test_no_column_is_named_by_a_reserved_call(connection: Connection, dialect: str) -> None:
    """A column without a name is called by what the user wrote, also behind a star."""
    for sql in (
        "SELECT SUM(age) / COUNT(*) FROM visits",
        "SELECT * FROM (SELECT COUNT(*) / 2 FROM visits) AS t",
    ):
        (name,) = connection.query(sql, dialect=dialect).columns
        assert "dpsql" not in str(name)


@pytest.mark.parametrize("dialect", ["duckdb", *TITLES])
def test_reserved_calls_are_refused_in_a_users_text(connection: Connection, dialect: str) -> None:
    """Only a translation may write the calls whose meaning depends on types."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.query("SELECT COUNT(*) FROM visits WHERE dpsql_as_quotient(age, 2) = 3", dialect=dialect)
    assert caught.value.code == "function"


@pytest.mark.parametrize("dialect", ["duckdb", *TITLES])
@pytest.mark.parametrize("text", ["1 day x", "1 day ago", "1 day 01:00:00", "@ 1 day", "1 day, 2 hours"])
def test_all_words_of_an_interval_are_read(connection: Connection, dialect: str, text: str) -> None:
    """Words that are not understood are refused, wherever they stand in the text."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.query(f"SELECT DATE '2026-01-01' + INTERVAL '{text}' AS d", dialect=dialect)
    assert caught.value.code == "constant"


@pytest.mark.parametrize("name", ["mysql", "", "DuckDB ", "postgres; DROP TABLE visits"])
def test_unknown_dialect_is_refused(connection: Connection, name: str) -> None:
    """The error lists those that are known, wherever a dialect is named."""
    asks = (
        lambda: (
            connection.query("SELECT 1", dialect=name) if name else dpsql.connect({}, policy={}, dialect=name)
        ),
        lambda: dpsql.connect({}, policy={}, dialect=name),
    )
    for ask in asks:
        with pytest.raises(dpsql.ProgrammingError) as caught:
            ask()
        assert caught.value.code == "dialect"
        assert caught.value.hint == "there are: duckdb, postgres, spark, snowflake, bigquery, tsql"


def test_connection_dialect_is_a_default() -> None:
    """`connect` says it for queries that name none."""
    with study(dialect="tsql") as opened:
        assert opened.query("SELECT TOP 1 [plan] FROM plans").rows == (("A",),)
        assert opened.query("SELECT plan FROM plans LIMIT 1", dialect="duckdb").rows == (("A",),)
        assert opened.cursor().execute("SELECT `plan` FROM plans LIMIT 1", dialect="spark").fetchall() == [
            ("A",)
        ]
        assert "free" in str(opened.explain("SELECT TOP 1 [plan] FROM plans"))
        assert "free" in str(opened.query("/* why */ EXPLAIN SELECT TOP 1 [plan] FROM plans"))


@pytest.mark.parametrize("dialect", TITLES)
def test_any_text_is_answered_or_refused(connection: Connection, dialect: str) -> None:
    """Sentences of DuckDB's fixtures and damaged ones of the dialect's own, read as the dialect's."""
    texts = [fixture.query for fixture in fixtures()][::5]
    own = [fixture.query for fixture in dialects() if fixture.file == dialect]
    texts += [damage(seed, own) for seed in range(300)]
    outcomes = {_outcome(connection, text, dialect) for text in texts}
    assert {None, "syntax", "function"} <= outcomes


def _outcome(connection: Connection, text: str, dialect: str) -> str | None:
    try:
        plan_and_match(
            connection.engine,
            Query(text, (5,) * text.count("?"), None, default=Fraction(NO_NOISE), dialect=dialect),
        )
    except dpsql.Error as error:
        return error.code
    return None


@pytest.mark.parametrize("dialect", ["duckdb", *TITLES])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 200 + "1" + ")" * 200,
        "SELECT " + "- " * 500 + "1",
        "SELECT " + "NOT " * 500 + "TRUE",
        "SELECT " + "CASE WHEN " * 300 + "1",
        "SELECT COUNT(*) FROM visits WHERE " + " OR ".join(["age = 1"] * 20_000),
        "SELECT " + " + ".join(["1"] * 5_000),
        "SELECT '" + "x" * 600_000 + "'",
        "SELECT \0",
        "SELECT \ud800",
        "SELECT 'open",
        "",
        ";",
        "SELECT 1; SELECT 2",
        "SELECT COUNT(*) FROM visits" + " JOIN regions" * 40,
        "SELECT COUNT(*) FROM visits" + " JOIN regions JOIN regions ON TRUE" * 40,
    ],
    ids=range(15),
)
def test_texts_beyond_the_limits_are_refused(connection: Connection, dialect: str, text: str) -> None:
    """The limits of length and depth hold before anything is translated."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.query(text, dialect=dialect)
    assert caught.value.code in {"too_long", "too_deep", "syntax", "one_statement", "type"}


@pytest.mark.parametrize(
    ("dialect", "written"),
    [("tsql", "@age"), ("bigquery", "@age"), ("postgres", ":age"), ("snowflake", ":age")],
)
def test_parameters_are_given_by_name(connection: Connection, dialect: str, written: str) -> None:
    """Each dialect's spelling works, also twice; the same query with ? is replayed."""
    named = f"SELECT COUNT(*) AS n FROM visits WHERE age > {written} OR region > {written}"
    result = connection.query(named, {"age": 30}, dialect=dialect)
    assert (
        result.rows
        == connection.query("SELECT COUNT(*) AS n FROM visits WHERE age > ? OR region > ?", [30, 30]).rows
    )


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("snowflake", "SELECT COUNT(*) FROM PUBLIC . . visits"),
        ("tsql", "SELECT COUNT(*) FROM visits WHERE day > DATEFROMPARTS( , 2, 30)"),
        ("tsql", "SELECT DATEDIFF(hour, SELECT COUNT(*) FROM b ('x'), CAST('2026-01-01' AS DATETIME2))"),
        ("tsql", "SELECT DATEDIFF(, CAST('2026-01-01' AS DATETIME2), CAST('2026-01-01' AS DATETIME2))"),
        ("tsql", "SELECT AVG(DATEDIFF(day, 9223372036854775807, day)) AS d FROM visits"),
        ("tsql", "SELECT CONVERT(9223372036854775807) FROM visits"),
        ("tsql", "SELECT COUNT(*) FROM visits WHERE CONVERT(1, seen) > '2026-01-03'"),
        ("tsql", "SELECT SUM(ISNULL(age, ORDER BY 0.5)) AS s FROM visits"),
        ("bigquery", "SELECT RANK() FILTER (WHERE plan = 'A') OVER (ORDER BY plan) visits GROUP BY plan"),
        ("bigquery", "SELECT SPLIT_PART(region) AS a FROM visits"),
        ("spark", "SELECT LENGTH(ORDER BY 'b')"),
    ],
)
def test_call_without_its_arguments_is_refused(connection: Connection, dialect: str, text: str) -> None:
    """What the parser's library reads with parts that are missing is refused like any other text."""
    with pytest.raises(dpsql.QueryRejected):
        connection.query(text, dialect=dialect)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bigquery", "SELECT COUNT(*) FROM visits WHERE DATE_SUB(day, INTERVAL 1 DAY) << 2"),
        ("bigquery", "SELECT SUM(CAST(cost AS INT64)).s FROM visits"),
        ("snowflake", "SELECT TO_CHAR(day AS 'YYYY-MM') AS m, COUNT(*) FROM visits GROUP BY 1"),
    ],
)
def test_no_error_shows_a_reserved_call(connection: Connection, dialect: str, text: str) -> None:
    """An error names nothing that only a translation writes."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.query(text, dialect=dialect)
    assert PREFIX not in str(caught.value)


def test_no_position_is_looked_for_in_a_repetitive_text(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search would compare all pairs of equal words for each piece that it aligns."""
    aligned = list[int]()
    search = translated_places.SequenceMatcher

    def align(*args: Any, **options: Any) -> Any:
        aligned.append(1)
        return search(*args, **options)

    monkeypatch.setattr(translated_places, "SequenceMatcher", align)
    for parts, times in ((2, 1), (257, 0)):
        aligned.clear()
        text = " UNION ALL ".join(["SELECT 1"] * parts) + " UNION ALL SELECT unknown"
        with pytest.raises(dpsql.QueryRejected):
            connection.query(text, dialect="postgres")
        assert len(aligned) == times

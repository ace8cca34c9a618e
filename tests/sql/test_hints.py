"""Refusals say in the user's own words what is wrong, and what to write instead."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query
from tests.sql.fixture_files import dialects, refused
from tests.sql.hints import hints
from tests.sql.rewrites import REWRITES, Rewrite
from tests.sql.study import NO_NOISE, NOON, prepare

WORDS = {
    "SELECT cost FROM visits": ("row by row", "AVG(cost)"),
    "SELECT plan, COUNT(*) FROM visits": ("plan is neither in GROUP BY", "COUNT(plan)"),
    "SELECT patient_id FROM visits WHERE cost > 900": ("row by row", "COUNT(DISTINCT patient_id)"),
    "SELECT patient_id, COUNT(*) FROM visits": ("patient_id is neither", "COUNT(DISTINCT patient_id)"),
    "SELECT note[1] FROM visits": ("not supported: note[1]", "SUBSTRING(note, 1, 1)"),
    "SELECT COUNT(*) FROM visits v WHERE v.note[2:4] = 'a'": ("v.note[2:4]", "SUBSTRING(v.note, 2, 3)"),
    "SELECT COUNT(*) FROM visits WHERE note[-1] = 'a'": ("note[-1]", "RIGHT(note, 1)"),
    "SELECT REGR_COUNT(cost, age) FROM visits": ("REGR_COUNT is not supported", "COUNT(*) FILTER"),
    "SELECT MODE(DISTINCT note) FROM visits": ("one column or expression", "ORDER BY COUNT(*) DESC LIMIT 1"),
    "SELECT plan, MODE(region) FROM visits GROUP BY plan": (
        "MODE is not supported with GROUP BY",
        "GROUP BY k, x",
    ),
    "SELECT ARG_MAX(plan, cost) FROM visits": (
        "would release one row's value",
        "ORDER BY SUM(x) DESC LIMIT 1",
    ),
    "SELECT STRING_AGG(plan) FROM visits": (
        "would release the value of each row",
        "SELECT x, COUNT(*) … GROUP BY x",
    ),
    "SELECT PRODUCT(age) FROM visits": ("one row decides how large a product is", "GEOMEAN(x)"),
    "SELECT bit_or(age) FROM visits": ("one row decides a bit", "COUNT_IF((x & 4) = 4)"),
    "SELECT HISTOGRAM(cost) FROM visits": (
        "public values of which none",
        "list the bins, HISTOGRAM(x, [10, 20])",
    ),
    "SELECT note, HISTOGRAM(cost, [9]) FROM visits GROUP BY note": (
        "and public groups",
        "GROUP BY k, bin",
    ),
    "SELECT COUNT(note COLLATE NOCASE) FROM visits": ("compared by their bytes", "LOWER(note)"),
    'SELECT COUNT(note COLLATE "C") FROM visits': ("compared by their bytes", "note without COLLATE"),
    "SELECT main.upper(note), COUNT(*) FROM visits GROUP BY 1": ("called after a dot", "UPPER(note)"),
    "SELECT COUNT(*) FROM visits v WHERE main.trim(v.note).left(2) = 'a'": (
        "called after a dot",
        "LEFT(TRIM(v.note), 2)",
    ),
    "SELECT SUM(COLUMNS(['cost'])) FROM visits": ("stands for several columns", "SELECT SUM(cost)"),
    "SELECT AVG(COLUMNS('cost|age')) FROM visits": ("stands for several columns", "AVG(age), AVG(cost)"),
    "SELECT COUNT(*) FROM visits WHERE list_contains(note, 'x')": ("are read as rows", "UNNEST(t.list)"),
    "SELECT COUNT(*) FROM visits WHERE note ILIKE ANY ('a%', 'b%')": (
        "not supported after ILIKE",
        "note ILIKE 'a%' OR note ILIKE 'b%'",
    ),
    "SELECT COUNT(*) FROM visits WHERE note LIKE ALL (['a%', 'b%'])": (
        "not supported after LIKE",
        "note LIKE 'a%' AND note LIKE 'b%'",
    ),
    "SELECT MIN(note) FROM visits": ("does not take VARCHAR", "SELECT note, COUNT(*) … GROUP BY note"),
    "SELECT SUM(day) FROM visits": ("does not take DATE", "DATE_DIFF('day', DATE '2000-01-01', day)"),
    "SELECT COUNT(*) FROM (SELECT v.cost FROM regions r LEFT JOIN visits v ON region = id)": (
        "a row of r without a row of v",
        "FROM v LEFT JOIN r",
    ),
    "SELECT COUNT(*) FROM visits v JOIN (SELECT x FROM range(2000) q(x) ORDER BY x LIMIT 1500) r ON r.x < age": (
        "r is computed before it is joined, and has more than 1,000 rows",
        "join the public table itself",
    ),
    "SELECT COUNT(*) FROM (SELECT * FROM devices) q, UNNEST(q.tags) AS u(x)": (
        "the list tags cannot be unnested outside of q",
        "FROM devices, UNNEST(devices.tags)",
    ),
    "SELECT COUNT(*) FROM devices d, UNNEST(d.kind) AS u(x)": ("d.kind is not a list", "max_elements"),
    "SELECT (SELECT MAX(price) FROM plans) AS m, plan, COUNT(*) FROM visits GROUP BY ALL": (
        "GROUP BY ALL makes (SELECT MAX(price) FROM plans) a group key",
        "GROUP BY plan",
    ),
    "SELECT 'a' AS k, COUNT(*) FROM plans GROUP BY ALL": (
        "GROUP BY ALL makes 'a' a group key",
        "leave GROUP BY ALL out",
    ),
    "SELECT plan FROM visits INTERSECT ALL SELECT plan FROM plans": (
        "as often as both sides",
        "LEAST(a.n, b.n)",
    ),
    "SELECT plan FROM visits EXCEPT ALL SELECT plan FROM plans": ("more often", "GREATEST(a.n - COALESCE"),
    "SELECT COUNT(*) FROM visits WHERE age IN": ("at least one value", "x IN (1, 2)"),
    "SELECT SUM(cost ORDER BY age) FROM visits": ("ORDER BY is not supported in SUM(…)", "SUM(cost)"),
    "SELECT COUNT(*) FROM visits WHERE note = $$Fever$$": ("dollar quotes", "write 'Fever'"),
    "SELECT HISTOGRAM(age, [0, 9223372036854775807]) FROM visits": ("below the greatest", "last end"),
    "SELECT SUM(weight * 2 + 1) FROM visits": ("((weight * 2) + 1) has no bounds", "LEAST"),
}


UNREACHED = frozenset(
    {
        "write CAST(x AS DATE)",
        "send each SELECT as its own query",
        "aggregate it: MIN(x)",
        "compare with one value: x > (SELECT MAX(y) FROM …)",
        "name the field of a STRUCT: (s).field",
        "move it to WHERE",
        "leave out EXCLUDE, or use DuckDB",
        "write QUANTILE_DISC or MEDIAN, or use DuckDB; the reference of engines lists the supported quantiles",
    }
)
"""Hints of refusals that stand behind others, or are another engine's: no statement to DuckDB is known that reaches them."""
CALLS = frozenset(
    {
        "WHERE x > :low",
        "remove TABLESAMPLE UNITS",
        "con.synthetic('SELECT age, plan FROM visits WHERE cost > 10', epsilon=1)",
        "SELECT age, FLOOR(cost / 10) AS cost FROM …",
        "SELECT plan, COUNT(*) AS n, AVG(age) AS age FROM r WHERE smoker GROUP BY plan ORDER BY n DESC",
        "DROP TABLE s",
        "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(smoker) AS smoker FROM patients WITH (epsilon = 1)",
        "CREATE SYNTHETIC TABLE s AS SELECT plan, ward FROM visits WITH (epsilon = 1)",
        "… = FALSE",
        "only CREATE SYNTHETIC TABLE and CREATE LOCAL TABLE are supported, in Python and in the shell; the owner makes all other tables",
        "DROP TABLE only drops tables of a connection, in Python and in the shell; the owner drops all others",
        "list the values in the policy, or group them: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
        "use con.synthetic(…, method='mst'), fewer columns, or groups of values: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
    }
)
"""Hints to a call with parameters, to statements about tables of a session, or of another method, which have tests of their own in tests/api."""


@pytest.mark.parametrize(("sql", "words"), WORDS.items(), ids=WORDS)
def test_refusals_say_the_rule_and_what_to_write(
    connection: Connection, sql: str, words: tuple[str, str]
) -> None:
    """The message names what was written, the hint something that would pass in its place."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, sql)
    assert words[0] in str(caught.value)
    assert words[1] in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lenght", "LENGTH(s)"),
        ("uper", "UPPER(s)"),
        ("sqrtt", "SQRT(x)"),
        ("cuont", "COUNT(x)"),
        ("cnt", None),
        ("foo", None),
        ("read_text", None),
        ("average", "AVG(x)"),
    ],
)
def test_only_a_close_name_is_proposed(connection: Connection, name: str, said: str | None) -> None:
    """One that begins with the same letter and differs in one letter of four: no function that is similar by chance."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, f"SELECT {name}(note) FROM visits")
    assert caught.value.code == "function"
    assert (said or "None") in str(caught.value.hint)


@pytest.mark.parametrize(
    "call", ["count(age ORDER BY cost)", '"count"(age)', "count(x := age)", "count(age, 1)"]
)
def test_nothing_is_proposed_for_a_name_that_exists(connection: Connection, call: str) -> None:
    """An aggregate in a form that is not supported is no misspelt function."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, f"SELECT {call} FROM visits")
    assert "did you mean" not in str(caught.value.hint)


def _list_parser_words() -> frozenset[str]:
    """The names that the parser has for its nodes and their arguments, but for words of SQL and names of functions."""
    with duckdb.connect() as database:
        known = database.execute(
            "SELECT keyword_name FROM duckdb_keywords() UNION SELECT function_name FROM duckdb_functions()"
            " UNION SELECT type_name FROM duckdb_types()"
        ).fetchall()
    classes = [each for each in vars(exp).values() if isinstance(each, type) and issubclass(each, exp.Expr)]
    names = {each.key for each in classes}
    names |= {name.lower() for name, each in exp.FUNCTION_BY_NAME.items()}
    # In English, these are plain words of any text.
    plain = {
        "column",
        "table",
        "list",
        "alias",
        "rows",
        "where",
        "from",
        "query",
        "value",
        "condition",
        "tag",
    }
    return frozenset(names - {str(word).lower() for (word,) in known} - plain - SQL_WORDS)


SQL_WORDS = frozenset({"percentile_cont", "percentile_disc"})
"""Words of SQL that DuckDB does not list among its key words and functions."""


def test_no_refusal_has_a_word_of_the_parser(connection: Connection) -> None:
    """The parser's names for nodes and arguments are no words of SQL: a message shows the user's own SQL."""
    words, found = _list_parser_words(), dict[str, set[str]]()
    statements = [(each.query, each.parameters, "duckdb") for each in refused()]
    statements += [(text, (), "duckdb") for text in WORDS]
    calls = (
        "md5(note)",
        "bit_xor(age)",
        "bool_and(urgent)",
        "generate_series(1, age)",
        "var_pop(age)",
        "-note",
        "strftime(age)",
    )
    statements += [
        (f"SELECT plan, {call} OVER (ORDER BY plan) FROM visits GROUP BY plan", (), "duckdb")
        for call in calls[:5]
    ]
    statements += [(f"SELECT COUNT(*) FROM visits WHERE {call} = 1", (), "duckdb") for call in calls]
    statements += [(each.query, each.parameters, each.file) for each in dialects() if each.field("code")]
    for text, parameters, dialect in statements:
        with pytest.raises(dpsql.Error) as caught:
            _prepared(connection, text, parameters, dialect)
        said = f"{caught.value.message} {caught.value.hint}"
        own = set(re.findall(r"\w+", text.lower()))
        # In small letters a word may be plain English.
        odd = {word for word in re.findall(r"\b[A-Z][A-Z_0-9]+\b", said) if word.lower() in words - own}
        odd |= {word for word in re.findall(r"\bthe function (\w+)", said) if word in words - own}
        if odd:
            found[text] = odd
    assert found == {}


def test_unreadable_type_can_be_cast_in_a_view() -> None:
    """No policy can declare the database's type, so the hint proposes a view."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t (id BIGINT, seen TIMETZ)")
    table = {"unit": "id", "rows_per_unit": 1, "columns": {"seen": {"type": "time"}}}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": {"t": table}}
    with (
        pytest.raises(dpsql.PolicyError) as caught,
        dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con,
    ):
        con.explain("SELECT COUNT(*) FROM t")
    assert caught.value.code == "column_type"
    assert "a view that casts it to TIME" in str(caught.value.hint)
    database.execute("CREATE VIEW v AS SELECT id, CAST(seen AS TIME) AS seen FROM t")
    policy["tables"] = {"v": table}
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.explain("SELECT COUNT(*) FROM v")


@pytest.mark.whole
@pytest.mark.parametrize("rewrite", REWRITES, ids=str)
def test_refused_statement_can_be_rewritten(connection: Connection, rewrite: Rewrite) -> None:
    """The refusal has a hint, and what follows it is answered."""
    assert _hint(connection, rewrite.refused, rewrite.parameters, rewrite.dialect)
    assert _prepared(connection, rewrite.instead, rewrite.parameters, rewrite.dialect)


def test_every_hint_that_quotes_sql_has_a_rewrite(connection: Connection) -> None:
    """Each such hint in the source has a statement that shows that it works."""
    said = {_hint(connection, each.refused, each.parameters, each.dialect) for each in REWRITES}
    untried = {str(hint) for hint in hints() if hint.quotes and not any(map(hint.says, said))}
    assert untried == UNREACHED | CALLS


def test_refusal_names_no_table_of_the_plan(connection: Connection) -> None:
    """Subqueries without a name have one that begins with #, which no user knows."""
    statements = [
        (each.query, each.parameters) for each in refused() if each.field("code") != "reserved_name"
    ]
    statements += [(each.refused, each.parameters) for each in REWRITES if each.dialect == "duckdb"]
    said = []
    for text, parameters in statements:
        with pytest.raises(dpsql.Error) as caught:
            prepare(connection, text, parameters)
        said.append(f"{caught.value.message} {caught.value.hint}")
    assert [text for text in said if re.search(r"#\d", text)] == []


@pytest.mark.deep
def test_source_has_every_hint_of_a_refusal(connection: Connection) -> None:
    """The search for hints in the source finds those of all refused statements."""
    statements = [(each.query, each.parameters) for each in refused()] + [(text, ()) for text in WORDS]
    found = {_hint(connection, text, parameters) for text, parameters in statements} - {""}
    assert [text for text in found if not any(hint.says(text) for hint in hints())] == []


def _prepared(
    connection: Connection, text: str, parameters: tuple[Any, ...] = (), dialect: str = "duckdb"
) -> QueryRun:
    return plan_and_match(
        connection.engine,
        Query(text, parameters, None, default=Fraction(NO_NOISE), dialect=dialect, time=NOON),
    )


def _hint(
    connection: Connection, text: str, parameters: tuple[Any, ...] = (), dialect: str = "duckdb"
) -> str:
    """The hint of a refusal; empty where it has none."""
    with pytest.raises(dpsql.Error) as caught:
        _prepared(connection, text, parameters, dialect)
    return str(caught.value.hint or "")


@pytest.mark.parametrize(
    "name",
    [
        "any_value",
        "listagg",
        "string_agg",
        "group_concat",
        "first",
        "list",
        "array_agg",
        "arbitrary",
        "entropy",
        "product",
        "bit_xor",
    ],
)
def test_refusal_names_the_user_s_words(connection: Connection, name: str) -> None:
    """The refusal uses them instead of the parser's names."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, f"SELECT {name}(cost) FROM visits")
    assert caught.value.message.lower().startswith(f"{name} ")

"""What the registry says of each aggregate of SQL is so: its names, arguments, FILTER, DISTINCT, places and examples."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb.versions import supports
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS, BY_NODE, AggregateContext
from dpsql.sql.lower.aggregates.base import AggregateCall
from dpsql.sql.parse.dialect import ADDED_NODES, Parser
from dpsql.sql.parse.parse import parse_statement
from tests.sql.sentences import in_grammar
from tests.sql.study import clinic, prepare
from tests.sql.summary import summary

entries = pytest.mark.parametrize("entry", AGGREGATE_CALLS, ids=lambda entry: entry.names[0])
_PLACES = {
    AggregateContext.ACROSS_UNITS: "SELECT {} FROM visits",
    AggregateContext.WITHIN_UNIT: "SELECT COUNT(v) FROM (SELECT patient_id, {} AS v FROM visits GROUP BY patient_id)",
    AggregateContext.OVER_RELEASES: "SELECT {} FROM (SELECT plan, COUNT(*) AS cost, COUNT(age) AS age FROM visits GROUP BY plan)",
    AggregateContext.OVER_PUBLIC: "SELECT {} FROM (SELECT plan, price + 1 AS cost, price + 2 AS age FROM prices)",
    AggregateContext.WINDOW: "SELECT plan, {} OVER () FROM (SELECT plan, price AS cost, price AS age FROM prices)",
}
"""A query for each place. What is released or public gets the names of private columns."""
_OWN = frozenset({"CHOOSE"})
"""Names that DuckDB has not."""
_LATER = {
    "ARG_MAX_NULLS_LAST",
    "ARG_MIN_NULLS_LAST",
    "COMBINE_AGGR",
    "DECIMAL_AVERAGE",
    "LTTB",
    "VARIANT_GROUP_OBJECT",
}
"""Aggregates that DuckDB 1.4 or 1.5 does not have yet."""
_BESIDE_KEYS = "SELECT {} FROM visits GROUP BY plan"
"""Across units, for an aggregate that group keys determine."""


def verdict(connection: Connection, query: str) -> str | None:
    """The code of the refusal, or None for a query that would be answered."""
    try:
        prepare(connection, query)
    except dpsql.Error as error:
        return error.code
    return None


def sample(entry: AggregateCall) -> str:
    """A call in the usual form, over numbers from 1 on and a key."""
    (form, *_) = entry.forms
    return f"{form.names[0]}{form.sample}".format(x="GREATEST(cost, 1)", y="age", k="plan")


def place_of(entry: AggregateCall, place: AggregateContext) -> str:
    """A query for an aggregate in a place."""
    return (
        _BESIDE_KEYS if entry.needs_group_keys and place is AggregateContext.ACROSS_UNITS else _PLACES[place]
    )


@entries
def test_examples_are_accepted(
    connection: Connection, plain: duckdb.DuckDBPyConnection, entry: AggregateCall
) -> None:
    """Each is a sentence of the grammar, and DuckDB reads it; together they show every name of the aggregate."""
    assert entry.accepted
    for query in entry.accepted:
        assert verdict(connection, query) is None, query
        assert in_grammar(query), query
        plain.execute(f"EXPLAIN {query}")
    said = " ".join(entry.accepted)
    shown = {name.replace("_", "") for name in entry.names if f"{name}(" in said}
    assert shown == {name.replace("_", "") for name in entry.names} - _OWN


@entries
def test_examples_are_refused(connection: Connection, entry: AggregateCall) -> None:
    """Each refusal has the entry's code."""
    assert entry.refused
    assert {query: verdict(connection, query) for query in entry.refused} == dict(entry.refused)


@entries
def test_names_belong_to_one_aggregate(entry: AggregateCall) -> None:
    """The parser reads each name as a node of the entry, and no two entries share a name."""
    for form in entry.forms:
        for name in form.names:
            call = f"{name}{form.sample}".format(x="a", y="b", k="c")
            query = parse_statement(f"SELECT {call} FROM visits").query
            found = {type(node) for node in query.walk() if isinstance(node, exp.AggFunc)}
            assert len(found) == 1
            assert {BY_NODE[node] for node in found} == {entry}
    others = {name for other in AGGREGATE_CALLS if other is not entry for name in other.names}
    assert others.isdisjoint(entry.names)


@entries
@pytest.mark.parametrize("place", AggregateContext, ids=lambda place: place.value)
def test_aggregates_are_accepted_in_their_contexts_only(
    connection: Connection, entry: AggregateCall, place: AggregateContext
) -> None:
    """Every other context refuses them."""
    found = verdict(connection, place_of(entry, place).format(sample(entry)))
    assert (found is None) == (place in entry.contexts), found


@entries
def test_number_of_arguments_is_checked(connection: Connection, entry: AggregateCall) -> None:
    """Another number of arguments is refused."""
    place = (
        AggregateContext.ACROSS_UNITS
        if AggregateContext.ACROSS_UNITS in entry.contexts
        else AggregateContext.WITHIN_UNIT
    )
    of = "plan" if entry.needs_group_keys else "GREATEST(cost, 1)"
    for number in range(5):
        called = f"{entry.names[0]}({', '.join([of] * number)})"
        found = verdict(connection, place_of(entry, place).format(called))
        assert found is not None or number in entry.arity, called


@entries
def test_filter_is_accepted_where_the_entry_says_so(connection: Connection, entry: AggregateCall) -> None:
    """FILTER is refused, or means what CASE does in the argument."""
    place = (
        AggregateContext.ACROSS_UNITS
        if AggregateContext.ACROSS_UNITS in entry.contexts
        else AggregateContext.WITHIN_UNIT
    )
    query = place_of(entry, place).format(f"{sample(entry)} FILTER (WHERE age > 30)")
    if not entry.filters:
        assert verdict(connection, query) == "aggregate"
        return
    (form, *_) = entry.forms
    first = form.sample.removesuffix(")").partition(",")[0]
    chosen = form.sample.replace(first, f"(CASE WHEN age > 30 THEN {first[1:]} END", 1)
    written = f"{form.names[0]}{chosen}".format(x="GREATEST(cost, 1)", y="age", k="plan")
    there = prepare(connection, _PLACES[place].format(written))
    assert _without_name(summary(prepare(connection, query))) == _without_name(summary(there))


def _without_name(text: str) -> str:
    """A summary without the outputs' line, which names them as they were written."""
    return text.partition("\n")[2]


@entries
def test_distinct_is_accepted_where_the_entry_says_so(connection: Connection, entry: AggregateCall) -> None:
    """DISTINCT is taken, or refused in every place."""
    found = {
        verdict(connection, place_of(entry, place).format(sample(entry).replace("(", "(DISTINCT ", 1)))
        for place in (AggregateContext.ACROSS_UNITS, AggregateContext.WITHIN_UNIT)
    }
    assert (found == {None}) == entry.distinct
    assert (None in found) == entry.distinct


def test_every_aggregate_of_duckdb_is_read_as_one() -> None:
    """A new entry needs no change of the parser; other names are not added to it."""
    with clinic() as plain:
        found = plain.execute("SELECT function_name, function_type FROM duckdb_functions()").fetchall()
    names = {name.upper() for name, kind in found if kind == "aggregate"}
    later = () if supports("overlay") else _LATER
    assert names <= {*Parser.FUNCTIONS, *Parser.FUNCTION_PARSERS}
    for name in ADDED_NODES:
        assert parse_statement(f"SELECT {name}(x, y) FROM t").query.find(exp.AggFunc), name
    assert set(ADDED_NODES).difference(later) <= names | {
        name.upper() for name, kind in found if kind == "macro"
    }


@entries
def test_order_by_in_an_aggregate_is_refused(connection: Connection, entry: AggregateCall) -> None:
    """ORDER BY in a call is refused: rows have no order."""
    for place in (AggregateContext.ACROSS_UNITS, AggregateContext.WITHIN_UNIT):
        query = place_of(entry, place).format(f"{sample(entry)[:-1]} ORDER BY age)")
        assert verdict(connection, query) is not None, query


def test_refusals_list_the_supported_aggregates(connection: Connection) -> None:
    """An aggregate that there is not is refused with the names of all that stand in its place."""
    for place in (AggregateContext.ACROSS_UNITS, AggregateContext.WITHIN_UNIT):
        with pytest.raises(dpsql.QueryRejected) as caught:
            prepare(connection, _PLACES[place].format("LTTB(age, age)"))
        named = (caught.value.hint or "").removeprefix("there are: ").split(", ")
        for entry in AGGREGATE_CALLS:
            assert (entry.signature.partition("(")[0] in named) == (place in entry.contexts)

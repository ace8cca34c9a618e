"""Names, groups, order and joins: what a query means, beyond what the fixtures show."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pytest

from dpsql.api.connection import Connection
from dpsql.errors import DataError, QueryRejected
from dpsql.plan.expressions import Call, Column, Expr, Literal, ReleasedColumn, iterate_columns
from dpsql.plan.nodes import Filter, Join, JoinKind, OuterQuery, Relation, list_scans
from dpsql.plan.tables import Scan
from dpsql.plan.text import format_expression
from dpsql.plan.types import Type, Value
from tests.sql.study import prepare


def lowered(connection: Connection, query: str, parameters: Sequence[Value] = ()) -> OuterQuery:
    return prepare(connection, query, parameters).outer


def code(connection: Connection, query: str) -> str:
    with pytest.raises(QueryRejected) as caught:
        prepare(connection, query)
    return caught.value.code


def where(outer: OuterQuery) -> Expr:
    """The condition of a query without joins."""
    assert isinstance(outer.release.input, Filter)
    return outer.release.input.predicate


def joins(relation: Relation) -> list[Join]:
    match relation:
        case Join():
            return [*joins(relation.left), relation]
        case Filter():
            return joins(relation.input)
        case Scan():
            return []


@pytest.mark.parametrize(
    "name", ["age", "AGE", '"age"', '"Age"', "visits.age", "VISITS.Age", '"Visits"."AGE"', "(visits.age)"]
)
def test_case_quotes_and_qualification_name_one_column(connection: Connection, name: str) -> None:
    """All spellings name one column, shown as in the database."""
    outer = lowered(connection, f"SELECT COUNT({name}) FROM visits")
    (aggregation,) = outer.release.aggregations
    assert isinstance(aggregation.argument, Column)
    assert (aggregation.argument.source, aggregation.argument.name) == ("visits", "age")


def test_alias_replaces_the_table_name(connection: Connection) -> None:
    """A table that has an alias is known by it alone."""
    outer = lowered(connection, 'SELECT SUM(V.age) FROM visits "v"')
    assert [column.source for column in iterate_columns(outer.release.aggregations[0].argument)] == ["v"]
    assert code(connection, "SELECT SUM(visits.age) FROM visits v") == "table"


def test_alias_may_be_the_name_of_another_table(connection: Connection) -> None:
    """Names in FROM hide those of the database."""
    outer = lowered(connection, "SELECT SUM(regions.age) FROM visits AS regions")
    assert list_scans(outer.release.input)[0].table == "visits"


def test_column_of_two_tables_needs_a_qualifier_or_using(connection: Connection) -> None:
    """A name that two tables hold must say which; USING makes it one."""
    join = "SELECT COUNT({}) FROM visits JOIN plans"
    assert code(connection, f"{join} ON visits.plan = plans.plan".format("plan")) == "ambiguous"
    prepare(connection, f"{join} ON visits.plan = plans.plan".format("plans.plan"))
    outer = lowered(connection, f"{join} USING (plan)".format("plan"))
    argument = outer.release.aggregations[0].argument
    assert isinstance(argument, Column)
    assert argument.source == "visits"


def test_using_holds_for_later_joins(connection: Connection) -> None:
    """A column that was merged once is one column for the next USING."""
    outer = lowered(
        connection, "SELECT COUNT(*) FROM visits JOIN plans USING (plan) JOIN prices USING (PLAN)"
    )
    assert [[ours.source for ours, _ in join.on] for join in joins(outer.release.input)] == [["visits"]] * 2


@pytest.mark.parametrize("key", ["age > 40", "1", "older", "(older)", "ALL", '"OLDER"', "visits.age > 40"])
def test_group_by_finds_the_same_key(connection: Connection, key: str) -> None:
    """An expression, its number, its alias and ALL name one key."""
    outer = lowered(connection, f"SELECT age > 40 AS older, COUNT(*) FROM visits GROUP BY {key}")
    assert [format_expression(item.expr) for item in outer.release.keys] == ["(age > 40)"]
    assert [type(output.expr) for output in outer.outputs] == [ReleasedColumn, ReleasedColumn]


@pytest.mark.parametrize("output", ["age + 1 + 1", "(age + 1) * 2", "-(age + 1)", "ABS(age + 1) + COUNT(*)"])
def test_key_is_found_within_an_output(connection: Connection, output: str) -> None:
    """An expression of a key is computed from the released key."""
    outer = lowered(connection, f"SELECT {output} FROM visits GROUP BY age + 1")
    (shown,) = outer.outputs
    assert not list(iterate_columns(shown.expr))
    assert len(outer.release.keys) == 1


@pytest.mark.parametrize("output", ["age", "1 + age", "age + 2", "age + 1.0", "cost + age + 1"])
def test_other_expressions_are_not_the_key(connection: Connection, output: str) -> None:
    """Nothing but the key's own expression, in its own order, is the key."""
    assert code(connection, f"SELECT {output}, COUNT(*) FROM visits GROUP BY age + 1") == "group_by"


def test_equal_keys_are_one(connection: Connection) -> None:
    """A key that is named twice does not split the groups."""
    outer = lowered(connection, 'SELECT COUNT(*) FROM visits GROUP BY plan, visits."PLAN", (plan)')
    assert len(outer.release.keys) == 1


def test_equal_aggregates_are_measured_once(connection: Connection) -> None:
    """The same aggregate in SELECT, HAVING and ORDER BY costs one measurement."""
    query = "SELECT AVG(cost) FROM visits GROUP BY plan HAVING avg( COST ) > 1 ORDER BY AVG(visits.cost)"
    assert len(lowered(connection, query).release.aggregations) == 1


@pytest.mark.parametrize("sort", ["n", "N", "2", "(2)", "COUNT(*)", '("n")'])
def test_order_by_finds_the_same_output(connection: Connection, sort: str) -> None:
    """An alias, a number and the expression order alike."""
    outer = lowered(connection, f"SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan ORDER BY {sort} DESC")
    (item,) = outer.order
    assert item.expr == outer.outputs[1].expr
    assert item.descending
    assert not item.nulls_first


def test_alias_hides_a_column_only_in_order_by(connection: Connection) -> None:
    """A lone name in ORDER BY is the output; in GROUP BY, HAVING and expressions it is the column."""
    query = (
        "SELECT -region AS region FROM visits GROUP BY region HAVING region > 0 ORDER BY region, region + 0"
    )
    outer = lowered(connection, query)
    key = ReleasedColumn("k0", Type.INTEGER)
    assert [format_expression(item.expr) for item in outer.release.keys] == ["region"]
    assert outer.having is not None
    assert format_expression(outer.having) == "(k0 > 0)"
    assert outer.order[0].expr == outer.outputs[0].expr != key
    assert format_expression(outer.order[1].expr) == "(k0 + 0)"


def test_having_is_over_released_values(connection: Connection) -> None:
    """HAVING sees keys, aggregates and aliases, never a row."""
    outer = lowered(
        connection,
        "SELECT plan AS p, SUM(cost) AS total FROM visits GROUP BY p HAVING p <> 'A' AND total > AVG(age)",
    )
    assert outer.having is not None
    assert not list(iterate_columns(outer.having))
    assert [item.function for item in outer.release.aggregations] == ["sum", "avg"]


def test_parameters_keep_the_order_of_the_text(connection: Connection) -> None:
    """The first value is for the first `?` of the text, wherever the parser puts it in its tree."""
    outer = lowered(
        connection,
        "SELECT COUNT(*) * ?, ? FROM visits WHERE age BETWEEN ? AND ? GROUP BY plan HAVING COUNT(*) > ? "
        "ORDER BY SUM(age) + ? OFFSET ? LIMIT ?",
        [1, 2, 30, 40, 5, 6, 7, 8],
    )
    literals = [output.expr for output in outer.outputs]
    assert isinstance(literals[0], Call)
    assert literals[0].arguments[1] == Literal(1, Type.INTEGER)
    assert literals[1] == Literal(2, Type.INTEGER)
    assert format_expression(where(outer)) == "((age >= 30) AND (age <= 40))"
    assert outer.having is not None
    assert format_expression(outer.having) == "(a0 > 5)"
    assert format_expression(outer.order[0].expr) == "(a1 + 6)"
    assert (outer.offset, outer.limit) == (7, 8)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, Type.BOOLEAN),
        (3, Type.INTEGER),
        (0.5, Type.DOUBLE),
        ("it's", Type.VARCHAR),
        (dt.date(2026, 1, 31), Type.DATE),
        (dt.datetime(2026, 1, 31, 12), Type.TIMESTAMP),
        (None, Type.NULL),
    ],
)
def test_parameter_has_the_type_of_its_value(connection: Connection, value: Value, kind: Type) -> None:
    """A parameter is a constant of the value's type."""
    outer = lowered(connection, "SELECT ?, COUNT(*) FROM visits", [value])
    assert outer.outputs[0].expr == Literal(value, kind)


def test_parameter_is_only_a_value(connection: Connection) -> None:
    """SQL in a parameter is text; a parameter names no output and no column."""
    text = "A' OR 'A' = 'A"
    outer = lowered(connection, "SELECT COUNT(*) FROM visits WHERE plan = ?", [text])
    assert where(outer).arguments[1] == Literal(text, Type.VARCHAR)  # type: ignore[union-attr]
    with pytest.raises(QueryRejected):
        prepare(connection, "SELECT plan, COUNT(*) FROM visits GROUP BY ?", [1])


@pytest.mark.parametrize("values", [[], [1, 2]])
def test_number_of_values_is_that_of_the_parameters(connection: Connection, values: list[int]) -> None:
    """A missing or a superfluous value is an error of the program's."""
    with pytest.raises(DataError, match="1 parameters"):
        prepare(connection, "SELECT COUNT(*) + ? FROM visits", values)


@pytest.mark.parametrize(
    "tables",
    [
        "visits JOIN regions ON region = id JOIN plans USING (plan)",
        "regions JOIN visits ON region = id JOIN plans USING (plan)",
        "regions JOIN visits ON id = region JOIN plans ON plans.plan = visits.plan",
        "plans JOIN visits USING (plan) JOIN regions ON region = id",
    ],
)
def test_inner_joins_start_from_the_private_table(connection: Connection, tables: str) -> None:
    """In whatever order inner joins are written, the private rows are followed."""
    outer = lowered(connection, f"SELECT COUNT(*) FROM {tables}")
    first, *rest = list_scans(outer.release.input)
    assert first.table == "visits"
    assert {scan.table for scan in rest} == {"regions", "plans"}
    pairs = {
        (format_expression(ours), theirs.source)
        for join in joins(outer.release.input)
        for ours, theirs in join.on
    }
    assert pairs == {("region", "regions"), ("plan", "plans")}


def test_conditions_of_an_inner_join_filter(connection: Connection) -> None:
    """Conditions other than equalities of keys filter the joined rows."""
    outer = lowered(connection, "SELECT COUNT(*) FROM visits JOIN regions ON region = id AND age > 30")
    assert format_expression(where(outer)) == "(age > 30)"


def test_left_join_makes_the_public_side_nullable(connection: Connection) -> None:
    """A row without a partner has NULL in the public columns, so NULL is a key."""
    facts = {}
    for kind in ("JOIN", "LEFT JOIN"):
        outer = lowered(
            connection, f"SELECT region, COUNT(id) FROM visits {kind} regions ON region = id GROUP BY 1"
        )
        (join,) = joins(outer.release.input)
        argument = outer.release.aggregations[0].argument
        assert isinstance(argument, Column)
        facts[join.kind] = argument.facts.nullable
    assert facts == {JoinKind.INNER: False, JoinKind.LEFT: True}


@pytest.mark.parametrize(
    "tables",
    [
        "regions LEFT JOIN visits ON region = id",
        "plans LEFT JOIN regions ON price = id JOIN visits USING (plan)",
        "visits RIGHT JOIN regions ON region = id",
        "visits FULL JOIN regions ON region = id",
        "visits POSITIONAL JOIN plans",
    ],
)
def test_other_joins_are_refused(connection: Connection, tables: str) -> None:
    """No public row comes in without a private one."""
    assert code(connection, f"SELECT COUNT(*) FROM {tables}") == "join"


def test_position_is_that_of_the_refused_node(connection: Connection) -> None:
    """An error points at line and column of the refused text."""
    with pytest.raises(QueryRejected) as caught:
        prepare(connection, "SELECT COUNT(*)\nFROM visits -- ä\nWHERE urgent\n  AND agee > 3")
    assert str(caught.value.position) == "line 4, column 7"
    assert "did you mean age?" in str(caught.value)

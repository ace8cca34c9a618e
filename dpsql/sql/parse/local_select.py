"""Read a SELECT over a table of the session, and the tables that a statement names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.parse import Statement

# The tables that a statement names, except for those that it defines itself.


def collect_table_names(statement: Statement) -> frozenset[str]:
    """Collect the folded names of tables without a schema; those that a WITH of the statement defines are left out.

    The names only decide where a statement is answered; lowering resolves them again.
    """
    own = {normalize_name(table.alias) for table in statement.query.find_all(exp.CTE)}
    named = {
        normalize_name(table.name)
        for table in statement.query.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not table.args.get("db")
    }
    return frozenset(named - own)


# SELECTs over a randomized table: their keys, counts, sums and means, as SQL over one row for each cell.


CELL = "#cell"
_HINT = "SELECT plan, COUNT(*) AS n, AVG(age) AS age FROM r WHERE smoker GROUP BY plan ORDER BY n DESC"
_CALLS: dict[type[exp.Expr], str] = {exp.Count: "rows", exp.Sum: "total", exp.Avg: "ratio"}


@dataclass(frozen=True, slots=True)
class LocalOutput:
    """A column of the result: the key at `place`; or the number of rows with a value (None for all), total or mean of the value at `place`."""

    name: str
    function: str
    place: int | None
    column: str | None = None
    """The column that is the whole argument, if its values were rounded to its bounds."""


@dataclass(frozen=True, slots=True)
class LocalSelect:
    """A SELECT over a randomized table; `cells` gives the number, the keys, then the values of each cell that fulfills the condition.

    `order` are places of outputs, each with two flags: descending, and NULLs first.
    """

    cells: str
    keys: int
    outputs: tuple[LocalOutput, ...]
    order: tuple[tuple[int, bool, bool], ...]
    limit: int | None


def is_row_select(statement: Statement) -> bool:
    """Return whether a statement shows rows of its tables, and computes nothing across them."""
    select = statement.query
    across = (exp.AggFunc, exp.Window, exp.Distinct, exp.Subquery, exp.Join, exp.CTE, exp.SetOperation)
    return type(select) is exp.Select and not select.args.get("group") and select.find(*across) is None


def parse_local_select(
    statement: Statement, columns: Collection[str], rounded: Collection[str] = ()
) -> LocalSelect:
    """Parse a SELECT over one randomized table with these columns; `rounded` ones only allow totals and means.

    A count, sum or mean is a linear statistic of the rows, or a ratio of two, so that it can be estimated from randomized rows once
    its value in each cell is known. Conditions, keys and arguments may be any expressions over one row.

    Raises QueryRejected (`local_query`, `clause`) for a SELECT with other outputs than keys, COUNT, SUM and AVG.
    """
    source, select = statement.source, statement.query
    if type(select) is not exp.Select or statement.parameters:
        source.refuse(
            select, "local_query", "a query of a local table must be one SELECT without parameters", _HINT
        )
    listed, origin, where, group, order, limit = source.take_arguments(
        select, "expressions", "from_", "where", "group", "order", "limit"
    )
    table = origin.this if isinstance(origin, exp.From) else None
    inner = (node for node in select.find_all(exp.Subquery, exp.Window, exp.Select) if node is not select)
    if not isinstance(table, exp.Table) or any(inner):
        source.refuse(
            origin,
            "local_query",
            "a query of a local table may read no other table and have no subquery",
            _HINT,
        )
    items = [
        (item.this, item.alias) if isinstance(item, exp.Alias) else (item, item.output_name)
        for item in listed
    ]
    keys = _resolve_keys(statement, items, group, {normalize_name(name) for name in columns})
    outputs, values = list[LocalOutput](), list[exp.Expr]()
    for item, name in items:
        output, argument = _parse_output(statement, item, keys, len(values), rounded)
        outputs.append(replace(output, name=name or item.sql("duckdb").lower()))
        values += [] if argument is None else [argument]
    if any(each.find(exp.AggFunc) for each in (*keys, *values)):
        source.refuse(
            select,
            "local_query",
            "a group key or argument must be computed from one row, without aggregates or windows",
            _HINT,
        )
    means = [
        value
        for value, output in zip(values, _list_value_outputs(outputs), strict=True)
        if output.column is None
    ]
    _check_rounded_columns(statement, [*keys, *means, *([] if where is None else [where])], rounded)
    parts = [f'"{CELL}" AS c', *(f"({key.sql('duckdb')}) AS k{place}" for place, key in enumerate(keys))]
    parts += [f"({value.sql('duckdb')}) AS v{place}" for place, value in enumerate(values)]
    condition = "" if where is None else f" WHERE {where.this.sql('duckdb')}"
    cells = f"SELECT {', '.join(parts)} FROM {table.sql('duckdb')}{condition}"
    return LocalSelect(
        cells,
        len(keys),
        tuple(outputs),
        tuple(_resolve_order(statement, items, order)),
        _parse_limit(statement, limit),
    )


def _parse_output(
    statement: Statement, item: exp.Expr, keys: Sequence[exp.Expr], place: int, rounded: Collection[str]
) -> tuple[LocalOutput, exp.Expr | None]:
    """Parse a column of the result without its name, and its argument, the value at `place`."""
    source, function = statement.source, _CALLS.get(type(item))
    if item in keys:
        return LocalOutput("", "key", keys.index(item)), None
    if function is None:
        source.refuse(item, "local_query", "each column must be a key of GROUP BY, COUNT, SUM or AVG", _HINT)
    (argument,) = source.take_arguments(item, "this", big_int=(True,))
    star = isinstance(argument, exp.Star)
    if argument is None or isinstance(argument, exp.Distinct) or (star and function != "rows"):
        source.refuse(
            item,
            "local_query",
            "only COUNT(*), COUNT(x), SUM(x) and AVG(x) can be estimated from a local table",
            _HINT,
        )
    if star:
        return LocalOutput("", function, None), None
    bare = argument.unnest()
    whole = bare.name if isinstance(bare, exp.Column) else ""
    column = next((name for name in rounded if normalize_name(name) == normalize_name(whole)), None)
    return LocalOutput("", function, place, column), argument


def _list_value_outputs(outputs: Sequence[LocalOutput]) -> list[LocalOutput]:
    return [output for output in outputs if output.function != "key" and output.place is not None]


def _check_rounded_columns(statement: Statement, parts: Sequence[exp.Expr], rounded: Collection[str]) -> None:
    """Refuse expressions over columns whose values were rounded to their bounds."""
    ends = {normalize_name(name) for name in rounded}
    for column in (column for part in parts for column in part.find_all(exp.Column)):
        if normalize_name(column.name) in ends:
            statement.source.refuse(
                column,
                "local_query",
                f"values of {column.name} were rounded to its bounds: SUM and AVG are only unbiased for "
                "the column alone",
                _HINT,
            )


def _resolve_keys(
    statement: Statement,
    items: Sequence[tuple[exp.Expr, str]],
    group: exp.Expr | None,
    columns: Collection[str],
) -> list[exp.Expr]:
    """Return the expressions of GROUP BY, for which numbers and aliases may stand; a column goes before an alias."""
    source = statement.source
    if group is None:
        return []
    every = group.args.get("all") is True
    (listed,) = source.take_arguments(group, "expressions", all=(True,))
    if every:
        return list(dict.fromkeys(item for item, _ in items if type(item) not in _CALLS))
    aliases = {normalize_name(name): item for item, name in items if name and type(item) not in _CALLS}
    found = list[exp.Expr]()
    for key in listed:
        item: exp.Expr = key
        if isinstance(key, exp.Literal) and not key.is_string:
            place = int(key.name) - 1 if key.name.isdigit() else -1
            if not 0 <= place < len(items) or type(items[place][0]) in _CALLS:
                source.refuse(key, "ordinal", "GROUP BY names a column that SELECT does not have", _HINT)
            item = items[place][0]
        elif isinstance(key, exp.Column) and not key.table and normalize_name(key.name) not in columns:
            item = aliases.get(normalize_name(key.name), key)
        if isinstance(item, (exp.Rollup, exp.Cube, exp.GroupingSets)):
            source.refuse(
                item, "local_query", "subtotals are not supported here: GROUP BY may only list keys", _HINT
            )
        found.append(item)
    return list(dict.fromkeys(found))


def _resolve_order(
    statement: Statement, items: Sequence[tuple[exp.Expr, str]], order: exp.Expr | None
) -> list[tuple[int, bool, bool]]:
    found = list[tuple[int, bool, bool]]()
    if order is None:
        return found
    (listed,) = statement.source.take_arguments(order, "expressions")
    for each in listed:
        by, descending, first = statement.source.take_arguments(each, "this", "desc", "nulls_first")
        place = next(
            (
                place
                for place, (item, name) in enumerate(items)
                if by == item
                or (
                    isinstance(by, exp.Column)
                    and not by.table
                    and name
                    and normalize_name(by.name) == normalize_name(name)
                )
                or (isinstance(by, exp.Literal) and by.name == str(place + 1) and not by.is_string)
            ),
            None,
        )
        if place is None:
            statement.source.refuse(by, "local_query", "ORDER BY must name a column of the result", _HINT)
        found.append((place, bool(descending), bool(first)))
    return found


def _parse_limit(statement: Statement, limit: exp.Expr | None) -> int | None:
    if limit is None:
        return None
    (number,) = statement.source.take_arguments(limit, "expression")
    if not isinstance(number, exp.Literal) or not number.name.isdigit() or len(number.name) > 9:
        statement.source.refuse(
            limit, "local_query", "LIMIT takes a whole number that is not negative", _HINT
        )
    return int(number.name)

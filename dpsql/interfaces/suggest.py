"""Propose bounds, values and rows_per_unit of a table from charged queries, and write them into the policy's text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any, Final

import yaml

from dpsql.errors import PolicyError, ProgrammingError
from dpsql.policy import Bound, Column, Policy, Table, load, normalize_name
from dpsql.policy.domain import LARGEST_INTEGER, format_number
from dpsql.policy.names import NameMap
from dpsql.policy.skeleton import quote_yaml
from dpsql.results.result import Result

# The queries that propose bounds and values of a table's columns, and the proposals from their answers.


MOST_LISTED: Final = 50
"""The largest number of values that are proposed as a list."""
_LOW, _HIGH = "0.01", "0.99"
_LONGEST_OF_MONTHS: Final = timedelta(days=3 * 366)
_WHOLE: Final = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32}
_WIDEST_DECIMAL: Final = 9
"""Digits before the point of a DECIMAL whose range still has lattice steps of about one."""

SAMPLES: Final[Mapping[str, tuple[Any, ...]]] = {
    "varchar": ("a",),
    "integer": (0,),
    "double": (0,),
    "date": (date(2000, 1, 1),),
    "timestamp": (datetime(2000, 1, 1),),  # noqa: DTZ001  (a policy's moments have no zone)
}
"""A sample list of values for each type that may have one."""


ROWS: Final = "rows_per_unit"


@dataclass(frozen=True, slots=True)
class Question:
    """A query for a column; its answer proposes the `key`: `bounds` or `values`, or `rows_per_unit` without a column."""

    column: str | None
    key: str
    sql: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal for a key of a column or of the table, with its answer; `found` is the value in the policy."""

    column: str | None
    key: str
    found: tuple[Any, ...] | int
    result: Result


def build_questions(
    policy: Policy,
    table: str,
    engine_types: Mapping[str, str],
    wanted: Sequence[str] = (),
    listed: Sequence[str] = (),
    *,
    rows: bool = False,
) -> tuple[Policy, list[Question]]:
    """Return the policy to query under, and a query for each column without bounds and values, or for those that are `wanted`.

    `engine_types` are the database's types of the table's columns; `listed` are columns whose values are proposed instead of
    bounds. With `rows` there is a query for the number of rows per unit, and others only for columns that are named. Raises
    ProgrammingError for a column that is not declared or already has the other of bounds and values (`column`), for one that
    has no public range (`no_public_range`), and for rows of units that have one each (`rows_per_unit`).
    """
    declared = _require_private_table(policy, table)
    listed = [_resolve_column(declared, table, name) for name in listed]
    named = [*(_resolve_column(declared, table, name) for name in wanted), *listed]
    columns = dict(declared.columns.items())
    types = {normalize_name(name): kind for name, kind in engine_types.items()}
    found = [Question(None, ROWS, _build_row_count_query(policy, table))] if rows else []
    for name in dict.fromkeys(named) if named or rows else _list_open_columns(policy, table, declared):
        spec = declared.columns[name]
        if spec.max_elements is not None or spec.type in ("boolean", "blob", "time", "uuid"):
            if name in named:
                raise ProgrammingError(
                    f"{table}.{name} has type {spec.type}, for which neither bounds nor values are proposed",
                    code="column",
                    hint="omit the column",
                )
        elif spec.type == "varchar" or name in listed:
            _require_without(table, name, "bounds", spec.bounds)
            columns[name] = spec.model_copy(update={"values": None})
            found.append(Question(name, "values", _build_value_query(table, name)))
        else:
            _require_without(table, name, "values", spec.values)
            bounds = spec.bounds or _require_type_range(spec, types, table, name)
            columns[name] = spec.model_copy(update={"bounds": bounds})
            found.append(Question(name, "bounds", _build_quantile_query(policy, table, name)))
    wide = declared.model_copy(update={"columns": NameMap(columns)})
    tables = {
        name: wide if normalize_name(name) == normalize_name(table) else own
        for name, own in policy.tables.items()
    }
    return policy.model_copy(update={"tables": NameMap(tables)}), found


def _list_open_columns(policy: Policy, table: str, declared: Table) -> list[str]:
    """Return the columns without bounds and values that do not identify a unit."""
    keys = {normalize_name(name) for name in _list_key_columns(policy, table)}
    return [
        name
        for name, spec in declared.columns.items()
        if spec.bounds is None and spec.values is None and normalize_name(name) not in keys
    ]


def find_proposal(question: Question, policy: Policy, table: str, result: Result) -> Proposal | None:
    """Return the proposal of an answer, or None if no value or too many values were selected.

    `policy` is the policy of the query.

    Claim: a proposal is (ε, δ)-differentially private at the loss that its queries are charged.
    Why: the queries pass through the engine like any analyst's, under a policy in which each column has a public range: the owner's
    bounds, or the range of the column's type. Everything else (rounding, lists) reads only their answers.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing); quantiles and partition selection are the engine's.
    """
    if question.key == "values":
        values = tuple(value for (value,) in result.rows if value is not None)
        return Proposal(question.column, "values", values, result) if 0 < len(values) <= MOST_LISTED else None
    declared = policy.tables[_resolve_table(policy, table)]
    if question.column is None:
        ((rows,),) = result.rows
        if rows is None:
            return None
        most = max(1, int(_to_bound(rows)))
        step = 10 ** max(0, _compute_magnitude(Fraction(most)) - 1)
        return Proposal(None, ROWS, min(-(-most // step) * step, declared.rows_per_unit or most), result)
    spec = declared.columns[question.column]
    ((low, high),) = result.rows
    if low is None or high is None or spec.bounds is None:
        return None
    ends = sorted((_to_bound(low), _to_bound(high)))
    found = round_outward(ends[0], ends[1], spec.bounds, whole=spec.type == "integer")
    return Proposal(question.column, "bounds", found, result)


def round_outward(
    low: Any, high: Any, limits: tuple[Bound, Bound], *, whole: bool = False
) -> tuple[Bound, Bound]:
    """Round [low, high] outward within `limits`: to two digits of the span, or to whole months or years for dates.

    >>> round_outward(Fraction(7, 2), Fraction(9712), (Fraction(0), Fraction(10**6)))
    (Fraction(0, 1), Fraction(9800, 1))
    >>> round_outward(date(2024, 1, 7), date(2024, 12, 25), (date(1, 1, 1), date(9999, 12, 31)))
    (datetime.date(2024, 1, 1), datetime.date(2024, 12, 31))
    """
    if isinstance(low, Fraction):
        step = Fraction(10) ** (_compute_magnitude(high - low or abs(high) or Fraction(1)) - 1)
        step = max(step, Fraction(1)) if whole else step
        ends: tuple[Any, Any] = (low // step * step, -(-high // step) * step)
    else:
        ends = (
            _compute_period_start(low, years=high - low > _LONGEST_OF_MONTHS),
            _compute_period_end(high, years=high - low > _LONGEST_OF_MONTHS),
        )
    return max(ends[0], limits[0]), min(ends[1], limits[1])


def _require_private_table(policy: Policy, table: str) -> Table:
    found = policy.find_table(table)
    if found is None or found.public:
        names = ", ".join(policy.list_private_tables())
        raise ProgrammingError(
            f"{table} is public, so its columns need no bounds" if found else f"unknown table {table}",
            code="table",
            hint=f"private tables are {names}",
        )
    return found


def _resolve_table(policy: Policy, table: str) -> str:
    return next(name for name in policy.tables if normalize_name(name) == normalize_name(table))


def _resolve_column(table: Table, name: str, column: str) -> str:
    for known in table.columns:
        if normalize_name(known) == normalize_name(column):
            return known
    raise ProgrammingError(
        f"{name} declares no column {column}",
        code="column",
        hint=f"its columns are {', '.join(table.columns)}",
    )


def _require_without(table: str, column: str, key: str, declared: object) -> None:
    """Raise ProgrammingError if a column already has the other key: it may have bounds or values, not both."""
    if declared is not None:
        raise ProgrammingError(
            f"{table}.{column} already has {key}; a column may have bounds or values, not both",
            code="column",
            hint=f"remove its {key} from the policy, or omit the column here",
        )


def _list_key_columns(policy: Policy, table: str) -> list[str]:
    """Return the columns that identify the unit, for which neither bounds nor values are proposed."""
    declared = policy.tables[_resolve_table(policy, table)]
    links = [link for link in (declared.link, *declared.links) if link is not None]
    return [name for link in links for name in link.keys] + [
        policy.get_unit(_resolve_table(policy, table)).column or ""
    ]


def _require_type_range(spec: Column, types: Mapping[str, str], table: str, name: str) -> tuple[Bound, Bound]:
    """Return the public range of a column's type. Raises ProgrammingError (`no_public_range`) if it has none that helps."""
    found = _find_type_range(spec, types.get(normalize_name(name), ""))
    if found is None:
        raise ProgrammingError(
            f"{table}.{name} has no public range, since values of its type may be as large as 10^308",
            code="no_public_range",
            hint=f"declare wide bounds from public knowledge, such as bounds: [0, 1000000] for {name}, to be narrowed here;"
            " or select other columns with --column",
        )
    return found


def _find_type_range(spec: Column, engine_type: str) -> tuple[Bound, Bound] | None:
    """Return the public range of a column's type, or None if it is too wide to help."""
    kind = engine_type.strip().upper()
    if spec.type == "date":
        return date(MINYEAR, 1, 1), date(MAXYEAR, 12, 31)
    if spec.type == "timestamp":
        return datetime(MINYEAR, 1, 1), datetime(MAXYEAR, 12, 31, 23, 59, 59)  # noqa: DTZ001  (a policy's moments have no zone)
    if (found := re.fullmatch(r"DECIMAL\((\d+), ?(\d+)\)", kind)) is not None:
        digits = int(found[1]) - int(found[2])
        most = Fraction(10**digits)
        return (
            (-most, most)
            if digits <= _WIDEST_DECIMAL or (spec.type == "integer" and most <= LARGEST_INTEGER)
            else None
        )
    if spec.type != "integer":
        return None
    bits = _WHOLE.get(kind.removeprefix("U"))
    if bits is None:  # values beyond the largest bounds are clamped to them
        return Fraction(0 if kind == "UBIGINT" else -LARGEST_INTEGER), Fraction(LARGEST_INTEGER)
    if kind.startswith("U"):
        return Fraction(0), Fraction(2**bits - 1)
    return Fraction(-(2 ** (bits - 1))), Fraction(2 ** (bits - 1) - 1)


def _build_value_query(table: str, column: str) -> str:
    """Build the query for the values that enough units have."""
    return f"SELECT {_quote_column(column)} FROM {_quote_table(table)} GROUP BY {_quote_column(column)}"


def _build_quantile_query(policy: Policy, table: str, column: str) -> str:
    """Build the query for two quantiles: of the least and the greatest value of each unit if the table has a column of units.

    A unit changes the ranks of one value less than those of all its rows, so that less noise is needed; and the share that
    lies outside the bounds is then a share of units.
    """
    own, name = policy.tables[_resolve_table(policy, table)], _quote_column(column)
    aggregate = (
        "QUANTILE_DISC" if own.columns[column].type in ("date", "timestamp", "integer") else "QUANTILE_CONT"
    )
    whose = policy.get_unit(_resolve_table(policy, table))
    if whose.kind != "column" or whose.column is None or own.rows_per_unit == 1:
        return f"SELECT {aggregate}({name}, {_LOW}) AS low, {aggregate}({name}, {_HIGH}) AS high FROM {_quote_table(table)}"
    unit = _quote_column(whose.column)
    return (
        f"SELECT {aggregate}(least_value, {_LOW}) AS low, {aggregate}(greatest_value, {_HIGH}) AS high FROM"
        f" (SELECT {unit}, MIN({name}) AS least_value, MAX({name}) AS greatest_value FROM {_quote_table(table)} GROUP BY {unit})"
        " AS of_units"
    )


def _build_row_count_query(policy: Policy, table: str) -> str:
    """Build the query for the largest number of rows of nearly all units."""
    own, whose = policy.tables[_resolve_table(policy, table)], policy.get_unit(_resolve_table(policy, table))
    if whose.kind != "column" or whose.column is None or own.rows_per_unit == 1:
        raise ProgrammingError(
            f"{table} has one row per unit, so rows_per_unit needs no proposal",
            code="rows_per_unit",
            hint="propose bounds with --column, or values with --values",
        )
    unit = _quote_column(whose.column)
    return (
        f"SELECT QUANTILE_DISC(number, {_HIGH}) AS most FROM"
        f" (SELECT {unit}, COUNT(*) AS number FROM {_quote_table(table)} GROUP BY {unit}) AS of_units"
    )


def _quote_column(name: str) -> str:
    """Quote a column for SQL; fields of a STRUCT are declared by dotted names."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _quote_table(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _to_bound(value: Any) -> Any:
    return value if isinstance(value, date) else Fraction(value)


def _compute_magnitude(value: Fraction) -> int:
    """Return the power of ten of a positive number's first digit."""
    exponent = len(str(value.numerator)) - len(str(value.denominator))
    return exponent if value >= Fraction(10) ** exponent else exponent - 1


def _compute_period_start(moment: date, *, years: bool) -> date:
    first = date(moment.year, 1 if years else moment.month, 1)
    return datetime.combine(first, time()) if isinstance(moment, datetime) else first


def _compute_period_end(moment: date, *, years: bool) -> date:
    month = 12 if years else moment.month
    last = date(moment.year, 12, 31) if month == 12 else date(moment.year, month + 1, 1) - timedelta(days=1)
    return datetime.combine(last, time(23, 59, 59)) if isinstance(moment, datetime) else last


# A policy's text with bounds and values of columns written into it; comments, order and layout stay as they are.


Keys = Mapping[str | None, Mapping[str, Sequence[Any] | int]]
"""The wanted value of each key by column; keys of the table itself are under None."""


def with_keys(text: str, table: str, columns: Keys, remarks: Iterable[str] = ()) -> str:
    """Return the policy's text with these keys of the table's columns, or of the table itself; `remarks` are comments before it.

    Raises PolicyError (`not_edited`) if the layout of the text does not allow to change these keys and nothing else.
    """
    before = load(text + "\n")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    whole = _get_node(_get_node(root, "tables"), table)
    edits = [
        edit
        for column, keys in columns.items()
        for key, found in keys.items()
        for edit in _iterate_edits(
            text,
            whole if column is None else _get_node(_get_node(whole, "columns"), column),
            key,
            str(found) if isinstance(found, int) else format_yaml_list(found),
        )
    ]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    text = "".join(f"# {remark}\n" for remark in remarks) + text
    if not _has_only_wanted_changes(load(text), before, table, columns):
        raise PolicyError(
            "the layout of the policy's file cannot be edited automatically",
            code="not_edited",
            hint="write each column on a line of its own: cost: {type: double}",
        )
    return text


def format_yaml_list(values: Sequence[Any]) -> str:
    """Format bounds or values as a list in YAML."""
    return f"[{', '.join(map(_format_yaml_scalar, values))}]"


def _format_yaml_scalar(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Fraction():
            return format_number(value)
        case int():
            return str(value)
        case float():
            return format_number(Fraction(value))
        case datetime():
            return quote_yaml(value.isoformat(" "))
        case date():
            return value.isoformat()
    return quote_yaml(str(value))


def _get_node(node: Any, name: str) -> Any:
    """Return the node of a key, which may be written in another case."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in pairs:
        if normalize_name(str(key.value)) == normalize_name(name):
            return value
    raise PolicyError(f"the policy's file has no key {name}", code="not_edited")


def _iterate_edits(text: str, node: Any, key: str, new: str) -> Iterable[tuple[int, int, str]]:
    """Yield the start and end of the text to replace, and the new text, for a key of a mapping."""
    for known, value in node.value:
        if known.value == key:
            start, end = value.start_mark.index, value.end_mark.index
            yield start, start + len(text[start:end].rstrip()), new
            return
    if node.flow_style:
        close = node.end_mark.index - 1
        last = node.value[-1][1].end_mark.index if node.value else close
        yield last, last, f"{', ' if node.value else ''}{key}: {new}"
    else:
        first = node.value[0][0].start_mark
        yield first.index, first.index, f"{key}: {new}\n{' ' * first.column}"


def _has_only_wanted_changes(after: Policy, before: Policy, table: str, columns: Keys) -> bool:
    """Return whether two policies differ only in these keys of the columns, and the new ones have the wanted values."""
    old, new = before.find_table(table), after.find_table(table)
    if old is None or new is None or list(old.columns) != list(new.columns):
        return False
    for name, keys in columns.items():
        spec = new if name is None else new.columns[name]
        for key, found in keys.items():
            held = getattr(spec, key)
            if (held if isinstance(found, int) else tuple(held or ())) != (
                found if isinstance(found, int) else tuple(found)
            ):
                return False

    def dump_other_keys(policy: Policy) -> Any:
        dumped = policy.model_dump(mode="json", exclude_unset=True)
        for known, own in dumped["tables"].items():
            if normalize_name(known) == normalize_name(table):
                for name, keys in columns.items():
                    for key in keys:
                        (own if name is None else own["columns"][name]).pop(key, None)
        return dumped

    return bool(dump_other_keys(after) == dump_other_keys(before))

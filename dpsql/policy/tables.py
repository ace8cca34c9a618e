"""The models of a policy's tables: their columns, units, links and budgets, with the keys of the YAML file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from dpsql.policy.fields import (
    AS_DICT,
    CONVERTING,
    Accountant,
    Bounds,
    ColumnName,
    Delta,
    Epsilon,
    LinkColumns,
    Model,
    Partition,
    Reference,
    Renewal,
    TypeName,
    UniqueKeys,
    Values,
    to_dict,
)
from dpsql.policy.names import NameMap, find_declared_name, is_row, normalize_name
from dpsql.policy.problem import (
    Problem,
    list_name_problems,
    make_problem_error,
    make_problems_error,
    suggest_choice,
)
from dpsql.policy.readings import CellReading, DecimalSign, FileReading, Formats, NullValues

# The constraints between the keys of one table of a policy.


_OF_PRIVATE = (
    "unit",
    "link",
    "links",
    "unique",
    "rows_per_unit",
    "partition",
    "max_groups",
    "max_epsilon",
    "min_frequency",
    "budget",
)
_ROWS_PER_UNIT = "the maximum number of rows per privacy unit, such as 20 (the engine ignores further rows)"


def list_table_problems(given: Mapping[str, object]) -> list[Problem]:
    """Return the problems between the keys of one table; `given` holds its keys as written or as read."""
    public = given.get("public", False)
    if public is True:
        words = "is only valid in a private table, and this table is public"
        return [
            Problem((key,), "public_table", words, "delete this key, or `public`")
            for key in given
            if key in _OF_PRIVATE
        ]
    problems = _list_unit_problems(given) if public is False else []
    columns = given.get("columns", {})
    if isinstance(columns, Mapping):
        problems += _iterate_partition_problems(given.get("partition"), [*map(str, columns)])
        problems += _iterate_unique_problems(given.get("unique"), [*map(str, columns)])
    return problems


def _iterate_partition_problems(partition: object, columns: Sequence[str]) -> Iterator[Problem]:
    listed = isinstance(partition, (list, tuple))
    names: Sequence[object] = partition if isinstance(partition, (list, tuple)) else [partition]
    for place, name in enumerate(names):
        if isinstance(name, str) and find_declared_name(name, columns) is None:
            words = f"no column {name} is declared in this table"
            hint = suggest_choice(name, columns) or "declare it under columns"
            yield Problem(("partition", place) if listed else ("partition",), "unknown_column", words, hint)


def _iterate_unique_problems(unique: object, columns: Sequence[str]) -> Iterator[Problem]:
    keys: Sequence[object] = unique if isinstance(unique, (list, tuple)) else ()
    for place, key in enumerate(keys):
        for name in [key] if isinstance(key, str) else key if isinstance(key, (list, tuple)) else ():
            if isinstance(name, str) and find_declared_name(name, columns) is None:
                words = f"no column {name} is declared in this table"
                hint = suggest_choice(name, columns) or "declare it under columns"
                yield Problem(("unique", place), "unknown_column", words, hint)


def _list_unit_problems(given: Mapping[str, object]) -> list[Problem]:
    unit, rows = given.get("unit"), given.get("rows_per_unit")
    if is_row(unit) and (given.get("link") or given.get("links")):
        key = "link" if given.get("link") else "links"
        words = "is not allowed with `unit: row`: each row is a unit of its own, so a row cannot share a unit"
        hint = "delete the link, or set `unit` to the column with the unit's id"
        return [Problem((key,), "unit_and_link", words, hint)]
    if is_row(unit) and given.get("unique"):
        words = "is not needed with `unit: row`: each row is a unit of its own"
        hint = "delete this key, or set `unit` to the column with the unit's id"
        return [Problem(("unique",), "unit_and_unique", words, hint)]
    if "unit" not in given and "link" not in given:
        hint = (
            "write one of `unit: <column>`, `unit: row`, `link: {column: …, references: …}`, `public: true`"
        )
        return [Problem((), "no_unit", "does not say which privacy unit a row belongs to", hint)]
    if not is_row(unit):
        if "rows_per_unit" in given:
            return []
        return [Problem(("rows_per_unit",), "missing_key", "is missing", f"write {_ROWS_PER_UNIT}")]
    problems = []
    if isinstance(rows, int) and rows != 1:
        hint = "delete the key, or set `unit` to the column with the unit's id"
        words = f"must be 1 with `unit: row`, not {rows}"
        problems.append(Problem(("rows_per_unit",), "rows_of_row", words, hint))
    columns = given.get("columns")
    if isinstance(columns, Mapping) and find_declared_name("row", map(str, columns)):
        words = "`row` means that each row is a unit, but the table also declares a column named row"
        hint = "declare a view that renames the column"
        problems.append(Problem(("unit",), "ambiguous_unit", words, hint))
    return problems


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Unit:
    """The place of a private table's privacy unit.

    `row`: each row is a unit. `column`: the column of this table holds the unit's id. `indirect`: the
    column leads to another table's row, whose unit it is (follow `Table.link` from table to table).
    """

    kind: Literal["row", "column", "indirect"]
    column: str | None


class BudgetSpec(Model):
    """The most that all answers together may lose: (epsilon, delta), composed by an accountant."""

    epsilon: Epsilon = Field(description="Total epsilon, above 0.")
    delta: Delta = Field(
        default=Fraction(0), description="Total delta, at least 0 and below 1; zcdp and gdp need one above 0."
    )
    accountant: Accountant = Field(
        default_factory=lambda read: "zcdp" if read.get("delta") else "pure",
        description="How losses add up: pure, basic, zcdp or gdp. Default: zcdp when delta is above 0, else pure.",
    )

    renew: Renewal | None = Field(
        default=None,
        description="daily, weekly, monthly or yearly: the budget starts again, and the guarantee holds for each period. Default: never.",
    )
    shared: bool = Field(
        default=False,
        description="true: all private tables share one budget, so that it bounds what a unit loses over all of them together. "
        "Each unit must have the same id in all of them. Default: each table has a budget of its own.",
    )

    @model_serializer(mode="wrap")
    def _drop_default_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `shared` out while it is false, so that the digest of a policy does not depend on a key that it does not have."""
        return {key: value for key, value in rest(self).items() if key != "shared" or value}

    @model_validator(mode="after")
    def _require_delta(self) -> BudgetSpec:
        if self.accountant in CONVERTING and not self.delta:
            hint = "write a small delta such as 1e-7, or `accountant: pure`"
            words = f"accountant {self.accountant} needs a delta above 0"
            raise make_problem_error("delta_required", words, hint=hint, at=("delta",))
        return self


class BudgetOverride(Model):
    """The parts of the policy's budget that differ for one table; None is the policy's."""

    epsilon: Epsilon | None = Field(default=None, description="Total epsilon of this table, above 0.")
    delta: Delta | None = Field(default=None, description="Total delta of this table.")
    accountant: Accountant | None = Field(default=None, description="The accountant of this table.")
    renew: Renewal | None = Field(default=None, description="How often this table's budget starts again.")


class AnalystBudget(Model):
    """The most that one analyst may lose of each table's budget; None is the table's."""

    epsilon: Epsilon = Field(description="Total epsilon of the analyst at each table, above 0.")
    delta: Delta | None = Field(default=None, description="Total delta of the analyst at each table.")
    renew: Renewal | None = Field(default=None, description="How often the analyst's budget starts again.")


class Column(Model):
    """A column: its type, and the values that it may hold.

    `bounds` are Fraction for numbers, date or datetime (no time zone) for days and moments. `values` is
    a public domain: int, float, str, date, datetime, bool, time or UUID as `type` says. A value outside its bounds
    counts as the nearer bound; one outside its domain counts as NULL. `nullable=False` says that NULL
    is no possible value: rows that hold one are dropped, the claim is not trusted.
    """

    type: TypeName = Field(
        description="The column's type, under any name that the engine has for it: bigint, text, numeric(12,2), timestamptz."
    )
    bounds: Bounds = Field(
        default=None,
        description="[lower, upper]: values are clamped to these bounds. Never take them from the data.",
    )
    values: Values = Field(
        default=None, description="All possible values, which are public; any other value counts as NULL."
    )
    nullable: bool = Field(
        default=True,
        description="false: NULL cannot occur, and rows with NULL are dropped. "
        "Default: false where the database declares the column NOT NULL and dpsql reads each value unchanged, else true.",
    )

    format: Formats = Field(
        default=(),
        description='How the texts of a file write dates, timestamps or times: "%d.%m.%Y", or a list of such formats. Default: as in 2026-01-31.',
    )
    decimal: DecimalSign = Field(
        default=None,
        description='The decimal sign of the numbers in a file, "," or ".". With it, numbers may have thousands separators and a currency.',
    )
    null_values: NullValues = Field(
        default=(), description="Texts of a file that stand for a missing value, such as NA or -99."
    )
    max_elements: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="The column is a list of elements of this type: the maximum number of elements per row. Read it with UNNEST.",
    )

    @model_serializer(mode="wrap")
    def _drop_default_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave these keys out while they are not set, so that the digest of a policy does not depend on keys that it does not have."""
        written: dict[str, Any] = rest(self)
        if self.max_elements is None:
            written.pop("max_elements", None)
        for key in ("format", "decimal", "null_values"):
            if not getattr(self, key):
                written.pop(key, None)
        return written

    @model_validator(mode="after")
    def _require_one_domain(self) -> Column:
        if self.bounds is not None and self.values is not None:
            raise make_problem_error(
                "bounds_and_values",
                "bounds and values cannot both be set",
                hint="keep one of them",
                at=("values",),
            )
        return self

    @property
    def reading(self) -> CellReading:
        """Return how the texts of a file are read as this column."""
        return CellReading(str(self.type), self.format, self.decimal, self.null_values)

    @property
    def declares_nullability(self) -> bool:
        """Return whether the policy states if the column may be NULL; otherwise the database's schema does."""
        return "nullable" in self.model_fields_set

    @property
    def numeric_bounds(self) -> tuple[Fraction, Fraction] | None:
        """Return the bounds of an integer or double column; None for other types and without bounds."""
        if self.bounds is None:
            return None
        low, high = self.bounds
        return (low, high) if isinstance(low, Fraction) and isinstance(high, Fraction) else None


class Link(Model):
    """A foreign key: a row belongs to the privacy unit of the row that it refers to."""

    column: ColumnName | None = Field(
        default=None, description="The column of this table that holds the key."
    )
    columns: LinkColumns = Field(
        default=None, description="The columns of this table, if the key has several."
    )
    references: Reference = Field(
        description="The column it refers to, as <table>.<column>; for several columns a list of these, in their order."
    )

    _in_schema: bool = PrivateAttr(default=False)

    @model_validator(mode="after")
    def _require_paired_columns(self) -> Link:
        if (self.column is None) == (self.columns is None):
            words = "column and columns cannot both be set" if self.column else "column or columns is missing"
            code = "link_shape" if self.column else "missing_key"
            raise make_problem_error(
                code, words, hint="write `column: a`, or `columns: [a, b]`", at=("column",)
            )
        if len(self.names) != len(self.keys):
            words = f"must name as many columns as `columns` ({len(self.names)}), not {len(self.keys)}"
            hint = "write one referenced column for each column of this table, in the same order"
            raise make_problem_error("link_shape", words, hint=hint, at=("references",))
        return self

    @property
    def table(self) -> str:
        """Return the referenced table, as written in the link."""
        return self._parts[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns of the table itself, as written in the link."""
        return self.columns or (() if self.column is None else (self.column,))

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the referenced columns, as written in the link, in the order of `names`."""
        key = self._parts[1]
        return tuple(key[1:-1].split(", ")) if key.startswith("[") else (key,)

    @property
    def _parts(self) -> tuple[str, str]:
        """Return the referenced table and its columns: each may have a dot, of a schema or of a field."""
        first, _, rest = self.references.partition(".")
        if not self._in_schema:
            return first, rest
        halves = [name.partition(".") for name in rest.strip("[]").split(", ")]
        keys = ", ".join(key for _, _, key in halves)
        return f"{first}.{halves[0][0]}", f"[{keys}]" if rest.startswith("[") else keys

    def resolve_table_name(self, names: Collection[str]) -> Link:
        """Return the link, resolved among tables of these folded names: `emr.visits.id` is a column of `emr.visits`, if that table exists.

        Raises a refusal where it is of a field of the table `emr` as well.
        """
        first, _, rest = self.references.partition(".")
        halves = [name.partition(".") for name in rest.strip("[]").split(", ")]
        inner = {normalize_name(table) for table, dot, _ in halves if dot}
        named = {normalize_name(f"{first}.{table}") for table in inner}
        if len(inner) != 1 or not all(dot for _, dot, _ in halves) or not named <= set(names):
            return self
        if normalize_name(first) in names:
            words = f"{self.references} is ambiguous: it may name a column of {first} or of {min(named)}"
            hint = f"declare a view with another name in place of {first} or {min(named)}"
            raise make_problem_error("bad_reference", words, hint=hint)
        link = self.model_copy()
        link._in_schema = True  # noqa: SLF001  (a copy of its own class, whose private attributes model_copy cannot set)
        return link

    @model_serializer(mode="wrap")
    def _drop_default_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys that a form of a link does not have."""
        return {key: value for key, value in rest(self).items() if value is not None}


def _check_source_path(source: str) -> str:
    if "\0" in source:
        raise make_problem_error("invalid", "a file name cannot contain a NUL character")
    return source


def _check_column_names(columns: Mapping[str, Column]) -> NameMap[Column]:
    return to_name_map(columns, "column", dots=True)


def to_name_map(entries: Mapping[str, V], kind: str, *, dots: bool) -> NameMap[V]:
    """Return the entries by name; raise an error for names that are invalid or not distinct."""
    problems = list_name_problems(entries, kind, dots=dots)
    if problems:
        raise make_problems_error(problems)
    return NameMap(entries)


class Table(Model):
    """A table that analysts may query: public, or private with its unit and contribution bounds.

    `rows_per_unit` and `max_groups` bound one privacy unit's contribution, in rows and groups.

    `min_frequency`, in privacy units, applies to every released value through noisy counts. A group of fewer units is not shown.
    In an answer without groups all values are NULL, with a notice, if the noisy count of units is below it; every such query
    measures that count within its loss. An aggregate under a condition (FILTER, COUNT_IF, PIVOT, CASE without ELSE) is NULL if the
    noisy count of its values is below it. This is a rule for what is shown, and not part of the guarantee: noise may carry a
    count across the limit, and differences of shown totals are not checked, nor are sums that add zeros for units outside of a
    condition. It does not apply to synthetic and randomized tables and streams. A public table only uses `columns`.
    """

    public: bool = Field(
        default=False, description="true: nobody needs protection from answers about this table."
    )
    unit: ColumnName | None = Field(
        default=None, description="The column with the unit's id, or `row`: each row is a unit."
    )
    source: Annotated[str, Field(min_length=1), AfterValidator(_check_source_path)] | None = Field(
        default=None,
        description="The table's files, relative to the policy: a Parquet, CSV, Excel, JSON, Arrow, SQLite or DuckDB file, a folder or a "
        "pattern. Then dpsql.connect needs no database.",
    )
    file: FileReading | None = Field(
        default=None, description="How the table's file is written: encoding, line of names, sheet and so on."
    )
    link: Link | None = Field(
        default=None,
        description="A foreign key. In a table without `unit`, it leads to the unit. Joins on all its columns are allowed.",
    )
    links: tuple[Link, ...] = Field(
        default=(),
        strict=False,
        description="Further foreign keys that lead to the unit: a row belongs to the unit of the rows that it refers to, of "
        "which there may be several. Joins on all columns of one are allowed, as with `link`.",
    )
    unique: UniqueKeys = Field(
        default=(),
        description="Keys of the rows, like PRIMARY KEY and UNIQUE in a schema: columns, or lists of columns that form a key together. "
        "Rows with the same key belong to one unit, so each group of a subquery by that key belongs to one unit. Not trusted: a "
        "key that several units share forms one group for each of them.",
    )
    rows_per_unit: int = Field(
        default=1,
        ge=1,
        le=10**9,
        description="Maximum number of rows per unit; further rows are ignored. Required unless unit is `row`.",
    )
    partition: Partition = Field(
        default=None,
        description="Declared columns that are constant for each unit: queries about different values compose in parallel.",
    )
    max_groups: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of GROUP BY groups per unit; further groups are ignored.",
    )
    max_epsilon: Epsilon | None = Field(
        default=None, description="The maximum epsilon of one query of this table."
    )
    min_frequency: int = Field(
        default=1, ge=1, description="Minimum number of distinct units behind a released group or value."
    )
    max_failures: int | None = Field(
        default=None,
        ge=1,
        description="Number of this table's queries that may fail while they run before it is locked.",
    )
    budget: BudgetOverride | None = Field(default=None, description="Overrides parts of the policy's budget.")
    columns: Annotated[
        Mapping[str, Column], BeforeValidator(to_dict), AfterValidator(_check_column_names), AS_DICT
    ] = Field(default_factory=lambda: NameMap({}), description="The columns that analysts may use.")

    def resolve_links(self, names: Collection[str]) -> Table:
        """Return the table with its links as `Link.resolve_table_name` has them."""
        link = None if self.link is None else self.link.resolve_table_name(names)
        links = tuple(item.resolve_table_name(names) for item in self.links)
        return (
            self
            if (link, links) == (self.link, self.links)
            else self.model_copy(update={"link": link, "links": links})
        )

    @model_validator(mode="after")
    def _check_keys(self) -> Table:
        given = {key: value for key in self.model_fields_set if (value := getattr(self, key)) is not None}
        if problems := list_table_problems(given):
            raise make_problems_error(problems)
        return self

    @property
    def unit_link(self) -> Link | None:
        """Return the link that leads to the unit of the rows; None if the table has the unit itself."""
        return self.link if self.unit is None else None

    @property
    def all_links(self) -> tuple[Link, ...]:
        """Return all links, that to the unit first."""
        return (*([] if self.link is None else [self.link]), *self.links)

    @model_serializer(mode="wrap")
    def _drop_default_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = rest(self)
        if self.max_failures is None:
            written.pop("max_failures", None)
        if not self.links:
            written.pop("links", None)
        if not self.unique:
            written.pop("unique", None)
        if self.source is None:
            written.pop("source", None)
        if self.file is None:
            written.pop("file", None)
        return (
            {key: written[key] for key in ("public", "source", "file", "columns") if key in written}
            if self.public
            else written
        )

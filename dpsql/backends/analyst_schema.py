"""The analyst's schema: the policy, checked against the database's schema.

An undeclared table does not exist. Names resolve as in DuckDB, without regard to case. Only schema metadata is read here, never
a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql import policy as policies
from dpsql.backends import TableOrigin
from dpsql.backends.catalog_columns import (
    build_column_info,
    build_declared_column,
    build_undeclared_id,
    find_stored_column,
    find_struct_field,
    find_undeclared_type,
    is_read_exactly,
    suggest_id_type,
)
from dpsql.backends.duckdb.sources import UNCHECKED, ZONED
from dpsql.errors import PolicyError
from dpsql.plan.expressions import UNIT_IDENTITY, ColumnInfo
from dpsql.plan.tables import Contribution, UnitKind
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.policy.engine_types import (
    parse_element_type,
    rename_types,
)

DatabaseSchema = Mapping[str, Sequence[tuple[str, str]]]
"""The tables of the database, with the names and engine types of their columns."""

_COPY = "copy it into a table: CREATE TABLE {} AS SELECT …"
_OF_FRAMES = {"VARCHAR": UNCHECKED, "JSON": UNCHECKED, "TIMESTAMP WITH TIME ZONE": ZONED}
"""Names for the types of a frame's columns, whose values are not validated."""


@dataclass(frozen=True, slots=True)
class UnitLink:
    """The table that has the unit of a linked row, and pairs of a column and the referenced column, folded."""

    table: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AnalystTable:
    """A declared table: `name` as the policy spells it, `columns` by folded name.

    `unit_column` holds the id of a row's unit, or of the row of another table that has the unit. `lists` are the list
    columns, which only UNNEST reads, by folded name: the spelling, the path, the facts of the elements, and the largest number of
    elements per row.
    """

    name: str
    unit: UnitKind
    columns: Mapping[str, tuple[str, ColumnInfo]]
    contribution: Contribution | None = None
    unit_column: str | None = None
    link: UnitLink | None = None
    lists: Mapping[str, tuple[str, tuple[str, ...], ColumnInfo, int]] = field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        """Return whether the table's rows belong to privacy units."""
        return self.unit is not UnitKind.PUBLIC


@dataclass(frozen=True, slots=True)
class AnalystSchema:
    """Every declared table, by folded name."""

    tables: Mapping[str, AnalystTable]
    database_name: str = ""
    """The database's name in the engine, with which tables may be qualified; empty if it has none."""

    def find_table(self, name: str) -> AnalystTable | None:
        """Return the table of a name, without regard to case."""
        return self.tables.get(normalize_name(name))


def build_analyst_schema(
    policy: policies.Policy, schema: DatabaseSchema, find_origin: Callable[[str], TableOrigin | None]
) -> AnalystSchema:
    """Check the policy against the schema and the origins of its tables, and build the analyst's schema.

    Raises PolicyError for a declared table or column that the database lacks, or whose type differs; for a view that could fail
    on a single row, and for a public view that reads private tables.
    """
    _refuse_reserved(policy)
    present = {normalize_name(name): columns for name, columns in schema.items()}
    origins = _find_origins(policy, schema, find_origin)
    _refuse_public_views(policy, origins)
    tables = {}
    for name, table in policy.tables.items():
        if normalize_name(name) not in present:
            raise PolicyError(
                f"tables.{name}: the database has no table {name}",
                code="table_missing",
                hint=f"tables of the database are {', '.join(sorted(schema))}"
                if schema
                else "the database has no tables",
            )
        columns, source = present[normalize_name(name)], origins[normalize_name(name)]
        if not source.has_checked_texts:
            columns = [(column, rename_types(kind, _OF_FRAMES)) for column, kind in columns]
        tables[normalize_name(name)] = _build_table(policy, name, table, columns, source.not_null_columns)
        _refuse_collated_ids(tables[normalize_name(name)], source.collated_columns)
    for found in tables.values():
        _check_identities(found, tables)
    if policy.budget.shared:
        _check_shared_ids(tables)
    return AnalystSchema(tables)


def _find_origins(
    policy: policies.Policy, schema: DatabaseSchema, find_origin: Callable[[str], TableOrigin | None]
) -> dict[str, TableOrigin]:
    """Find the origin of each declared table's rows, by folded name."""
    spelt = {normalize_name(name): name for name in schema}
    found = {}
    for name in policy.tables:
        if normalize_name(name) not in spelt:
            continue
        known = find_origin(spelt[normalize_name(name)])
        if known is None:
            raise PolicyError(
                f"tables.{name}: the database cannot bind this view",
                code="view_unbound",
                hint=f"check whether it reads a file or a missing table; or {_COPY.format(name)}",
            )
        if known.foreign_sources:
            raise PolicyError(
                f"tables.{name}: its rows come from {', '.join(known.foreign_sources)}, which can fail on a single row",
                code="view_source",
                hint=f"{_COPY.format(name)}; or pass frames as a dict",
            )
        found[normalize_name(name)] = known
    return found


def _refuse_public_views(policy: policies.Policy, origins: Mapping[str, TableOrigin]) -> None:
    """Refuse a public view of private rows, and a private view of public tables only."""
    known = [
        (name, table.public, origins[normalize_name(name)])
        for name, table in policy.tables.items()
        if normalize_name(name) in origins
    ]
    shared = {
        read for _, public, origin in known if public and origin.is_stored_table for read in origin.tables
    }
    for name, public, origin in known:
        if not public and origin.tables and origin.tables <= shared:
            raise PolicyError(
                f"tables.{name}: the view is private, but all tables that it reads are public",
                code="private_view",
                hint=f"declare {name} public, or the tables that it reads private",
            )
    for name, public, origin in known:
        for theirs, also_public, read in known:
            if (
                public
                and not also_public
                and not origin.is_stored_table
                and origin.tables & read.tables - shared
            ):
                raise PolicyError(
                    f"tables.{name}: the view is public, but it reads rows of the private table {theirs}",
                    code="public_view",
                    hint="declare it private, or copy the public rows into a table that the view reads",
                )


def _check_identities(table: AnalystTable, tables: Mapping[str, AnalystTable]) -> None:
    """Refuse ids that are not read exactly, since rows of one person would count as another's.

    Ids that differ as stored must differ as read, and a link must be compared with the referenced key without conversion.
    """
    for spelt, facts in table.columns.values():
        if facts.identity is not None and not is_read_exactly(facts):
            raise PolicyError(
                f"tables.{table.name}: {spelt} identifies the unit, but different ids of type {facts.engine_type} may be equal"
                f" as {facts.type}",
                code="unit_type",
                hint=suggest_id_type(facts),
            )
    for column, ours in table.columns.values():
        for owner, _, key in sorted(ours.link_keys):
            spelt, theirs = tables[owner].columns[key]
            if ours.type is not theirs.type and not (ours.is_unit and theirs.is_unit):
                raise PolicyError(
                    f"tables.{table.name}: the link's column {column} is {ours.engine_type}, but {spelt} is {theirs.engine_type}",
                    code="link_type",
                    hint="declare both with one type, or cast one of them in a view",
                )
            if not is_read_exactly(ours):
                raise PolicyError(
                    f"tables.{table.name}: {column} is part of a link or a key, but different values of type {ours.engine_type} may be"
                    f" equal as {ours.type}",
                    code="unit_type",
                    hint=suggest_id_type(ours),
                )


def _check_shared_ids(tables: Mapping[str, AnalystTable]) -> None:
    """Refuse a shared budget where ids of units have different types, so that one unit could have different ids in two tables."""
    known: dict[Type, tuple[str, ColumnInfo]] = {}
    for table in tables.values():
        for spelt, facts in table.columns.values():
            if table.is_private and facts.is_unit:
                known.setdefault(facts.type, (f"{table.name}.{spelt}", facts))
    if len(known) > 1:
        (ours, our_facts), (theirs, their_facts), *_ = known.values()
        raise PolicyError(
            f"tables share a budget, but {ours} is {our_facts.engine_type} and {theirs} is {their_facts.engine_type}: a unit has"
            " different ids in them",
            code="shared_ids",
            hint="cast one of them in a view, so that a unit has the same id in all tables; or write `shared: false` in the"
            " policy's budget",
        )


def _refuse_collated_ids(table: AnalystTable, collated: frozenset[str]) -> None:
    """Refuse ids that the schema treats as equal although they differ, as 'a1' and 'A1': dpsql would see two people."""
    for spelt, facts in table.columns.values():
        says_whose = facts.identity is not None or facts.link_keys
        if says_whose and facts.type is Type.VARCHAR and (facts.path or (spelt,))[0] in collated:
            raise PolicyError(
                f"tables.{table.name}: {spelt} identifies the unit, but its collation treats different ids as equal;"
                " dpsql compares their bytes",
                code="unit_type",
                hint=f"declare a view or a copy that normalizes the ids, such as LOWER({spelt}) AS {spelt}, without the"
                " collation",
            )


def _refuse_reserved(policy: policies.Policy) -> None:
    """Refuse names with a leading #, which emitted SQL uses for its own parts."""
    for table, rules in policy.tables.items():
        for name in (*policies.split_table_name(table), *rules.columns):
            if name.startswith("#"):
                raise PolicyError(
                    f"tables.{table}: the name {name} begins with #, which is reserved",
                    code="reserved_name",
                    hint="give the table or column another name in a view",
                )


def _build_table(
    policy: policies.Policy,
    name: str,
    table: policies.Table,
    schema: Sequence[tuple[str, str]],
    required: frozenset[str],
) -> AnalystTable:
    engine = {normalize_name(column): (column, kind) for column, kind in schema}
    for declared in table.columns:
        _refuse_two_meanings(name, declared, engine)
    columns = {
        normalize_name(declared): build_declared_column(name, declared, column, engine, required)
        for declared, column in table.columns.items()
        if column.max_elements is None
    }
    lists = _build_list_columns(name, table, engine)
    if table.public:
        for folded, (column, kind) in engine.items():
            read_as = find_undeclared_type(policy, kind)
            if read_as is not None and folded not in columns and find_struct_field(folded, engine) is None:
                columns[folded] = (column, build_column_info(read_as, kind))
        return AnalystTable(name, UnitKind.PUBLIC, columns, lists=lists)
    unit = policy.get_unit(name)
    if unit.kind == "row" or unit.column is None:
        return AnalystTable(name, UnitKind.ROW, columns, _build_contribution(table), lists=lists)
    _add_link_keys(policy, name, columns, engine)
    for linked in policy.list_referenced_columns(name):
        spelt, facts = columns.get(normalize_name(linked), ("", None))
        if facts is not None:
            columns[normalize_name(linked)] = (
                spelt,
                replace(facts, identity=f"{normalize_name(name)}.{normalize_name(linked)}"),
            )
    column, spelt, facts = _resolve_id_column(policy, name, unit.column, columns, engine)
    link, identity = _build_unit_link(table, unit)
    columns[normalize_name(column)] = (spelt, replace(facts, identity=identity or facts.identity))
    contribution = _build_contribution(
        table, policy.list_referenced_columns(name), _iterate_referenced_keys(policy, name)
    )
    return AnalystTable(
        name, UnitKind.COLUMN, columns, contribution, unit_column=column, link=link, lists=lists
    )


def _build_list_columns(
    name: str, table: policies.Table, engine: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, tuple[str, ...], ColumnInfo, int]]:
    """Build the declared columns that are lists."""
    found = {}
    for declared, column in table.columns.items():
        if column.max_elements is None:
            continue
        where, stored = f"tables.{name}.columns.{declared}", find_stored_column(declared, engine)
        kind = None if stored is None else parse_element_type(stored[1])
        if stored is None or kind is None:
            raise PolicyError(
                f"{where}: max_elements requires a list column, which the database does not have here",
                code="column_missing" if stored is None else "column_type",
                hint="remove max_elements" if stored is not None else "declare a column of the database",
            )
        if normalize_name(declared) in map(normalize_name, table.partition or ()):
            raise PolicyError(
                f"{where}: a list cannot be a partition", code="column_type", hint="use another column"
            )
        spelt, _, path = stored
        of = {normalize_name(declared): (f"#{spelt}", kind)}
        _, facts = build_declared_column(name, declared, column, of, frozenset())
        found[normalize_name(declared)] = (spelt, path or (spelt,), facts, column.max_elements)
    return found


def _resolve_id_column(
    policy: policies.Policy,
    table: str,
    wanted: str,
    columns: Mapping[str, tuple[str, ColumnInfo]],
    engine: Mapping[str, tuple[str, str]],
) -> tuple[str, str, ColumnInfo]:
    """Find a column of ids, declared or not: its spelling in the database and in the policy, and its facts."""
    _refuse_two_meanings(table, wanted, engine)
    found = find_stored_column(wanted, engine)
    if found is None:
        raise PolicyError(
            f"tables.{table}: the unit column {wanted} is not in the database",
            code="column_missing",
            hint=f"columns of the table are {', '.join(column for column, _ in engine.values())}",
        )
    column, kind, path = found
    known = columns.get(normalize_name(wanted))
    if known is not None:
        return column, *known
    return column, column, replace(build_undeclared_id(policy, table, column, kind), path=path)


def _refuse_two_meanings(table: str, declared: str, engine: Mapping[str, tuple[str, str]]) -> None:
    """Refuse a name of both a column and a field, since dpsql and DuckDB would read different ones."""
    if normalize_name(declared) in engine and find_struct_field(declared, engine) is not None:
        raise PolicyError(
            f"tables.{table}: {declared} names both a column and a field of the STRUCT {declared.partition('.')[0]}",
            code="column_ambiguous",
            hint="rename the column or the STRUCT in a view, and declare the view",
        )


def _build_unit_link(table: policies.Table, unit: policies.Unit) -> tuple[UnitLink | None, str | None]:
    """Return the link to the unit of an indirect table's rows, and the key that its link column identifies.

    One of several columns identifies nothing by itself.
    """
    link = table.unit_link
    if unit.kind != "indirect" or link is None:
        return None, UNIT_IDENTITY
    owner, *keys = map(normalize_name, (link.table, *link.keys))
    pairs = tuple(zip(map(normalize_name, link.names), keys, strict=True))
    return UnitLink(owner, pairs), f"{owner}.{keys[0]}" if len(keys) == 1 else None


def _add_link_keys(
    policy: policies.Policy,
    name: str,
    columns: dict[str, tuple[str, ColumnInfo]],
    engine: Mapping[str, tuple[str, str]],
) -> None:
    """Record in the facts of a table's columns the declared keys that they belong to, by links and by `unique`."""
    for owner, link in policy.iterate_links():
        keys = tuple(map(normalize_name, link.keys))
        for ours, key in zip(link.names, keys, strict=True):
            part = normalize_name(link.table), tuple(sorted(keys)), key
            held = [ours] if normalize_name(owner) == normalize_name(name) else []
            held += [key] if normalize_name(link.table) == normalize_name(name) else []
            for column in held:
                _, spelt, facts = _resolve_id_column(policy, name, column, columns, engine)
                columns[normalize_name(column)] = spelt, replace(facts, link_keys=facts.link_keys | {part})
    for unique in policy.tables[name].unique:
        names = tuple(map(normalize_name, unique))
        for column in names:
            spelt, facts = columns[column]
            part = normalize_name(name), tuple(sorted(names)), column
            columns[column] = spelt, replace(facts, link_keys=facts.link_keys | {part})


def _iterate_referenced_keys(policy: policies.Policy, name: str) -> Iterator[tuple[str, ...]]:
    """Yield the unique keys of a table that another table's `link` references, except single columns that identify the unit.

    Further `links` state the unit of rows with equal values, but not that a value is unique.
    """
    for table in policy.tables.values():
        link = table.link
        if link is None or normalize_name(link.table) != normalize_name(name):
            continue
        if link is not table.unit_link or len(link.keys) > 1:
            yield tuple(sorted(map(normalize_name, link.keys)))


def _build_contribution(
    table: policies.Table, keys: Iterable[str] = (), unique: Iterable[tuple[str, ...]] = ()
) -> Contribution:
    constant = frozenset(map(normalize_name, table.partition or ()))
    return Contribution(
        table.rows_per_unit or 1,
        table.max_groups,
        constant,
        table.min_frequency,
        frozenset(map(normalize_name, keys)),
        frozenset(unique),
    )

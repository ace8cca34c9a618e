"""What exists for an analyst: the policy held against the database's schema.

An undeclared table does not exist. Names resolve as in DuckDB, without regard to case. Only schema
metadata is read here, never a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql import policy as policies
from dpsql.analysis.floats import nearest_float
from dpsql.backends import Origin
from dpsql.backends.duckdb.frames import UNCHECKED, UNTYPED, ZONED
from dpsql.errors import PolicyError
from dpsql.plan.expr import UNIT_IDENTITY, Facts
from dpsql.plan.interval import Interval, position
from dpsql.plan.tables import Contribution, UnitKind
from dpsql.plan.types import Type, Value
from dpsql.policy import fold
from dpsql.policy.engine_types import UNLIMITED, called, element, fields, read_as, reads, unread

Schema = Mapping[str, Sequence[tuple[str, str]]]
"""Each table of the database with its columns' names and engine types."""

_COPY = "copy it into a table: CREATE TABLE {} AS SELECT …"
_WIDE = ("UBIGINT", "HUGEINT", "UHUGEINT")
"""Whole numbers of which BIGINT, as which they are read, holds a part: ids of them are read as texts."""
_SMALL = ("TINYINT", "SMALLINT", "INTEGER")
MOST_DIGITS = 15
"""Decimal digits that a DOUBLE always tells apart."""
_BIGINT_DIGITS = 18
"""Decimal digits that a BIGINT always holds."""
_LOOSE = (UNTYPED, UNCHECKED)
_OF_FRAMES = {"VARCHAR": UNCHECKED, "JSON": UNCHECKED, "TIMESTAMP WITH TIME ZONE": ZONED}
"""What the types of a frame's columns are called, whose values nobody has looked at."""
_OF_OBJECTS = (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.DATE, Type.TIMESTAMP, Type.BOOLEAN)
"""As what the texts of a frame's objects are read."""
FLOAT = "FLOAT"
_BEYOND_FLOAT = 2**128
_TEXTS = ("UHUGEINT", "BIT", "BIGNUM")
"""Types of ids that are read as texts alone: texts differ where they do."""


@dataclass(frozen=True, slots=True)
class Link:
    """The table in which the unit of a linked row is looked up, and pairs of a column and what it equals there, folded."""

    table: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A declared table: `name` as the policy spells it, `columns` by folded name.

    `unit_column` holds the id of a row's unit, or of the row of another table that has the unit. `lists` are the columns
    that are read by UNNEST alone, by folded name: how each is spelt, its path, what is known of its elements, and the most
    of a row.
    """

    name: str
    unit: UnitKind
    columns: Mapping[str, tuple[str, Facts]]
    contribution: Contribution | None = None
    unit_column: str | None = None
    link: Link | None = None
    lists: Mapping[str, tuple[str, tuple[str, ...], Facts, int]] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether the table's rows belong to privacy units."""
        return self.unit is not UnitKind.PUBLIC


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every declared table, by folded name."""

    tables: Mapping[str, CatalogTable]
    database: str = ""
    """The database's name in the engine, by which a table may be called; empty where it has none."""

    def find(self, name: str) -> CatalogTable | None:
        """The table that `name` means, whatever its case."""
        return self.tables.get(fold(name))


def build(policy: policies.Policy, schema: Schema, origin: Callable[[str], Origin | None]) -> Catalog:
    """Holds the policy against the schema and what its views read, which `origin` says of each table.

    Raises PolicyError for a declared table or column that the database lacks, or whose type differs; for a view
    that cannot be read without failing on somebody's row, and for a public one that reads private tables.
    """
    _refuse_reserved(policy)
    present = {fold(name): columns for name, columns in schema.items()}
    origins = _origins(policy, schema, origin)
    _refuse_public_views(policy, origins)
    tables = {}
    for name, table in policy.tables.items():
        if fold(name) not in present:
            raise PolicyError(
                f"tables.{name}: the database has no table {name}",
                code="table_missing",
                hint=f"it has {', '.join(sorted(schema)) or 'no tables at all'}",
            )
        columns, source = present[fold(name)], origins[fold(name)]
        if not source.checked:
            columns = [(column, called(kind, _OF_FRAMES)) for column, kind in columns]
        tables[fold(name)] = _table(policy, name, table, columns, source.required)
        _refuse_collated_ids(tables[fold(name)], source.collated)
    for found in tables.values():
        _check_identities(found, tables)
    return Catalog(tables)


def _origins(
    policy: policies.Policy, schema: Schema, origin: Callable[[str], Origin | None]
) -> dict[str, Origin]:
    """Where the rows of each declared table come from, by folded names."""
    spelt = {fold(name): name for name in schema}
    found = {}
    for name in policy.tables:
        if fold(name) not in spelt:
            continue
        known = origin(spelt[fold(name)])
        if known is None:
            raise PolicyError(
                f"tables.{name}: the database cannot read it: its view cannot be bound here",
                code="view_unbound",
                hint=f"does it read a file, or a table that is gone? {_COPY.format(name)}",
            )
        if known.foreign:
            raise PolicyError(
                f"tables.{name}: its rows come from {', '.join(known.foreign)}, where one row can make a query fail",
                code="view_source",
                hint=f"{_COPY.format(name)}; or pass frames as a dict",
            )
        found[fold(name)] = known
    return found


def _refuse_public_views(policy: policies.Policy, origins: Mapping[str, Origin]) -> None:
    """Refuses a public view of what a private table holds, and a private one of public tables alone."""
    known = [
        (name, table.public, origins[fold(name)])
        for name, table in policy.tables.items()
        if fold(name) in origins
    ]
    shared = {read for _, public, origin in known if public and origin.stored for read in origin.tables}
    for name, public, origin in known:
        if not public and origin.tables and origin.tables <= shared:
            raise PolicyError(
                f"tables.{name}: all that it reads is declared public",
                code="private_view",
                hint=f"declare {name} public too, or what it reads private",
            )
    for name, public, origin in known:
        for theirs, also_public, read in known:
            if public and not also_public and not origin.stored and origin.tables & read.tables - shared:
                raise PolicyError(
                    f"tables.{name}: the view is declared public, and reads what the private table {theirs} holds",
                    code="public_view",
                    hint="make it a private table; or copy what is public into a table that the view reads",
                )


def _check_identities(table: CatalogTable, tables: Mapping[str, CatalogTable]) -> None:
    """Refuses ids that are not read exactly: rows of one person would be taken for another's.

    Ids that differ as stored must differ as they are read, and a link and what it leads to must be
    compared without being converted.
    """
    for spelt, facts in table.columns.values():
        if facts.identity is not None and not _exact(facts):
            raise PolicyError(
                f"tables.{table.name}: {spelt} says whose a row is, but ids of type {facts.engine_type} cannot be told apart"
                f" as {facts.type}",
                code="unit_type",
                hint=_as_text(facts),
            )
    for column, ours in table.columns.values():
        for owner, _, key in sorted(ours.link_keys):
            spelt, theirs = tables[owner].columns[key]
            if ours.type is not theirs.type and not (ours.is_unit and theirs.is_unit):
                raise PolicyError(
                    f"tables.{table.name}: the link's {column} is {ours.engine_type}, but {spelt} is {theirs.engine_type}",
                    code="link_type",
                    hint="declare both with one type, or cast one of them in a view",
                )
            if not _exact(ours):
                raise PolicyError(
                    f"tables.{table.name}: {column} is part of a link or a key, but values of type {ours.engine_type} cannot be told"
                    f" apart as {ours.type}",
                    code="unit_type",
                    hint=_as_text(ours),
                )


def _refuse_collated_ids(table: CatalogTable, collated: frozenset[str]) -> None:
    """Refuses ids that the schema takes for equal though they differ, as 'a1' and 'A1' are: dpsql would see two people."""
    for spelt, facts in table.columns.values():
        says_whose = facts.identity is not None or facts.link_keys
        if says_whose and facts.type is Type.VARCHAR and (facts.path or (spelt,))[0] in collated:
            raise PolicyError(
                f"tables.{table.name}: {spelt} says whose a row is, and its collation takes ids for equal that differ;"
                " dpsql compares their bytes",
                code="unit_type",
                hint=f"declare a view or a copy in which equal ids are written alike, as LOWER({spelt}) AS {spelt}, without the"
                " collation",
            )


def _exact(facts: Facts) -> bool:
    """Whether values of a column that differ as stored are read as values that differ.

    >>> _exact(Facts(Type.DOUBLE, "DECIMAL(15,2)")), _exact(Facts(Type.DOUBLE, "DECIMAL(38,0)"))
    (True, False)
    >>> _exact(Facts(Type.INTEGER, "BIGINT")), _exact(Facts(Type.INTEGER, "UBIGINT"))
    (True, False)
    """
    engine, digits = facts.engine_type, _digits(facts.engine_type)
    match facts.type:
        case Type.VARCHAR:
            return True
        case Type.INTEGER:
            return engine not in _WIDE and (digits or 0) <= _BIGINT_DIGITS
        case Type.DOUBLE:
            whole = _engine_type(engine) is Type.INTEGER and engine.removeprefix("U") not in _SMALL
            return engine not in (UNTYPED, UNLIMITED) and not whole and (digits or 0) <= MOST_DIGITS
        case _:
            return engine not in (UNTYPED, "TIMESTAMP_NS", "TIMESTAMPTZ_NS", "TIME_NS")


def _digits(engine: str) -> int | None:
    """The decimal digits of an engine type; None where it is no DECIMAL."""
    found = re.match(r"DECIMAL\((\d+)", engine)
    return None if found is None else int(found[1])


def _reads_every_value(facts: Facts) -> bool:
    """Whether no value of a column is read as NULL, as what is not listed, NaN, or beyond 64 bits or the calendar is.

    >>> [_reads_every_value(Facts(Type.INTEGER, kind)) for kind in ("BIGINT", "HUGEINT")]
    [True, False]
    """
    if facts.domain is not None or facts.engine_type in _LOOSE:
        return False
    match facts.type:
        case Type.INTEGER:
            return facts.interval.bounded or _exact(facts)
        case Type.DATE | Type.TIMESTAMP:
            return facts.interval.bounded
        case kind:
            return kind not in (Type.DOUBLE, Type.TIME)


def _as_text(facts: Facts) -> str:
    if facts.engine_type in _WIDE or facts.engine_type == UNTYPED or _digits(facts.engine_type):
        return "declare it varchar: every digit counts then"
    if _engine_type(facts.engine_type) is Type.INTEGER:
        return "declare it integer"
    return "cast it in a view, to VARCHAR"


def _refuse_reserved(policy: policies.Policy) -> None:
    """Names with a leading # are those that emitted SQL gives to its own parts."""
    for table, rules in policy.tables.items():
        for name in (*policies.table_parts(table), *rules.columns):
            if name.startswith("#"):
                raise PolicyError(
                    f"tables.{table}: the name {name} begins with #, which is reserved",
                    code="reserved_name",
                    hint="give the table or column another name in a view",
                )


def _table(
    policy: policies.Policy,
    name: str,
    table: policies.Table,
    schema: Sequence[tuple[str, str]],
    required: frozenset[str],
) -> CatalogTable:
    engine = {fold(column): (column, kind) for column, kind in schema}
    for declared in table.columns:
        _refuse_two_meanings(name, declared, engine)
    columns = {
        fold(declared): _declared(name, declared, column, engine, required)
        for declared, column in table.columns.items()
        if column.max_elements is None
    }
    lists = _lists(name, table, engine)
    if table.public:
        for folded, (column, kind) in engine.items():
            read_as = _undeclared(policy, kind)
            if read_as is not None and folded not in columns and _field(folded, engine) is None:
                columns[folded] = (column, _facts_of(read_as, kind))
        return CatalogTable(name, UnitKind.PUBLIC, columns, lists=lists)
    unit = policy.unit_of(name)
    if unit.kind == "row" or unit.column is None:
        return CatalogTable(name, UnitKind.ROW, columns, _contribution(table), lists=lists)
    _add_link_keys(policy, name, columns, engine)
    for linked in policy.links_to(name):
        spelt, facts = columns.get(fold(linked), ("", None))
        if facts is not None:
            columns[fold(linked)] = (spelt, replace(facts, identity=f"{fold(name)}.{fold(linked)}"))
    column, spelt, facts = _id_column(policy, name, unit.column, columns, engine)
    link, identity = _link(table, unit)
    columns[fold(column)] = (spelt, replace(facts, identity=identity or facts.identity))
    contribution = _contribution(table, policy.links_to(name), _referenced(policy, name))
    return CatalogTable(
        name, UnitKind.COLUMN, columns, contribution, unit_column=column, link=link, lists=lists
    )


def _lists(
    name: str, table: policies.Table, engine: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, tuple[str, ...], Facts, int]]:
    """The declared columns that are lists."""
    found = {}
    for declared, column in table.columns.items():
        if column.max_elements is None:
            continue
        where, stored = f"tables.{name}.columns.{declared}", _stored(declared, engine)
        kind = None if stored is None else element(stored[1])
        if stored is None or kind is None:
            raise PolicyError(
                f"{where}: max_elements is of a list, which the database does not have there",
                code="column_missing" if stored is None else "column_type",
                hint="delete max_elements" if stored is not None else "declare a column that it has",
            )
        if fold(declared) in map(fold, table.partition or ()):
            raise PolicyError(
                f"{where}: a list cannot be a partition", code="column_type", hint="name another column"
            )
        spelt, _, path = stored
        of = {fold(declared): (f"#{spelt}", kind)}
        _, facts = _declared(name, declared, column, of, frozenset())
        found[fold(declared)] = (spelt, path or (spelt,), facts, column.max_elements)
    return found


def _engine_type(name: str) -> Type | None:
    """The type as which a column of an engine type is read."""
    found = read_as(name)
    return None if found is None else Type[found.upper()]


def _undeclared(policy: policies.Policy, kind: str) -> Type | None:
    """As which type a column is read that the policy does not declare; None where it cannot be.

    A UUID is text to a policy that declares none.
    """
    found = Type.VARCHAR if kind in _LOOSE else _engine_type(kind)
    if found is not Type.UUID:
        return found
    declared = {column.type for table in policy.tables.values() for column in table.columns.values()}
    return found if "uuid" in declared else Type.VARCHAR


def _undeclared_id(policy: policies.Policy, table: str, column: str, kind: str) -> Facts:
    """What is known of a column of ids that the policy does not declare: ids that differ are read as values that differ.

    What no type holds exactly is read as text. Raises PolicyError for types whose texts may be alike.
    """
    found = _undeclared(policy, kind)
    facts = _facts_of(found or Type.VARCHAR, kind)
    if found is None and kind not in _TEXTS:
        raise PolicyError(
            f"tables.{table}: {column} says whose a row is, but ids of type {kind} are not compared exactly",
            code="unit_type",
            hint="cast it in a view",
        )
    as_text = found in (Type.INTEGER, Type.DOUBLE) and not _exact(facts) and reads("varchar", kind)
    return Facts(Type.VARCHAR, kind) if as_text else facts


def _id_column(
    policy: policies.Policy,
    table: str,
    wanted: str,
    columns: Mapping[str, tuple[str, Facts]],
    engine: Mapping[str, tuple[str, str]],
) -> tuple[str, str, Facts]:
    """A column that holds ids, as the database and as the policy spells it, and its facts; it need not be declared."""
    _refuse_two_meanings(table, wanted, engine)
    found = _stored(wanted, engine)
    if found is None:
        raise PolicyError(
            f"tables.{table}: the unit column {wanted} is not in the database",
            code="column_missing",
            hint=f"the table has {', '.join(column for column, _ in engine.values())}",
        )
    column, kind, path = found
    known = columns.get(fold(wanted))
    if known is not None:
        return column, *known
    return column, column, replace(_undeclared_id(policy, table, column, kind), path=path)


def _stored(wanted: str, engine: Mapping[str, tuple[str, str]]) -> tuple[str, str, tuple[str, ...]] | None:
    """A column, or a field of a STRUCT by the dotted name: how it is spelt, its engine type, and the field's path.

    The path is empty for a column. None for what is not there.
    """
    return (*engine[fold(wanted)], ()) if fold(wanted) in engine else _field(wanted, engine)


def _refuse_two_meanings(table: str, declared: str, engine: Mapping[str, tuple[str, str]]) -> None:
    """Refuses a name that is a column's and a field's: a query would read the one, and in DuckDB the other."""
    if fold(declared) in engine and _field(declared, engine) is not None:
        raise PolicyError(
            f"tables.{table}: {declared} is a column, and a field of the STRUCT {declared.partition('.')[0]}",
            code="column_ambiguous",
            hint="declare a view in which the column or the STRUCT has another name",
        )


def _field(wanted: str, engine: Mapping[str, tuple[str, str]]) -> tuple[str, str, tuple[str, ...]] | None:
    """A field of a STRUCT by its dotted name, as `_stored` gives it."""
    first, *rest = wanted.split(".")
    if fold(first) not in engine or not rest:
        return None
    spelt, kind = engine[fold(first)]
    path = [spelt]
    for name in rest:
        inner = {fold(field): (field, of) for field, of in (fields(kind) or {}).items()}
        if fold(name) not in inner:
            return None
        spelt, kind = inner[fold(name)]
        path.append(spelt)
    return ".".join(path), kind, tuple(path)


def _link(table: policies.Table, unit: policies.Unit) -> tuple[Link | None, str | None]:
    """Where the unit of an indirect table's rows is looked up, and what its link column identifies.

    One of several columns identifies nothing by itself.
    """
    link = table.owner
    if unit.kind != "indirect" or link is None:
        return None, UNIT_IDENTITY
    owner, *keys = map(fold, (link.table, *link.keys))
    pairs = tuple(zip(map(fold, link.names), keys, strict=True))
    return Link(owner, pairs), f"{owner}.{keys[0]}" if len(keys) == 1 else None


def _add_link_keys(
    policy: policies.Policy,
    name: str,
    columns: dict[str, tuple[str, Facts]],
    engine: Mapping[str, tuple[str, str]],
) -> None:
    """Adds to the facts of a table's columns which parts of declared keys they are, by links and by `unique`."""
    for owner, link in policy.foreign_keys():
        keys = tuple(map(fold, link.keys))
        for ours, key in zip(link.names, keys, strict=True):
            part = fold(link.table), tuple(sorted(keys)), key
            held = [ours] if fold(owner) == fold(name) else []
            held += [key] if fold(link.table) == fold(name) else []
            for column in held:
                _, spelt, facts = _id_column(policy, name, column, columns, engine)
                columns[fold(column)] = spelt, replace(facts, link_keys=facts.link_keys | {part})
    for unique in policy.tables[name].unique:
        names = tuple(map(fold, unique))
        for column in names:
            spelt, facts = columns[column]
            part = fold(name), tuple(sorted(names)), column
            columns[column] = spelt, replace(facts, link_keys=facts.link_keys | {part})


def _referenced(policy: policies.Policy, name: str) -> Iterator[tuple[str, ...]]:
    """The keys of a table, each in one row, that a `link` refers to which leads to no unit by one column.

    Further `links` say whose the rows of equal values are, and not that one row has them.
    """
    for table in policy.tables.values():
        link = table.link
        if link is None or fold(link.table) != fold(name):
            continue
        if link is not table.owner or len(link.keys) > 1:
            yield tuple(sorted(map(fold, link.keys)))


def _contribution(
    table: policies.Table, keys: Iterable[str] = (), unique: Iterable[tuple[str, ...]] = ()
) -> Contribution:
    constant = frozenset(map(fold, table.partition or ()))
    return Contribution(
        table.rows_per_unit or 1,
        table.max_groups,
        constant,
        table.min_frequency,
        frozenset(map(fold, keys)),
        frozenset(unique),
    )


def _declared(
    table: str,
    declared: str,
    column: policies.Column,
    engine: Mapping[str, tuple[str, str]],
    required: frozenset[str],
) -> tuple[str, Facts]:
    """A column as the policy declares it; of whether it may be NULL the schema decides where the policy does not say."""
    where = f"tables.{table}.columns.{declared}"
    stored = _stored(declared, engine)
    if stored is None:
        raise PolicyError(
            f"{where}: the database's table {table} has no such column",
            code="column_missing",
            hint=f"it has {', '.join(name for name, _ in engine.values())}",
        )
    spelt, kind, path = stored
    wanted, found = Type[column.type.upper()], _engine_type(kind)
    loose = {UNTYPED: _OF_OBJECTS, UNCHECKED: (Type.VARCHAR,)}.get(kind, ())
    if not (wanted in loose or reads(column.type, kind)):
        raise PolicyError(
            f"{where}: the policy says {column.type}, the database says {kind}",
            code="column_type",
            hint="declare the type that the database has, or leave the column out"
            if found is not None or loose
            else f"{kind} cannot be read: {unread(kind)}",
        )
    facts = replace(
        _facts_of(wanted, kind),
        interval=_interval(column),
        domain=_domain(wanted, column.values),
        nullable=column.nullable,
        path=path,
    )
    if facts.float32:
        facts = _in_float(facts)
    decided = not column.says_nullable and spelt in required and _reads_every_value(facts)
    return spelt, replace(facts, nullable=False) if decided else facts


def _facts_of(read_as: Type, kind: str) -> Facts:
    return Facts(read_as, kind, float32=kind == FLOAT and read_as is Type.DOUBLE)


def _in_float(facts: Facts) -> Facts:
    """What is declared of a FLOAT column, as FLOAT: 0.1 is the value that the column has for it."""
    low, high = (None if end is None else _nearest(end) for end in (facts.interval.low, facts.interval.high))
    domain = facts.domain and tuple(
        value if value is None else float(_nearest(Fraction(value)))  # type: ignore[arg-type]
        for value in facts.domain
    )
    return replace(facts, interval=Interval(low, high), domain=domain)


def _nearest(value: Fraction) -> Fraction:
    nearest = nearest_float(float(value)) if abs(value) < _BEYOND_FLOAT else None
    return value if nearest is None else Fraction(nearest)


def _domain(kind: Type, values: Sequence[Value] | None) -> tuple[Value, ...] | None:
    if values is None:
        return None
    return tuple(float(value) if kind is Type.DOUBLE else value for value in values)  # type: ignore[arg-type]


def _interval(column: policies.Column) -> Interval:
    if column.bounds is None:
        if column.values and column.type in ("integer", "double"):
            numbers = [Fraction(value) for value in column.values]  # type: ignore[arg-type]
            return Interval(min(numbers), max(numbers))
        return Interval(0, 1) if column.type == "boolean" else Interval()
    low, high = (end if isinstance(end, Fraction) else position(end) for end in column.bounds)
    return Interval(low, high)

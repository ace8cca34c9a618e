"""Scalar expressions, typed when they are built.

Every operator and function is a `Call` that holds its entry of the function registry, so that one
visitor serves them all: the entry knows the result's type, its interval and how to write it in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dpsql.plan.interval import ANYWHERE, Interval, TextSize
from dpsql.plan.types import TaggedEnum, Type, Value

LEAVES = 8
"""The number of columns or constants that count as one call in the size of an expression."""
UNIT_IDENTITY = "unit"
"""The identity of the columns that hold the privacy unit's id."""


LinkKey = tuple[str, tuple[str, ...], str]
"""A part of a key that a declared link refers to: the table, all columns of the key, and one of these, folded."""


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """Facts about a column from the policy and the schema: public knowledge, independent of the data.

    `engine_type` is the column's type in the database, empty for a column of a derived table; `interval`
    its declared or derived bounds, `domain` its values, `nullable` whether NULL is one of its keys.
    `identity` names what its values identify: rows with equal values of one identity have one unit. `scale` is how many
    digits after the point a column of a derived table has, where it is DECIMAL in the engine; what follows of it is in the
    plan, so that it is not compared. Nor are `link_keys`, the parts of declared keys that its values are: which rows may
    be joined follows from them. `path` is the way to a field of a STRUCT: the column and the names of fields; empty for a
    column itself. `decimal` are the digits of a column of a derived table that is made of DECIMAL columns, all of them and
    those after the point, `inexact` says that arithmetic on these rounds its values, `widened`
    that it holds whole numbers, which were computed as DOUBLE, and `float32` that its values are FLOAT in the engine; none of
    the four is compared.
    """

    tag: ClassVar[str] = "Facts"

    type: Type
    engine_type: str
    interval: Interval = ANYWHERE
    domain: tuple[Value, ...] | None = None
    nullable: bool = True
    identity: str | None = None
    scale: int | None = field(default=None, compare=False)
    link_keys: frozenset[LinkKey] = field(default=frozenset(), compare=False)
    path: tuple[str, ...] = ()
    decimal: tuple[int, int] | None = field(default=None, compare=False)
    inexact: bool = field(default=False, compare=False)
    widened: bool = field(default=False, compare=False)
    size: int = field(default=0, compare=False)
    float32: bool = field(default=False, compare=False)
    bits: int = field(default=64, compare=False)

    @property
    def is_unit(self) -> bool:
        """Return whether the values are the ids of privacy units."""
        return self.identity == UNIT_IDENTITY

    @property
    def is_stored(self) -> bool:
        """Return whether it is a column of a table of the database."""
        return self.engine_type != ""

    @property
    def has_time_zone(self) -> bool:
        """Return whether the database holds moments with a time zone, which are read in UTC."""
        return self.engine_type in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")

    @property
    def is_read_verbatim(self) -> bool:
        """Return whether values are read as they are stored: none is clamped or taken for NULL."""
        free = self.interval == ANYWHERE or self.type is Type.BOOLEAN
        return self.is_stored and free and self.domain is None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the scan known in this query as `source`."""

    tag: ClassVar[str] = "Column"

    source: str
    name: str
    facts: ColumnInfo

    def __hash__(self) -> int:
        # Facts seldom distinguish columns, and their fractions and lists are slow to hash.
        return hash((self.source, self.name))

    @property
    def type(self) -> Type:
        """Return the type it is read as."""
        return self.facts.type

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the query; `exact` if it has a point and no exponent, like a DECIMAL of the engine."""

    tag: ClassVar[str] = "Literal"

    value: Value
    type: Type
    exact: bool = field(default=True, compare=False, repr=False)

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True, slots=True)
class ReleasedColumn:
    """A column of the released table, by its name there: public from the release on.

    Each aggregate, and each expression over aggregates of one row, may have columns with the two ends of its 95% confidence
    interval: `end_of` names the column whose interval this ends, and the end, "low" or "high". `decimal` has the digits of a value
    that is DECIMAL in the engine, all of them and those after the point; `float32` says that it is FLOAT. Columns are equal if
    their names are.
    """

    tag: ClassVar[str] = "Released"

    name: str
    type: Type
    end_of: tuple[Expr, str] | None = field(default=None, compare=False, repr=False)
    decimal: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    float32: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    def get_interval_end(self, which: str) -> ReleasedColumn:
        """Return the column with the "low" or "high" end of this aggregate's interval.

        >>> ReleasedColumn("a0", Type.INTEGER).get_interval_end("low")
        ReleasedColumn(name='a0#low', type=<Type.DOUBLE: 'DOUBLE'>)
        """
        return ReleasedColumn(f"{self.name}#{which}", Type.DOUBLE, (self, which))


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An entry of the function registry; entries are compared by identity.

    `signature` shows how it is written and `names` are what it may be called by in SQL: several entries
    may share a name, of which the first that takes the arguments is meant. `result` gives the type for
    argument types, or None where it refuses them. `interval` maps the arguments and their intervals to
    the result's. `sql` is a template whose holes {0}, {1}, … take the written arguments and {args} all
    of them, comma-separated. `total` says why no row can make the written SQL fail. `integer_sql` is the
    template of arithmetic whose result is an INTEGER: it gives NULL beyond 64 bits, whatever the arguments are, and
    is only written where their intervals exclude that, as else the arguments are cast to DOUBLE. `strict` means that the result is NULL only if an
    argument is, `never_null` that it never is; `integral` that a DOUBLE is whole. `values` gives all that
    the result can be, where that is public and no interval says it.

    `doubled_arguments` are the argument positions that the engine writes out twice, as it does for NULLIF, so that
    nesting them takes time and memory without end.

    `literals` are the argument positions that must be constants. `check` says what is wrong with them,
    in the order of their positions; where it is `checked_by_engine`, an engine without data says so too. `size` bounds the text
    that it gives by bounds on its arguments' texts, and `work` what it does for one row, which is to read and write each of
    them once where it is None. `example` is a call of constants and what it gives, as text.
    """

    name: str
    signature: str
    result: Callable[[tuple[Type, ...]], Type | None]
    sql: str
    total: str
    interval: Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval] = lambda _, __: ANYWHERE
    integer_sql: str = ""
    strict: bool = False
    integral: bool = False
    literals: frozenset[int] = frozenset()
    doubled_arguments: frozenset[int] = frozenset()
    names: tuple[str, ...] = ()
    example: tuple[str, str] = ("", "")
    never_null: bool = False
    values: Callable[[tuple[Expr, ...], tuple[Interval, ...]], Iterable[Value] | None] = lambda _, __: None
    check: Callable[[tuple[Value, ...]], str | None] = lambda _: None
    checked_by_engine: bool = False
    size: SizeRule | None = None
    work: WorkRule | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to arguments; `size` is the number of calls when the engine expands it.

    Arguments may be shared, and an engine writes out what columns of derived tables are computed from, so the size can
    double with each level while the memory does not. `LEAVES` columns of tables or constants count as a call.
    """

    tag: ClassVar[str] = "Call"

    function: Function
    arguments: tuple[Expr, ...]
    type: Type = field(compare=False)
    size: int = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        doubled = self.function.doubled_arguments
        sizes = [
            compute_expression_size(argument) * (2 if place in doubled else 1)
            for place, argument in enumerate(self.arguments)
        ]
        object.__setattr__(self, "size", 1 + sum(sizes) + sizes.count(0) // LEAVES)
        # Kept, because a hash that walks the whole expression at each of its nodes is quadratic.
        object.__setattr__(self, "_hash", hash((self.function, self.arguments)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{self.function.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Scalar:
    """The one value of a query over released and public values, a `Post`; NULL if it has no row."""

    tag: ClassVar[str] = "Scalar"

    outer: Any
    type: Type

    def __str__(self) -> str:
        return "(the value of a subquery)"


@dataclass(frozen=True, slots=True)
class Order:
    """One item of an ORDER BY."""

    tag: ClassVar[str] = "Order"

    expr: Expr
    descending: bool
    nulls_first: bool


class FrameKind(TaggedEnum):
    """The unit of a frame's ends: rows, groups of rows that are equal in order, or ranges of such groups."""

    ROWS = "ROWS", "ROWS"
    RANGE = "RANGE", "RANGE"
    GROUPS = "GROUPS", "GROUPS"


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows of a partition that a window function reads, from `first` to `last`.

    Both count from the current row, backwards below zero; None is the partition's end. `exclude` leaves
    out the current row, its group or its ties.
    """

    tag: ClassVar[str] = "Frame"

    kind: FrameKind
    first: int | None
    last: int | None
    exclude: str = ""


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A function of several released or public rows, by its name in the registry of window functions."""

    tag: ClassVar[str] = "Windowed"

    function: str
    arguments: tuple[Expr, ...]
    partition: tuple[Expr, ...]
    order: tuple[Order, ...]
    frame: Frame | None
    ignore_nulls: bool
    type: Type


Expr = Column | Literal | ReleasedColumn | Scalar | Call | WindowCall
"""A scalar expression."""


def compute_expression_size(expr: Expr) -> int:
    """Return how many calls an expression has when an engine has written out the derived tables that it reads.

    >>> tripled = Column("d", "x", ColumnInfo(Type.INTEGER, "", size=3))
    >>> compute_expression_size(tripled), compute_expression_size(Column("t", "x", ColumnInfo(Type.INTEGER, "BIGINT")))
    (3, 0)
    """
    match expr:
        case Call():
            return expr.size
        case Column():
            return expr.facts.size
        case WindowCall():
            read = (*expr.arguments, *expr.partition, *(item.expr for item in expr.order))
            return 1 + sum(map(compute_expression_size, read))
        case _:
            return 0


def walk(expr: Expr) -> Iterator[Expr]:
    """Return the expression and everything in it, outermost first; a call or window that it shares is visited once."""
    return _walk(expr, set())


def _walk(expr: Expr, visited: set[int]) -> Iterator[Expr]:
    if isinstance(expr, (Call, WindowCall)):
        if id(expr) in visited:
            return
        visited.add(id(expr))
    yield expr
    if isinstance(expr, Call):
        for argument in expr.arguments:
            yield from _walk(argument, visited)
    elif isinstance(expr, WindowCall):
        for part in (*expr.arguments, *expr.partition, *(item.expr for item in expr.order)):
            yield from _walk(part, visited)


def iterate_columns(expr: Expr) -> Iterator[Column]:
    """Return the columns that an expression reads."""
    return (part for part in walk(expr) if isinstance(part, Column))


def substitute_columns(expr: Expr, items: Mapping[Column, Expr]) -> Expr:
    """Replace the columns of an expression over rows by `items`, which must hold each of them."""
    return _Substitution(lambda part: items[part] if isinstance(part, Column) else part).rewrite_expression(
        expr
    )


def replace_parts(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Replace the columns, released values and windows of an expression that `known` holds; others stay."""
    return _Substitution(
        lambda part: known.get(part, part), lambda window: window not in known
    ).rewrite_expression(expr)


@dataclass(frozen=True, slots=True)
class _Substitution:
    """Replace each leaf by the result of `leaf`, and rebuild the calls and windows in `opened`, a shared one once."""

    leaf: Callable[[Expr], Expr]
    opened: Callable[[WindowCall], bool] = lambda _: False
    done: dict[int, Expr] = field(default_factory=dict)

    def rewrite_expression(self, expr: Expr) -> Expr:
        if not isinstance(expr, Call) and not (isinstance(expr, WindowCall) and self.opened(expr)):
            return self.leaf(expr)
        if id(expr) not in self.done:  # a part of one expression, which outlives this
            self.done[id(expr)] = self._rebuild_expression(expr)
        return self.done[id(expr)]

    def _rebuild_expression(self, expr: Call | WindowCall) -> Expr:
        arguments = tuple(map(self.rewrite_expression, expr.arguments))
        if isinstance(expr, Call):
            return replace(expr, arguments=arguments)
        partition = tuple(map(self.rewrite_expression, expr.partition))
        order = tuple(replace(item, expr=self.rewrite_expression(item.expr)) for item in expr.order)
        return replace(expr, arguments=arguments, partition=partition, order=order)


def replace_order_parts(order: Iterable[Order], known: Mapping[Expr, Expr]) -> tuple[Order, ...]:
    """Return an order by expressions that are replaced."""
    return tuple(replace(item, expr=replace_parts(item.expr, known)) for item in order)


def has_window(expr: Expr) -> bool:
    """Return whether an expression looks at several rows."""
    return any(isinstance(part, WindowCall) for part in walk(expr))


def is_conditional(expr: Expr | None) -> bool:
    """Return whether an expression is NULL unless one of its conditions is true, like the argument of an aggregate with FILTER."""
    return isinstance(expr, Call) and expr.function.name == "case" and is_null(expr.arguments[-1])


def is_null(expr: Expr) -> bool:
    """Return whether an expression is the constant NULL of any type."""
    return isinstance(expr, Literal) and expr.value is None


SizeRule = Callable[[Sequence[Expr], Sequence[TextSize]], TextSize]
"""Bounds the length of a result by the lengths of the argument texts."""
WorkRule = Callable[[Sequence[Expr], Sequence[TextSize]], int]
"""Bounds the work of computing a result by the lengths of the argument texts."""

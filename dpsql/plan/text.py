"""Plans as text: a canonical form for digests, and SQL-like words for people."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum

from dpsql.plan.expressions import (
    Call,
    Column,
    ColumnInfo,
    Expr,
    Frame,
    Function,
    Literal,
    Order,
    ReleasedColumn,
    WindowCall,
)
from dpsql.plan.nodes import (
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    SetOperation,
    Values,
)
from dpsql.plan.tables import Scan
from dpsql.plan.types import COMPARED_FIELDS, FORMS, Form, TaggedEnum, Type

# The canonical text of a plan, and plan equality up to the names of sources and the order of commutative operators.


_VALUES: set[type] = set()


def compute_canonical_text(part: object) -> str:
    """Compute a text that is the same for equal plans, in this process and every other, and in every version of dpsql.

    Raises TypeError for an object without a tag.
    """
    kind = type(part)
    if kind in _VALUES:
        return f"{kind.__name__}:{part!r}"
    if isinstance(part, Function):
        return part.name
    form = FORMS[kind]
    if form is not None:
        texts = (compute_canonical_text(getattr(part, name)) for name in form.names)
        return f"({form.tag} {' '.join(texts)})"
    if isinstance(part, (tuple, list)):
        return f"({' '.join(map(compute_canonical_text, part))})"
    if isinstance(part, TaggedEnum):
        return part.tag
    if isinstance(part, frozenset):
        return compute_canonical_text(sorted(part))
    if isinstance(part, Enum) or kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        raise TypeError(f"{kind.__name__} has no tag, so it cannot be in a fingerprint")
    _VALUES.add(kind)  # a value of Python's own, as all of its class are
    return f"{kind.__name__}:{part!r}"


def compute_digest(outer: OuterQuery) -> str:
    """Compute the SHA-256 of a plan, in hexadecimal."""
    return hashlib.sha256(compute_canonical_text(outer).encode()).hexdigest()


_NAMED = (Scan, Project, PerUnitGroupBy, PerUnitWindows, SetOperation, PublicSubquery, Values)
_SPREAD = frozenset({"and", "or"})
_SYMMETRIC = frozenset({"eq", "ne"})


def compute_equality_text(part: object) -> str:
    """Compute a text that equal plans share, in every process. Plans with different texts may still be equivalent.

    Claim: plans with one text have, on every database, the same exact answer.
    Why: the text is `compute_canonical_text`, which determines the plan, with two changes. Sources are numbered in the
    order in which the plan names them, an injective renaming. The arguments of AND, OR, = and <> are sorted: these functions are
    commutative, and total, so that none fails in another order.
    Source: Chandra, Merlin 1977, "Optimal implementation of conjunctive queries" (queries up to renaming).
    """
    names: dict[str, str] = {}
    _number_sources(part, names, set())
    return _EqualityEncoder(names).encode_part(part)


def compute_equality_texts(common: tuple[object, ...], *rests: tuple[object, ...]) -> tuple[str, ...]:
    """Compute the texts of several tuples that begin alike. What these have in common is named once, and written once."""
    names: dict[str, str] = {}
    seen = set[int]()
    _number_sources(common, names, seen)
    found: list[str] = []
    text = _EqualityEncoder(names)
    for rest in rests:
        own = dict(names)
        _number_sources(rest, own, set(seen))
        text = text if own == text.names else _EqualityEncoder(own)
        found.append(text.encode_part((*common, *rest)))
    return tuple(found)


def _number_sources(part: object, names: dict[str, str], seen: set[int]) -> None:
    """Number the sources in an order that does not depend on the order of conditions."""
    seen.add(id(part))
    if isinstance(part, _NAMED):
        names.setdefault(part.alias, f"#{len(names)}")
    for child in part if isinstance(part, tuple) else _list_fields(part):
        # Expressions name no source that is not made elsewhere.
        if (isinstance(child, tuple) or COMPARED_FIELDS[type(child)]) and not (
            isinstance(child, Expr) or id(child) in seen
        ):
            _number_sources(child, names, seen)


def _list_fields(part: object) -> list[object]:
    return [getattr(part, name) for name in COMPARED_FIELDS[type(part)]]


@dataclasses.dataclass(frozen=True, slots=True)
class _EqualityEncoder:
    names: dict[str, str]
    facts: dict[int, str] = dataclasses.field(default_factory=dict)
    """The text of a column's facts, by identity: many mentions share one object, which the plan keeps alive."""
    done: dict[int, str] = dataclasses.field(default_factory=dict)
    """The text of each tagged part, by identity, likewise."""

    def encode_part(self, part: object) -> str:
        form = FORMS[type(part)]
        if form is None:
            return (
                f"({' '.join(map(self.encode_part, part))})"
                if isinstance(part, tuple)
                else compute_canonical_text(part)
            )
        if isinstance(part, Column):
            return f"({Column.tag} {self._encode_source(part.source)} {compute_canonical_text(part.name)} {self._encode_column_info(part.facts)})"
        if isinstance(part, Call):
            return self._encode_call(part)
        if id(part) not in self.done:
            self.done[id(part)] = self._encode_tagged(part, form)
        return self.done[id(part)]

    def _encode_tagged(self, part: object, form: Form) -> str:
        alias = self._encode_source(part.alias) if isinstance(part, _NAMED) else None
        fields = (
            alias if alias and name == "alias" else self.encode_part(getattr(part, name))
            for name in form.names
        )
        return f"({form.tag} {' '.join(fields)})"

    def _encode_column_info(self, facts: ColumnInfo) -> str:
        if id(facts) not in self.facts:
            self.facts[id(facts)] = compute_canonical_text(facts)
        return self.facts[id(facts)]

    def _encode_source(self, source: str) -> str:
        # A source that nothing in the plan makes keeps its name.
        return self.names.get(source) or compute_canonical_text(source)

    def _encode_call(self, call: Call) -> str:
        name = call.function.name
        parts = _iterate_operands(call, name) if name in _SPREAD else call.arguments
        texts = [self.encode_part(part) for part in parts]
        if name in _SPREAD | _SYMMETRIC:
            texts.sort()
        return f"({Call.tag} {name} ({' '.join(texts)}))"


def _iterate_operands(call: Call, name: str) -> Iterator[Expr]:
    """Yield the operands of a chain of ANDs, or of ORs."""
    for argument in call.arguments:
        if isinstance(argument, Call) and argument.function.name == name:
            yield from _iterate_operands(argument, name)
        else:
            yield argument


# Expressions as SQL for people. `dpsql.sql.compile` writes the SQL that the engine runs.


_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "like": "LIKE",
    "ilike": "ILIKE",
    "and": "AND",
    "or": "OR",
}

_MOST_LISTED = 9
"""The most operands of `x IN (…)` that are shown, x included."""


def format_expression(expr: Expr, names: Mapping[str, str] | None = None) -> str:
    """Return an expression as text; `names` holds the texts of released columns.

    >>> from dpsql.plan.functions import build_function_call
    >>> format_expression(build_function_call("add", Literal(1, Type.INTEGER), Literal(2, Type.INTEGER)))
    '(1 + 2)'
    """
    match expr:
        case Literal():
            return _format_literal(expr)
        case ReleasedColumn():
            return _format_released(expr, names or {})
        case Call():
            return _format_call(expr, names)
        case WindowCall():
            return _format_window(expr, names)
        case _:
            return str(expr)


def _format_released(expr: ReleasedColumn, names: Mapping[str, str]) -> str:
    if expr.end_of is None:
        return names.get(expr.name, expr.name)
    of, which = expr.end_of
    return f"DP_INTERVAL_{which.upper()}({format_expression(of, names)})"


def _format_literal(expr: Literal) -> str:
    if expr.value is None:
        return "NULL"
    if expr.type in (Type.INTEGER, Type.DOUBLE, Type.BOOLEAN):
        return str(expr.value).upper() if expr.type is Type.BOOLEAN else str(expr.value)
    return "'" + str(expr.value).replace("'", "''") + "'"


def _format_call(expr: Call, names: Mapping[str, str] | None) -> str:
    name, many = expr.function.name, len(expr.arguments)
    taken = expr.arguments if name != "in" or many <= _MOST_LISTED else expr.arguments[: _MOST_LISTED - 1]
    parts = [format_expression(argument, names) for argument in taken]
    if name in _INFIX:
        return f"({f' {_INFIX[name]} '.join(parts)})"
    if name == "case":
        *pairs, otherwise = parts
        whens = " ".join(
            f"WHEN {when} THEN {then}" for when, then in zip(pairs[::2], pairs[1::2], strict=True)
        )
        return f"CASE {whens} ELSE {otherwise} END"
    if name == "in":
        listed = [*parts[1:], *([f"… {many - len(taken)} more"] * (len(taken) < many))]
        return f"({parts[0]} IN ({', '.join(listed)}))"
    if name == "map":
        return f"MAP {{{': '.join(parts)}, …}}"
    if name == "histogram_of_group":
        return f"PART {parts[1]} OF {parts[0]}"
    if name == "is_null":
        return f"({parts[0]} IS NULL)"
    if name == "not":
        return f"(NOT {parts[0]})"
    if name.startswith("cast_"):
        return f"CAST({parts[0]} AS {name.removeprefix('cast_').upper()})"
    return f"{name.upper()}({', '.join(parts)})"


def _format_window(expr: WindowCall, names: Mapping[str, str] | None) -> str:
    arguments = ", ".join(format_expression(argument, names) for argument in expr.arguments)
    if expr.function == "count":
        arguments = arguments or "*"
    parts = [f"PARTITION BY {', '.join(format_expression(part, names) for part in expr.partition)}"] * bool(
        expr.partition
    )
    parts += [f"ORDER BY {', '.join(format_order_item(item, names) for item in expr.order)}"] * bool(
        expr.order
    )
    parts += [format_frame(expr.frame)] if expr.frame is not None else []
    ignored = " IGNORE NULLS" * expr.ignore_nulls
    return f"{expr.function.upper()}({arguments}{ignored}) OVER ({' '.join(parts)})"


def format_order_item(item: Order, names: Mapping[str, str] | None = None) -> str:
    """Return an item of ORDER BY as text, without where NULLs go."""
    return f"{format_expression(item.expr, names)}{' DESC' * item.descending}"


def format_frame(frame: Frame) -> str:
    """Return a frame in SQL.

    >>> from dpsql.plan.expressions import FrameKind
    >>> format_frame(Frame(FrameKind.ROWS, -1, None))
    'ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING'
    """
    first = "UNBOUNDED PRECEDING" if frame.first is None else _format_frame_end(frame.first)
    last = "UNBOUNDED FOLLOWING" if frame.last is None else _format_frame_end(frame.last)
    exclude = f" EXCLUDE {frame.exclude}" if frame.exclude else ""
    return f"{frame.kind.value} BETWEEN {first} AND {last}{exclude}"


def _format_frame_end(offset: int) -> str:
    if offset == 0:
        return "CURRENT ROW"
    return f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"

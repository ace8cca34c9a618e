"""The SQL above the release boundary, which reads released and public values alone.

It runs on an engine that holds nothing else: the released tables, and copies of public ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.plan.expr import Column, Expr, Released
from dpsql.plan.nodes import Answer, Post, Release, released_columns
from dpsql.plan.steps import steps
from dpsql.plan.tables import Scan
from dpsql.sql.clean import clean
from dpsql.sql.rows import source_of
from dpsql.sql.scalar_text import identifier, ordered, write

ORDINAL = "#"


@dataclass(frozen=True, slots=True)
class Copies:
    """Reads releases from the tables that `released` names, and public tables from copies.

    `columns` collects, for each table that is read, which columns its copy must have.
    """

    released: Mapping[Release, str]
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)

    def answer(self, answer: Answer) -> str:
        """The query, with its outputs under the names of the answer's columns."""
        return emit_post(answer.post, self, [column.name for column in answer.columns])

    def table(self, scan: Scan, read: Sequence[Column]) -> str:
        """The query of a copy's columns."""
        self.columns.setdefault(scan.table, {}).update({column.name: column for column in read})
        items = ", ".join(identifier(column.name) for column in read)
        return f"SELECT {items or '1'} FROM {identifier(scan.table)}"


@dataclass(frozen=True, slots=True)
class Originals:
    """Reads public tables as they are: for queries on nothing private, which the database itself answers."""

    released: Mapping[Release, str] = field(default_factory=dict)

    def answer(self, answer: Answer) -> str:
        """The query, with its outputs under the names of the answer's columns."""
        return emit_post(answer.post, self, [column.name for column in answer.columns])

    def table(self, scan: Scan, read: Sequence[Column]) -> str:
        """The query of a table's cleaned columns."""
        return emit_copy(scan.table, read)


def unchanged(post: Post) -> tuple[int, ...] | None:
    """The places of the released columns that are the outputs, None where more is done with a release.

    Such rows need no engine, where nothing has to be answered before the release.
    """
    if not isinstance(post.source, Release) or post != Post(post.source, post.outputs):
        return None
    if steps(post) != (post.source,):
        return None
    places = {column.name: place for place, column in enumerate(released_columns(post.source))}
    found = [places.get(item.expr.name) if isinstance(item.expr, Released) else None for item in post.outputs]
    return None if None in found else tuple(place for place in found if place is not None)


def emit_copy(table: str, columns: Sequence[Column]) -> str:
    """The query of a public table's columns, cleaned, in this order."""
    items = ", ".join(f"{clean(column)} AS {identifier(column.name)}" for column in columns)
    return f"SELECT {items or '1'} FROM {identifier(table)}"


def emit_post(
    post: Post, above: Copies | Originals, names: Sequence[str] = (), *, traced: bool = False
) -> str:
    """The query of a plan's outputs, as `names` or else as o0, o1 and so on.

    Where it reads a release alone, `traced` adds the ordinal of each output's released row.
    """
    named = names or [f"o{index}" for index in range(len(post.outputs))]
    items = [
        f"{write(output.expr)} AS {identifier(name)}"
        for output, name in zip(post.outputs, named, strict=True)
    ]
    source, conditions = _source(post, above)
    conditions += [write(post.having)] if post.having is not None else []
    order = list(map(ordered, post.order))
    if isinstance(post.source, Release) and not post.distinct:
        items += [identifier(ORDINAL)] if traced else []
        order.append(identifier(ORDINAL))
    lines = [f"SELECT {'DISTINCT ' * post.distinct}{', '.join(items)}", f"FROM {source}"]
    if conditions:
        lines.append(f"WHERE {' AND '.join(conditions)}")
    if post.qualify is not None:
        lines.append(f"QUALIFY {write(post.qualify)}")
    if order and (traced or post.order or post.limit is not None or post.offset):
        lines.append(f"ORDER BY {', '.join(order)}")
    if post.limit is not None:
        lines.append(f"LIMIT {post.limit}")
    if post.offset:
        lines.append(f"OFFSET {post.offset}")
    return "\n".join(lines)


def _source(post: Post, above: Copies | Originals) -> tuple[str, list[str]]:
    if isinstance(post.source, Release):
        return identifier(above.released[post.source]), []
    read: list[Expr] = [output.expr for output in post.outputs]
    read += [item.expr for item in post.order]
    read += [part for part in (post.having, post.qualify) if part is not None]
    return source_of(post.source, read, above)

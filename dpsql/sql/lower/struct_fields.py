"""Fields of STRUCTs, which the policy declares by their dotted names: `s.field`, `(s).field`, `s['field']`, `struct_extract(s, 'field')`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol, Self

from sqlglot import exp

from dpsql.plan.expressions import Column
from dpsql.policy import normalize_name
from dpsql.policy.problem import suggest_choice
from dpsql.sql.parse.rejection import QueryText


class ColumnScope(Protocol):
    """The columns that can be named; `outer` holds those of the query around."""

    @property
    def source(self) -> QueryText:
        """The text of the query."""
        ...

    @property
    def outer(self) -> Self | None:
        """The rows of the query around it."""
        ...

    def list_column_owners(self, name: str, owner: str | None) -> list[str]:
        """List the tables that have a column of a name: all of them, or only the one of the name `owner`."""
        ...

    def get_column(self, alias: str, name: str) -> Column:
        """Return the column `name` of the table in scope as `alias`."""
        ...

    def list_column_names(self, owner: str | None) -> list[str]:
        """List the names of the columns of the table `owner`, or of all tables; empty if there is no such table."""
        ...


def find_field(rows: ColumnScope, parts: Sequence[object]) -> Column | None:
    """Return the field of a STRUCT that the policy declares by its dotted name; None where a name means something else."""
    names = _take_names(rows, parts)
    scope: ColumnScope | None = rows if len(names) > 1 else None
    while scope is not None:
        owner, rest = names[0], ".".join(names[1:])
        if scope.list_column_owners(rest, owner):
            return scope.get_column(normalize_name(owner), rest) if len(names) > 2 else None
        holders = scope.list_column_owners(".".join(names), None)
        if len(holders) == 1:
            return scope.get_column(holders[0], ".".join(names))
        scope = scope.outer
    return None


def check_field(rows: ColumnScope, node: exp.Expr, parts: Sequence[object]) -> None:
    """Refuse a name that means no field, but begins as those of a STRUCT whose fields are declared."""
    names = _take_names(rows, parts)
    for table, path in ((names[0], names[1:]), (None, names)) if names else ():
        for end in range(len(path) - 1, 0, -1):
            struct, name = ".".join(path[:end]), ".".join(path[end:])
            fields = [
                column
                for column in rows.list_column_names(table)
                if normalize_name(column).startswith(f"{normalize_name(struct)}.")
            ]
            if fields:
                rows.source.refuse(
                    node,
                    "column",
                    f"{struct} has no field {name} that the policy declares",
                    suggest_choice(f"{struct}.{name}", fields) or f"there are: {', '.join(fields)}",
                )


def _take_names(rows: ColumnScope, parts: Sequence[object]) -> list[str]:
    """Return the names in a path with points; empty if a part is no name."""
    identifiers = [part for part in parts if type(part) is exp.Identifier]
    if len(identifiers) < len(parts):
        return []
    return [str(rows.source.take_arguments(part, "this", quoted=(True,))[0]) for part in identifiers]


def resolve_field(rows: ColumnScope, node: exp.Expr) -> Column:
    """Return the field that `(s).field`, `s['field']` and `struct_extract(s, 'field')` mean."""
    names: list[exp.Expr] = []
    at = node
    while type(at) is exp.Paren or is_field_access(at):
        if type(at) is exp.Paren:
            (at,) = rows.source.take_arguments(at, "this")
            continue
        if type(at) is exp.Dot:
            (at, name), more = rows.source.take_arguments(at, "this", "expression"), ()
        elif type(at) is exp.Bracket:
            at, (name, *more) = rows.source.take_arguments(at, "this", "expressions")
        else:
            _, (at, name, *more) = rows.source.take_arguments(at, "this", "expressions")
        if type(name) is exp.Literal and name.args.get("is_string"):
            name = exp.to_identifier(
                str(rows.source.take_arguments(name, "this", is_string=(True,))[0]), quoted=True
            )
        if more or type(name) is not exp.Identifier:
            _refuse_field(rows, node)
        names.insert(0, name)
    if type(at) is not exp.Column:
        _refuse_field(rows, node)
    rows.source.take_arguments(at, "this", "table", "db", "catalog")
    parts = [part for part in at.parts if part is not None]
    found = find_field(rows, [*parts, *names])
    if found is None:
        check_field(rows, node, [*parts, *names])
    return found or _refuse_field(rows, node)


def _refuse_field(rows: ColumnScope, node: exp.Expr) -> NoReturn:
    rows.source.refuse(
        node,
        "column",
        "only fields that the policy declares can be read, and no elements of lists",
        "let the policy declare the field by its dotted name, such as address.city",
    )


def is_field_access(node: exp.Expr) -> bool:
    """Return whether a node reads a field of the expression before it."""
    if type(node) is exp.Dot:
        return type(node.expression) is exp.Identifier
    called = type(node) is exp.Anonymous and normalize_name(str(node.this)) == "struct_extract"
    return type(node) is exp.Bracket or (called and len(node.expressions) > 1)

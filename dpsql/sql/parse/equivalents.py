"""Functions of other dialects that an expression of DuckDB's SQL computes, as tables by dialect and name.

Claim: for every argument of a type that the dialect's function takes, the expression has the value of the dialect's function; where
that function fails, the expression is NULL or computes on.
Why: each entry follows from the manuals' definitions; those of PostgreSQL and Spark are compared with the engine itself by
`tests/engines/test_dialect_meaning.py`, those of the others with their manuals' examples by `tests/fixtures/dialects`.
Source: the manuals of PostgreSQL 17, Spark 4 SQL, Snowflake, GoogleSQL and Transact-SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.dialect import DIALECT, EQUIVALENTS, Parser
from dpsql.sql.parse.dialect_text import DialectText

MOST_COPIED = 100
"""The most nodes of an argument that an expression names several times: nested copies would double the text each time."""


@lru_cache(maxsize=512)
def _parse_template(template: str) -> tuple[exp.Expr, Mapping[str, int]]:
    """Return the tree of an expression, and how often it names each argument: `_1` is the first."""
    (tree,) = Parser(dialect=DIALECT).parse(DIALECT.tokenize(template), template)
    if tree is None:
        raise ValueError("an expression is needed")
    counts: dict[str, int] = {}
    for node in tree.find_all(exp.Column):
        counts[node.name] = counts.get(node.name, 0) + 1
    return tree, counts


def build_equivalent(self: DialectText, node: exp.Expr, template: str, *arguments: exp.Expr) -> exp.Expr:
    """Build an expression of DuckDB's SQL with these arguments in the places `_1`, `_2`, …. Raises QueryRejected for long copies."""
    tree, counts = _parse_template(template)
    named = {f"_{place}": argument for place, argument in enumerate(arguments, 1)}
    for name, count in counts.items():
        if count > 1 and sum(1 for _ in named[name].walk()) > MOST_COPIED:
            self.refuse_in_dialect(
                node, "too_long", "an expression this long cannot be translated: the translation copies it"
            )

    def put_argument(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        found = named[part.name].copy()
        return (
            found
            if isinstance(found, (exp.Literal, exp.Column, exp.Paren, exp.Anonymous))
            else exp.Paren(this=found)
        )

    made = tree.transform(put_argument)
    return made if isinstance(made, (exp.Anonymous, exp.Literal, exp.Cast)) else exp.Paren(this=made)


def translate_equivalent(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate a call for which a table has an expression with as many arguments; None for all others."""
    items = node.expressions
    for template in EQUIVALENTS[self.dialect].get(normalize_name(node.name), ()):
        _, counts = _parse_template(template)
        if len(items) == max((int(name[1:]) for name in counts), default=0):
            return build_equivalent(self, node, template, *items)
    return None

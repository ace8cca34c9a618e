"""Predicates, groups and operators as DuckDB 2.0 reads them, for versions of sqlglot that read them otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import TokenType

from dpsql.version import Difference

DIFFERENCES: Mapping[str, Difference] = {
    "grouping_sets": Difference(
        (30, 19),
        "ROLLUP, CUBE and GROUPING SETS are items of GROUP BY",
        "dpsql's parser reads the items of GROUP BY itself",
        "the older tree keeps them apart from the keys",
    ),
    "predicates": Difference(
        (30, 24),
        "IS binds looser than a comparison, as in DuckDB",
        "dpsql's parser reads IS after comparisons; in other dialects a comparison beside IS needs parentheses",
        "`a = b IS NULL` would be read as `a = (b IS NULL)`",
    ),
    "tilde": Difference(
        (30, 27),
        "`~` finds a pattern anywhere in a text, as in DuckDB 2.0",
        "dpsql's parser gives `~` that meaning",
        "the older parser takes it for a match of the whole text, as DuckDB 1.x does",
    ),
    "pivoted_values": Difference(
        (30, 29),
        "PIVOT of VALUES",
        "it is refused (`syntax`)",
        "the older parser does not read it",
    ),
    "positions": Difference(
        (30, 30),
        "the place of each argument of an aggregate",
        "a refusal may point to the call instead",
        "a place is only shown",
    ),
}
"""Everything in which dpsql treats one version of sqlglot differently from another."""


@cache
def supports(name: str) -> bool:
    """Return whether the installed sqlglot has what a line of `DIFFERENCES` describes."""
    return DIFFERENCES[name].is_in(version("sqlglot"))


_POSTFIX = {TokenType.IS, TokenType.ISNULL, TokenType.NOTNULL}
_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ,
)  # fmt: skip
"""Predicates whose order of binding differs between versions of the parser."""


def find_ambiguous_predicate(tree: exp.Expr) -> exp.Expr | None:
    """Find a comparison beside another or beside IS without parentheses, if the installed parser may bind them wrongly."""
    if supports("predicates"):
        return None
    for node in tree.find_all(*_COMPARISONS):
        for operand in (node.this, node.expression):
            inner = operand.this if isinstance(operand, exp.Not) else operand
            if isinstance(inner, _COMPARISONS):
                return node
    return None


class OlderParser(DuckDBParser):
    """DuckDB's parser, with the grammar of the newest reviewed version of sqlglot where an older one is installed."""

    RANGE_PARSERS: ClassVar[dict[Any, Callable[..., Any]]] = {
        **DuckDBParser.RANGE_PARSERS,
        **({} if supports("tilde") else {TokenType.TILDE: DuckDBParser.RANGE_PARSERS[TokenType.RLIKE]}),
    }

    def _parse_range(self, this: exp.Expr | None = None, *args: Any, **options: Any) -> exp.Expr | None:
        """Parse BETWEEN, IN, LIKE and the like; IS stays for the comparison around them."""
        if supports("predicates"):
            found: exp.Expr | None = super()._parse_range(this, *args, **options)
            return found
        this = this or self._parse_bitwise()
        while not self._is_at_postfix():
            negated = self._match(TokenType.NOT)
            if not self._match_set(self.RANGE_PARSERS):
                if negated:
                    self._retreat(self._index - 1)
                return this
            read = self.RANGE_PARSERS[self._prev.token_type](self, this)
            if not read:
                return this
            this = self._negate_range(read) if negated else read
        return this

    def _parse_equality(self, *args: Any, **options: Any) -> exp.Expr | None:
        """Parse comparisons, and IS after each of them."""
        this: exp.Expr | None = super()._parse_equality(*args, **options)
        if supports("predicates"):
            return this
        while this is not None and self._is_at_postfix():
            this = self._parse_postfix(this)
            while self._match_set(self.EQUALITY) or self._match_set(self.COMPARISON):
                node = {**self.EQUALITY, **self.COMPARISON}[self._prev.token_type]
                this = self.expression(node(this=this, expression=self._parse_range()))
        return this

    def _is_at_postfix(self) -> bool:
        kind = getattr(self._curr, "token_type", None)  # an older parser has no token after the last one
        follows = getattr(self._next, "token_type", None)
        return kind in _POSTFIX or (kind is TokenType.NOT and follows is TokenType.NULL)

    def _parse_postfix(self, this: exp.Expr) -> exp.Expr | None:
        """Parse IS and what follows it: NULL, TRUE, FALSE, or DISTINCT FROM with a comparison."""
        self._advance()
        kind = self._prev.token_type
        if kind is not TokenType.IS:
            negated = kind is not TokenType.ISNULL
            self._match(TokenType.NULL) if kind is TokenType.NOT else None
            found: exp.Expr = self.expression(exp.Is(this=this, expression=exp.Null()))
            return self.expression(exp.Not(this=found)) if negated else found
        start = self._index
        negated = bool(self._match(TokenType.NOT))
        if self._match_text_seq("DISTINCT", "FROM"):
            node = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return self.expression(node(this=this, expression=super()._parse_equality()))
        self._retreat(start)
        read: exp.Expr | None = self._parse_is(this)
        return read

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        """Parse GROUP BY with grouping sets among its items."""
        if supports("grouping_sets"):
            found: exp.Group | None = super()._parse_group(skip_group_by_token)
            return found
        if not skip_group_by_token and not self._match(TokenType.GROUP_BY):
            return None
        group = exp.Group()
        if self._match(TokenType.ALL):
            group.set("all", True)
        elif not self._match_set(self.QUERY_MODIFIER_TOKENS, advance=False):
            group.set("expressions", self._parse_csv(self._parse_grouping_set))
        return self.expression(group)

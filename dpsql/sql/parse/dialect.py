"""The parser's dialect: DuckDB's, except that functions stay as they are written.

The parser would turn a call into a node of its own that many dialects share, with arguments reordered,
renamed, added or dropped. Here it reads a name and a list of arguments, whose meaning is in the registry of
functions alone. Aggregates keep their nodes, and so does what has a syntax of its own, such as
EXTRACT(year FROM day).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import ProgrammingError
from dpsql.sql.parse.dialect_nodes import TITLES

DIALECT = DuckDB()
DUCKDB = "duckdb"
DIALECTS: Mapping[str, Dialect] = {DUCKDB: DIALECT, **{name: Dialect.get_or_raise(name) for name in TITLES}}
"""The dialects that are read."""
_AGGREGATES = {
    "BIT_AND", "BIT_OR", "BIT_XOR", "LIST", "LISTAGG", "QUANTILE_CONT", "QUANTILE_DISC", "STRINGAGG", "STRING_AGG",
    *(
        name
        for name, node in exp.FUNCTION_BY_NAME.items()
        if isinstance(node, type) and issubclass(node, (exp.AggFunc, exp.RowNumber))
    ),
}  # fmt: skip
_OWN_SYNTAX = {"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST"}


def _make_aggregate_node(name: str) -> type[exp.AggFunc]:
    """Build a node for the calls of an aggregate with up to two arguments."""
    arguments = {"this": False, "expression": False}
    words = {"arg_types": arguments, "_sql_names": [name], "__module__": __name__}
    return type(name.title().replace("_", ""), (exp.Expression, exp.AggFunc), words)


ADDED_NODES: Mapping[str, type[exp.AggFunc]] = {
    name: _make_aggregate_node(name)
    for name in (
        "ANY_VALUE", "ARBITRARY", "ARG_MAX_NULL", "ARG_MAX_NULLS_LAST", "ARG_MIN_NULL", "ARG_MIN_NULLS_LAST", "BITSTRING_AGG",
        "COMBINE_AGGR", "COUNT_STAR", "DECIMAL_AVERAGE", "ENTROPY", "GEOMEAN", "GEOMETRIC_MEAN",
        "HISTOGRAM", "HISTOGRAM_EXACT", "KURTOSIS_POP", "LTTB", "MAD", "PRODUCT",
        "RESERVOIR_QUANTILE", "SEM", "SUM_NO_OVERFLOW", "VARIANT_GROUP_OBJECT", "WAVG", "WEIGHTED_AVG",
    )
}  # fmt: skip
"""DuckDB's aggregates, macros among them, for which the parser has no node: it would take them for functions of a row.

It would silently drop further arguments of ANY_VALUE.
"""


SPELLINGS: Mapping[str, type[exp.AggFunc]] = {
    "FAVG": exp.Avg, "MEAN": exp.Avg, "FSUM": exp.Sum, "KAHAN_SUM": exp.Sum, "SUMKAHAN": exp.Sum,
    "CHOOSE": exp.ArgMax,
}  # fmt: skip
"""Further names of aggregates: SUM and AVG already add up with as little rounding, and CHOOSE is dpsql's own."""


def _make_quantifier_builder(name: str, node: type[exp.Expression]) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Return the builder of ALL or SOME over a list, which the parser takes for a call; it knows ANY."""

    def build_quantifier(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) == 1:
            return node(this=exp.Paren(this=arguments[0]))
        return exp.Anonymous(this=name, expressions=arguments)

    return build_quantifier


class Parser(DuckDBParser):
    """DuckDB's parser, which knows aggregates and calls with a syntax of their own, and no other function."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: build for name, build in DuckDBParser.FUNCTIONS.items() if name in _AGGREGATES},
        **{name: node.from_arg_list for name, node in {**ADDED_NODES, **SPELLINGS}.items()},
        "ALL": _make_quantifier_builder("ALL", exp.All),
        "SOME": _make_quantifier_builder("SOME", exp.Any),
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parse
        for name, parse in DuckDBParser.FUNCTION_PARSERS.items()
        if name in _AGGREGATES | _OWN_SYNTAX
    }

    TABLE_ALIAS_TOKENS: ClassVar = DuckDBParser.TABLE_ALIAS_TOKENS - {TokenType.PIVOT, TokenType.UNPIVOT}

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        """Parse CUBE or ROLLUP with comparisons, where the parser only reads arithmetic."""
        if with_prefix or self._curr.token_type not in (TokenType.CUBE, TokenType.ROLLUP):
            found: exp.Cube | exp.Rollup | None = super()._parse_cube_or_rollup(with_prefix)
            return found
        cube = self._curr.token_type is TokenType.CUBE
        self._advance()
        keys = self._parse_wrapped_csv(self._parse_disjunction)
        return exp.Cube(expressions=keys) if cube else exp.Rollup(expressions=keys)

    def _parse_grouping_set(self) -> exp.Expr | None:
        found: exp.Expr | None = (
            self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()
        )
        return found

    def _parse_in(self, this: exp.Expr | None, alias: bool = True) -> exp.In:
        """Parse IN with names after values, as in a PIVOT statement; elsewhere these are refused like any alias."""
        found: exp.In = super()._parse_in(this, alias)
        return found

    def _parse_simplified_pivot(self, is_unpivot: bool | None = None) -> exp.Pivot:
        """Parse a PIVOT statement with ORDER BY and LIMIT behind it."""
        found: exp.Pivot = super()._parse_simplified_pivot(is_unpivot)
        found.set("order", self._parse_order())
        offset = self._parse_offset()
        found.set("limit", self._parse_limit())
        found.set("offset", offset or self._parse_offset())
        return found

    def _parse_limit(
        self,
        this: exp.Expr | None = None,
        top: bool = False,
        skip_limit_token: bool = False,
    ) -> exp.Expr | None:
        """Parse FETCH FIRST n ROWS ONLY as the LIMIT that it is; without a number, as LIMIT 1."""
        found: exp.Expr | None = super()._parse_limit(this, top, skip_limit_token)
        if type(found) is not exp.Fetch:
            return found
        options = found.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            return found
        return exp.Limit(expression=found.args.get("count") or exp.Literal.number(1))


def require_dialect(name: str) -> Dialect:
    """Return the dialect with this name. Raises ProgrammingError if there is none."""
    found = DIALECTS.get(name)
    if found is None:
        raise ProgrammingError(
            f"there is no dialect {name}", code="dialect", hint=f"there are: {', '.join(DIALECTS)}"
        )
    return found


def parse_tokens(tokens: list[Token], text: str) -> list[exp.Expr | None]:
    """Return the trees of a text."""
    return list(Parser(dialect=DIALECT).parse(tokens, text))


def parse_foreign_tokens(tokens: list[Token], text: str, *, dialect: str) -> list[exp.Expr | None]:
    """Return the trees of a text in another dialect, as its own parser reads it."""
    reader = DIALECTS[dialect]
    return list(reader.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text))

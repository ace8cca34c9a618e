"""Rewrite REGRESS(y ON x, …) and COVAR_MATRIX(x, …) as queries over moments.

Claim: the rewritten query has a column for each coefficient, or each covariance, over the rows of each group without NULLs;
so that everything proven about such a query holds.
Why: it is the text of `dpsql.sql.regression`, with the expressions and the FROM and WHERE of the statement.
Source: `dpsql.sql.regression`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.policy import normalize_name
from dpsql.sql.parse.dialect import DIALECT, parse_tokens
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.regression import MOST_COLUMNS, MOST_REGRESSORS, build_covariance_query, regression

REGRESS, COVAR_MATRIX = "REGRESS", "COVAR_MATRIX"
CALLS = (f"{REGRESS}(", f"{COVAR_MATRIX}(")
MATRICES = "matrices"
"""Where the tree of a statement holds the places of its columns that are the entries of a covariance matrix."""
_ALONE = (
    "join the other aggregates: (SELECT plan, REGRESS(cost ON age) FROM … GROUP BY plan) AS "
    "r JOIN (SELECT plan, COUNT(*) AS n … GROUP BY plan) AS c USING (plan)"
)
_COLUMN = "write SELECT plan, REGRESS(cost ON age) FROM … GROUP BY plan"
_MOST_CALLS = 8
_ROWS, _KEY, _VALUE = "#rows", "#key", "#value"


def replace_regress_on(text: str, tokens: Sequence[Token]) -> tuple[str, list[Token]]:
    """Return the text and its words with a comma in place of ON in REGRESS(y ON x), which no parser reads."""
    letters, found = list(text), list(tokens)
    for place in range(1, len(tokens)):
        if not (tokens[place - 1].text.upper() == REGRESS and tokens[place].token_type is TokenType.L_PAREN):
            continue
        if tokens[place - 1].token_type is not TokenType.VAR:
            continue
        depth = 0
        for at in range(place, len(tokens)):
            token, kind = tokens[at], tokens[at].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0 or (depth == 1 and kind is TokenType.COMMA):
                break
            if depth == 1 and kind is TokenType.ON:
                letters[token.start : token.end + 1] = ", "
                found[at] = Token(TokenType.COMMA, ",", token.line, token.col, token.start, token.start)
                break
    return "".join(letters), found


def rewrite_regressions(source: QueryText, tree: exp.Expr | None) -> exp.Expr | None:
    """Return the tree of a statement in which each SELECT with such a column is a query over moments. Raises QueryRejected."""
    calls = [] if tree is None else [node for node in tree.find_all(exp.Anonymous) if is_moment_call(node)]
    if tree is None or not calls:
        return tree
    if len(calls) > _MOST_CALLS:
        source.refuse(
            calls[0], "too_long", f"a query may have at most {_MOST_CALLS} calls of REGRESS and COVAR_MATRIX"
        )
    for select in reversed(list(tree.find_all(exp.Select))):
        place = next(
            (place for place, item in enumerate(select.expressions) if is_moment_call(_unwrap_alias(item))),
            None,
        )
        if place is None:
            continue
        written = _MomentSelect(source, select, place, outermost=select is tree).build_moment_query()
        if select is tree:
            tree = written
        else:
            select.replace(written)
    for left in tree.find_all(exp.Anonymous):
        if is_moment_call(left):
            source.refuse(
                left, "regression", f"{left.name.upper()} must be a column of SELECT by itself", _COLUMN
            )
    return tree


def _unwrap_alias(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


def is_moment_call(node: exp.Expr) -> bool:
    """Return whether a node is a call of REGRESS or COVAR_MATRIX."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in (REGRESS, COVAR_MATRIX)


@dataclass(frozen=True, slots=True)
class _MomentSelect:
    """A SELECT whose column at `place` is one of the calls."""

    source: QueryText
    select: exp.Select
    place: int
    outermost: bool

    def build_moment_query(self) -> exp.Select:
        """Build the query over moments."""
        source, select = self.source, self.select
        items, origin, group, order, limit, offset, joins, where, with_ = source.take_arguments(
            select, "expressions", "from_", "group", "order", "limit", "offset", "joins", "where", "with_"
        )
        call = _unwrap_alias(items[self.place])
        if origin is None:
            source.refuse(call, "regression", f"{call.name.upper()} needs a FROM clause", _COLUMN)
        arguments = self._list_arguments(call)
        keys = self._resolve_keys(items, group)
        by = {f"{_KEY}{number}": f'"{_KEY}{number}"' for number in range(len(keys))}
        values = [f'"{_VALUE}{number}"' for number in range(len(arguments))]
        if call.name.upper() == REGRESS:
            y, *x = values
            text = regression(y, x, f'"{_ROWS}"', by).sql
            names = ["intercept", *self._name_arguments(call, arguments[1:], 1)]
        else:
            asked = build_covariance_query(values, f'"{_ROWS}"', by)
            text, own = asked.sql, self._name_arguments(call, arguments, 1)
            names = [f"{own[a]}_{own[b]}" for a, b in asked.pairs]
        outer = _parse_template(text)
        put = {f"{_KEY}{number}": key for number, key in enumerate(keys)}
        put |= {f"{_VALUE}{number}": value for number, value in enumerate(arguments)}
        _fill_template(outer, put, {"from_": origin, "joins": joins, "where": where})
        columns, matrix = self._build_columns(items, keys, outer.expressions, names)
        outer.set("expressions", columns)
        order = self._build_order(order, len(items))
        for name, clause in (("with_", with_), ("order", order), ("limit", limit), ("offset", offset)):
            outer.set(name, clause)
        if self.outermost and call.name.upper() == COVAR_MATRIX:
            outer.meta[MATRICES] = matrix
        return outer

    def _list_arguments(self, call: exp.Expr) -> list[exp.Expr]:
        (arguments,) = self.source.take_arguments(call, "expressions", this=(call.name,))
        regresses = call.name.upper() == REGRESS
        least, most = (2, MOST_REGRESSORS + 1) if regresses else (1, MOST_COLUMNS)
        if not least <= len(arguments) <= most:
            message = (
                f"{REGRESS}(y ON x, …) takes one y and 1 to {MOST_REGRESSORS} columns x"
                if regresses
                else f"{COVAR_MATRIX}(x, …) takes 1 to {MOST_COLUMNS} columns"
            )
            self.source.refuse(call, "regression", message, _COLUMN)
        for each in arguments:
            if isinstance(each, (exp.Star, exp.Distinct)) or each.find(exp.AggFunc, exp.Window):
                self.source.refuse(
                    each,
                    "regression",
                    "an argument must be computed from one row, without aggregates",
                    _COLUMN,
                )
        return list(arguments)

    def _resolve_keys(self, items: Sequence[exp.Expr], group: exp.Expr | None) -> list[exp.Expr]:
        """Resolve the items of GROUP BY, with ordinals and aliases replaced by their expressions."""
        source = self.source
        others = [item for place, item in enumerate(items) if place != self.place]
        keys = list[exp.Expr]()
        if group is not None:
            every = group.args.get("all") is True
            (listed,) = source.take_arguments(group, "expressions", all=(True,))
            aliases = {
                normalize_name(item.alias): item.this for item in others if isinstance(item, exp.Alias)
            }
            for key in [_unwrap_alias(item) for item in others] if every else listed:
                keys.append(self._resolve_key(key, items, aliases))
        for item in others:
            if is_moment_call(_unwrap_alias(item)):
                source.refuse(
                    item, "regression", "a SELECT may have only one column REGRESS or COVAR_MATRIX", _ALONE
                )
            if _unwrap_alias(item) not in keys:
                source.refuse(
                    item,
                    "regression",
                    "SELECT may only have group keys next to this column, written as in GROUP BY",
                    _ALONE,
                )
        return list(dict.fromkeys(keys))

    def _resolve_key(
        self, key: exp.Expr, items: Sequence[exp.Expr], aliases: Mapping[str, exp.Expr]
    ) -> exp.Expr:
        if isinstance(key, exp.Literal) and not key.is_string:
            place = int(key.name[:9]) - 1 if key.name.isdigit() else -1
            if not 0 <= place < len(items) or place == self.place:
                self.source.refuse(
                    key, "ordinal", "GROUP BY names a column that SELECT does not have", _COLUMN
                )
            return _unwrap_alias(items[place])
        if isinstance(key, (exp.Rollup, exp.Cube, exp.GroupingSets)):
            self.source.refuse(
                key, "regression", "subtotals are not supported here: GROUP BY may only list keys", _COLUMN
            )
        named = (
            aliases.get(normalize_name(key.name)) if isinstance(key, exp.Column) and not key.table else None
        )
        if named is None or named == key:
            return key
        if any(
            normalize_name(column.name) == normalize_name(key.name) for column in named.find_all(exp.Column)
        ):
            self.source.refuse(
                key,
                "ambiguous",
                f"{key.name} names both a column and another SELECT item",
                "give the SELECT item another name with AS",
            )
        return named

    def _build_order(self, order: exp.Expr | None, width: int) -> exp.Expr | None:
        """Build the ORDER BY that is written, or for a whole statement, the order of the keys before the call."""
        numbers = range(1, self.place + 1)
        if order is None:
            sorting = [exp.Ordered(this=exp.Literal.number(number), nulls_first=False) for number in numbers]
            return exp.Order(expressions=sorting) if sorting and self.outermost else None
        for item in order.expressions:
            number = item.this.name if isinstance(item.this, exp.Literal) and not item.this.is_string else ""
            if number.isdigit() and self.place < int(number[:9]) <= width:
                self.source.refuse(
                    item, "ordinal", "the call makes several columns: ORDER BY must name one of them", _COLUMN
                )
        return order

    def _name_arguments(self, call: exp.Expr, arguments: Sequence[exp.Expr], first: int) -> list[str]:
        """Return the names of columns, and x1, x2, … of other expressions."""
        names = [
            each.name if isinstance(each, exp.Column) else f"x{number}"
            for number, each in enumerate(arguments, first)
        ]
        if len({normalize_name(name) for name in names}) < len(names):
            self.source.refuse(call, "ambiguous", "two columns of the result have the same name", _COLUMN)
        return names

    def _build_columns(
        self,
        items: Sequence[exp.Expr],
        keys: Sequence[exp.Expr],
        outputs: Sequence[exp.Expr],
        names: Sequence[str],
    ) -> tuple[list[exp.Expr], list[int]]:
        """Build the result's columns in the order of the statement, and the places of the columns of the call."""
        prefix = self.select.expressions[self.place].alias or _unwrap_alias(items[self.place]).name.lower()
        found, own = list[exp.Expr](), list[int]()
        for place, item in enumerate(items):
            if place == self.place:
                own = list(range(len(found), len(found) + len(names)))
                found += [
                    _build_alias(output, f"{prefix}_{name}")
                    for output, name in zip(outputs[len(keys) :], names, strict=True)
                ]
            else:
                output = outputs[keys.index(_unwrap_alias(item))]
                found.append(_build_alias(output, item.alias_or_name or item.sql("duckdb")))
        return found, own


def _build_alias(output: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=_unwrap_alias(output).copy(), alias=exp.to_identifier(name, quoted=True))


def _parse_template(text: str) -> exp.Select:
    """Return the tree of a text of our own, in which no node has a place."""
    (tree,) = parse_tokens(DIALECT.tokenize(text), text)
    if not isinstance(tree, exp.Select):
        raise TypeError("a query over moments is a SELECT")
    for node in tree.walk():
        node.meta.clear()
    tree.set("order", None)
    return tree


def _fill_template(outer: exp.Select, values: Mapping[str, exp.Expr], clauses: Mapping[str, object]) -> None:
    """Put expressions into the places of the columns that are named for them, and the clauses in that of the rows."""
    for select in list(outer.find_all(exp.Select)):
        origin = select.args.get("from_")
        if origin is not None and origin.this.name == _ROWS:
            for column in list(select.find_all(exp.Column)):
                if column.name in values:
                    column.replace(values[column.name].copy())
            for name, clause in clauses.items():
                select.set(name, clause)

"""Linear regressions and covariance matrices as ordinary SQL over COVAR_POP, VAR_POP and AVG.

This module writes ordinary SQL: plain DuckDB answers it exactly, and dpsql by releases of the moments, which share one
measurement. So nothing new is proved, charged or stored, and intervals of coefficients are those of arithmetic on released
values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dpsql.errors import ProgrammingError
from dpsql.policy.names import quote_identifier

MOST_REGRESSORS = 4
MOST_COLUMNS = 10
Columns: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""SQL expressions: one, several, or several by their names in the answer."""


@dataclass(frozen=True, slots=True)
class RegressionQuery:
    """The statement of a regression of y on some x, in groups `by`; `names` are the names of its coefficients."""

    sql: str
    names: tuple[str, ...]


def regression(y: str, x: Columns, source: str, by: Columns = ()) -> RegressionQuery:
    """Return the least-squares coefficients of y on x in each group, the intercept first, over rows in which all have a value.

    They are NULL if the covariances of x are not positive definite: if a regressor is constant, if two are collinear, or if
    noise makes it seem so.
    Raises ProgrammingError (`regression`) for no x, more than `MOST_REGRESSORS`, and names that are used twice.

    >>> regression("cost", ["age"], "visits").names
    ('intercept', 'age')
    """
    xs, keys = _name_columns(x), _name_columns(by)
    if not 1 <= len(xs) <= MOST_REGRESSORS:
        raise _make_error(f"a regression takes 1 to {MOST_REGRESSORS} columns x")
    _require_distinct(["intercept", *xs, *keys])
    places = range(1, len(xs) + 1)
    inner = _build_moments_query(
        {"v0": y, **{f"v{place}": text for place, text in zip(places, xs.values(), strict=True)}},
        source,
        keys,
    )
    square = [[_format_covariance(a, b) for b in places] for a in places]
    of_all = _format_determinant(square)
    slopes = []
    for place in places:
        changed = [
            [_format_covariance(a, 0) if b == place else _format_covariance(a, b) for b in places]
            for a in places
        ]
        slopes.append(
            f"CASE WHEN {_format_positive_definite(square)} THEN {_format_determinant(changed)} / {of_all} END"
        )
    group = [f"k{place}" for place in range(len(keys))]
    first = ", ".join(
        [*group, *(f"{slope} AS b{place}" for place, slope in zip(places, slopes, strict=True))]
    )
    means = ", ".join(f"m{place}" for place in range(len(xs) + 1))
    line = " - ".join(["m0", *(f"b{place} * m{place}" for place in places)])
    outputs = [
        *(f"{short} AS {quote_identifier(name)}" for short, name in zip(group, keys, strict=True)),
        f"{line} AS intercept",
        *(f"b{place} AS {quote_identifier(name)}" for place, name in zip(places, xs, strict=True)),
    ]
    sql = f"SELECT {', '.join(outputs)}\nFROM (SELECT {first}, {means} FROM ({inner}) AS moments) AS slopes"
    return RegressionQuery(_add_order(sql, group), ("intercept", *xs))


@dataclass(frozen=True, slots=True)
class CovarianceQuery:
    """The statement of the covariances of some columns, in groups `by`; `pairs` are the columns of its entries, in order."""

    sql: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]


def build_covariance_query(columns: Columns, source: str, by: Columns = ()) -> CovarianceQuery:
    """Build the covariances of all pairs of columns in each group, over rows in which all have a value.

    Raises ProgrammingError (`regression`) for no column, more than `MOST_COLUMNS`, and names that are used twice.
    """
    named, keys = _name_columns(columns), _name_columns(by)
    if not 1 <= len(named) <= MOST_COLUMNS:
        raise _make_error(f"a covariance matrix takes 1 to {MOST_COLUMNS} columns")
    _require_distinct([*named, *keys])
    inner = _build_moments_query(
        {f"v{place}": text for place, text in enumerate(named.values())}, source, keys
    )
    pairs = tuple(itertools.combinations_with_replacement(range(len(named)), 2))
    group = [f"k{place}" for place in range(len(keys))]
    found = ", ".join([*group, *(_format_covariance(*pair) for pair in pairs)])
    sql = _add_order(f"SELECT {found} FROM ({inner}) AS moments", group)
    return CovarianceQuery(sql, tuple(named), tuple(keys), pairs)


def _build_moments_query(values: Mapping[str, str], source: str, keys: Mapping[str, str]) -> str:
    """Build the query of all means and covariances in each group."""
    names, group = list(values), [f"k{place}" for place in range(len(keys))]
    columns = [
        f"(\n{text}\n) AS {name}"
        for name, text in zip([*group, *names], [*keys.values(), *values.values()], strict=True)
    ]
    places = [name[1:] for name in names]
    pairs = itertools.combinations_with_replacement(names, 2)
    found = [
        *group,
        *(f"AVG({name}) AS m{place}" for name, place in zip(names, places, strict=True)),
        *(
            f"VAR_POP({a}) AS c{a[1:]}_{a[1:]}" if a == b else f"COVAR_POP({a}, {b}) AS c{a[1:]}_{b[1:]}"
            for a, b in pairs
        ),
    ]
    there = " AND ".join(f"{name} IS NOT NULL" for name in names)
    by = f" GROUP BY {', '.join(group)}" if group else ""
    return f"SELECT {', '.join(found)} FROM (SELECT {', '.join(columns)} FROM {source}) AS all_rows WHERE {there}{by}"


def _format_covariance(a: int, b: int) -> str:
    return f"c{min(a, b)}_{max(a, b)}"


def _format_determinant(square: Sequence[Sequence[str]]) -> str:
    """Return the determinant of a matrix of expressions, along its first row."""
    if len(square) == 1:
        return square[0][0]
    parts = []
    for place, entry in enumerate(square[0]):
        smaller = [[*row[:place], *row[place + 1 :]] for row in square[1:]]
        parts.append(f"{'-' if place % 2 else '+'} {entry} * {_format_determinant(smaller)}")
    return f"({' '.join(parts).removeprefix('+ ')})"


def _format_positive_definite(square: Sequence[Sequence[str]]) -> str:
    """Return the SQL condition that a symmetric matrix is positive definite: all leading minors are above zero (Sylvester)."""
    minors = ([row[:size] for row in square[:size]] for size in range(1, len(square) + 1))
    return " AND ".join(f"{_format_determinant(minor)} > 0" for minor in minors)


def _add_order(sql: str, group: Sequence[str]) -> str:
    return f"{sql}\nORDER BY {', '.join(map(str, range(1, len(group) + 1)))}" if group else sql


def _name_columns(columns: Columns) -> dict[str, str]:
    if isinstance(columns, str):
        return {columns: columns}
    if isinstance(columns, Mapping):
        return dict(columns)
    listed = list(columns)
    if len(set(listed)) < len(listed):
        raise _make_error("a column is named twice")
    return {text: text for text in listed}


def _require_distinct(names: Iterable[str]) -> None:
    folded = [name.casefold() for name in names]
    if len(set(folded)) < len(folded):
        raise _make_error("two columns of the result have the same name")


def _make_error(message: str) -> ProgrammingError:
    return ProgrammingError(
        message, code="regression", hint="con.regress('cost', ['age', 'days'], source='visits', by='plan')"
    )

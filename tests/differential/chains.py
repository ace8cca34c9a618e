"""Statements made of steps: rows of stays, what some steps make of them, and what is asked of the whole in the end.

A step takes what may stand in FROM, with its columns, and gives another; it keeps the unit and the key of the stay where it
can. So groups are formed of groups by keys that are finer than the unit, behind projections, DISTINCT, windows, unions and
joins, as derived tables or common tables.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from differential.grammar import BOOL, DATE, INT, LINK, REAL, TEXT, TIME, UNIT, Col, Grammar, Statement
from differential.world import BOUNDS, DOMAINS, FLOATS

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Rows:
    """What may stand in FROM, its columns, and conditions that WHERE has to have."""

    text: str
    scope: tuple[Col, ...]
    conditions: tuple[str, ...] = ()

    def key(self, kind: str) -> Col | None:
        """The first column that is a unit's id, or a stay's."""
        return next((col for col in self.scope if col.kind == kind), None)

    @property
    def values(self) -> list[Col]:
        """The columns that are no keys."""
        return [col for col in self.scope if col.kind not in (UNIT, LINK)]


# Conditions that are about one column


def compared(grammar: Grammar, col: Col) -> str:
    """A condition on one column, by its kind and name."""
    if col.name in FLOATS:
        return of_float(grammar, col.text)
    made = {INT: of_integer, TEXT: of_text, DATE: of_date, TIME: of_moment, REAL: of_real, BOOL: of_flag}
    return made[col.kind](grammar, col)


def of_float(grammar: Grammar, text: str) -> str:
    """A condition on a column of FLOAT, beside literals of which none is a FLOAT."""
    pick = grammar.rng.choice
    op, number, other = pick(OPERATORS), pick(_NUMBERS), pick(_NUMBERS)
    return pick((
        f"{text} {op} {number}", f"{text} {op} {number}", f"{number} {op} {text}",
        f"{text} {pick(('', 'NOT '))}IN ({number}, {other}{pick(('', ', NULL'))})",
        f"{text} {pick(('', 'NOT '))}BETWEEN {number} AND {other}",
        f"{text} * {pick(('3', '0.1', '2e0'))} {op} {number}", f"{text} {pick('+-')} {number} {op} {other}",
        f"CAST({text} AS VARCHAR) {pick(('=', '<>', '<'))} '{number}'", f"CAST({text} AS VARCHAR) LIKE '{number[:2]}%'",
        f"CAST({text} AS {pick(('DOUBLE', 'REAL', 'DECIMAL(4, 1)', 'INTEGER'))}) {op} {number}",
        f"{text} {op} CAST({number} AS {pick(('FLOAT', 'DOUBLE', 'DECIMAL(6, 2)'))})", f"ROUND({text}, 1) {op} {number}",
        f"{text} IS {pick(('', 'NOT '))}NULL", f"{text} IS {pick(('', 'NOT '))}DISTINCT FROM {number}",
        f"COALESCE({text}, {number}) {op} {other}", f"ABS({text} - {number}) < {pick(('0.05', '1e-9'))}",
        f"CASE WHEN {text} > {number} THEN {text} ELSE {other} END {op} {number}",
        f"{pick(('GREATEST', 'LEAST'))}({text}, {number}) {op} {other}",
    ))  # fmt: skip


_NUMBERS = ("0.1", "0.3", "0.25", "0.7", "1.1", "1e-1", "3", "0", "0.30")


def of_integer(grammar: Grammar, col: Col) -> str:
    """A condition on whole numbers."""
    pick, text = grammar.rng.choice, col.text
    low, high = sorted((grammar.rng.randint(-2, 9), grammar.rng.randint(-2, 9)))
    return pick((
        f"{text} {pick(OPERATORS)} {low}", f"{text} {pick(('', 'NOT '))}BETWEEN {low} AND {high}", f"{text} % 3 {pick(('=', '<>'))} {low % 3}",
        f"{text} {pick(('', 'NOT '))}IN ({low}, {high}{pick(('', ', NULL'))})", f"{text} + 1 > {low}", f"ABS({text}) < {high}",
        f"{text} >= {low} AND {text} < {high}", f"({text} < {low} OR {text} > {high})", f"{text} // 2 = {high // 2}",
        f"CASE WHEN {text} > {low} THEN {text} < {high} ELSE {text} IS NOT NULL END", f"CAST({text} AS VARCHAR) LIKE '{abs(low)}%'",
        f"{text} IS {pick(('', 'NOT '))}NULL", f"NOT ({text} = {low})", f"{text} IN (SELECT lvl FROM steps WHERE lvl > {low})",
    ))  # fmt: skip


def of_text(grammar: Grammar, col: Col) -> str:
    """A condition on texts, by operators and by functions."""
    pick, text = grammar.rng.choice, col.text
    word, other = pick(col.words), pick(col.words)
    return pick((
        f"{text} {pick(OPERATORS)} '{word}'", f"{text} {pick(('', 'NOT '))}IN ('{word}', '{other}')",
        f"{text} {pick(('', 'NOT '))}LIKE '{word[:1]}%'", f"{text} {pick(('', 'NOT '))}ILIKE '%{word[-1:]}'",
        f"LOWER({text}) = '{word.lower()}'", f"UPPER({text}) <> '{word.upper()}'", f"SUBSTR({text}, 1, 1) = '{word[:1]}'",
        f"LENGTH({text}) {pick(OPERATORS)} {len(word)}", f"{text} BETWEEN '{word}' AND '{other}'", f"{text} || 'x' = '{word}x'",
        f"COALESCE({text}, '{word}') = '{other}'", f"{text} IS {pick(('', 'NOT '))}NULL", f"{text} IS DISTINCT FROM '{word}'",
        f"NULLIF({text}, '{word}') IS NOT NULL", f"CASE WHEN {text} > '{word}' THEN {text} <> '{other}' ELSE {text} IS NULL END",
    ))  # fmt: skip


def of_date(grammar: Grammar, col: Col) -> str:
    """A condition on days, beside days, moments and intervals."""
    pick, text = grammar.rng.choice, col.text
    day, other = sorted((pick(_DAYS), pick(_DAYS)))
    length = f"INTERVAL {pick((1, 7, 30))} {pick(('DAY', 'MONTH'))}"
    return pick((
        f"{text} {pick(OPERATORS)} DATE '{day}'", f"{text} {pick(OPERATORS)} '{day}'", f"{text} >= DATE '{day}' - {length}",
        f"{text} < DATE '{day}' + {length}", f"{text} {pick(('', 'NOT '))}BETWEEN DATE '{day}' AND DATE '{other}'",
        f"{text} BETWEEN DATE '{day}' - {length} AND DATE '{other}'", f"YEAR({text}) {pick(('=', '<>', '<'))} {day[:4]}",
        f"MONTH({text}) IN (1, {int(day[5:7])})", f"{text} > TIMESTAMP '{day} 12:00:00'", f"{text} + {length} <= DATE '{other}'",
        f"DATE_TRUNC('month', {text}) = DATE '{day[:8]}01'", f"{text} IN (DATE '{day}', DATE '{other}')", f"{text} IS {pick(('', 'NOT '))}NULL",
        f"{text} >= DATE '{day}' AND {text} < DATE '{other}'", f"{text} - DATE '{day}' > 30",
    ))  # fmt: skip


_DAYS = ("2024-01-01", "2024-02-01", "2024-02-29", "2024-06-30", "1980-02-29", "2023-12-01")


def of_moment(grammar: Grammar, col: Col) -> str:
    """A condition on moments."""
    pick, text, day = grammar.rng.choice, col.text, grammar.rng.choice(_DAYS)
    return pick((
        f"{text} {pick(OPERATORS)} TIMESTAMP '{day} 12:30:00'", f"{text} < DATE '{day}' + INTERVAL 1 MONTH", f"HOUR({text}) < 12",
        f"CAST({text} AS DATE) = DATE '{day}'", f"{text} IS NOT NULL",
    ))  # fmt: skip


def of_real(grammar: Grammar, col: Col) -> str:
    """A condition on real numbers."""
    pick, text = grammar.rng.choice, col.text
    return pick((
        f"{text} {pick(OPERATORS)} {pick(('0', '1.5', '8', '-0.0', '0.05'))}", f"{text} BETWEEN {pick((-1, 0, 0.5))} AND {pick((4, 8.25))}",
        f"{text} IN (0, 0.5, 1)", f"FLOOR({text}) % 2 = 0", f"{text} IS {pick(('', 'NOT '))}NULL",
    ))  # fmt: skip


def of_flag(grammar: Grammar, col: Col) -> str:
    """A condition on truths."""
    pick, text = grammar.rng.choice, col.text
    return pick(
        (
            text,
            f"NOT {text}",
            f"{text} IS {pick(('', 'NOT '))}{pick(('TRUE', 'FALSE', 'NULL'))}",
            f"{text} = {pick(('TRUE', 'FALSE'))}",
        )
    )


def mixed(grammar: Grammar, cols: Sequence[Col], most: int = 3) -> str:
    """Some conditions of one column each, put together by AND, OR and NOT."""
    found = compared(grammar, grammar.rng.choice(cols))
    for _ in range(grammar.rng.randint(0, most - 1)):
        other = compared(grammar, grammar.rng.choice(cols))
        found = grammar.rng.choice(
            (
                f"({found} AND {other})",
                f"({found} AND {other})",
                f"({found} OR {other})",
                f"({found} AND NOT ({other}))",
            )
        )
    return found


# Steps


def begun(grammar: Grammar) -> Rows:
    """Rows of stays, or of what belongs to a stay."""
    first, second = grammar.alias(), grammar.alias()
    visits, doses, items = (tuple(grammar.columns(table, first)) for table in ("visits", "doses", "items"))
    of_people = tuple(grammar.columns("people", second))
    joined = grammar.rng.choice(("", "LEFT "))
    other = grammar.rng.choice(("items", "doses"))
    return grammar.rng.choice((
        Rows(f"visits {first}", visits), Rows(f"doses {first}", doses), Rows(f"items {first}", items),
        Rows(f"visits {first} {joined}JOIN {other} {second} ON {first}.vid = {second}.vid", (*visits, *grammar.columns(other, second)[1:])),
        Rows(f"visits {first} {joined}JOIN people {second} ON {first}.pid = {second}.pid", (*visits, *of_people[1:])),
        Rows(f"doses {first} JOIN visits {second} ON {first}.vid = {second}.vid", (*grammar.columns("visits", second), *doses[1:])),
    ))  # fmt: skip


def written(grammar: Grammar, query: str, cols: Sequence[Col]) -> Rows:
    """A query in FROM, as a derived table or a common one."""
    alias = grammar.alias()
    scope = tuple(col._replace(text=f"{alias}.{col.name}") for col in cols)
    if grammar.chance(0.35):
        name = f"cte{len(grammar.ctes)}"
        grammar.ctes.append((name, query, tuple(cols)))
        return Rows(f"<{name}> {alias}", scope)
    return Rows(f"({query}) {alias}", scope)


def kept(rows: Rows) -> tuple[list[str], list[Col]]:
    """The keys of rows as items of SELECT, with their columns."""
    found = [(col, name) for kind, name in ((UNIT, "pid"), (LINK, "vid")) if (col := rows.key(kind))]
    return [f"{col.text} AS {name}" for col, name in found], [Col("", col.kind, name) for col, name in found]


def where(grammar: Grammar, rows: Rows, share: float = 0.5) -> str:
    """WHERE, of conditions on columns, or of any kind."""
    parts = list(rows.conditions)
    if rows.values and grammar.chance(share):
        parts.append(
            mixed(grammar, rows.values, 2) if grammar.chance(0.6) else grammar.boolean(rows.scope, 1)
        )
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def projected(grammar: Grammar, rows: Rows) -> Rows:
    """The rows with other columns, some of them equal rows made one."""
    keys, cols = kept(rows)
    distinct = "DISTINCT " * (rows.key(UNIT) is not None and grammar.chance(0.25))
    kinds = [grammar.rng.choice((INT, INT, REAL, TEXT, DATE, BOOL)) for _ in range(grammar.rng.randint(1, 3))]
    items, others = grammar._outputs(rows.scope, kinds)
    stay = grammar.rng.sample(rows.values, min(len(rows.values), 2))
    items = ", ".join([*keys, items, *(f"{col.text} AS o{place}" for place, col in enumerate(stay))])
    names = [Col("", col.kind, f"o{place}") for place, col in enumerate(stay)]
    return written(
        grammar, f"SELECT {distinct}{items} FROM {rows.text}{where(grammar, rows)}", [*cols, *others, *names]
    )


def grouped(grammar: Grammar, rows: Rows) -> Rows:
    """Groups by the stay, by the unit, or by both, with a further key in some."""
    unit, link = rows.key(UNIT), rows.key(LINK)
    by = [col for col in (unit, link) if col is not None]
    if len(by) == 2:
        by = grammar.rng.choice(([by[0]], [by[1]], by, by))
    names = {UNIT: "pid", LINK: "vid"}
    group, cols = [col.text for col in by], [Col("", col.kind, names[col.kind]) for col in by]
    items = [f"{col.text} AS {names[col.kind]}" for col in by]
    if grammar.chance(0.3):
        kind = grammar.rng.choice((TEXT, INT, BOOL))
        key = grammar.value(rows.scope, kind, 0)
        group.append(key)
        items.append(f"{key} AS g")
        cols.append(Col("", kind, "g"))
    for place in range(grammar.rng.randint(1, 3)):
        text, kind = grammar.within(rows.scope)
        items.append(f"{text} AS c{place}")
        cols.append(Col("", kind, f"c{place}"))
    having = grammar.rng.choice(("", "", "", " HAVING COUNT(*) > 1", " HAVING COUNT(*) BETWEEN 1 AND 2"))
    query = f"SELECT {', '.join(items)} FROM {rows.text}{where(grammar, rows)} GROUP BY {', '.join(group)}{having}"
    return written(grammar, query, cols)


def windowed(grammar: Grammar, rows: Rows) -> Rows:
    """The rows with a value of a window within the unit that no tie decides."""
    unit, link = rows.key(UNIT), rows.key(LINK)
    if unit is None:
        return projected(grammar, rows)
    keys, cols = kept(rows)
    by = [unit.text, *([link.text] if link is not None and grammar.chance(0.4) else ())]
    number, order = (
        grammar.integer(rows.scope, 1),
        grammar.value(rows.scope, grammar.rng.choice((INT, DATE)), 0),
    )
    over = f"OVER (PARTITION BY {', '.join(by)})"
    ranked = (
        f"OVER (PARTITION BY {', '.join(by)} ORDER BY {order} {grammar.rng.choice(('', 'DESC '))}NULLS FIRST)"
    )
    lag = f"LAG({order}) {ranked}"
    window = grammar.rng.choice((
        f"COUNT(*) {over}", f"SUM({number}) {over}", f"MAX({number}) {over}", f"RANK() {ranked}", f"DENSE_RANK() {ranked}", f"COUNT(*) {ranked}",
        lag if any(col.text == order and col.kind == INT for col in rows.values) and len(keys) == len(by) else f"RANK() {ranked}",
    ))  # fmt: skip
    # Which of two rows with equal values comes first is not determined: a row's LAG is, where no other column tells them apart.
    stay = [] if window == lag else grammar.rng.sample(rows.values, min(len(rows.values), 2))
    items = ", ".join(
        [*keys, f"{window} AS w", *(f"{col.text} AS o{place}" for place, col in enumerate(stay))]
    )
    names = [Col("", col.kind, f"o{place}") for place, col in enumerate(stay)]
    return written(
        grammar, f"SELECT {items} FROM {rows.text}{where(grammar, rows)}", [*cols, Col("", INT, "w"), *names]
    )


def united(grammar: Grammar, rows: Rows) -> Rows:
    """The rows and others, or themselves again, as one."""
    other = rows if grammar.chance(0.5) else begun(grammar)
    keys, cols = kept(rows)
    theirs, _ = kept(other)
    if len(keys) != len(theirs):
        other, theirs = rows, keys
    kinds = [grammar.rng.choice((INT, TEXT, DATE)) for _ in range(grammar.rng.randint(1, 2))]
    (ours, named), (also, _) = grammar._outputs(rows.scope, kinds), grammar._outputs(other.scope, kinds)
    sides = [
        f"SELECT {', '.join([*held, items])} FROM {side.text}{where(grammar, side)}"
        for held, items, side in ((keys, ours, rows), (theirs, also, other))
    ]
    word = "UNION ALL" if rows.key(UNIT) is None else grammar.rng.choice(("UNION ALL", "UNION ALL", "UNION"))
    return written(grammar, f" {word} ".join(sides), [*cols, *named])


def joined(grammar: Grammar, rows: Rows) -> Rows:
    """The rows beside others of the same stay or unit."""
    alias, unit, link = grammar.alias(), rows.key(UNIT), rows.key(LINK)
    side = grammar.rng.choice(("", "LEFT "))
    if link is not None and (unit is None or grammar.chance(0.5)):
        table = grammar.rng.choice(("items", "doses", "visits"))
        on = f"{alias}.vid = {link.text}"
    elif unit is not None:
        table = grammar.rng.choice(("people", "orders", "tags"))
        on = f"{alias}.pid = {unit.text}"
    else:
        return projected(grammar, rows)
    cols = [
        col for col in grammar.columns(table, alias) if col.kind != LINK and (col.kind != UNIT or side == "")
    ]
    return Rows(f"{rows.text} {side}JOIN {table} {alias} ON {on}", (*rows.scope, *cols), rows.conditions)


_STEPS: Sequence[tuple[int, Callable[[Grammar, Rows], Rows]]] = (
    (3, grouped), (2, projected), (2, windowed), (1, united), (1, joined),
)  # fmt: skip


def stepped(grammar: Grammar, rows: Rows, most: int = 3) -> Rows:
    """What some steps make of rows."""
    for _ in range(grammar.rng.randint(1, most)):
        if rows.key(UNIT) is None and rows.key(LINK) is None:
            break
        step = grammar.rng.choices([each for _, each in _STEPS], [weight for weight, _ in _STEPS])[0]
        rows = step(grammar, rows)
    return rows


# Ends


def build_query(grammar: Grammar, rows: Rows, *, conditions: str | None = None) -> tuple[str, bool]:
    """Something asked of rows of all units, and whether it has an order: totals, groups, sets of groups, and what is above them."""
    scope = rows.values or [Col("1", INT, "one")]
    found = where(grammar, rows, 0.3) if conditions is None else conditions
    roll = grammar.rng.random()
    if roll < 0.3:
        return f"SELECT COUNT(*) AS n, {grammar._aggregates(scope)} FROM {rows.text}{found}", False
    if roll < 0.5:
        key = grammar._key(scope)
        having = grammar.rng.choice(("", " HAVING COUNT(*) > 0", " HAVING COUNT(*) BETWEEN 1 AND 9"))
        aggregates = grammar._aggregates(scope)
        return (
            f"SELECT {key} AS k0, COUNT(*) AS n0, {aggregates} FROM {rows.text}{found} GROUP BY {key}{having}",
            False,
        )
    if roll < 0.62:
        keys = [grammar._key(scope), grammar._key(scope)]
        sets = grammar.rng.choice(
            (
                "ROLLUP ({0}, {1})",
                "CUBE ({0}, {1})",
                "GROUPING SETS (({0}), ({1}))",
                "GROUPING SETS (({0}, {1}), ({1}), ())",
            )
        )
        body = f"SELECT {grammar._keyed(keys)}, GROUPING({keys[0]}) AS g0, COUNT(*) AS n0, {grammar._aggregates(scope)} FROM {rows.text}{found}"
        return f"{body} GROUP BY {sets.format(*keys)} HAVING COUNT(*) > 0", False
    if roll < 0.75:
        return over_groups(grammar, rows, found, scope), False
    return grammar._above(scope, f"{rows.text}{found}")


def over_groups(grammar: Grammar, rows: Rows, found: str, scope: Sequence[Col]) -> str:
    """Aggregates of released groups that somebody is in: their number, their mean, the least one, shares."""
    key = grammar._key(scope)
    groups = f"SELECT {key} AS k0, COUNT(*) AS n0, COALESCE(SUM({grammar.integer(scope, 1)}), 0) AS s0 FROM {rows.text}{found} GROUP BY {key} HAVING COUNT(*) > 0"
    return grammar.rng.choice((
        f"SELECT COUNT(*) AS a, AVG(n0) AS b, MIN(n0) AS c, MAX(s0) AS d FROM ({groups}) q",
        f"SELECT COUNT(k0) AS a, MIN(k0) AS b, MAX(k0) AS c, SUM(n0) AS d FROM ({groups}) q WHERE n0 > 1",
        f"SELECT k0, 100.0 * n0 / SUM(n0) OVER () AS share FROM ({groups}) q",
        f"SELECT n0 % 3 AS k1, COUNT(*) AS a, SUM(s0) AS b FROM ({groups}) q GROUP BY n0 % 3",
        f"SELECT MEDIAN(n0) AS a, COUNT(DISTINCT n0) AS b, STDDEV_POP(n0) AS c FROM ({groups}) q",
        f"SELECT k0, n0 FROM ({groups}) q WHERE n0 >= (SELECT AVG(n0) FROM ({groups}) p)",
        f"SELECT SUM(CASE WHEN n0 > 2 THEN n0 ELSE 0 END) AS a FROM ({groups}) q",
    ))  # fmt: skip


def chained(rng: random.Random) -> Statement:
    """Something asked of groups by keys that are finer than the unit, behind one to three steps."""
    grammar = Grammar(rng)
    body, ordered = build_query(grammar, stepped(grammar, begun(grammar)))
    return Statement(body, grammar.named(), ordered)


def conditioned(rng: random.Random) -> Statement:
    """Something asked of rows by keys whose values are listed or bounded, under conditions on these keys."""
    grammar = Grammar(rng)
    alias, table = grammar.alias(), rng.choice(("people", "visits", "orders", "tags", "doses", "items"))
    rows = Rows(f"{table} {alias}", tuple(grammar.columns(table, alias)))
    known = [
        col
        for col in rows.scope
        if col.name in DOMAINS or col.kind == BOOL or (col.name in BOUNDS and col.kind in (INT, DATE))
    ]
    keys = rng.sample(known, min(len(known), rng.choice((1, 1, 2))))
    condition = mixed(grammar, keys)
    if rng.random() < 0.3:
        condition += f" AND {grammar.boolean(rows.values, 0)}"
    if rng.random() < 0.3:
        names = [Col("", col.kind, col.name) for col in rows.values]
        items = ", ".join(f"{col.text} AS {col.name}" for col in rows.values)
        outer = written(grammar, f"SELECT {items} FROM {rows.text} WHERE {condition}", names)
        keys = [next(col for col in outer.scope if col.name == key.name) for key in keys]
        rows, condition = outer, mixed(grammar, keys, 1)
    by = [_function(grammar, key) if rng.random() < 0.3 else key.text for key in keys]
    found, group = f" WHERE {condition}", ", ".join(by)
    roll = rng.random()
    ordered = False
    if roll < 0.2:
        body = f"SELECT DISTINCT {grammar._keyed(by)} FROM {rows.text}{found}"
    elif roll < 0.45:
        body = f"SELECT {grammar._keyed(by)}, COUNT(*) AS n0, {grammar._aggregates(rows.values)} FROM {rows.text}{found} GROUP BY {group}"
    else:
        groups = f"SELECT {grammar._keyed(by)}, COUNT(*) AS n0 FROM {rows.text}{found} GROUP BY {group} HAVING COUNT(*) > {rng.choice((0, 0, 2))}"
        order = ", ".join(f"k{place} NULLS LAST" for place in range(len(by)))
        body, ordered = rng.choice((
            (f"SELECT COUNT(*) AS a, AVG(n0) AS b, MIN(k0) AS c, MAX(k0) AS d FROM ({groups}) q", False),
            (f"{groups} ORDER BY n0 {rng.choice(('', 'DESC'))}, {order} LIMIT {rng.choice((1, 2, 3))}", True),
            (f"SELECT *, n0 / SUM(n0) OVER () AS share, RANK() OVER (ORDER BY n0) AS place FROM ({groups}) q", False),
            (f"SELECT k0 FROM ({groups}) q ORDER BY n0, {order} LIMIT 1", True),
            (f"SELECT COUNT(*) AS a FROM ({groups}) q WHERE n0 = (SELECT MIN(n0) FROM ({groups}) p)", False),
        ))  # fmt: skip
    return Statement(body, grammar.named(), ordered)


def _function(grammar: Grammar, key: Col) -> str:
    """A function of a key, as a key."""
    pick, text = grammar.rng.choice, key.text
    return {
        INT: lambda: pick((f"{text} // 2", f"{text} % 3", f"{text} + 1", f"ABS({text})", f"{text} > 2")),
        TEXT: lambda: pick(
            (f"UPPER({text})", f"SUBSTR({text}, 1, 1)", f"{text} || '!'", f"{text} = '{pick(key.words)}'")
        ),
        DATE: lambda: pick(
            (
                f"YEAR({text})",
                f"MONTH({text})",
                f"CAST(DATE_TRUNC('month', {text}) AS DATE)",
                f"DAYOFWEEK({text})",
            )
        ),
        BOOL: lambda: f"NOT {text}",
    }[key.kind]()


def of_floats(rng: random.Random) -> Statement:
    """Something asked of columns of FLOAT, beside literals, in lists, ranges, casts and arithmetic."""
    grammar = Grammar(rng)
    alias = grammar.alias()
    rows = Rows(f"doses {alias}", tuple(grammar.columns("doses", alias)))
    floats = [col for col in rows.scope if col.name in FLOATS]
    col = rng.choice(floats)
    condition = " AND ".join(of_float(grammar, rng.choice(floats).text) for _ in range(rng.choice((1, 1, 2))))
    if rng.random() < 0.3:
        names = [Col("", each.kind, each.name) for each in rows.scope]
        items = ", ".join(f"{each.text} AS {each.name}" for each in rows.scope)
        rows = written(grammar, f"SELECT {items} FROM {rows.text} WHERE {condition}", names)
        floats = [each for each in rows.scope if each.name in FLOATS]
        col, condition = rng.choice(floats), of_float(grammar, rng.choice(floats).text)
    text = col.text
    key = rng.choice((
        text, f"CAST({text} AS VARCHAR)", f"{text} * 2", f"ROUND({text}, 1)", f"CAST({text} AS DOUBLE)", f"{text} > 0.1", f"CAST({text} * 10 AS INTEGER)",
        f"CAST({text} + 0.1 AS VARCHAR)", f"COALESCE({text}, 0.1)", f"CAST({text} AS DECIMAL(4, 1))",
    ))  # fmt: skip
    value = rng.choice(
        (text, f"{text} * 2", f"({text} + 0.1)", f"CAST({text} AS DOUBLE)", f"ROUND({text}, 1)")
    )
    inner = of_float(grammar, rng.choice(floats).text)
    some = rng.sample((
        f"SUM({value}) AS s1", f"AVG({value}) AS a1", f"MIN({value}) AS r1", f"MAX({value}) AS r2", f"COUNT(DISTINCT {value}) AS a2",
        f"COUNT_IF({inner}) AS s2", f"COUNT(*) FILTER (WHERE {inner}) AS a3", f"COUNT({value}) AS a4", f"VAR_POP({value}) AS a5",
    ), 2)  # fmt: skip
    if rng.random() < 0.5:
        return Statement(
            f"SELECT COUNT(*) AS n, {', '.join(some)} FROM {rows.text} WHERE {condition}", grammar.named()
        )
    found = rng.choice((f" WHERE {condition}", ""))
    having = rng.choice(("", " HAVING COUNT(*) > 0"))
    return Statement(
        f"SELECT {key} AS k0, COUNT(*) AS n0, {', '.join(some)} FROM {rows.text}{found} GROUP BY {key}{having}",
        grammar.named(),
    )


def empty_groups(rng: random.Random) -> Statement:
    """Aggregates of groups and of sets of groups that few rows reach, with a count beside each; and what is computed of them."""
    grammar = Grammar(rng)
    rows = begun(grammar) if rng.random() < 0.6 else stepped(grammar, begun(grammar), 1)
    scope = rows.values or [Col("1", INT, "one")]
    number, few = grammar.number(scope, 1), f"{mixed(grammar, scope, 2)} AND {grammar.boolean(scope, 0)}"
    key = rng.choice(
        [col.text for col in scope if col.name in DOMAINS or col.kind == BOOL] or [grammar._key(scope)]
    )
    calls = rng.sample(
        (
            "MIN({}) AS v1", "MAX({}) AS v2", "AVG({}) AS v3", "SUM({}) AS v4", "MEDIAN({}) AS q5", "QUANTILE_CONT({}, 0.9) AS q6",
            "VAR_POP({}) AS a7", "STDDEV_POP({}) AS a8",
        ), 3,
    )  # fmt: skip
    counted = f"COUNT({number}) AS c0"
    made = ", ".join([counted, *(call.format(number) for call in calls)])
    roll = rng.random()
    found = "".join(f" WHERE {condition}" for condition in rows.conditions)
    if roll < 0.35:
        return Statement(
            f"SELECT {key} AS k0, COUNT(*) AS n0, {made} FROM {rows.text} WHERE {few} GROUP BY {key}",
            grammar.named(),
        )
    if roll < 0.55:
        named = [call.format(number).rsplit(" AS ", 1) for call in ("COUNT({}) AS c0", *calls)]
        filtered = ", ".join(f"{call} FILTER (WHERE {few}) AS {name}" for call, name in named)
        return Statement(
            f"SELECT {key} AS k0, COUNT(*) AS n0, {filtered} FROM {rows.text}{found} GROUP BY {key}",
            grammar.named(),
        )
    if roll < 0.75:
        other = grammar._key(scope)
        sets = rng.choice(
            (f"ROLLUP ({key}, {other})", f"GROUPING SETS (({key}), ({other}), ())", f"CUBE ({key}, {other})")
        )
        return Statement(
            f"SELECT {key} AS k0, {other} AS k1, GROUPING({key}, {other}) AS g, COUNT(*) AS n0, {made} FROM {rows.text} WHERE {few} GROUP BY {sets}",
            grammar.named(),
        )
    inner = f"SELECT {key} AS k0, COUNT(*) AS n0, {made} FROM {rows.text} WHERE {few} GROUP BY {key} HAVING COUNT(*) > 0"
    name = next((call.rsplit(" ", 1)[1] for call in calls if call[-2] == "v"), "n0")
    return Statement(
        f"SELECT COUNT(*) AS a, COUNT({name}) AS b, SUM({name}) AS c, MIN({name}) AS d FROM ({inner}) q",
        grammar.named(),
    )

"""Random statements from a weighted grammar over the tables of `world`.

`statement(random.Random(seed))` is a statement that SQL answers in one way only: whatever orders or limits it
orders it wholly, no division by zero, no sum that overflows. An output's name says how it is compared: `k…` is
a group key, `n0` and what ends in `_n` the number of rows or values of a group, `s…` a sum, which of nothing may be 0 where
DuckDB has NULL, `r…` a value in order of size, which of nothing may be anything but beside a count of 0, `q…` a value of which
it is compared whether it is NULL, any other an ordinary value.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from differential.world import BOUNDS, DECIMALS, DOMAINS, FREE, PUBLIC, TABLES

INT, REAL, TEXT, DATE, TIME, BOOL, UNIT, LINK = "int", "real", "text", "date", "time", "bool", "unit", "link"
_KINDS = {
    "BIGINT": INT, "INTEGER": INT, "DOUBLE": REAL, "VARCHAR": TEXT, "DATE": DATE, "TIMESTAMP": TIME, "BOOLEAN": BOOL,
    "DECIMAL(6, 2)": REAL, "FLOAT": REAL,
}  # fmt: skip
_DAYS = ("2024-02-29", "2024-01-01", "2024-06-30", "1980-02-29", "2023-12-01")


class Col(NamedTuple):
    """A column that is in scope."""

    text: str
    kind: str
    name: str

    @property
    def words(self) -> Sequence[str]:
        """Texts that it may hold."""
        return DOMAINS.get(self.name) or FREE.get(self.name) or ("a", "x", "")


@dataclass(frozen=True)
class Statement:
    """A statement as text, with common table expressions that are named `cte0`, … where it reads them."""

    body: str
    ctes: tuple[tuple[str, str], ...] = ()
    ordered: bool = False

    @property
    def sql(self) -> str:
        """The statement."""
        named = ", ".join(f"{name} AS ({text})" for name, text in self.ctes)
        whole = f"WITH {named} {self.body}" if named else self.body
        for name, _ in self.ctes:
            whole = whole.replace(f"<{name}>", name)
        return whole

    @property
    def inlined(self) -> str:
        """The statement with derived tables instead of common table expressions."""
        body = self.body
        for name, text in reversed(self.ctes):  # a later one may read an earlier one
            body = body.replace(f"<{name}>", f"({text})")
        return body


@dataclass
class Grammar:
    """The state of one statement: what is random, the names that are taken and the common tables."""

    rng: random.Random
    fresh: int = 0
    ctes: list[tuple[str, str, tuple[Col, ...]]] = field(default_factory=list)
    depth: int = 0

    def one(self, *choices: tuple[int, Callable[[], str]]) -> str:
        """One of several productions by weight."""
        return self.rng.choices([make for _, make in choices], [weight for weight, _ in choices])[0]()

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def alias(self) -> str:
        self.fresh += 1
        return f"t{self.fresh}"

    # Expressions

    def of(self, scope: Sequence[Col], *kinds: str) -> list[Col]:
        return [col for col in scope if col.kind in kinds]

    def integer(self, scope: Sequence[Col], depth: int = 2) -> str:
        """A whole number."""
        cols, dates = self.of(scope, INT), self.of(scope, DATE, TIME)
        pick = self.rng.choice
        if not cols or (depth <= 0 and not cols):
            return str(self.rng.randint(-2, 5))
        if depth <= 0:
            return pick(cols).text
        inner = lambda: self.integer(scope, depth - 1)  # noqa: E731
        flat = lambda: self.integer(scope, 0)  # noqa: E731
        choices = [
            (6, lambda: pick(cols).text),
            (1, lambda: str(self.rng.randint(-2, 5))),
            (2, lambda: f"({inner()} {pick('+-')} {inner()})"),
            (1, lambda: f"({flat()} * {self.rng.randint(-2, 3)})"),
            (1, lambda: f"({flat()} % 3)"),
            (1, lambda: f"({flat()} // 2)"),
            (1, lambda: f"ABS({flat()})"),
            (2, lambda: f"COALESCE({inner()}, {flat()}, {self.rng.randint(0, 3)})"),
            (2, lambda: f"CASE WHEN {self.boolean(scope, depth - 1)} THEN {inner()} ELSE {flat()} END"),
            (1, lambda: f"CASE WHEN {self.boolean(scope, depth - 1)} THEN {flat()} END"),
            (1, lambda: f"NULLIF({flat()}, {self.rng.randint(0, 3)})"),
            (1, lambda: f"{pick(('GREATEST', 'LEAST'))}({flat()}, {flat()})"),
            (1, lambda: f"CAST({self.real(scope, 0)} AS INTEGER)"),
            (1, lambda: f"LEAST(LENGTH({self.text(scope, 0)}), 8)"),
        ]
        if dates:
            choices += [
                (1, lambda: f"{pick(('YEAR', 'MONTH', 'DAY'))}({pick(dates).text})"),
                (1, lambda: f"DATE_DIFF('day', {pick(dates).text}, DATE '2024-02-01')"),
            ]
        return self.one(*choices)

    def real(self, scope: Sequence[Col], depth: int = 2) -> str:
        """A real number, exact in binary where the data's are."""
        cols = self.of(scope, REAL)
        pick = self.rng.choice
        if not cols:
            return f"CAST({self.integer(scope, depth - 1)} AS DOUBLE)"
        if depth <= 0:
            return pick(cols).text
        inner = lambda: self.real(scope, depth - 1)  # noqa: E731
        flat = lambda: self.real(scope, 0)  # noqa: E731
        decimals = [col.text for col in cols if col.name in DECIMALS]
        if decimals and self.chance(0.5):
            return self.decimal(decimals)
        return self.one(
            (6, lambda: pick(cols).text),
            (1, lambda: f"({inner()} {pick('+-')} {inner()})"),
            (1, lambda: f"({flat()} * {pick(('0.5', '2', '-1', '0.25'))})"),
            (1, lambda: f"({flat()} / {pick(('2', '4', '0.5'))})"),
            (1, lambda: f"ABS({flat()})"),
            (1, lambda: f"ROUND({flat()})"),
            (1, lambda: f"{pick(('FLOOR', 'CEIL'))}({flat()})"),
            (1, lambda: f"COALESCE({flat()}, {pick(('0', '1.5', '-2'))})"),
            (1, lambda: f"CASE WHEN {self.boolean(scope, depth - 1)} THEN {flat()} ELSE {inner()} END"),
            (1, lambda: f"{pick(('GREATEST', 'LEAST'))}({flat()}, {pick(('1', '0.5'))})"),
        )

    def decimal(self, columns: Sequence[str]) -> str:
        """A number that is computed of DECIMAL columns, of which binary fractions say few."""
        column = self.rng.choice(columns)
        return self.one(
            (2, lambda: column),
            (2, lambda: f"({column} * {self.rng.choice(('0.1', '0.3', '3', '1.05'))})"),
            (2, lambda: f"({column} {self.rng.choice('+-')} {self.rng.choice(('0.1', '0.05', '0.7'))})"),
            (1, lambda: f"({column} * 0.1 - {column} * 0.3)"),
            (1, lambda: f"({column} % {self.rng.choice(('0.1', '0.15', '2'))})"),
            (1, lambda: f"{self.rng.choice(('ROUND', 'TRUNC'))}({column} * 0.15, 1)"),
            (1, lambda: f"CAST({column} * 0.1 AS DECIMAL(8, 2))"),
        )

    def number(self, scope: Sequence[Col], depth: int = 2) -> str:
        return self.real(scope, depth) if self.chance(0.4) else self.integer(scope, depth)

    def text(self, scope: Sequence[Col], depth: int = 1) -> str:
        """A text."""
        cols = self.of(scope, TEXT)
        pick = self.rng.choice
        if not cols:
            return f"CAST({self.integer(scope, 0)} AS VARCHAR)"
        if depth <= 0:
            return pick(cols).text
        flat = lambda: self.text(scope, 0)  # noqa: E731
        return self.one(
            (6, flat),
            (1, lambda: f"{pick(('UPPER', 'LOWER', 'TRIM'))}({flat()})"),
            (1, lambda: f"COALESCE({flat()}, {pick((flat(), repr('a'), repr('')))})"),
            (1, lambda: f"({flat()} || {pick((flat(), repr('z')))})"),
            (1, lambda: f"SUBSTR({flat()}, 1, 1)"),
            (1, lambda: f"CASE WHEN {self.boolean(scope, depth - 1)} THEN {flat()} ELSE 'other' END"),
            (1, lambda: f"NULLIF({flat()}, '')"),
        )

    def date(self, scope: Sequence[Col], depth: int = 1) -> str:
        """A day."""
        cols = self.of(scope, DATE)
        if not cols:
            times = self.of(scope, TIME)
            return f"CAST({self.rng.choice(times).text} AS DATE)" if times else "DATE '2024-02-29'"
        flat = self.rng.choice(cols).text
        if depth <= 0:
            return flat
        return self.one(
            (5, lambda: flat),
            (1, lambda: f"CAST(DATE_TRUNC('{self.rng.choice(('month', 'year'))}', {flat}) AS DATE)"),
            (1, lambda: f"CAST({flat} + INTERVAL 1 DAY AS DATE)"),
            (1, lambda: f"COALESCE({flat}, DATE '2024-02-29')"),
        )

    def value(self, scope: Sequence[Col], kind: str, depth: int = 1) -> str:
        """A value of a kind."""
        if kind == BOOL:
            return self.boolean(scope, depth)
        made = {INT: self.integer, REAL: self.real, TEXT: self.text, DATE: self.date}
        return made[kind](scope, depth)

    def boolean(self, scope: Sequence[Col], depth: int = 2) -> str:
        """A condition, which may be NULL."""
        pick, flags = self.rng.choice, self.of(scope, BOOL)
        op = lambda: pick(("=", "<>", "<", "<=", ">", ">="))  # noqa: E731
        less = depth - 1
        choices = [
            (4, lambda: f"{self.integer(scope, less)} {op()} {pick((self.integer(scope, 0), str(self.rng.randint(0, 4))))}"),
            (2, lambda: f"{self.real(scope, less)} {op()} {pick(('0', '1.5', '-0.0', '8', self.real(scope, 0)))}"),
            (2, lambda: self._words(scope, op())),
            (1, lambda: f"{self.date(scope, 1)} {op()} DATE '{pick(_DAYS)}'"),
            (1, lambda: f"{self.value(scope, pick((INT, REAL, TEXT, DATE)), 1)} IS {pick(('', 'NOT '))}NULL"),
            (1, lambda: f"{self.integer(scope, 1)} {pick(('', 'NOT '))}BETWEEN {self.integer(scope, 0)} AND {self.rng.randint(1, 5)}"),
            (1, lambda: f"{self.integer(scope, 1)} {pick(('', 'NOT '))}IN (0, {self.rng.randint(1, 4)}{pick(('', ', NULL'))})"),
            (1, lambda: f"{self.integer(scope, 1)} IS {pick(('', 'NOT '))}DISTINCT FROM {self.integer(scope, 1)}"),
            (1, lambda: f"{self.text(scope, 0)} IS {pick(('', 'NOT '))}DISTINCT FROM {pick((self.text(scope, 0), 'NULL'))}"),
        ]  # fmt: skip
        if flags:
            choices += [
                (2, lambda: pick(flags).text),
                (1, lambda: f"{pick(flags).text} IS {pick(('', 'NOT '))}{pick(('TRUE', 'FALSE', 'NULL'))}"),
            ]
        if depth > 0:
            choices += [
                (2, lambda: f"({self.boolean(scope, less)} AND {self.boolean(scope, less)})"),
                (2, lambda: f"({self.boolean(scope, less)} OR {self.boolean(scope, less)})"),
                (2, lambda: f"NOT ({self.boolean(scope, less)})"),
                (1, lambda: f"COALESCE({self.boolean(scope, less)}, {pick(('TRUE', 'FALSE'))})"),
                (1, lambda: f"CASE WHEN {self.boolean(scope, 0)} THEN {self.boolean(scope, 0)} END"),
            ]
        return self.one(*choices)

    def _words(self, scope: Sequence[Col], op: str) -> str:
        cols = self.of(scope, TEXT)
        if not cols:
            return self.boolean(scope, 0)
        col, pick = self.rng.choice(cols), self.rng.choice
        word, other = pick(col.words), pick(col.words)
        return pick((
            f"{col.text} {op} '{word}'", f"{col.text} {pick(('', 'NOT '))}IN ('{word}', '{other}')",
            f"{col.text} {pick(('', 'NOT '))}LIKE '{word[:1]}%'", f"{col.text} ILIKE '%{word[-1:]}%'",
            f"{col.text} = {pick(cols).text}", f"{self.text(scope)} <> '{word}'",
        ))  # fmt: skip

    # Sources

    def columns(self, table: str, alias: str) -> list[Col]:
        """The columns of a table."""
        return [Col(f"{alias}.{name}", self._kind(table, name, kind), name) for name, kind in TABLES[table]]

    def _kind(self, table: str, name: str, kind: str) -> str:
        if table not in PUBLIC and name in ("pid", "vid"):
            return UNIT if name == "pid" else LINK
        return _KINDS[kind]

    def private(self, *, unit: bool = True) -> tuple[str, list[Col]]:
        """A private source with its columns, the unit's among them where that is asked for."""
        alias = self.alias()
        tables = ["people", "visits", "orders", "tags"] + ["items"] * (not unit)
        roll = self.rng.random()
        if self.depth >= 2 or roll < 0.6:
            table = self.rng.choice(tables)
            return f"{table} {alias}", self.columns(table, alias)
        if roll < 0.68 and self.ctes:
            name, _, cols = self.rng.choice(self.ctes)
            return f"<{name}> {alias}", [col._replace(text=f"{alias}.{col.name}") for col in cols]
        self.depth += 1
        text, cols = self.derived()
        self.depth -= 1
        if roll > 0.9 and self.depth == 0:
            name = f"cte{len(self.ctes)}"
            self.ctes.append((name, text, tuple(cols)))
            return f"<{name}> {alias}", [col._replace(text=f"{alias}.{col.name}") for col in cols]
        return f"({text}) {alias}", [col._replace(text=f"{alias}.{col.name}") for col in cols]

    def derived(self) -> tuple[str, list[Col]]:
        """A query of rows of units, by one of several constructs."""
        roll = self.rng.random()
        if roll < 0.3:
            return self._projection(distinct=self.chance(0.3))
        if roll < 0.7:
            return self._per_unit()
        return self._set()

    def _outputs(self, scope: Sequence[Col], kinds: Sequence[str]) -> tuple[str, list[Col]]:
        found = [Col("", kind, f"c{number}") for number, kind in enumerate(kinds)]
        return ", ".join(f"{self.value(scope, col.kind)} AS {col.name}" for col in found), found

    def _projection(
        self, *, distinct: bool = False, kinds: Sequence[str] | None = None
    ) -> tuple[str, list[Col]]:
        joined, scope, unit, where = self.sources(self.rng.choice((1, 1, 2)))
        kinds = kinds or [
            self.rng.choice((INT, INT, REAL, TEXT, DATE, BOOL)) for _ in range(self.rng.randint(1, 3))
        ]
        items, cols = self._outputs(scope, kinds)
        if self.chance(0.12):
            number = self.rng.choice(("", " + 1", " * 2"))
            items += f", UNNEST([{self.rng.choice(('0, 3', '1, 1, NULL', '2'))}]){number} AS c{len(cols)}"
            cols = [*cols, Col("", INT, f"c{len(cols)}")]
        text = (
            f"SELECT {'DISTINCT ' * distinct}{unit} AS pid, {items} FROM {joined}{self.where(scope, where)}"
        )
        return text, [Col("", UNIT, "pid"), *cols]

    def _set(self) -> tuple[str, list[Col]]:
        kinds = [self.rng.choice((INT, TEXT, DATE, REAL)) for _ in range(self.rng.randint(1, 2))]
        left, cols = self._projection(kinds=kinds)
        right, others = self._projection(kinds=kinds)
        if len(others) != len(cols):  # UNNEST is on one side alone
            left, right = (
                f"SELECT * EXCLUDE (c{len(kinds)}) FROM ({side})" if len(own) > len(kinds) + 1 else side
                for side, own in ((left, cols), (right, others))
            )
            cols = cols[: len(kinds) + 1]
        joined = self.rng.choice(("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"))
        return f"{left} {joined} {right}", cols

    def _per_unit(self) -> tuple[str, list[Col]]:
        joined, scope, unit, where = self.sources(self.rng.choice((1, 1, 1, 2)))
        items, cols = [f"{unit} AS pid"], [Col("", UNIT, "pid")]
        group = [unit]
        if self.chance(0.25):
            kind = self.rng.choice((TEXT, INT, BOOL))
            key = self.value(scope, kind)
            items.append(f"{key} AS g")
            group.append(key)
            cols.append(Col("", kind, "g"))
        for number in range(self.rng.randint(1, 3)):
            text, kind = self.within(scope)
            items.append(f"{text} AS c{number}")
            cols.append(Col("", kind, f"c{number}"))
        having = ""
        if self.chance(0.3):
            text, kind = self.within(scope)
            having = (
                f" HAVING {text} {self.rng.choice(('>', '<=', '='))} 1"
                if kind in (INT, REAL)
                else " HAVING COUNT(*) > 1"
            )
        where_text = self.where(scope, where)
        return (
            f"SELECT {', '.join(items)} FROM {joined}{where_text} GROUP BY {', '.join(group)}{having}",
            cols,
        )

    def within(self, scope: Sequence[Col]) -> tuple[str, str]:
        """An aggregate of one unit's rows, with its kind."""
        kind = self.rng.choice((INT, INT, REAL, TEXT, DATE))
        value, number = self.value(scope, kind, 1), self.integer(scope, 1)
        return self.rng.choice((
            ("COUNT(*)", INT), ("COUNT(*)", INT), (f"COUNT({value})", INT), (f"COUNT(DISTINCT {value})", INT),
            (f"SUM({number})", INT), (f"SUM({number})", INT), (f"SUM({self.real(scope, 1)})", REAL),
            (f"AVG({number})", REAL), (f"MIN({value})", kind), (f"MAX({value})", kind),
            (f"COUNT_IF({self.boolean(scope, 1)})", INT),
            (f"COALESCE(SUM({number}), 0)", INT), (f"SUM({number}) FILTER (WHERE {self.boolean(scope, 1)})", INT),
            (f"COUNT(*) FILTER (WHERE {self.boolean(scope, 1)})", INT),
            (f"(MAX({number}) - MIN({number}))", INT),
        ))  # fmt: skip

    def sources(self, count: int) -> tuple[str, list[Col], str, list[str]]:
        """FROM with `count` private sources and some public ones: its text, its columns, a unit column, conditions for WHERE."""
        text, scope = self.private()
        unit = next(col for col in scope if col.kind == UNIT)
        kept, where = unit, []  # a unit column that no join has filled up with NULLs
        plain = True
        for number in range(1, count):
            roll = self.rng.random()
            if roll < 0.18:
                text, scope = self._linked(text, scope)
                plain = False
                continue
            if roll < 0.42:
                text, scope = self._public(text, scope, where)
                plain = False
                continue
            other, cols = self.private()
            theirs = next(col for col in cols if col.kind == UNIT)
            ours = self.rng.choice(self.of(scope, UNIT)) if self.chance(0.4) else kept
            roll = self.rng.random()
            extra = f" AND {self.boolean([*scope, *cols], 1)}" if self.chance(0.3) else ""
            on = f"ON {ours.text} = {theirs.text}{extra}"
            if roll < 0.1:
                text = f"{text}, {other}"
                where.append(f"{ours.text} = {theirs.text}")
            elif roll < 0.2 and plain and number == 1:
                text = f"{text} JOIN {other} USING (pid)"
            elif roll < 0.5:
                text = f"{text} JOIN {other} {on}"
            elif roll < 0.78 or number > 1:
                text = f"{text} LEFT JOIN {other} {on}"
            elif roll < 0.9:
                text = f"{text} RIGHT JOIN {other} {on}"
                kept = theirs
            else:
                text = f"{text} FULL JOIN {other} ON {ours.text} = {theirs.text}"
                scope = [*scope, *cols, Col(f"COALESCE({ours.text}, {theirs.text})", UNIT, "pid")]
                kept, plain = scope[-1], False
                continue
            scope, plain = [*scope, *cols], False
        return text, scope, kept.text, where

    def _linked(self, text: str, scope: list[Col]) -> tuple[str, list[Col]]:
        links = self.of(scope, LINK)
        if not links:
            return text, scope
        alias = self.alias()
        cols = self.columns("items", alias)
        side = self.rng.choice(("", "LEFT "))
        on = f"{self.rng.choice(links).text} = {alias}.vid"
        return f"{text} {side}JOIN items {alias} ON {on}", [*scope, *cols[1:]]

    def _public(self, text: str, scope: list[Col], where: list[str]) -> tuple[str, list[Col]]:
        alias, table = self.alias(), self.rng.choice(PUBLIC)
        cols = self.columns(table, alias)
        fits = [(a, b) for a in scope for b in cols if a.name == b.name and a.kind == b.kind]
        if not fits:
            fits = [(a, b) for a in self.of(scope, INT) for b in self.of(cols, INT)]
        if not fits:
            return text, scope
        ours, theirs = self.rng.choice(fits)
        roll = self.rng.random()
        extra = f" AND {self.boolean(cols, 0)}" if self.chance(0.3) else ""
        if roll < 0.15:
            where.append(f"{ours.text} = {theirs.text}")
            return f"{text}, {table} {alias}", [*scope, *cols]
        op = "=" if roll < 0.85 else self.rng.choice(("<", ">="))
        side = "LEFT " if roll > 0.5 and op == "=" else ""
        return f"{text} {side}JOIN {table} {alias} ON {ours.text} {op} {theirs.text}{extra}", [*scope, *cols]

    def where(self, scope: Sequence[Col], conditions: Sequence[str] = (), share: float = 0.6) -> str:
        """WHERE, or nothing."""
        found = list(conditions)
        if self.chance(share):
            found.append(self.condition(scope))
        if self.chance(share / 3):
            found.append(self.condition(scope))
        return f" WHERE {' AND '.join(found)}" if found else ""

    def condition(self, scope: Sequence[Col]) -> str:
        """A condition of WHERE: of columns alone, or with a subquery."""
        if self.depth >= 2 or self.chance(0.6) or not self.of(scope, UNIT):
            return self.boolean(scope)
        self.depth += 1
        found = self.one(
            (3, lambda: self._exists(scope)),
            (2, lambda: self._in(scope)),
            (3, lambda: self._scalar(scope)),
            (1, lambda: self._released(scope)),
            (1, lambda: self._in_public(scope)),
        )
        self.depth -= 1
        return found

    def _exists(self, scope: Sequence[Col]) -> str:
        source, cols = self.private()
        theirs, ours = self.of(cols, UNIT)[0], self.rng.choice(self.of(scope, UNIT))
        more = (
            f" AND {self.boolean([*scope, *cols] if self.chance(0.4) else cols, 1)}"
            if self.chance(0.6)
            else ""
        )
        return f"{'NOT ' * self.chance(0.4)}EXISTS (SELECT 1 FROM {source} WHERE {theirs.text} = {ours.text}{more})"

    def _in(self, scope: Sequence[Col]) -> str:
        source, cols = self.private()
        theirs, ours = self.of(cols, UNIT)[0], self.rng.choice(self.of(scope, UNIT))
        word = "NOT IN" if self.chance(0.4) else "IN"
        where = f" WHERE {self.boolean(cols, 1)}" if self.chance(0.6) else ""
        if self.chance(0.5):
            return f"{ours.text} {word} (SELECT {theirs.text} FROM {source}{where})"
        kind = self.rng.choice((INT, TEXT, DATE))
        link = f" {'AND' if where else 'WHERE'} {theirs.text} = {ours.text}"
        return (
            f"{self.value(scope, kind)} {word} (SELECT {self.value(cols, kind)} FROM {source}{where}{link})"
        )

    def _in_public(self, scope: Sequence[Col]) -> str:
        alias = self.alias()
        cols = self.columns(self.rng.choice(PUBLIC), alias)
        table = "regions" if any(col.name == "region" for col in cols) else "steps"
        col = self.rng.choice(self.of(cols, INT, TEXT))
        where = f" WHERE {self.boolean(cols, 1)}" if self.chance(0.5) else ""
        word = "NOT IN" if self.chance(0.4) else "IN"
        return f"{self.value(scope, col.kind)} {word} (SELECT {col.text} FROM {table} {alias}{where})"

    def _scalar(self, scope: Sequence[Col]) -> str:
        source, cols = self.private()
        theirs, ours = self.of(cols, UNIT)[0], self.rng.choice(self.of(scope, UNIT))
        text, kind = self.within(cols)
        more = (
            f" AND {self.boolean([*scope, *cols] if self.chance(0.3) else cols, 1)}"
            if self.chance(0.4)
            else ""
        )
        wrapped = self.rng.choice(
            (text, text, f"COALESCE({text}, 1)", f"CASE WHEN {text} IS NULL THEN 2 ELSE 0 END")
        )
        if kind in (TEXT, DATE):
            wrapped = text
        query = f"(SELECT {wrapped} FROM {source} WHERE {theirs.text} = {ours.text}{more})"
        if kind in (TEXT, DATE):
            return f"{query} {self.rng.choice(('=', '<', '>='))} {self.value(scope, kind, 0)}"
        right = self.rng.choice(("1", "0", "2", self.integer(scope, 0)))
        return self.rng.choice((
            f"{query} {self.rng.choice(('=', '<', '>=', '<>'))} {right}", f"{query} IS NULL", f"COALESCE({query}, 1) > 0",
        ))  # fmt: skip

    def _released(self, scope: Sequence[Col]) -> str:
        source, cols = self.private(unit=False)
        number = self.integer(cols, 1)
        aggregate = self.rng.choice(
            (f"AVG({number}) + 0.01", "COUNT(*) / 8", f"COALESCE(SUM({number}), 0) - 2.5")
        )
        where = f" WHERE {self.boolean(cols, 1)}" if self.chance(0.4) else ""
        return f"{self.number(scope, 1)} {self.rng.choice('<>')} (SELECT {aggregate} FROM {source}{where})"

    # Releases

    def aggregate(self, scope: Sequence[Col]) -> tuple[str, str]:
        """An aggregate of all units, with the letter of its name."""
        kind = self.rng.choice((INT, INT, REAL, TEXT, DATE, BOOL))
        value, number = self.value(scope, kind, 1), self.number(scope, 2)
        unit = self.rng.choice(self.of(scope, UNIT) or [Col("1", INT, "")]).text
        text, letter = self.rng.choice((
            ("COUNT(*)", "a"), (f"COUNT({value})", "a"), (f"COUNT(DISTINCT {unit})", "a"), (f"SUM({number})", "s"),
            (f"SUM({number})", "s"), (f"SUM({self.real(scope)})", "s"), (f"AVG({number})", "a"), (f"AVG({number})", "a"),
            (f"COUNT(DISTINCT {value})", "a"), (f"COUNT_IF({self.boolean(scope)})", "s"),
            (f"VAR_POP({self.number(scope, 0)})", "a"), (f"STDDEV_SAMP({self.number(scope, 0)})", "a"),
            (f"GEOMEAN(GREATEST({number}, 1))", "a"), (f"COVAR_POP({self.number(scope, 0)}, {self.number(scope, 0)})", "a"),
            (f"MIN({number})", "r"), (f"MAX({number})", "r"), (f"COALESCE(SUM({number}), 0)", "a"),
            (f"CASE WHEN COUNT(*) > 5 THEN COALESCE(SUM({number}), 0) ELSE -1 END", "a"), ("COUNT(*) * 2 + 1", "a"),
        ))  # fmt: skip
        if (
            self.chance(0.15)
            and text[-1] == ")"
            and text.count("(")
            and not text.startswith(("COALESCE", "CASE"))
        ):
            text = f"{text} FILTER (WHERE {self.boolean(scope, 1)})"
        return text, letter

    def _key(self, scope: Sequence[Col]) -> str:
        cols = self.of(scope, TEXT, BOOL)
        if cols and self.chance(0.6):
            return self.rng.choice(cols).text
        kind = self.rng.choice((TEXT, INT, BOOL, DATE))
        return self.value(scope, kind)

    def statement(self) -> Statement:
        """A whole statement."""
        count = self.rng.choice((1, 1, 2, 2, 3, 4))
        if self.chance(0.06):
            source, scope = self.private(unit=False)
            text, where = source, list[str]()
        else:
            text, scope, _, where = self.sources(count)
        found = self.where(scope, where)
        roll = self.rng.random()
        if roll < 0.45:
            body, ordered = f"SELECT {self._aggregates(scope)} FROM {text}{found}", False
        elif roll < 0.62:
            keys = [self._key(scope) for _ in range(self.rng.choice((1, 1, 2)))]
            body, ordered = (
                f"SELECT {self._keyed(keys)}, COUNT(*) AS n0, {self._aggregates(scope)} FROM {text}{found} GROUP BY {', '.join(keys)}",
                False,
            )
        else:
            body, ordered = self._above(scope, f"{text}{found}")
        return Statement(body, self.named(), ordered)

    def named(self) -> tuple[tuple[str, str], ...]:
        """The common tables as they are written."""
        return tuple((name, query) for name, query, _ in self.ctes)

    def _aggregates(self, scope: Sequence[Col]) -> str:
        found = [self.aggregate(scope) for _ in range(self.rng.randint(1, 3))]
        return ", ".join(f"{text} AS {letter}{number + 1}" for number, (text, letter) in enumerate(found))

    def _keyed(self, keys: Sequence[str]) -> str:
        return ", ".join(f"{key} AS k{number}" for number, key in enumerate(keys))

    def _above(self, scope: Sequence[Col], rows: str) -> tuple[str, bool]:
        """Groups that somebody is in, and what is computed of them."""
        keys = [self._key(scope) for _ in range(self.rng.choice((1, 1, 2)))]
        group, names = ", ".join(keys), [f"k{number}" for number in range(len(keys))]
        order = ", ".join(f"{name} NULLS FIRST" for name in names)
        number = self.integer(scope, 1)
        having = self.rng.choice(
            (
                "",
                "",
                " AND COUNT(*) > 2",
                f" AND COALESCE(SUM({number}), 0) > 3",
                f" AND AVG({number}) < 4.01",
                " AND COUNT(*) IN (SELECT lvl FROM steps)",
                " AND (COUNT(*) <> ALL (SELECT lvl FROM steps WHERE lvl > 1) OR k0 IS NULL)",
                f" AND COUNT(*) NOT IN (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM {rows} GROUP BY {group}))",
                " AND EXISTS (SELECT 1 FROM steps WHERE lvl = 3)",
            )
        )
        base = f"SELECT {self._keyed(keys)}, COUNT(*) AS n0, COALESCE(SUM({number}), 0) AS s0, {self._aggregates(scope)} FROM {rows}"
        groups = f"{base} GROUP BY {group} HAVING COUNT(*) > 0{having}"
        roll = self.rng.random()
        if roll < 0.25:
            limit = self.rng.choice(("", " LIMIT 3", " LIMIT 2 OFFSET 1"))
            return f"{groups} ORDER BY {self.rng.choice(('', 'n0 DESC, '))}{order}{limit}", True
        if roll < 0.4:
            sets = self.rng.choice((f"ROLLUP ({group})", f"CUBE ({group})", f"GROUPING SETS (({group}), ())"))
            return f"{base} GROUP BY {sets} HAVING COUNT(*) > 0", False
        window = self.rng.choice((
            f"RANK() OVER (ORDER BY n0, {order})", f"SUM(n0) OVER (ORDER BY {order})", "n0 / SUM(n0) OVER ()",
            f"LAG(n0) OVER (ORDER BY {order})", f"ROW_NUMBER() OVER (ORDER BY s0 DESC NULLS LAST, {order})",
        ))  # fmt: skip
        if roll < 0.6:
            return f"SELECT *, {window} AS w FROM ({groups}) q", False
        if roll < 0.7:
            chosen = self.rng.choice(
                (
                    "<= 2",
                    "IN (SELECT lvl FROM steps)",
                    "<= ALL (SELECT UNNEST([2, 3]))",
                    "= ANY (VALUES (1), (3))",
                )
            )
            place = f"ROW_NUMBER() OVER (ORDER BY n0 DESC, {order})"
            items = ", ".join([*names, "n0", "s0"])
            return f"SELECT {items} FROM ({groups}) q QUALIFY {place} {chosen}", False
        if roll < 0.8:
            return (
                f"SELECT COUNT(*) AS groups, SUM(n0) AS s1, MAX(s0) AS m1, AVG(n0) AS v1 FROM ({groups}) q",
                False,
            )
        if roll < 0.9:
            other = (
                f"SELECT {self._keyed(keys)}, COUNT(*) AS n0 FROM {rows} GROUP BY {group} HAVING COUNT(*) > 0"
            )
            join = self.rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
            return (
                f"SELECT a.k0, b.k0 AS k1, a.n0 AS x, b.n0 AS y FROM ({groups}) a {join} ({other}) b ON a.k0 = b.k0",
                False,
            )
        return (
            f"SELECT {self._keyed(keys)}, COUNT(*) AS n0 FROM {rows} GROUP BY {group} HAVING COUNT(*) > 0 AND COUNT(*) < (SELECT COUNT(*) FROM {rows})",
            False,
        )

    # Keys

    def finer(self) -> str:
        """Something computed of groups by a key that is finer than the unit: of visits, by the links that lead to them."""
        first, second = self.alias(), self.alias()
        text, scope = self.rng.choice(
            (
                (f"visits {first}", self.columns("visits", first)),
                (f"items {first}", self.columns("items", first)),
                (
                    f"visits {first} {self.rng.choice(('', 'LEFT '))}JOIN items {second} ON {first}.vid = {second}.vid",
                    [*self.columns("visits", first), *self.columns("items", second)[1:]],
                ),
            )
        )
        keys = [f"{first}.vid"]
        if self.chance(0.4):
            keys.append(self.value(scope, self.rng.choice((TEXT, INT, BOOL))))
        cols = [Col("", kind, f"c{number}") for number, kind in enumerate((INT, REAL))]
        items = [f"{key} AS g{number}" for number, key in enumerate(keys)]
        whole = [text for text, kind in (self.within(scope) for _ in range(6)) if kind == INT] or ["COUNT(*)"]
        items += [f"{whole[0]} AS c0", f"AVG({self.integer(scope, 1)}) AS c1"]
        having = self.rng.choice(("", "", " HAVING COUNT(*) > 1", f" HAVING {whole[-1]} > 0"))
        inner = f"SELECT {', '.join(items)} FROM {text}{self.where(scope, share=0.4)} GROUP BY {', '.join(keys)}{having}"
        named = [col._replace(text=f"q.{col.name}") for col in cols]
        if self.chance(0.3):
            key = self.integer(named, 1)
            return f"SELECT {key} AS k0, COUNT(*) AS n0, {self._aggregates(named)} FROM ({inner}) q GROUP BY {key} HAVING COUNT(*) > 0"
        where = f" WHERE {self.boolean(named, 1)}" if self.chance(0.3) else ""
        return f"SELECT COUNT(*) AS n, {self._aggregates(named)} FROM ({inner}) q{where}"

    def limited(self) -> str:
        """The groups of which a condition on their keys is not true: there are none, whatever the keys are."""
        alias, table = self.alias(), self.rng.choice(("people", "visits", "orders", "tags"))
        known = [
            col
            for col in self.columns(table, alias)
            if col.name in DOMAINS or col.kind == BOOL or (col.name in BOUNDS and col.kind in (INT, DATE))
        ]
        keys = self.rng.sample(known, min(len(known), self.rng.choice((1, 1, 2))))
        texts = self.of(keys, TEXT)
        others = [col for col in keys if col not in texts]
        parts = [self._compared(col) for col in texts]
        while others and len(parts) < len(keys):
            found = self.boolean(others, 1)
            if not any(word in found for word in ("CAST", "LENGTH", "::")):
                parts.append(found)
        condition = self.rng.choice((" AND ", " OR ")).join(parts)
        beside = f" AND {self.boolean(self.columns(table, alias), 0)}" if self.chance(0.3) else ""
        items = ", ".join(f"{col.text} AS {col.name}" for col in keys)
        rows = f"(SELECT {items}, COUNT(*) AS m FROM {table} {alias} WHERE ({condition}){beside} GROUP BY {', '.join(col.text for col in keys)}) q"
        outside = condition.replace(f"{alias}.", "q.")
        return f"SELECT * FROM {rows} WHERE ({outside}) IS NOT TRUE"

    def _compared(self, col: Col) -> str:
        """A condition on a text that has listed values."""
        pick = self.rng.choice
        word, other = pick(col.words), pick(col.words)
        return pick((
            f"{col.text} {pick(('=', '<>', '<', '>='))} '{word}'", f"{col.text} {pick(('', 'NOT '))}IN ('{word}', '{other}')",
            f"{col.text} {pick(('', 'NOT '))}LIKE '{word[:1]}%'", f"{col.text} IS {pick(('', 'NOT '))}NULL",
            f"CASE WHEN {col.text} > '{word}' THEN {col.text} <> '{other}' ELSE {col.text} IS NULL END",
            f"COALESCE({col.text}, '{word}') = '{other}'", f"{col.text} IS DISTINCT FROM '{word}'",
        ))  # fmt: skip


def about_keys(rng: random.Random) -> Statement:
    """A random statement on keys finer than the unit, or on public keys under conditions."""
    grammar = Grammar(rng)
    body = grammar.finer() if rng.random() < 0.6 else grammar.limited()
    return Statement(body, grammar.named())


def statement(rng: random.Random) -> Statement:
    """A random statement."""
    return Grammar(rng).statement()


def of_nobody(rng: random.Random) -> Statement:
    """A statement whose groups, FILTER or cells of PIVOT many rows do not reach, with a count beside each value."""
    grammar = Grammar(rng)
    pick, roll = rng.choice, rng.random()
    rare = lambda scope: f"{grammar.boolean(scope, 1)} AND {grammar.boolean(scope, 0)}"  # noqa: E731
    calls = pick((
        ("MIN({}) AS v1", "MAX({}) AS v2"), ("AVG({}) AS v1", "MEDIAN({}) AS q2"), ("SUM({}) AS v1", "MAX({}) AS v2"),
        ("AVG({}) AS v1", "MIN({}) AS v2"), ("QUANTILE_DISC({}, 0.25) AS q1", "MAX({}) AS v2"),
    ))  # fmt: skip
    if roll < 0.3:
        table, keys = pick((("people", "city"), ("visits", "kind"), ("orders", "status")))
        scope = [col._replace(text=col.name) for col in grammar.columns(table, "t")]
        on = pick([col for col in scope if col.kind == INT])
        value = pick([col for col in scope if col.kind in (INT, REAL, DATE) and col != on]).text
        # A group of NULL of which no cell has a value is not shown.
        where = f" WHERE {keys} IS NOT NULL" + (f" AND {rare(scope)}" if grammar.chance(0.5) else "")
        using = f"COUNT({value}) AS n, {pick(('MIN', 'MAX') if value in ('born', 'day') else ('MIN', 'MAX', 'AVG'))}({value}) AS v"
        return Statement(
            f"PIVOT (SELECT {keys} AS k0, {on.text} AS p, {value} FROM {table}{where}) ON p IN (0, 3, 4) USING {using} GROUP BY k0"
        )
    text, scope, _, where = grammar.sources(pick((1, 1, 2)))
    value = grammar.number(scope, 1)
    found = [call.format(value) for call in calls]
    if roll < 0.6:
        named = [each.rsplit(" AS ", 1) for each in [f"COUNT({value}) AS c0", *found]]
        condition = rare(scope)
        items = ", ".join(f"{call} FILTER (WHERE {condition}) AS {name}" for call, name in named)
        return Statement(f"SELECT {items} FROM {text}{grammar.where(scope, where, 0.2)}", grammar.named())
    kept = " AND ".join([*where, rare(scope)])
    items = ", ".join([f"COUNT({value}) AS c0", *found])
    if roll < 0.75:
        return Statement(f"SELECT {items} FROM {text} WHERE {kept}", grammar.named())
    # What keys determine is computed from them, whether or not anybody is in the group.
    key = grammar._key([col for col in scope if col.text not in value] or scope[:0])
    return Statement(
        f"SELECT {key} AS k0, COUNT(*) AS n0, {items} FROM {text} WHERE {kept} GROUP BY {key}",
        grammar.named(),
    )


def partition(rng: random.Random) -> tuple[str, tuple[str, str, str]]:
    """A count and a sum of all rows, and of those where a condition is true, false and NULL."""
    grammar = Grammar(rng)
    text, scope, _, where = grammar.sources(rng.choice((1, 2, 2, 3)))
    number, condition = grammar.integer(scope), grammar.boolean(scope)

    def build_query(*more: str) -> str:
        kept = " AND ".join([*where, *more])
        select = f"SELECT COUNT(*) AS n, COALESCE(SUM({number}), 0) AS s, COUNT({number}) AS c FROM {text}"
        return Statement(select + f" WHERE {kept}" * bool(kept), grammar.named()).sql

    return build_query(), (
        build_query(f"({condition})"),
        build_query(f"NOT ({condition})"),
        build_query(f"({condition}) IS NULL"),
    )

"""Queries of any size: each shape grows with one number, in length, width or depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Shape = Callable[[int], str]
_COUNT = "SELECT COUNT(*) FROM visits"
_WHERE = f"{_COUNT} WHERE "


def listed(template: str, between: str = ", ") -> Callable[[int], str]:
    """So many copies of a template, in which {} is a number."""
    return lambda size: between.join(template.replace("{}", str(index)) for index in range(size))


LONG: Mapping[str, Shape] = {
    "spaces": lambda size: _COUNT + " " * size,
    "newlines": lambda size: "\n" * size + "SELECT COUNT(*) FROM visit",
    "line comments": lambda size: "--x\n" * size + _COUNT,
    "comments": lambda size: "SELECT " + "/*x*/" * size + "COUNT(*) FROM visits",
    "comments within comments": lambda size: "/*" * size + "*/" * size + _COUNT,
    "an open comment": lambda size: _COUNT + "/*" * size,
    "a name": lambda size: f"SELECT COUNT({'a' * size}) FROM visits",
    "a quoted name": lambda size: f'SELECT COUNT("{"``" * size}") FROM visits'.replace("``", '""'),
    "a table's name": lambda size: f"SELECT COUNT(*) FROM {'v' * size}",
    "an alias": lambda size: f"SELECT COUNT(*) AS {'v' * size} FROM visits",
    "a text": lambda size: f"{_WHERE}note = '{'x' * size}'",
    "a text of quotes": lambda size: f"{_WHERE}note = '{_QUOTES * size}'",
    "a text beyond the plane": lambda size: f"{_WHERE}note = '{'𝒳' * size}'",
    "a pattern": lambda size: f"{_WHERE}note LIKE '{'%_' * size}'",
    "a whole number": lambda size: f"{_WHERE}age = {'9' * size}",
    "a decimal number": lambda size: f"{_WHERE}age = 0.{'9' * size}",
    "an exponent": lambda size: f"{_WHERE}age = 1e{'9' * size}",
    "a negative exponent": lambda size: f"{_WHERE}age = 1e-{'9' * size}",
    "underscores": lambda size: f"{_WHERE}age = 1{'_1' * size}",
    "a day": lambda size: f"{_WHERE}day = '{'2' * size}'",
    "a limit": lambda size: f"{_COUNT} LIMIT {'1' * size}",
    "semicolons": lambda size: _COUNT + ";" * size,
    "a name before brackets": lambda size: f"SELECT {'a' * size}(1)[1] FROM visits",
    "spaces in brackets": lambda size: f"SELECT note[{' ' * size}x FROM visits",
    "a pattern of columns": lambda size: f"SELECT COLUMNS('{'.*' * size}q') FROM visits",
}
"""One word or space that is long."""
_QUOTES = "''"

WIDE: Mapping[str, Shape] = {
    "outputs": lambda size: f"SELECT {listed('SUM(age + {}) AS a{}')(size)} FROM visits",
    "a list": lambda size: f"{_WHERE}age IN ({listed('{}')(size)})",
    "a list of texts": lambda size: f"""{_WHERE}note IN ({listed("'s{}'")(size)})""",
    "a list of what a column lacks": lambda size: f"""{_WHERE}plan IN ({listed("'s{}'")(size)})""",
    "a list of one value": lambda size: f"{_WHERE}age IN ({listed('1')(size)})",
    "parameters": lambda size: f"{_WHERE}age IN ({listed('?')(size)})",
    "AND": lambda size: _WHERE + listed("age > {}", " AND ")(size),
    "OR": lambda size: _WHERE + listed("age = {}", " OR ")(size),
    "AND of OR": lambda size: _WHERE + listed("(age <> {} OR urgent)", " AND ")(size),
    "OR of AND": lambda size: _WHERE + listed("age > {} AND urgent", " OR ")(size),
    "BETWEEN": lambda size: _WHERE + listed("age BETWEEN {} AND 100", " AND ")(size),
    "WHEN": lambda size: f"{_WHERE}CASE {listed('WHEN age = {} THEN {}', ' ')(size)} END > 3",
    "simple WHEN": lambda size: f"{_WHERE}CASE age {listed('WHEN {} THEN {}', ' ')(size)} END > 3",
    "keys by WHEN": lambda size: (
        f"SELECT CASE {listed('WHEN age = {} THEN {}', ' ')(size)} ELSE 0 END AS k, COUNT(*) FROM visits GROUP BY k"
    ),
    "LEAST": lambda size: f"{_WHERE}LEAST({listed('age')(size)}) > 3",
    "SUM of LEAST": lambda size: f"SELECT SUM(LEAST({listed('age + {}')(size)})) FROM visits",
    "COALESCE": lambda size: f"{_WHERE}COALESCE({listed('age')(size)}) > 3",
    "one key": lambda size: f"{_COUNT} GROUP BY {listed('plan')(size)}",
    "sorts": lambda size: f"{_COUNT} ORDER BY {listed('COUNT(*) + {}')(size)}",
    "HAVING": lambda size: f"{_COUNT} HAVING {listed('COUNT(*) > {}', ' AND ')(size)}",
    "tables": lambda size: _COUNT + listed(" JOIN regions r{} ON region = r{}.id", "")(size),
    "commas": lambda size: _COUNT + ", visits" * size,
    "conditions of a join": lambda size: f"{_COUNT} JOIN regions ON {listed('region = id', ' AND ')(size)}",
    "USING": lambda size: f"{_COUNT} JOIN plans USING ({listed('plan')(size)})",
    "CTEs": lambda size: (
        f"WITH {listed('a{} AS (SELECT patient_id FROM visits)')(size)} SELECT COUNT(*) FROM a0"
    ),
    "UNION within": lambda size: (
        f"SELECT COUNT(*) FROM ({listed('SELECT patient_id FROM visits', ' UNION ALL ')(size)}) AS u"
    ),
    "UNION": listed(_COUNT, " UNION ALL "),
    "EXISTS": lambda size: (
        _WHERE
        + listed("EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = visits.patient_id)", " AND ")(size)
    ),
    "statements": listed(_COUNT, ";"),
}
"""Many of one kind side by side."""

DEEP: Mapping[str, Shape] = {
    "parentheses": lambda size: f"{_WHERE}{'(' * size}urgent{')' * size}",
    "open parentheses": lambda size: _WHERE + "(" * size,
    "closed parentheses": lambda size: _WHERE + ")" * size,
    "NOT": lambda size: f"{_WHERE}{'NOT ' * size}urgent",
    "NOT in parentheses": lambda size: f"{_WHERE}{'NOT (' * size}urgent{')' * size}",
    "signs": lambda size: f"{_WHERE}{'- ' * size}age > 3",
    "NOT and signs": lambda size: f"{_WHERE}{'NOT - ' * size}age",
    "sums": lambda size: f"{_WHERE}age{' + 1' * size} > 3",
    "sums in parentheses": lambda size: f"{_WHERE}{'(age + ' * size}age{')' * size} > 3",
    "comparisons": lambda size: f"{_WHERE}age{' < 1' * size}",
    "null tests": lambda size: f"{_WHERE}age{' IS NULL' * size}",
    "casts": lambda size: f"{_WHERE}age{'::INT' * size} > 3",
    "CAST": lambda size: f"{_WHERE}{'CAST(' * size}age{' AS INT)' * size} > 3",
    "functions": lambda size: f"{_WHERE}{'ABS(' * size}age{')' * size} > 3",
    "functions of aggregates": lambda size: f"SELECT {'ABS(' * size}COUNT(*){')' * size} FROM visits",
    "CASE": lambda size: f"{_WHERE}{'CASE WHEN urgent THEN ' * size}urgent{' END' * size}",
    "CASE as condition": lambda size: f"{_WHERE}{'CASE WHEN ' * size}urgent{' THEN urgent END' * size}",
    "queries": lambda size: f"{'(' * size}{_COUNT}{')' * size}",
    "derived tables": lambda size: f"SELECT COUNT(*) FROM {'(SELECT * FROM ' * size}visits{')' * size}",
    "tables in parentheses": lambda size: f"SELECT COUNT(*) FROM {'(' * size}visits{')' * size}",
    "joins in parentheses": lambda size: f"SELECT COUNT(*) FROM {'(visits JOIN ' * size}visits{')' * size}",
    "EXISTS in EXISTS": lambda size: (
        f"{_WHERE}{'EXISTS (SELECT 1 FROM visits WHERE ' * size}urgent{')' * size}"
    ),
    "dots": lambda size: f"{_WHERE}a{'.a' * size} > 3",
    "arrows": lambda size: f"{_WHERE}age{' -> age' * size}",
    "time zones": lambda size: f"{_WHERE}seen{_ZONE * size} > seen",
    "types": lambda size: f"{_WHERE}age::{'STRUCT(a ' * size}INT{')' * size} > 3",
    "types in angles": lambda size: f"{_WHERE}age::{'ARRAY<' * size}INT{'>' * size} > 3",
    "arrays": lambda size: f"{_WHERE}age::INT{'[]' * size} > 3",
    "intervals": lambda size: f"{_WHERE}{'INTERVAL ' * size}1",
    "DISTINCT": lambda size: f"SELECT {'DISTINCT ' * size}COUNT(*) FROM visits",
    "EXPLAIN": lambda size: "EXPLAIN " * size + _COUNT,
}
"""Each part within the next."""
_ZONE = " AT TIME ZONE 'UTC'"
SHAPES = {**LONG, **WIDE, **DEEP}

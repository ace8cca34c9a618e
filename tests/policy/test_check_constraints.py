"""CHECK constraints: what is read of them holds for each value that the engine admits, and no text makes it fail."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.policy import load, skeleton
from dpsql.policy.check_constraints import ColumnConstraint, parse_constraints

NUMBERS = [*range(-4, 7), None]
TEXTS = ["a", "b", "c", "it's", "", None]

_number = st.integers(-3, 5).map(lambda value: f"({value})" if value % 2 else str(value))
_text = st.sampled_from(["'a'", "'b'", "'it''s'"])
_sign = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])
_conditions = st.one_of(
    st.builds("{} {} {}".format, st.just("n"), _sign, _number),
    st.builds("{} {} {}".format, _number, _sign, st.just("t.n")),
    st.builds("n > {} AND {} >= n".format, _number, _number),
    st.builds("{} < n AND n < {}".format, _number, _number),
    st.builds("n {} {} AND {}".format, st.sampled_from(["BETWEEN", "NOT BETWEEN"]), _number, _number),
    st.builds("n IN ({}, {})".format, _number, st.one_of(_number, st.just("NULL"))),
    st.builds("s {} ({}, {})".format, st.sampled_from(["IN", "NOT IN"]), _text, _text),
    st.builds("{} = s".format, _text),
    st.sampled_from(
        ["n IS NOT NULL", "NOT s IS NULL", "s IS NULL", "n IS NULL", "length(s) < 2", "n + 1 > 2"]
    ),
)
_constraints = st.recursive(
    _conditions,
    lambda each: st.one_of(
        st.builds("({}) AND ({})".format, each, each),
        st.builds("{} AND {}".format, _conditions, each.map("({})".format)),
        st.builds("({}) OR ({})".format, each, each),
        st.builds("NOT ({})".format, each),
    ),
    max_leaves=4,
)


def read_of(*constraints: str) -> tuple[dict[str, ColumnConstraint], duckdb.DuckDBPyConnection]:
    """What is read of a table's constraints, as the engine writes them, and an engine with the table."""
    engine = duckdb.connect()
    engine.execute(
        f"CREATE TABLE t (n INTEGER, s VARCHAR, {', '.join(f'CHECK ({each})' for each in constraints)})"
    )
    found = engine.execute("SELECT expression FROM duckdb_constraints() WHERE constraint_type = 'CHECK'")
    return dict(parse_constraints([text for (text,) in found.fetchall()])), engine


@given(constraints=st.lists(_constraints, min_size=1, max_size=3))
def test_constraints_hold_for_each_value_that_the_engine_admits(constraints: list[str]) -> None:
    """Bounds, lists and NOT NULL: of each row that can be inserted."""
    found, engine = read_of(*constraints)
    number, text = found.get("n", ColumnConstraint()), found.get("s", ColumnConstraint())
    bounds, numbers, texts = (
        number.to_bounds("integer"),
        number.to_values("integer"),
        text.to_values("varchar"),
    )
    for n in NUMBERS:
        for s in TEXTS:
            try:
                engine.execute("INSERT INTO t VALUES (?, ?)", [n, s])
            except duckdb.ConstraintException:
                continue
            assert not (n is None and number.not_null)
            assert not (s is None and text.not_null)
            assert n is None or bounds is None or bounds[0] <= n <= bounds[1]
            assert n is None or numbers is None or n in numbers
            assert s is None or texts is None or s in texts


@given(text=st.text(alphabet="tn s()'\"<>=,.-1eANDORINBETWENULLIS\n", max_size=60) | st.text(max_size=60))
def test_no_text_fails(text: str) -> None:
    """What is not known is ignored."""
    for found in parse_constraints([text, f"({text})"]).values():
        for kind in ("integer", "double", "varchar", "date", "timestamp", "boolean"):
            found.to_bounds(kind)
            found.to_values(kind)


@pytest.mark.parametrize(
    "text", ["(" * 5_000 + "n > 0" + ")" * 5_000, "n IN (" * 500, "(n > 1e999999999)", "x" * 10**6]
)
def test_long_and_deep_ones_are_ignored(text: str) -> None:
    """Reading is bounded."""
    assert not parse_constraints([text])


def test_and_binds_tighter_than_or() -> None:
    """Also in a text without the parentheses that the engine writes: either side of OR alone may be true."""
    assert not parse_constraints(["a = 1 AND b = 2 OR c = 3"])
    assert not parse_constraints(["a = 1 OR b = 2 AND c = 3"])
    assert set(parse_constraints(["(a = 1 OR a = 2) AND b = 3"])) == {"a", "b"}


@pytest.mark.parametrize(
    ("kind", "constraint", "written"),
    [
        ("INTEGER", "x BETWEEN 0 AND 120", "{type: integer, bounds: [0, 120]}"),
        ("INTEGER", "x > 0 AND x < 1.5", "{type: integer, bounds: [1, 1]}"),
        ("INTEGER", "x > -1 AND 9 >= x AND x IS NOT NULL", "{type: integer, bounds: [0, 9], nullable: false}"),
        ("INTEGER", "x IN (1, 2, NULL)", "{type: integer}"),
        ("INTEGER", "x > 5 OR x = 1", "{type: integer}"),
        ("INTEGER", "x > 0", "{type: integer}"),
        ("DOUBLE", "x >= 0 AND x < 1.5", "{type: double, bounds: [0, 1.5]}"),
        ("DECIMAL(5,2)", "x IN (0.5, 1)", "{type: double}"),
        ("VARCHAR", "x IN ('f', 'it''s')", '{type: varchar, values: ["f", "it\'s"]}'),
        ("VARCHAR", "x = 'a' OR x = 'b' OR x IS NULL", '{type: varchar, values: ["a", "b"]}'),
        ("VARCHAR", "length(x) < 3", "{type: varchar}"),
        ("VARCHAR", "x NOT IN ('a')", "{type: varchar}"),
        ("DATE", "x BETWEEN DATE '2020-01-01' AND '2021-02-03'", '{type: date, bounds: ["2020-01-01", "2021-02-03"]}'),
        ("DATE", "NOT (x IS NULL)", "{type: date, nullable: false}"),
    ],
)  # fmt: skip
def test_init_writes_keys_from_constraints(kind: str, constraint: str, written: str) -> None:
    """The keys of a column, from its constraint; a policy reads them back."""
    engine = duckdb.connect()
    engine.execute(f"CREATE TABLE t (id INTEGER, x {kind} CHECK ({constraint}))")
    checks = [text for (text,) in engine.execute("SELECT expression FROM duckdb_constraints()").fetchall()]
    text = skeleton({"t": [("id", "INTEGER"), ("x", kind)]}, "db", checks={"t": checks})
    assert f"      x: {written}\n" in text
    filled = {"privacy_unit: TODO": "privacy_unit: one", "epsilon: TODO": "epsilon: 1", "delta: TODO": "delta: 0",
              "    unit: TODO": "    unit: id", "rows_per_unit: TODO": "rows_per_unit: 2"}  # fmt: skip
    for old, new in filled.items():
        text = text.replace(old, new)
    assert load(text).tables["t"].columns["x"].type == written.split()[1].strip(",}")

"""The engine's own names for types, as a policy may write them, and what a column of each can be declared as."""

from __future__ import annotations

import re

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.policy import ColumnType
from dpsql.policy.engine_types import (
    POLICY_TYPES,
    can_declare_type,
    describe_unread_type,
    find_policy_type,
    infer_column_type,
    parse_enum_members,
    parse_struct_fields,
)
from dpsql.policy.tables import Column

NAMES = sorted({name for kind in POLICY_TYPES for name in kind.names})


def test_each_name_of_the_engine_is_accepted_or_refused_with_a_way_out() -> None:
    """Whatever the engine calls a type: it is declared as what a column of it is read as, or the hint says what to do."""
    with duckdb.connect() as engine:
        known = engine.execute("SELECT DISTINCT type_name, logical_type FROM duckdb_types()").fetchall()
    assert len(known) > 60
    for name, kind in known:
        found = find_policy_type(name)
        physical = {"DECIMAL": "DECIMAL(18,3)", "ENUM": "ENUM('a')"}.get(kind, kind)
        if found is None:
            assert infer_column_type(physical) is None, name
            assert describe_unread_type(name).startswith(("declare", "leave")), name
        else:
            assert can_declare_type(found.name, physical), name


@pytest.mark.parametrize("name", NAMES)
def test_names_have_no_case(name: str) -> None:
    """As in SQL, and neither do spaces count."""
    kind = find_policy_type(name)
    assert kind is not None
    assert name in kind.names
    assert find_policy_type(name.upper()) is find_policy_type(f"  {name.title().replace(' ', '  ')} ") is kind


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("numeric(12,2)", "double"), ("NUMERIC( 12 , 2 )", "double"), ("decimal", "double"), ("decimal(9)", "integer"),
        ("dec(38,38)", "double"), ("numeric(39,2)", None), ("numeric(3,4)", None), ("numeric(0,0)", None),
        ("varchar(20)", "varchar"), ("varchar(1,2)", None), ("bigint(3)", None), ("enum('a')", None), ("int[]", None),
        ("timestamp with time zone", "timestamp"), ("TimestampTZ", "timestamp"), ("double precision", "double"),
        ("ubigint", "integer"), ("uhugeint", "varchar"), ("json", "varchar"), ("bytea", "blob"), ("guid", "uuid"),
        ("interval", None), ("timetz", None), ("", None), ("int; DROP TABLE t", None),
    ],
)  # fmt: skip
def test_a_name_stands_for_a_type(written: str, expected: ColumnType | None) -> None:
    """With its length and precision, where the engine allows some."""
    found = find_policy_type(written)
    assert (None if found is None else found.name) == expected
    if expected is not None:
        column = Column.model_validate({"type": written})
        assert column == Column.model_validate({"type": expected})
        assert column.model_dump_json() == Column(type=expected).model_dump_json()


@given(
    st.lists(
        st.text(min_size=1, max_size=6).filter(lambda text: "\0" not in text),
        min_size=1,
        max_size=5,
        unique=True,
    )
)
def test_members_and_fields_are_read_as_the_engine_writes_them(names: list[str]) -> None:
    """Whatever characters are in them."""
    distinct = list({name.lower(): name for name in names}.values())
    with duckdb.connect() as engine:
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in distinct)
        inner = ", ".join('"' + name.replace('"', '""') + '" ENUM(' + listed + ")" for name in distinct)
        try:
            engine.execute(f"CREATE TABLE t (e ENUM({listed}), s STRUCT({inner}))")
        except duckdb.Error:
            return
        kinds = dict(engine.execute("SELECT column_name, data_type FROM duckdb_columns()").fetchall())
    assert parse_enum_members(kinds["e"]) == tuple(distinct)
    assert parse_struct_fields(kinds["s"]) == dict.fromkeys(distinct, kinds["e"])


def test_the_patterns_are_of_the_engine_s_own_names() -> None:
    """A type that reads several by themselves shares none with another."""
    own = ("BIGINT", "HUGEINT", "DOUBLE", "DECIMAL(5,0)", "VARCHAR", "JSON", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE",
           "BOOLEAN", "TIME", "UUID", "BLOB")  # fmt: skip
    for name in own:
        assert sum(re.fullmatch(kind.engine_types, name) is not None for kind in POLICY_TYPES) == 1, name

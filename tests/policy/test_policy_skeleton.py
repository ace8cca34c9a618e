"""The skeleton is valid YAML, refuses to load unfilled, loads filled, and shows no value."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.errors import PolicyError
from dpsql.policy import ColumnType, load, normalize_name, skeleton
from dpsql.policy.names import normalize_account_name
from dpsql.policy.skeleton import find_declarable_type

FILLED = {"privacy_unit": "patient", "epsilon": "1", "delta": "1e-7", "unit": "id", "rows_per_unit": "5"}


def filled(text: str) -> str:
    """The skeleton with every placeholder replaced."""
    return re.sub(r"(?m)^( *)(\w+): TODO\b", lambda m: f"{m[1]}{m[2]}: {FILLED[m[2]]}", text)


SCHEMA = {
    "patients": [("id", "UUID"), ("age", "INTEGER"), ("plan", "ENUM('gold', 'sil\nver: [')")],
    "order details": [("no", "BIGINT"), ("price", "DECIMAL(10,2)"), ('say "hi"\n', "VARCHAR"), ("x", "MAP(VARCHAR, INTEGER)")],
}  # fmt: skip


def test_unfilled_skeleton_fails() -> None:
    """Every placeholder is named with its line, and nothing else is wrong."""
    text = skeleton(SCHEMA, "hie.duckdb")
    with pytest.raises(PolicyError) as caught:
        load(text)
    assert caught.value.code == "todo"
    lines = caught.value.message.splitlines()
    placeholders = [
        number for number, row in enumerate(text.splitlines(), 1) if re.match(r" *\w+: TODO\b", row)
    ]
    assert [
        int(match[1]) for line in lines if (match := re.search(r"line (\d+): .*: still holds TODO", line))
    ] == placeholders
    assert len(lines) == len(placeholders) + 1


def test_a_filled_skeleton_is_a_policy() -> None:
    """Filled in, it declares every table and supported column with its type, and no bounds; of an ENUM its members."""
    policy = load(filled(skeleton(SCHEMA, "hie.duckdb")))
    assert list(policy.tables) == ["patients", "order details"]
    found = {name: column.type for table in policy.tables.values() for name, column in table.columns.items()}
    assert found == {
        "id": "uuid",
        "age": "integer",
        "plan": "varchar",
        "no": "integer",
        "price": "double",
        'say "hi"\n': "varchar",
    }
    columns = [column for table in policy.tables.values() for column in table.columns.values()]
    assert all(column.bounds is None for column in columns)
    assert [column.values for column in columns if column.values] == [("gold", "sil\nver: [")]


def test_a_skeleton_guides() -> None:
    """Each key that an owner may write is explained, and what is left out is said."""
    text = skeleton(SCHEMA, "hie.duckdb")
    for word in ("hie.duckdb", "privacy_unit", "neighbors", "epsilon", "delta", "accountant", "data_version",
                 "max_epsilon", "rows_per_unit", "max_groups", "min_frequency", "partition", "budget", "link:",
                 "public: true", "unit: row", "bounds:", "values:", "nullable: false"):  # fmt: skip
        assert word in text, word
    assert "# x: left out, the type MAP is not supported" in text


def test_fields_and_lists_are_proposed() -> None:
    """A STRUCT is declared by its fields; how many elements of a list count is its owner's to say."""
    kind = 'STRUCT(city VARCHAR, at STRUCT(floor INTEGER, "a.b" STRUCT(c DATE)), tags VARCHAR[])'
    text = skeleton(
        {"t": [("prices", "DECIMAL(5,2)[3]"), ("s", kind), ("m", "MAP(INTEGER, INTEGER)[]")]}, "db"
    )
    assert "      # prices: {type: double, max_elements: TODO}  # a list" in text
    assert '      "s.city": {type: varchar}\n' in text
    assert '      # "s.at": left out, the type STRUCT is not supported\n' in text
    assert '      # "s.tags": {type: varchar, max_elements: TODO}  # a list' in text
    assert "      # m: left out, the type MAP[] is not supported" in text


def test_members_of_an_enum_are_proposed() -> None:
    """They are part of the schema; a word beside them says that their owner decides."""
    text = skeleton({"t": [("c", "ENUM('a', 'it''s')")]}, "db")
    assert '      c: {type: varchar, values: ["a", "it\'s"]}  # the ENUM\'s members: delete' in text


def test_members_of_an_inner_enum_are_not_shown() -> None:
    """The members of an ENUM inside another type, which is left out, do not reach the text."""
    kinds = ["ENUM('secret')[]", "MAP(ENUM('\nsecret: x'), INTEGER)"]
    text = skeleton({"t": [(f"c{place}", kind) for place, kind in enumerate(kinds)]}, "db")
    assert "secret" not in text


@pytest.mark.parametrize(
    ("duckdb_type", "expected"),
    [
        ("INTEGER", "integer"), ("BIGINT", "integer"), ("UTINYINT", "integer"), ("HUGEINT", "integer"),
        ("DECIMAL(18,0)", "integer"), ("DECIMAL(10,2)", "double"), ("DECIMAL(4, 1)", "double"), ("FLOAT", "double"),
        ("DOUBLE", "double"), ("VARCHAR", "varchar"), ("ENUM('a', 'b')", "varchar"), ("DATE", "date"),
        ("TIMESTAMP", "timestamp"), ("TIMESTAMP_NS", "timestamp"), ("BOOLEAN", "boolean"), ("varchar", "varchar"),
        ("TIMESTAMP WITH TIME ZONE", "timestamp"), ("TIME", "time"), ("INTERVAL", None), ("BLOB", "blob"),
        ("UUID", "uuid"), ("UHUGEINT", "varchar"), ("TIME WITH TIME ZONE", None), ("BIT", None),
        ("VARCHAR[]", None), ("INTEGER[3]", None), ("ENUM('a')[]", None), ("STRUCT(a DATE)", None), ("DATES", None),
        ("", None),
    ],
)  # fmt: skip
def test_types(duckdb_type: str, expected: ColumnType | None) -> None:
    """A DuckDB type is read as the policy's type only when it is known."""
    assert find_declarable_type(duckdb_type) == expected


def test_empty_database_is_reported() -> None:
    """There is nothing to write a policy for."""
    with pytest.raises(PolicyError) as caught:
        skeleton({}, "empty.duckdb")
    assert caught.value.code == "no_tables"


def test_a_database_whose_tables_cannot_be_declared() -> None:
    """Names that a policy cannot hold are said to be left out, and the file still asks to be completed."""
    text = skeleton({"a.b.c": [("x", "INTEGER")]}, "db")
    assert '# "a.b.c": left out' in text
    with pytest.raises(PolicyError) as caught:
        load(text)
    assert caught.value.code == "todo"


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(
    ["no", "null", "~", "1e3", "2020-01-01", "a: b", "# x", "- y", "<<", "&a", "*a", "!t", "TODO", "row", "y", "=", "'", '"', "{", "\x85", "\u2028", "\ufeff", "💡"]
)  # fmt: skip
TYPES = st.sampled_from(["INTEGER", "ENUM('\n  x: y')", "DATE", "BLOB", "STRUCT(a ENUM('\nb: c'))[]"])
COLUMNS = st.lists(st.tuples(NAMES, TYPES), max_size=4, unique_by=lambda pair: normalize_name(pair[0]))


@given(st.dictionaries(NAMES, COLUMNS, min_size=1, max_size=3), NAMES)
@settings(max_examples=examples(150), deadline=None)
def test_any_schema_gives_yaml_that_loads_once_filled(
    schema: dict[str, list[tuple[str, str]]], source: str
) -> None:
    """Whatever the names are, the text is YAML, and filled in it declares those tables and columns."""
    schema = {name: columns for place, (name, columns) in enumerate(schema.items())
              if normalize_account_name(name) not in {normalize_account_name(other) for other in list(schema)[:place]}}  # fmt: skip
    text = skeleton(schema, source)
    usable = {
        table: columns
        for table, columns in schema.items()
        if all(part.strip() for part in table.split("."))
        and table.count(".") <= (0 if '"' in table else 1)
        and "\0" not in table
    }
    parsed = yaml.safe_load(text)["tables"]
    if not usable:
        assert parsed == {"TODO": "TODO"}
        return
    policy = load(filled(text))
    assert list(policy.tables) == list(parsed) == list(usable)
    for table, columns in usable.items():
        declared = [
            name for name, kind in columns if find_declarable_type(kind) and name.strip() and "\0" not in name
        ]
        assert list(policy.tables[table].columns) == declared


def test_columns_that_are_never_null_are_declared_so() -> None:
    """What the schema says of a column is written into the policy."""
    text = skeleton({"t": [("a", "INTEGER"), ("b", "INTEGER")]}, "db", {"t": {"b"}})
    assert "      a: {type: integer}\n      b: {type: integer, nullable: false}\n" in text

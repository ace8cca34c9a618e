"""What a loaded policy says: units, budgets, names, digests; and that it cannot be changed."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from speeds import examples

from dpsql.errors import PolicyError
from dpsql.policy import BudgetOverride, BudgetSpec, Column, Link, Policy, Table, Unit, load

SHOP = """\
version: 1
privacy_unit: customer
budget: {epsilon: 1, delta: 1e-6}
tables:
  customer:
    unit: c_custkey
    rows_per_unit: 1
  orders:
    link: {column: o_custkey, references: Customer.C_CUSTKEY}
    rows_per_unit: 30
    budget: {epsilon: 0.5, delta: 0, accountant: pure}
    columns: {o_orderkey: {type: integer}, o_date: {type: date, bounds: [1992-01-01, 1998-12-31]}}
  returns:
    link: {column: r_custkey, references: orders.o_custkey}
    rows_per_unit: 3
    budget: {epsilon: 0.25}
  lineitem:
    link: {column: l_orderkey, references: orders.o_orderkey}
    rows_per_unit: 100
  shipment:
    link: {column: s_line, references: lineitem.l_orderkey}
    rows_per_unit: 100
  clicks: {unit: ROW}
  nation: {public: true, columns: {n_name: {type: varchar}}}
"""


@pytest.fixture(scope="module")
def shop() -> Policy:
    """A policy with direct, indirect, row and public tables."""
    return load(SHOP)


@pytest.mark.parametrize(
    ("table", "unit"),
    [
        ("customer", Unit("column", "c_custkey")),
        ("ORDERS", Unit("column", "o_custkey")),
        ("returns", Unit("column", "r_custkey")),
        ("lineitem", Unit("indirect", "l_orderkey")),
        ("shipment", Unit("indirect", "s_line")),
        ("clicks", Unit("row", None)),
    ],
)
def test_the_unit_of_each_table(shop: Policy, table: str, unit: Unit) -> None:
    """A link is direct only when each step refers to the column that holds the unit's id."""
    assert shop.get_unit(table) == unit


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("customer", "c_custkey"),
        ("returns", "r_custkey"),
        ("lineitem", "through l_orderkey = orders.o_orderkey"),
        ("shipment", "through s_line = lineitem.l_orderkey"),
        ("clicks", "each row"),
    ],
)
def test_the_unit_in_words(shop: Policy, table: str, words: str) -> None:
    """A column that leads to the unit of another row is not said to be the unit."""
    assert shop.describe_unit(table) == words


@pytest.mark.parametrize(("table", "code"), [("nation", "public_table"), ("nobody", "undeclared_table")])
def test_a_table_without_unit_has_neither_unit_nor_budget(shop: Policy, table: str, code: str) -> None:
    """Asking a public or undeclared table for its unit or budget is a PolicyError, not a default."""
    for question in (shop.get_unit, shop.get_budget):
        with pytest.raises(PolicyError) as caught:
            question(table)
        assert caught.value.code == code


def test_a_budget_is_merged_key_by_key(shop: Policy) -> None:
    """A table's own keys win, the rest are the policy's; zcdp is the default with a delta."""
    assert shop.budget == shop.get_budget("customer")
    assert shop.budget.accountant == "zcdp"
    own = shop.get_budget("Orders")
    assert (own.epsilon, own.delta, own.accountant) == (Fraction(1, 2), Fraction(0), "pure")
    part = shop.get_budget("returns")
    assert (part.epsilon, part.delta, part.accountant) == (Fraction(1, 4), Fraction(1, 10**6), "zcdp")


def test_the_default_accountant_without_delta_is_pure() -> None:
    """A budget with epsilon alone is pure."""
    assert BudgetSpec(epsilon=Fraction(1)).accountant == "pure"


def test_names_ignore_case(shop: Policy) -> None:
    """Tables and columns are found in any case, and the declared spelling is known."""
    orders = shop.find_table("oRders")
    assert orders is shop.tables["orders"]
    assert shop.find_table_name("ORDERS") == "orders"
    assert shop.find_table_name("order") is None
    assert shop.find_table("order") is None
    assert orders is not None
    assert orders.columns["O_DATE"].type == "date"


def test_private_tables(shop: Policy) -> None:
    """Every table but the public one, in the order of the file."""
    assert shop.list_private_tables() == ("customer", "orders", "returns", "lineitem", "shipment", "clicks")


def test_bounds_and_values_have_the_column_type() -> None:
    """Numbers are exact, days are date, moments are naive datetime, a double's domain is float."""
    forms: list[tuple[dict[str, Any], tuple[object, ...]]] = [
        ({"type": "integer", "bounds": [0, 1e3]}, (Fraction(0), Fraction(1000))),
        ({"type": "double", "bounds": ["0.1", 0.1]}, (Fraction(1, 10), Fraction(1, 10))),
        ({"type": "date", "bounds": ["2020-02-29", date(2021, 1, 1)]}, (date(2020, 2, 29), date(2021, 1, 1))),
        ({"type": "timestamp", "bounds": [date(2020, 1, 1), "2020-01-01 00:00:00.5"]},
         (datetime(2020, 1, 1), datetime(2020, 1, 1, microsecond=500000))),
        ({"type": "integer", "values": [2, 1]}, (2, 1)),
        ({"type": "double", "values": [0.5, "1/4"]}, (0.5, 0.25)),
        ({"type": "boolean", "values": [True]}, (True,)),
        ({"type": "date", "values": ["2020-01-01"]}, (date(2020, 1, 1),)),
        ({"type": "varchar", "values": ["", "NULL"]}, ("", "NULL")),
    ]  # fmt: skip
    for raw, expected in forms:
        column = Column.model_validate(raw)
        found = column.bounds if "bounds" in raw else column.values
        assert found == expected
        assert [type(item) for item in found or ()] == [type(item) for item in expected]
    zero = Column.model_validate({"type": "double", "values": [-0.0]}).values
    assert str(zero) == "(0.0,)"
    assert Column(type="integer").numeric_bounds is None
    assert Column.model_validate(forms[2][0]).numeric_bounds is None
    assert Column.model_validate(forms[0][0]).numeric_bounds == (Fraction(0), Fraction(1000))


@pytest.mark.parametrize(
    ("written", "version"),
    [("2026-11", "2026-11"), ("2026-11-01", "2026-11-01"), ("3", "3"), ("1.10", "1.10"), ("0x1", "0x1"), ("'3'", "3")],
)  # fmt: skip
def test_a_data_version_is_text(written: str, version: str) -> None:
    """Whatever YAML would make of it, the version is what the owner wrote; without one it is 1."""
    assert load(SHOP + f"data_version: {written}\n").data_version == version
    assert load(SHOP).data_version == "1"


@pytest.mark.parametrize(("given", "version"), [(3, "3"), (1.5, "1.5"), (date(2026, 11, 1), "2026-11-01")])
def test_a_data_version_in_a_dict_is_text(given: object, version: str) -> None:
    """Numbers and dates in a dict become their text."""
    assert load({**load(SHOP).model_dump(), "data_version": given}).data_version == version


def test_a_policy_cannot_be_changed(shop: Policy) -> None:
    """Neither attributes nor mappings can be set, and a policy can be a key of a dict."""
    with pytest.raises(ValidationError):
        shop.version = 1
    with pytest.raises(TypeError):
        shop.tables["x"] = shop.tables["orders"]  # type: ignore[index]
    with pytest.raises(ValidationError):
        shop.tables["orders"].rows_per_unit = 10**6
    assert {shop: 1}[load(SHOP)] == 1


def test_models_build_the_policy_of_the_file() -> None:
    """A policy written with the models equals the one in YAML."""
    built = Policy(
        version=1,
        privacy_unit="patient",
        budget=BudgetSpec(epsilon=Fraction(1), delta=Fraction(1, 10**6)),
        tables={
            "p": Table(unit="id", rows_per_unit=1, columns={"age": Column(type="integer", values=(1, 2))}),
            "v": Table(
                link=Link(column="id", references="p.id"),
                rows_per_unit=9,
                budget=BudgetOverride(epsilon=Fraction(1, 2)),
            ),
        },
    )
    text = """
version: 1
privacy_unit: patient
budget: {epsilon: 1, delta: 1e-6}
tables:
  p: {unit: id, rows_per_unit: 1, columns: {age: {type: integer, values: [1, 2]}}}
  v: {link: {column: id, references: p.id}, rows_per_unit: 9, budget: {epsilon: 0.5}}
"""
    assert load(built) == load(text) == built
    assert load(built).compute_digest() == load(text).compute_digest()


@pytest.mark.parametrize(
    "keys",
    [
        {"unit": "id"},
        {},
        {"public": True, "unit": "row"},
        {"unit": "row", "rows_per_unit": 2},
        {"unit": "row", "partition": "x"},
    ],
)
def test_models_hold_the_rules_between_keys(keys: dict[str, Any]) -> None:
    """The constraints between keys bind models built in Python too."""
    with pytest.raises(ValidationError):
        Table(**keys)


def test_models_validate_the_models_inside_them() -> None:
    """A table that skipped validation is refused by the policy that holds it."""
    loose = Table.model_construct(unit="id", rows_per_unit=-5)
    with pytest.raises(ValidationError):
        Policy(version=1, privacy_unit="p", budget=BudgetSpec(epsilon=Fraction(1)), tables={"t": loose})


@pytest.mark.parametrize(
    ("kind", "bound", "code"),
    [
        ("date", datetime(2020, 1, 1), "not_a_date"),
        ("timestamp", datetime(2020, 1, 1, tzinfo=UTC), "not_a_timestamp"),
        ("timestamp", "2020-01-01T00:00:00+01:00", "not_a_timestamp"),
    ],
)
def test_moments_are_not_days_and_have_no_zone(kind: str, bound: object, code: str) -> None:
    """A datetime is no bound of a date column, and a zoned one is no bound at all."""
    raw: Any = load(SHOP).model_dump()
    raw["tables"]["orders"]["columns"]["o_date"] = {"type": kind, "bounds": [bound, bound]}
    with pytest.raises(PolicyError) as caught:
        load(raw)
    assert caught.value.code == code


def test_dump_copy_and_pickle_return_the_policy(shop: Policy) -> None:
    """Every way out of and back into a policy keeps it."""
    assert load(shop.model_dump()) == shop
    assert load(json.loads(shop.model_dump_json())) == shop
    assert pickle.loads(pickle.dumps(shop)) == shop
    assert copy.deepcopy(shop) == shop


def test_the_digest_follows_the_meaning() -> None:
    """Spelling of numbers, comments and order of keys leave the digest; any change of meaning moves it."""
    digest = load(SHOP).compute_digest()
    assert len(digest) == 64
    assert (
        load(SHOP.replace("epsilon: 1,", "epsilon: 1.00,").replace("1e-6", "0.000001")).compute_digest()
        == digest
    )
    assert load("# note\nneighbors: add_remove\n" + SHOP).compute_digest() == digest
    for old, new in [
        ("epsilon: 1,", "epsilon: 1.001,"),
        ("rows_per_unit: 30", "rows_per_unit: 31"),
        ("unit: ROW", "unit: id, rows_per_unit: 1"),
        ("{public: true,", "{unit: row,"),
        ("1998-12-31", "1998-12-30"),
        ("type: varchar", "type: varchar, nullable: false"),
    ]:
        assert load(SHOP.replace(old, new)).compute_digest() != digest, new
    assert load(SHOP + "data_version: 2\n").compute_digest() != digest


NAMES = st.from_regex(r"[a-z_][a-z0-9_ é\"']{0,6}", fullmatch=True)
COLUMNS = st.one_of(
    st.builds(lambda a, b: {"type": "integer", "bounds": sorted((a, b))}, *[st.integers(-(10**15), 10**15)] * 2),
    st.builds(lambda a, b: {"type": "double", "bounds": sorted((a, b))}, *[st.floats(-1e150, 1e150)] * 2),
    st.builds(lambda a, b: {"type": "date", "bounds": sorted((a, b))}, *[st.dates()] * 2),
    st.builds(lambda a, b: {"type": "timestamp", "bounds": sorted((a, b))}, *[st.datetimes()] * 2),
    st.builds(
        lambda v, n: {"type": "varchar", "values": v, "nullable": n},
        st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, unique=True),
        st.booleans(),
    ),
    st.just({"type": "boolean"}),
)  # fmt: skip


@given(
    st.dictionaries(NAMES, COLUMNS, max_size=4),
    st.fractions(min_value=Fraction(1, 1000), max_value=100),
    st.integers(1, 10**9),
)
@settings(max_examples=examples(60), deadline=None)
def test_any_policy_survives_a_round_trip(columns: dict[str, Any], epsilon: Fraction, rows: int) -> None:
    """A policy written out, as Python values or JSON, reads back as itself with the same digest."""
    policy = load(
        {
            "version": 1,
            "privacy_unit": "p",
            "budget": {"epsilon": epsilon},
            "tables": {"t": {"unit": "id", "rows_per_unit": rows, "columns": columns}},
        }
    )
    for again in (load(policy.model_dump()), load(json.loads(policy.model_dump_json()))):
        assert again == policy
        assert again.compute_digest() == policy.compute_digest()


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("abcdef"), min_size=1))
@settings(max_examples=examples(80), deadline=None)
def test_links_load_exactly_when_all_of_them_end_at_a_unit(links: dict[str, str]) -> None:
    """For any links among tables, the policy loads if and only if following them always reaches a unit."""
    tables: dict[str, Any] = {
        name: {"link": {"column": "k", "references": f"{links[name]}.k"}, "rows_per_unit": 2}
        if name in links
        else {"unit": "k", "rows_per_unit": 1}
        for name in "abcdef"
    }

    def ends(name: str) -> bool:
        for _ in range(7):
            if name not in links:
                return True
            name = links[name]
        return False

    raw = {"version": 1, "privacy_unit": "p", "budget": {"epsilon": 1}, "tables": tables}
    if all(ends(name) for name in "abcdef"):
        policy = load(raw)
        assert {policy.get_unit(name).kind for name in "abcdef"} == {"column"}
    else:
        with pytest.raises(PolicyError) as caught:
            load(raw)
        assert caught.value.code == "link_cycle"


@pytest.mark.parametrize("name", ["north-2026", "  north-2026 "])
def test_a_database_has_a_name(name: str) -> None:
    """Without the spaces around it; a policy without one is the same as before there were names."""
    named = load(f"{SHOP}database: '{name}'\n")
    assert (named.database, load(SHOP).database) == ("north-2026", None)
    assert named.compute_digest() != load(SHOP).compute_digest()
    assert "database" not in load(SHOP).model_dump()
    assert "max_failures" not in load(SHOP).model_dump()["tables"]["clicks"]


def test_failures_are_of_a_table_or_of_all() -> None:
    """A table's own number goes before the policy's; where neither says one the ledger has its own."""
    assert load(SHOP).get_failure_limits() == {}
    own = SHOP.replace("clicks: {unit: ROW}", "clicks: {unit: ROW, max_failures: 1}")
    assert load(own).get_failure_limits() == {"clicks": 1}
    most = load(f"{own}max_failures: 5\n").get_failure_limits()
    assert (most["clicks"], most["orders"], "nation" in most) == (1, 5, False)


@pytest.mark.parametrize("line", ["database: ' '", "database: 3", "max_failures: 0", "max_failures: yes"])
def test_names_and_numbers_of_failures_that_are_none(line: str) -> None:
    """A name has letters, and at least one failure is one."""
    with pytest.raises(PolicyError):
        load(f"{SHOP}{line}\n")

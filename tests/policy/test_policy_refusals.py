"""What a policy may not say: each mistake with the line, the key and the code that the error names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import PolicyError
from dpsql.policy import load

GOOD = """\
version: 1
privacy_unit: patient
neighbors: add_remove
budget: {epsilon: 3, delta: 1e-7, accountant: zcdp}
tables:
  patients:
    unit: patient_id
    rows_per_unit: 1
    partition: plan
    columns:
      age: {type: integer, bounds: [0, 110]}
      sex: {type: varchar, values: [F, M]}
      plan: {type: varchar, values: [A, B, C]}
  visits:
    link: {column: patient_id, references: patients.patient_id}
    rows_per_unit: 20
    max_groups: 3
    min_frequency: 10
    budget: {epsilon: 1}
    columns:
      cost: {type: double, bounds: [0, 10000]}
      day: {type: date, bounds: [2020-01-01, 2025-12-31]}
      seen: {type: timestamp, bounds: [2020-01-01, 2025-12-31T23:59:59]}
      note: {type: varchar}
      smoker: {type: boolean, values: [true, false], nullable: false}
  regions: {public: true}
data_version: 2026-11
max_epsilon: 1
"""

TEXT = "policy text"


def changed(*swaps: tuple[str, str]) -> str:
    """GOOD with each first string, which must occur once, replaced by the second."""
    text = GOOD
    for old, new in swaps:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def refused(source: Any) -> PolicyError:
    """The error of `load`, which must carry no other exception along."""
    with pytest.raises(PolicyError) as caught:
        load(source)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert "pydantic" not in str(error)
    return error


COST, AGE, SEX = "cost: {type: double, bounds: [0, 10000]}", "bounds: [0, 110]", "values: [F, M]"
DAY = "bounds: [2020-01-01, 2025-12-31]}"
SEEN = "bounds: [2020-01-01, 2025-12-31T23:59:59]"
BUDGET = "budget: {epsilon: 3, delta: 1e-7, accountant: zcdp}"
LINK = "link: {column: patient_id, references: patients.patient_id}"
UNIT = "unit: patient_id\n    rows_per_unit: 1\n"
COSTS, AGES, SEXES = (
    "tables.visits.columns.cost",
    "tables.patients.columns.age",
    "tables.patients.columns.sex",
)

# old text, new text, line, key, code
BAD = [
    ("version: 1", "version: 2", 1, "version", "version"),
    ("version: 1", "version: true", 1, "version", "version"),
    ("version: 1", "version: '1'", 1, "version", "version"),
    ("version: 1\n", "", 1, "version", "missing_key"),
    ("privacy_unit: patient\n", "privacy_unit: '  '\n", 2, "privacy_unit", "empty_key"),
    ("privacy_unit: patient\n", "privacy_unit:\n", 2, "privacy_unit", "empty_key"),
    ("privacy_unit: patient\n", "privacy_unit: 7\n", 2, "privacy_unit", "wrong_type"),
    ("privacy_unit: patient\n", "privacy_unit: TODO\n", 2, "privacy_unit", "todo"),
    ("neighbors: add_remove", "neighbors: bounded", 3, "neighbors", "unknown_choice"),
    ("neighbors: add_remove", "neighbours: add_remove", 3, "neighbours", "unknown_key"),
    ("epsilon: 3", "epsilon: 0", 4, "budget.epsilon", "epsilon_range"),
    ("epsilon: 3", "epsilon: -1", 4, "budget.epsilon", "epsilon_range"),
    ("epsilon: 3", "epsilon: .inf", 4, "budget.epsilon", "non_finite"),
    ("epsilon: 3", "epsilon: .NaN", 4, "budget.epsilon", "non_finite"),
    ("epsilon: 3", "epsilon: 1/0", 4, "budget.epsilon", "non_finite"),
    ("epsilon: 3", "epsilon: yes", 4, "budget.epsilon", "not_a_number"),
    ("epsilon: 3", "epsilon: three", 4, "budget.epsilon", "not_a_number"),
    ("epsilon: 3", "epsilon: [3]", 4, "budget.epsilon", "not_a_number"),
    ("epsilon: 3", "epsilon: 1e999999999", 4, "budget.epsilon", "number_size"),
    ("epsilon: 3", "epsilon: 1e-99999999999999999999", 4, "budget.epsilon", "number_size"),
    ("epsilon: 3", "epsilon: " + "9" * 500, 4, "budget.epsilon", "number_size"),
    ("epsilon: 3", "epsilon: 0x10", 4, "budget.epsilon", "number_format"),
    ("epsilon: 3", "epsilon: 1_000", 4, "budget.epsilon", "number_format"),
    ("epsilon: 3", "epsilon: 1:30", 4, "budget.epsilon", "number_format"),
    ("epsilon: 3", "epsilon: 010", 4, "budget.epsilon", "number_format"),
    ("epsilon: 3, ", "", 4, "budget.epsilon", "missing_key"),
    ("delta: 1e-7", "delta: 1", 4, "budget.delta", "delta_range"),
    ("delta: 1e-7", "delta: -0.1", 4, "budget.delta", "delta_range"),
    ("delta: 1e-7", "delta: 0", 4, "budget.delta", "delta_required"),
    ("delta: 1e-7, accountant: zcdp", "delta: 0, accountant: gdp", 4, "budget.delta", "delta_required"),
    ("accountant: zcdp", "accountant: rdp", 4, "budget.accountant", "unknown_choice"),
    (BUDGET, "budget: 3", 4, "budget", "wrong_type"),
    (BUDGET, "budget: {epsilon: 3, epsilon: 4}", 4, "budget.epsilon", "duplicate_key"),
    ("tables:\n", "tables: {}\nother:\n", 5, "tables", "no_tables"),
    ("  patients:", "  a.b.patients:", 6, "tables.'a.b.patients'", "bad_name"),
    ("  patients:", "  main.patients:", 6, "tables.'main.patients'", "bad_name"),
    ("  patients:", "  '':", 6, "tables.''", "bad_name"),
    ("  regions: {", "  Visits: {", 26, "tables.Visits", "duplicate_name"),
    ("  regions: {", "  visits: {", 26, "tables.visits", "duplicate_key"),
    ("{public: true}", "public", 26, "tables.regions", "wrong_type"),
    ("{public: true}", "", 26, "tables.regions", "empty_key"),
    ("{public: true}", "{public: maybe}", 26, "tables.regions.public", "wrong_type"),
    ("{public: true}", "{public: false}", 26, "tables.regions", "no_unit"),
    ("{public: true}", "{}", 26, "tables.regions", "no_unit"),
    ("{public: true}", "{public: true, unit: row}", 26, "tables.regions.unit", "public_table"),
    ("{public: true}", "{public: true, min_frequency: 1}", 26, "tables.regions.min_frequency", "public_table"),
    ("{public: true}", "{public: true, budget: {}}", 26, "tables.regions.budget", "public_table"),
    ("partition: plan", "partition: plan\n    budget: {delta: 0}", 10, "tables.patients.budget", "delta_required"),
    (LINK, f"{LINK}\n    unit: row", 15, "tables.visits.link", "unit_and_link"),
    (UNIT, "unit: row\n    rows_per_unit: 2\n", 8, "tables.patients.rows_per_unit", "rows_of_row"),
    (UNIT, "unit: patient_id\n", 6, "tables.patients.rows_per_unit", "missing_key"),
    (UNIT, "unit: patient_id\n    rows_per_unit: 1.5\n", 8, "tables.patients.rows_per_unit", "wrong_type"),
    (UNIT, "unit: patient_id\n    rows_per_unit: true\n", 8, "tables.patients.rows_per_unit", "wrong_type"),
    (UNIT, "unit: TODO\n    rows_per_unit: 1\n", 7, "tables.patients.unit", "todo"),
    (UNIT, "unit:\n    rows_per_unit: 1\n", 7, "tables.patients.unit", "empty_key"),
    ("rows_per_unit: 20", "rows_per_unit: 0", 16, "tables.visits.rows_per_unit", "out_of_range"),
    ("rows_per_unit: 20", "rows_per_unit: 1000000001", 16, "tables.visits.rows_per_unit", "out_of_range"),
    ("max_groups: 3", "max_groups: 0", 17, "tables.visits.max_groups", "out_of_range"),
    ("min_frequency: 10", "min_frequency: 0", 18, "tables.visits.min_frequency", "out_of_range"),
    ("budget: {epsilon: 1}", "budget: {accountant: pure, delta: 0}", 18, "tables.visits.min_frequency", "delta_required"),
    ("budget: {epsilon: 1}", "budget: {delta: 0}", 18, "tables.visits.min_frequency", "delta_required"),
    ("budget: {epsilon: 1}", "budget: {epsilon: 0}", 19, "tables.visits.budget.epsilon", "epsilon_range"),
    ("budget: {epsilon: 1}", "budget: {eps: 1}", 19, "tables.visits.budget.eps", "unknown_key"),
    ("partition: plan", "partition: plann", 9, "tables.patients.partition", "unknown_column"),
    ("partition: plan", "partition: [plan, plann]", 9, "tables.patients.partition[1]", "unknown_column"),
    *(
        (BUDGET, f"budget: {{epsilon: 3, delta: 1e-7, shared: {value}}}", 4, "budget.shared", "wrong_type")
        for value in ("1", "person", "[patients]")
    ),
    ("partition: plan", "partition: [plan, PLAN]", 9, "tables.patients.partition", "partition_repeated"),
    ("partition: plan", "partition: []", 9, "tables.patients.partition", "partition_shape"),
    ("partition: plan", "partition: 3", 9, "tables.patients.partition", "partition_shape"),
    ("partition: plan", "max_epsilon: 0", 9, "tables.patients.max_epsilon", "epsilon_range"),
    ("partition: plan", "unique: [plann]", 9, "tables.patients.unique[0]", "unknown_column"),
    ("partition: plan", "unique: [[plan, plann]]", 9, "tables.patients.unique[0]", "unknown_column"),
    ("partition: plan", "unique: [plan, PLAN]", 9, "tables.patients.unique", "unique_shape"),
    ("partition: plan", "unique: plan", 9, "tables.patients.unique", "unique_shape"),
    ("partition: plan", "unique: [[plan, plan]]", 9, "tables.patients.unique", "link_shape"),
    (UNIT, "unit: row\n    unique: [plan]\n", 8, "tables.patients.unique", "unit_and_unique"),
    ("{public: true}", "{public: true, unique: [id]}", 26, "tables.regions.unique", "public_table"),
    ("{public: true}", "{public: true, max_epsilon: 1}", 26, "tables.regions.max_epsilon", "public_table"),
    ("budget: {epsilon: 1}", "budget: {renew: hourly}", 19, "tables.visits.budget.renew", "unknown_choice"),
    ("tables:\n", "per_analyst: {}\ntables:\n", 5, "per_analyst.epsilon", "missing_key"),
    ("tables:\n", "analysts: {ana: {epsilon: 0}}\ntables:\n", 5, "analysts.ana.epsilon", "epsilon_range"),
    ("tables:\n", "analysts: {ana: {epsilon: 1}, Ana: {epsilon: 2}}\ntables:\n", 5, "analysts.Ana", "duplicate_name"),
    ("tables:\n", "analysts: {ana: {accountant: pure, epsilon: 1}}\ntables:\n", 5, "analysts.ana.accountant", "unknown_key"),
    ("references: patients.patient_id", "references: patient.patient_id", 15, "tables.visits.link.references", "dangling_link"),
    ("references: patients.patient_id", "references: patients.id", 15, "tables.visits.link.references", "dangling_link"),
    ("references: patients.patient_id", "references: regions.id", 15, "tables.visits.link.references", "public_link"),
    ("references: patients.patient_id", "references: visits.patient_id", 15, "tables.visits.link.references", "link_cycle"),
    ("references: patients.patient_id", "references: patients", 15, "tables.visits.link.references", "bad_reference"),
    (", references: patients.patient_id", "", 15, "tables.visits.link.references", "missing_key"),
    (UNIT, "unit: row\n", 14, "tables.visits.link.references", "row_link"),
    (COST, "cost: {bounds: [0, 1]}", 21, f"{COSTS}.type", "missing_key"),
    (COST, "cost: {type: interval}", 21, f"{COSTS}.type", "unknown_choice"),
    (COST, "cost: {type: 'numeric(39,2)'}", 21, f"{COSTS}.type", "unknown_choice"),
    (COST, "cost: {type: 'bigint(3)'}", 21, f"{COSTS}.type", "unknown_choice"),
    (COST, "cost: {type: 7}", 21, f"{COSTS}.type", "unknown_choice"),
    (COST, "cost: {type: uuid, bounds: [a, b]}", 21, f"{COSTS}.bounds", "bounds_type"),
    (COST, "cost: {type: uuid, values: [1234]}", 21, f"{COSTS}.values[0]", "not_a_uuid"),
    (COST, "cost: {type: time, values: ['25:00']}", 21, f"{COSTS}.values[0]", "not_a_time"),
    (COST, "cost: {type: blob, values: [a]}", 21, f"{COSTS}.values", "values_type"),
    (COST, "cost: {type: double, bounds: [10, 0]}", 21, f"{COSTS}.bounds", "bounds_inverted"),
    (COST, "cost: {type: double, bounds: [0]}", 21, f"{COSTS}.bounds", "bounds_shape"),
    (COST, "cost: {type: double, bounds: 10}", 21, f"{COSTS}.bounds", "bounds_shape"),
    (COST, "cost: {type: double, bounds: [0, .inf]}", 21, f"{COSTS}.bounds[1]", "non_finite"),
    (COST, "cost: {type: double, bounds: [nan, 1]}", 21, f"{COSTS}.bounds[0]", "non_finite"),
    (COST, "cost: {type: double, bounds: [0, 1.1e150]}", 21, f"{COSTS}.bounds[1]", "magnitude"),
    (COST, "cost: {type: double, bounds: [0, TODO]}", 21, f"{COSTS}.bounds[1]", "todo"),
    (COST, "cost: {type: double, bounds: }", 21, f"{COSTS}.bounds", "empty_key"),
    (COST, "cost: {type: double, bounds: [0, true]}", 21, f"{COSTS}.bounds[1]", "not_a_number"),
    (COST, "cost: {type: double, values: [0, -0.0]}", 21, f"{COSTS}.values[1]", "values_repeated"),
    (COST, "cost: {type: double, bounds: [0, 1], bound: 1}", 21, f"{COSTS}.bound", "unknown_key"),
    (COST, f"{COST}\n      COST: {{type: double}}", 22, "tables.visits.columns.COST", "duplicate_name"),
    (COST, "cost: {type: double, nullable: 1}", 21, f"{COSTS}.nullable", "wrong_type"),
    (AGE, "bounds: [0, 10.5]", 11, f"{AGES}.bounds[1]", "not_whole"),
    (AGE, "bounds: [0, 1000000000000001]", 11, f"{AGES}.bounds[1]", "magnitude"),
    (AGE, "bounds: [0, 9], values: [1]", 11, f"{AGES}.values", "bounds_and_values"),
    (AGE, "values: [1, 1.0]", 11, f"{AGES}.values[1]", "values_repeated"),
    (SEX, "bounds: [A, Z]", 12, f"{SEXES}.bounds", "bounds_type"),
    (SEX, "values: []", 12, f"{SEXES}.values", "values_count"),
    (SEX, "values: F", 12, f"{SEXES}.values", "values_shape"),
    (SEX, "values: [F, F]", 12, f"{SEXES}.values[1]", "values_repeated"),
    (SEX, "values: [F, null]", 12, f"{SEXES}.values[1]", "null_value"),
    (SEX, "values: [F, NO]", 12, f"{SEXES}.values[1]", "not_text"),
    (SEX, "values: [F, 1]", 12, f"{SEXES}.values[1]", "not_text"),
    (SEX, "values: [F,\n        001]", 13, f"{SEXES}.values[1]", "number_format"),
    (DAY, "bounds: [2020-01-01, 2019-12-31]}", 22, "tables.visits.columns.day.bounds", "bounds_inverted"),
    (DAY, "bounds: [2020-01-01, 2020-02-30]}", 22, "tables.visits.columns.day.bounds[1]", "not_a_date"),
    (DAY, "bounds: [2020-01-01, 5]}", 22, "tables.visits.columns.day.bounds[1]", "not_a_date"),
    (DAY, "bounds: [2020-01-01, 2020-01-01T00:00:00]}", 22, "tables.visits.columns.day.bounds[1]", "not_a_date"),
    (SEEN, "bounds: [2020-01-01, 2021-01-01T00:00:00Z]", 23, "tables.visits.columns.seen.bounds[1]", "not_a_timestamp"),
    (SEEN, "bounds: [2020-01-01, 2021-01-01T24:61:00]", 23, "tables.visits.columns.seen.bounds[1]", "not_a_date"),
    ("[true, false]", "[true, 0]", 25, "tables.visits.columns.smoker.values[1]", "not_a_boolean"),
    ("values: [true, false]", "bounds: [0, 1]", 25, "tables.visits.columns.smoker.bounds", "bounds_type"),
    ("data_version: 2026-11", "data_version: ''", 27, "data_version", "empty_key"),
    ("data_version: 2026-11", "data_version: []", 27, "data_version", "wrong_type"),
    ("max_epsilon: 1", "max_epsilon: 0", 28, "max_epsilon", "epsilon_range"),
    ("max_epsilon: 1", "default_epsilon: 0", 28, "default_epsilon", "epsilon_range"),
    ("max_epsilon: 1", "default_epsilon: 1e-7", 28, "default_epsilon", "epsilon_order"),
    ("max_epsilon: 1", "max_epsilon: 1\ndefault_epsilon: 2", 29, "default_epsilon", "epsilon_order"),
    ("max_epsilon: 1", "max_epsilom: 1", 28, "max_epsilom", "unknown_key"),
]  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("old", "new", "line", "key", "code"), BAD)
def test_a_bad_policy_names_line_key_and_code(old: str, new: str, line: int, key: str, code: str) -> None:
    """Each wrong policy is a PolicyError whose first problem is at the line, key and code expected."""
    text = changed((old, new))
    error = refused(text)
    lines = [
        shown for shown in error.message.splitlines() if shown.startswith(f"{TEXT}, line {line}: {key}: ")
    ]
    assert lines, error.message
    assert error.code == code, error.message
    assert error.position is not None
    assert error.position.line == line
    assert error.text == text


def test_the_message_is_the_one_of_the_manual(tmp_path: Path) -> None:
    """File, line, dotted key and the reason stand in one line, and a caret points at the key."""
    path = tmp_path / "hie.yaml"
    path.write_text(changed((COST, "cost: {type: double, bounds: [10, 0]}")))
    error = refused(path)
    assert error.message == (
        f"{path}, line 21: tables.visits.columns.cost.bounds: the lower bound 10 is above the upper bound 0"
    )
    assert str(error).splitlines()[1:] == [
        "        cost: {type: double, bounds: [10, 0]}",
        "                             ^",
    ]


def test_all_problems_of_a_file_are_listed_in_its_order() -> None:
    """Problems of keys, of columns, between keys and between tables come together, ordered by line."""
    text = changed(
        ("max_epsilon: 1", "max_epsilon: 0"),
        (COST, "cost: {type: double, bounds: [10, 0]}"),
        (UNIT, "unit: patient_id\n    rows_per_uint: 1\n"),
        ("{public: true}", "{link: {column: a, references: nowhere.a}, rows_per_unit: 2}"),
        ("version: 1", "version: 3"),
    )
    error = refused(text)
    assert [line.split(": ")[1] for line in error.message.splitlines()[:-1]] == [
        "version",
        "tables.patients.rows_per_unit",
        "tables.patients.rows_per_uint",
        "tables.visits.columns.cost.bounds",
        "tables.regions.link.references",
        "max_epsilon",
    ]
    assert error.message.splitlines()[-1] == "6 problems, the first here"
    assert error.code == "version"
    assert "did you mean rows_per_unit?" in (error.hint or "")


SHARED = """\
version: 1
privacy_unit: patient
budget: {epsilon: 3, delta: 1e-7, shared: true}
tables:
  patients:
    unit: patient_id
    rows_per_unit: 1
    columns: {plan: {type: varchar, values: [A, B]}}
  visits:
    link: {column: patient_id, references: patients.patient_id}
    rows_per_unit: 20
    columns: {}
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "code"),
    [
        ("rows_per_unit: 20", "rows_per_unit: 20\n    budget: {epsilon: 1}", 12, "budget", "shared_budget"),
        ("rows_per_unit: 20", "rows_per_unit: 20\n    budget: {}", 12, "budget", "shared_budget"),
        (
            "link: {column: patient_id, references: patients.patient_id}\n    rows_per_unit: 20",
            "unit: row",
            10,
            "unit",
            "shared_row",
        ),
        (
            "link: {column: patient_id, references: patients.patient_id}\n    rows_per_unit: 20",
            "unit: ROW",
            10,
            "unit",
            "shared_row",
        ),
        ("rows_per_unit: 1\n", "rows_per_unit: 1\n    partition: plan\n", 8, "partition", "shared_partition"),
    ],
)
def test_a_table_that_cannot_share_a_budget_is_refused(
    old: str, new: str, line: int, key: str, code: str
) -> None:
    """Each hint says how to give tables budgets of their own, and the unchanged policy is accepted."""
    assert load(SHARED).budget.shared
    assert SHARED.count(old) == 1
    error = refused(SHARED.replace(old, new))
    table = "patients" if key == "partition" else "visits"
    assert (error.code, error.position and error.position.line) == (code, line)
    assert f"tables.{table}.{key}" in error.message
    assert "write `shared: false`" in (error.hint or "")


@pytest.mark.parametrize("name", ["shared budget", "Shared  Budget", "SHARED BUDGET"])
def test_no_private_table_has_the_name_of_the_shared_account(name: str) -> None:
    """Its budget would be taken for the shared one; a public table has none."""
    assert refused(changed(("  visits:", f"  {name}:"))).code == "reserved_name"
    assert load(changed(("  regions:", f"  {name}:"))).tables[name].public


def test_a_flood_of_problems_is_cut_short() -> None:
    """A policy with hundreds of problems gives a message that a person can read."""
    columns = "".join(f"      c{place}: {{type: interval}}\n" for place in range(300))
    error = refused(changed(("      age:", columns + "      age:")))
    assert len(error.message.splitlines()) < 30
    assert "and 280 more" in error.message


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("neighbors:", "neighbours:", "did you mean neighbors?"),
        ("type: double", "type: interval", "EXTRACT(epoch FROM x)"),
        ("type: double", "type: 'int[]'", "declare the type of its elements, and max_elements"),
        ("type: double", "type: enum(a)", "write varchar, and list the members as values"),
        ("type: double", "type: bigint(3)", "write bigint"),
        ("type: double", "type: numeric(12,2)", 'put the type in quotes: "numeric(12,2)"'),
        ("type: double", "type: doubel", "did you mean double?"),
        (SEX, "values: [F, NO]", "put quotes around it"),
        (SEX, "values: [F, 7]", "put quotes around it: '7'"),
        ("partition: plan", "partition: plna", "did you mean plan?"),
        ("references: patients.p", "references: patient.p", "did you mean patients?"),
        ("max_epsilon: 1", "zzz: 1", "the valid keys here are version, privacy_unit"),
        (f"    {LINK}\n", "", "public: true"),
    ],
)
def test_a_hint_gives_the_way_out(old: str, new: str, hint: str) -> None:
    """The error says what to write instead."""
    assert hint in (refused(changed((old, new))).hint or "")


def test_a_repeated_key_points_at_the_repetition() -> None:
    """The second of two equal keys is the one refused, and the message says where the first is."""
    error = refused(changed(("data_version: 2026-11", "data_version: 1\nversion: 1")))
    assert (error.code, error.position and error.position.line) == ("duplicate_key", 28)
    assert "first on line 1" in error.message


def test_todo_is_a_value_where_values_are_listed() -> None:
    """A public domain may hold the word TODO; a column, bound or unit may not."""
    assert load(changed((SEX, "values: [TODO, DONE]"))).tables["patients"].columns["sex"].values == (
        "TODO",
        "DONE",
    )


def test_names_are_taken_as_written() -> None:
    """A column called no, 2024 or with spaces keeps its name, quoted or not."""
    policy = load(
        changed((COST, "no: {type: double}\n      2024: {type: double}\n      a b.c: {type: double}"))
    )
    assert {"no", "2024", "a b.c"} <= set(policy.tables["visits"].columns)


def test_a_row_unit_with_a_column_of_that_name_is_ambiguous() -> None:
    """`unit: row` in a table with a column called row is refused: it would silently protect rows only."""
    text = changed(
        (UNIT, "unit: row\n"), (LINK, "unit: id"), ("age: {", "Row: {type: integer}\n      age: {")
    )
    assert refused(text).code == "ambiguous_unit"

"""What dbt and SmartNoise SQL say of tables, as decisions of a policy; keys of the schema as proposals."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.errors import PolicyError
from dpsql.policy import load, skeleton
from dpsql.policy.metadata import parse_metadata
from dpsql.policy.skeleton import ColumnDecision, Decisions, ForeignKey, TableDecision, TableKeys

SCHEMA = {
    "patients": [("id", "INTEGER"), ("sex", "VARCHAR"), ("born", "DATE")],
    "visits": [("no", "INTEGER"), ("patient", "INTEGER"), ("cost", "DOUBLE"), ("note", "VARCHAR")],
}
DBT = """
version: 2
models:
  - name: patients
    config: {meta: {dpsql: {unit: id, rows_per_unit: 1}}}
    columns:
      - name: id
        data_tests: [unique, not_null]
      - name: sex
        data_tests:
          - accepted_values: {arguments: {values: [f, m]}}
          - not_null: {config: {severity: warn}}
      - name: born
        meta: {dpsql: {bounds: [1900-01-01, 2024-12-31]}}
sources:
  - name: raw
    tables:
      - name: visits
        meta: {dpsql: {rows_per_unit: 20, link: {column: patient, references: patients.id}}}
        columns:
          - name: patient
            tests:
              - relationships: {to: "ref('patients')", field: id}
          - name: cost
            meta: {dpsql: {bounds: [0, 2.5]}}
            tests:
              - accepted_values: {values: [1, 2], where: "note IS NULL"}
          - name: note
            meta: {dpsql: {omit: true}}
"""
SMARTNOISE = """
engine: duckdb
"":
  main:
    patients:
      row_privacy: true
      rows: 1000
      id: {type: int}
      born: {type: datetime, nullable: false}
    visits:
      max_ids: 20
      clamp_counts: false
      no: {type: int}
      patient: {type: int, private_id: true}
      cost: {type: float, lower: 0, upper: 2.5}
"""
BUDGET = "  epsilon: 1\n  delta: 1e-7\n"


def filled(decisions: Decisions) -> str:
    text = skeleton(SCHEMA, "clinic.duckdb", decisions=decisions)
    return text.replace("privacy_unit: TODO", "privacy_unit: patient").replace(
        "  epsilon: TODO\n  delta: TODO\n", BUDGET
    )


def test_dbt_metadata_decides_units_bounds_and_values() -> None:
    """meta.dpsql decides units and bounds; tests of all rows decide values and NULL, others nothing."""
    decisions, keys = parse_metadata(DBT, "schema.yml")
    policy = load(filled(decisions))
    patients, visits = policy.tables["patients"], policy.tables["visits"]
    assert (patients.unit, patients.rows_per_unit, visits.rows_per_unit) == ("id", 1, 20)
    assert visits.link is not None
    assert visits.link.table == "patients"
    assert patients.columns["sex"].values == ("f", "m")
    assert patients.columns["sex"].nullable
    assert not patients.columns["id"].nullable
    assert visits.columns["cost"].bounds == (0, Fraction(5, 2))
    assert visits.columns["cost"].values is None
    assert "note" not in visits.columns
    assert keys["visits"].foreign == (ForeignKey(("patient",), "patients", ("id",)),)


def test_smartnoise_metadata_decides_ids_rows_and_bounds() -> None:
    """Private ids, rows of one, bounds; nothing else."""
    decisions, _ = parse_metadata(SMARTNOISE, "clinic.yaml")
    policy = load(filled(decisions))
    patients, visits = policy.tables["patients"], policy.tables["visits"]
    assert (patients.unit, visits.unit, visits.rows_per_unit) == ("row", "patient", 20)
    assert not patients.columns["born"].nullable
    assert visits.columns["cost"].bounds == (0, Fraction(5, 2))
    assert list(visits.columns) == ["no", "patient", "cost", "note"]


def test_missing_metadata_stays_undecided() -> None:
    """No unit and no rows are taken for granted."""
    decisions, _ = parse_metadata("models:\n  - name: visits\n    columns: [{name: cost}]\n", "schema.yml")
    text = filled(decisions)
    assert text.count("    unit: TODO") == 2
    assert text.count("rows_per_unit: TODO") == 2
    with pytest.raises(PolicyError):
        load(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "- models",
        "a: {b: 1}",
        "a: {b: {c: 1}}",
        "a: {}\nb: {}",
        "models:\n  - name: t\n    meta: {dpsql: {budget: 1}}",
        "models:\n  - name: t\n    meta: {dpsql: {rows_per_unit: 0}}",
        "models:\n  - name: t\n    meta: {dpsql: {link: patients}}",
        "models:\n  - name: t\n    columns: [{name: c, meta: {dpsql: {bounds: 5}}}]",
    ],
)
def test_other_files_are_refused_as_metadata(text: str) -> None:
    """Each with the file and the reason."""
    with pytest.raises(PolicyError) as refused:
        parse_metadata(text, "schema.yml")
    assert refused.value.code == "metadata"
    assert "schema.yml" in refused.value.message


def test_a_decision_has_to_fit_the_type() -> None:
    """Bounds of a text, or upside down, are said with the column."""
    for column, bounds in (("note", (0, 1)), ("cost", (5, 1))):
        table = TableDecision(unit="row", columns={column: ColumnDecision(bounds=bounds)})
        with pytest.raises(PolicyError, match=f"visits.{column}"):
            skeleton(SCHEMA, "clinic.duckdb", decisions=Decisions(tables={"visits": table}))


def test_unique_keys_are_written_in_addition_to_the_unit() -> None:
    """Keys of the schema, but for the unit's own, tell rows apart; of a table whose unit is not decided they are a comment."""
    schema = {
        name: [("id", "INTEGER"), ("a", "INTEGER"), ("b", "VARCHAR"), ("tags", "VARCHAR[]")]
        for name in ("t", "u", "v", "w")
    }
    keys = TableKeys(("id",), (), (("a", "b"), ("tags",)))
    decided = {
        "t": TableDecision(unit="a", rows_per_unit=3),
        "u": TableDecision(unit="id", rows_per_unit=1),
        "v": TableDecision(unit="row"),
    }
    text = skeleton(schema, "d", keys=dict.fromkeys(schema, keys), decisions=Decisions(tables=decided))
    said = [line.strip() for line in text.splitlines() if "unique:" in line]
    assert said == [
        "unique: [id, [a, b]]",
        "unique: [[a, b]]",
        "# keys of the rows, except the unit's own: unique: [id, [a, b]]",
    ]


def test_keys_are_proposed_and_not_decided() -> None:
    """A primary key is a candidate, a foreign key a link, both as comments; the unit is still to be named."""
    keys = {
        "patients": TableKeys(("id",)),
        "visits": TableKeys((), (ForeignKey(("patient",), "patients", ("id",)),)),
    }
    text = skeleton(SCHEMA, "clinic.duckdb", keys=keys)
    assert "the unit may be the primary key id, with rows_per_unit 1" in text
    assert 'link: {column: patient, references: "patients.id"}' in text
    assert text.count("    unit: TODO  ") == 2
    both = ForeignKey(("a", "b"), "patients", ("x", "y"))
    assert 'link: {columns: [a, b], references: ["patients.x", "patients.y"]}' in skeleton(
        {"t": [("a", "INTEGER")]}, "d", keys={"t": TableKeys((), (both,))}
    )

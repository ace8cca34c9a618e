"""Where a policy may come from, and what no source can do to the reader."""

from __future__ import annotations

import ast
import sys
from collections import OrderedDict
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.errors import PolicyError
from dpsql.policy import Policy, Table, load

GOOD = """\
version: 1
privacy_unit: patient
budget: {epsilon: 3, delta: 1e-7}
tables:
  patients:
    unit: patient_id
    rows_per_unit: 1
    columns:
      age: {type: integer, bounds: [0, 110]}
      sex: {type: varchar, values: [F, M]}
  visits:
    link: {column: patient_id, references: patients.patient_id}
    rows_per_unit: 20
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


def refused(source: Any) -> PolicyError:
    """The error of `load`, which must carry no other exception along."""
    with pytest.raises(PolicyError) as caught:
        load(source)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert "pydantic" not in str(error)
    return error


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: &x 1\nb: *x\n", 1, "anchors"),
        ("a: 1\nb: *x\n", 2, "anchors"),
        ("&x a: 1\n\n", 1, "anchor"),
        ("a: !!python/object:os.system {}\n", 1, "tag"),
        ("a: 1\nb: !!int '3'\n", 2, "tag"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge"),
        ("a: 1\n---\nb: 1\n", 2, "second YAML document"),
        ("a: [1\nb: 2\n", 2, "not YAML"),
        ("a: 1\n b: 2\n", 2, "not YAML"),
        ("a: 1\nb: \x07\n", 2, "not YAML"),
        ("a: 1\n[b]: 1\n", 2, "key"),
        ("a:\n " + "[" * 5000 + "]" * 5000, 2, "nested more than"),
        ("a:\n " + "{a: " * 50 + "1" + "}" * 50, 2, "nested more than"),
        ("a: 1\n\tb: 1\n", 2, "not YAML"),
    ],
)
def test_yaml_that_could_mislead_or_explode_is_refused(text: str, line: int, word: str) -> None:
    """Aliases, tags, merges, several documents, deep nesting and syntax errors: code yaml, with the line."""
    error = refused(text)
    assert error.code == "yaml"
    assert f"line {line}: " in error.message
    assert word in error.message


def test_an_alias_bomb_ends_at_once() -> None:
    """The classic billion laughs is refused at its first anchor."""
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert refused(bomb).code == "yaml"


def test_sources_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is missing, a folder, empty, too large or not UTF-8, and a wrong type, say so by name."""
    missing, empty, large, latin = (
        tmp_path / name for name in ("no.yaml", "empty.yaml", "large.yaml", "latin.yaml")
    )
    empty.write_text("# nothing\n")
    large.write_text("#" * 1_000_001)
    latin.write_bytes(b"version: 1\nprivacy_unit: caf\xe9\n")
    codes = [(missing, "policy_missing"), (tmp_path, "policy_unreadable"), (empty, "policy_empty")]
    for path, code in [*codes, (large, "policy_size"), (latin, "policy_unreadable")]:
        error = refused(path)
        assert error.code == code
        assert str(path) in error.message
        assert refused(str(path)).code == code
    assert "line 2" in refused(latin).message
    assert refused("\0.yaml").code == "policy_unreadable"
    assert refused(3).code == "policy_source"
    assert refused("just words\n").code == "wrong_type"
    assert refused("- 1\n- 2\n").code == "wrong_type"


def test_a_dict_is_a_policy() -> None:
    """What PyYAML reads from the file loads to the same policy, its 1e-7 being a str and dates being dates."""
    assert load(yaml.safe_load(GOOD)) == load(GOOD)
    assert load(MappingProxyType(OrderedDict(yaml.safe_load(GOOD)))) == load(GOOD)


def test_a_bad_dict_names_the_key() -> None:
    """Without a file there is no line, but the key and the reason are there."""
    raw = yaml.safe_load(GOOD)
    raw["tables"]["visits"]["columns"]["cost"]["bounds"] = [10, float("nan")]
    raw["tables"][7] = {"public": True}
    raw[8] = 1
    error = refused(raw)
    assert error.position is None
    assert "policy: tables.visits.columns.cost.bounds[1]: must be a finite number, not NaN" in error.message
    assert "tables.'7': " in error.message
    assert "policy: '8': " in error.message


def test_a_dict_that_holds_itself_is_refused() -> None:
    """A dict without an end is a PolicyError, not a crash."""
    raw = yaml.safe_load(GOOD)
    raw["tables"]["visits"] = raw
    refused(raw)


def test_a_model_is_held_to_the_rules_again() -> None:
    """A Policy passes through unchanged; a copy changed behind pydantic's back is refused."""
    policy = load(GOOD)
    assert load(policy) == policy
    # What the owner has not said is not said by loading it again: a data version, above all.
    assert load(policy).model_fields_set == policy.model_fields_set
    assert refused(policy.model_copy(update={"max_epsilon": Fraction(-1)})).code == "epsilon_range"
    assert refused(policy.model_copy(update={"privacy_unit": "TODO"})).code == "todo"
    refused(policy.model_copy(update={"tables": {"t": Table.model_construct(unit="row", rows_per_unit=5)}}))
    refused(policy.model_copy(update={"tables": 5}))
    refused(Policy.model_construct(version=1))


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_byte_order_mark_and_line_ends(tmp_path: Path, ending: str) -> None:
    """A file from Windows reads the same, and its errors name the same line and column."""
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", ending).encode())
    assert load(path) == load(GOOD)
    path.write_bytes(
        b"\xef\xbb\xbf" + GOOD.replace("version: 1", "version: 2").replace("\n", ending).encode()
    )
    error = refused(path)
    assert error.position is not None
    assert (error.position.line, error.position.column) == (1, 1)
    assert str(error).splitlines()[1:3] == ["  version: 2", "  ^"]


def test_a_large_domain_and_the_limit() -> None:
    """10,000 public values are accepted, one more is refused."""
    raw = yaml.safe_load(GOOD)
    column = raw["tables"]["patients"]["columns"]["age"]
    del column["bounds"]
    column["values"] = list(range(10_000))
    assert len(load(raw).tables["patients"].columns["age"].values or ()) == 10_000
    column["values"].append(-1)
    assert refused(raw).code == "values_count"


SCRAPS = st.sampled_from(
    ["unit", "row", "tables", "TODO", "1e-7", "", "a.b", "public", "bounds", "values", "type"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | SCRAPS | st.dates()
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCRAPS | LEAVES, inner, max_size=3),
    max_leaves=8,
)
SPOTS: list[tuple[str, ...]] = [
    (), ("budget",), ("budget", "delta"), ("tables",), ("tables", "visits"), ("tables", "visits", "link"),
    ("tables", "visits", "columns"), ("tables", "visits", "columns", "cost"), ("data_version",),
    ("tables", "visits", "columns", "cost", "bounds"), ("tables", "visits", "columns", "note", "values"),
    ("tables", "visits", "budget"), ("tables", "visits", "unit"), ("tables", "visits", "rows_per_unit"),
]  # fmt: skip


@given(st.sampled_from(SPOTS), JUNK)
@settings(max_examples=examples(150), deadline=None)
def test_junk_anywhere_is_a_policy_or_a_policy_error(spot: tuple[str, ...], junk: object) -> None:
    """Whatever stands at a key, `load` returns a Policy that loads again, or raises PolicyError."""
    raw = yaml.safe_load(GOOD)
    if not spot:
        raw.update(junk if isinstance(junk, dict) else {"version": junk})
    else:
        inner = raw
        for key in spot[:-1]:
            inner = inner[key]
        inner[spot[-1]] = junk
    try:
        policy = load(raw)
    except PolicyError as error:
        assert error.code  # noqa: PT017
        return
    assert load(policy.model_dump()) == policy


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@ \n\t0.", max_size=40))
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_a_policy_error(text: str) -> None:
    """No text makes the reader fail with anything but a PolicyError."""
    with pytest.raises(PolicyError):
        load(text + "\n")


def test_the_policy_imports_no_engine() -> None:
    """The package stands on pydantic, PyYAML and the error classes alone."""
    allowed = {"pydantic", "pydantic_core", "yaml", *sys.stdlib_module_names}
    for file in (Path(__file__).parents[2] / "dpsql" / "policy").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                own = name == "dpsql.errors" or name.startswith("dpsql.policy.")
                assert own or name.partition(".")[0] in allowed, f"{file.name} imports {name}"

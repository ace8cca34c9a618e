"""The policy as frozen pydantic models, with the keys of the YAML file.

Building a model directly raises pydantic's `ValidationError`; `dpsql.policy.load` raises `PolicyError`
with the file, the line and the key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from dpsql.errors import PolicyError
from dpsql.policy.fields import (
    AS_DICT,
    CONVERTING,
    Epsilon,
    Model,
    Neighbors,
    Version,
    to_dict,
)
from dpsql.policy.names import (
    SHARED_ACCOUNT,
    NameMap,
    find_declared_name,
    is_row,
    normalize_account_name,
    normalize_name,
)
from dpsql.policy.problem import KeyPath, Problem, make_problem_error, make_problems_error, suggest_choice
from dpsql.policy.readings import FileReading, TableReading
from dpsql.policy.tables import AnalystBudget, BudgetSpec, Link, Table, Unit, to_name_map

# Foreign keys between tables: those that lead to the column with the privacy unit's id, and further ones.


_MOST_SHOWN = 10


def find_link_problem(
    name: str, link: Link, tables: NameMap[Table | None], cycles: Mapping[str, str]
) -> Problem | None:
    """Return the problem of a link of table `name`, or None.

    `cycles` is what `describe_link_cycles` gives of links that lead to the unit. Nothing is said of links to a table that
    is None, which is wrong itself.
    """
    if link.table not in tables:
        hint = suggest_choice(link.table, tables)
        return Problem((), "dangling_link", f"the policy declares no table {link.table}", hint)
    target = tables[link.table]
    if target is None:
        return None
    if target.public:
        hint = "link to a private table"
        words = f"{link.table} is public, so its rows do not belong to a privacy unit"
        return Problem((), "public_link", words, hint)
    if is_row(target.unit):
        hint = f"in {link.table} write `unit: {link.keys[0]}` and `rows_per_unit: 1`"
        words = f"{link.table} has `unit: row`, so it has no id of a privacy unit to link to"
        return Problem((), "row_link", words, hint)
    if normalize_name(name) in cycles:
        words = f"the links form a cycle and never reach a unit: {cycles[normalize_name(name)]}"
        return Problem((), "link_cycle", words, "give one of these tables a `unit` instead of a link")
    for key in link.keys:
        if not _has_column(target, key):
            hint = suggest_choice(key, [target.unit or "", *target.columns]) or f"declare it in {link.table}"
            return Problem((), "dangling_link", f"the table {link.table} declares no column {key}", hint)
    return None


def _has_column(table: Table, column: str) -> bool:
    own = {normalize_name(name) for link in table.all_links for name in link.names}
    own |= set() if table.unit is None else {normalize_name(table.unit)}
    return column in table.columns or normalize_name(column) in own


def describe_link_cycles(tables: NameMap[Table | None]) -> dict[str, str]:
    """Return each table (by folded name) on a circle of links, with that circle in words: `a → b → a`."""
    target = {
        normalize_name(name): normalize_name(table.unit_link.table)
        for name, table in tables.items()
        if table is not None and table.unit_link is not None
    }
    spelling = {normalize_name(name): name for name in tables}
    circles: dict[str, str] = {}
    done: set[str] = set()
    for start in target:
        trail: dict[str, None] = {}
        here = start
        while here in target and here not in done and here not in trail:
            trail[here] = None
            here = target[here]
        if here in trail:
            members = [*trail][[*trail].index(here) :]
            listed = [spelling[member] for member in (*members, here)]
            circles |= dict.fromkeys(
                members, " → ".join(listed[:_MOST_SHOWN] + ["…"] * (len(listed) > _MOST_SHOWN))
            )
        done |= trail.keys()
    return circles


# The constraints between tables of a policy, and between a table and the policy's budget.


def list_policy_problems(budget: BudgetSpec | None, tables: Mapping[str, Table | None]) -> list[Problem]:
    """Return the problems between tables, and between a table and the policy's budget.

    None stands for a budget or table that is wrong itself: nothing is said about it.

    The functions take what could be read, even of a policy that is wrong elsewhere, so that one error can list every problem of a
    file.
    """
    known = NameMap(tables)
    circles = describe_link_cycles(known)
    problems: list[Problem] = []
    for name, table in tables.items():
        if table is None:
            continue
        if budget is not None and not table.public:
            own = [
                *_iterate_budget_problems(budget, table),
                *_iterate_sharing_problems(budget, name, table),
            ]
            problems += [found.with_parents("tables", name) for found in own]
        for place, link in _iterate_links(table):
            found = find_link_problem(name, link, known, circles if link is table.unit_link else {})
            problems += [found.with_parents("tables", name, *place, "references")] if found else []
    return problems


def _iterate_links(table: Table) -> Iterator[tuple[KeyPath, Link]]:
    """Yield each link with the key at which it is written."""
    if table.link is not None:
        yield ("link",), table.link
    for place, link in enumerate(table.links):
        yield ("links", place), link


def list_cap_problems(least: Fraction, most: Fraction | None, default: Fraction | None) -> list[Problem]:
    """Return the problems between the least, the most and the default epsilon of one query."""
    if most is not None and least > most:
        words = f"max_epsilon {float(most):g} is below min_epsilon {float(least):g}"
        return [Problem(("max_epsilon",), "epsilon_order", words, "raise max_epsilon or lower min_epsilon")]
    if default is None or (least <= default and (most is None or default <= most)):
        return []
    allowed = f"at least {float(least):g}" + (f" and at most {float(most):g}" if most is not None else "")
    words = f"must be {allowed}, not {float(default):g}"
    hint = "choose a value between min_epsilon and max_epsilon"
    return [Problem(("default_epsilon",), "epsilon_order", words, hint)]


def _iterate_budget_problems(default: BudgetSpec, table: Table) -> Iterator[Problem]:
    own = table.budget
    delta = default.delta if own is None or own.delta is None else own.delta
    accountant = default.accountant if own is None or own.accountant is None else own.accountant
    if accountant in CONVERTING and not delta:
        hint = "write a small delta such as 1e-7, or `accountant: pure`"
        yield Problem(("budget",), "delta_required", f"accountant {accountant} needs a delta above 0", hint)
    if table.min_frequency > 1 and not delta:
        hint = "give the table's budget a small delta such as 1e-7, or delete min_frequency"
        words = "needs a budget with a delta above 0: with delta 0 no group with an unknown key is ever shown"
        yield Problem(("min_frequency",), "delta_required", words, hint)


_SEPARATE = "write `shared: false` in the policy's budget, so that each table has a budget of its own"


def _iterate_sharing_problems(default: BudgetSpec, name: str, table: Table) -> Iterator[Problem]:
    """Yield what keeps a private table from sharing the policy's budget, and a name that only the shared account has.

    Claim: if there is none, the loss of each release bounds a change of all rows of one unit, in all tables at once.
    Why: the rows of a table belong to units with ids, and a release bounds what all rows of one id change. Where each row is a unit,
    its release says nothing about rows of the same person elsewhere; and charges to parts of a table add up by place, but a unit
    need not be in the same part of two tables.
    """
    if normalize_account_name(name) == SHARED_ACCOUNT:
        words = f"the name {SHARED_ACCOUNT} is that of the budget that tables share"
        yield Problem((), "reserved_name", words, "declare a view with another name in its place")
    if not default.shared:
        return
    if table.budget is not None:
        words = "is not allowed here, because the policy's budget is shared by all tables"
        yield Problem(("budget",), "shared_budget", words, f"delete this key, or {_SEPARATE}")
    if is_row(table.unit):
        words = "a table with `unit: row` cannot share a budget: its rows have no id by which a unit is known in other tables"
        hint = f"set `unit` to the column with the unit's id, or {_SEPARATE}"
        yield Problem(("unit",), "shared_row", words, hint)
    if table.partition:
        words = "is not allowed in a table that shares a budget: a unit may be in different parts of different tables"
        yield Problem(("partition",), "shared_partition", words, f"delete this key, or {_SEPARATE}")


V = TypeVar("V")


def _resolve_tables(tables: Mapping[str, Table]) -> NameMap[Table]:
    if not tables:
        raise make_problem_error(
            "no_tables",
            "must declare at least one table",
            hint="analysts can only query tables that are declared here",
        )
    names = frozenset(map(normalize_name, tables))
    seen = {name: table.resolve_links(names) for name, table in tables.items()}
    return to_name_map(seen, "table", dots=False)


MIN_EPSILON = Fraction(1, 10**6)
"""Noise for less is so large that no answer is meant by it."""


def _check_analyst_names(named: Mapping[str, AnalystBudget]) -> NameMap[AnalystBudget]:
    return to_name_map(named, "analyst", dots=True)


class Policy(Model):
    """A policy: the privacy unit, the budgets, and the tables and columns that analysts may use."""

    version: Literal[1] = Field(description="The version of this format.")
    privacy_unit: str = Field(description="What one privacy unit is, in words: patient, customer, household.")
    neighbors: Neighbors = Field(
        default="add_remove",
        description="How neighboring databases differ: by adding or removing one unit (add_remove), or by replacing one (replace).",
    )
    budget: BudgetSpec = Field(description="The budget of every private table that does not override it.")
    tables: Annotated[
        Mapping[str, Table], BeforeValidator(to_dict), AfterValidator(_resolve_tables), AS_DICT
    ] = Field(description="The tables that exist for analysts.")
    data_version: Version = Field(
        default="1", description="The version of the data: change it whenever the data changes."
    )
    database: str | None = Field(
        default=None,
        description="A permanent name of the database, which its ledger is bound to. Default: the path of its file, which must then stay the same.",
    )
    max_epsilon: Epsilon | None = Field(default=None, description="The maximum epsilon of one query.")
    min_epsilon: Epsilon = Field(
        default=MIN_EPSILON,
        description="The minimum epsilon of one query: with less, an answer would be pure noise.",
    )
    default_epsilon: Epsilon | None = Field(
        default=None, description="The epsilon of a query that does not set one."
    )
    max_failures: int | None = Field(
        default=None,
        ge=1,
        description="Number of a table's queries that may fail while they run before it is locked until its owner unlocks it. Default: 3.",
    )
    per_analyst: AnalystBudget | None = Field(
        default=None, description="The budget of each analyst who is not listed in `analysts`, at each table."
    )
    analysts: Annotated[
        Mapping[str, AnalystBudget], BeforeValidator(to_dict), AfterValidator(_check_analyst_names), AS_DICT
    ] = Field(
        default_factory=lambda: NameMap({}),
        description="The budgets of single analysts, by name, at each table.",
    )

    @field_validator("version", mode="before")
    @classmethod
    def _check_version(cls, version: object) -> object:
        if type(version) is not int or version != 1:
            raise make_problem_error(
                "version", "must be 1, the only version that this release of dpsql reads"
            )
        return version

    @field_validator("privacy_unit")
    @classmethod
    def _normalize_privacy_unit(cls, words: str) -> str:
        if not words.strip():
            raise make_problem_error("empty_key", "must name the privacy unit in words, such as patient")
        return words.strip()

    @field_validator("database")
    @classmethod
    def _normalize_database(cls, name: str | None) -> str | None:
        if name is not None and not name.strip():
            raise make_problem_error("empty_key", "must not be empty")
        return None if name is None else name.strip()

    @field_validator("data_version", mode="before")
    @classmethod
    def _normalize_data_version(cls, version: object) -> object:
        if isinstance(version, (date, datetime)):
            version = version.isoformat()
        elif isinstance(version, (int, float, Decimal)) and not isinstance(version, bool):
            version = str(version)
        if isinstance(version, str) and not version.strip():
            raise make_problem_error("empty_key", "must not be empty")
        return version

    @model_serializer(mode="wrap")
    def _drop_default_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave these keys out while they are not set, so that the digest of a policy does not depend on keys that it does not have."""
        optional = ("database", "max_failures", "default_epsilon")
        unset = {key for key in optional if getattr(self, key) is None}
        unset |= {"min_epsilon"} if self.min_epsilon == MIN_EPSILON else set()
        return {key: value for key, value in rest(self).items() if key not in unset}

    @model_validator(mode="after")
    def _check_constraints(self) -> Policy:
        problems = list_policy_problems(self.budget, self.tables)
        problems += list_cap_problems(self.min_epsilon, self.max_epsilon, self.default_epsilon)
        if problems:
            raise make_problems_error(problems)
        return self

    def find_table(self, name: str) -> Table | None:
        """Return the table of that name, in any case, or None when it is not declared."""
        return self.tables.get(name)

    def find_table_name(self, name: str) -> str | None:
        """Return the declared spelling of a table's name, or None when it is not declared."""
        return find_declared_name(name, self.tables)

    def list_private_tables(self) -> tuple[str, ...]:
        """Return the declared names of the private tables, in the policy's order."""
        return tuple(name for name, table in self.tables.items() if not table.public)

    def get_failure_limits(self) -> dict[str, int]:
        """Return the number of failures that locks each account of tables, where the policy sets one: the least of its tables."""
        least: dict[str, int] = {}
        for name in self.list_private_tables():
            count, account = self.tables[name].max_failures or self.max_failures, self.get_account_name(name)
            if count is not None:
                least[account] = min(count, least.get(account, count))
        return least

    def get_account_name(self, name: str) -> str:
        """Return the name of the ledger's account that pays for a private table: its own, or that of the shared budget."""
        return SHARED_ACCOUNT if self.budget.shared else name

    def get_budget(self, name: str) -> BudgetSpec:
        """Return the budget of a private table: its own keys, then the policy's. Raises PolicyError otherwise."""
        own = self._require_private_table(name).budget
        given = {} if own is None else {key: value for key, value in own if value is not None}
        return BudgetSpec.model_validate({**dict(self.budget), **given})

    def find_analyst_budget(self, name: str, analyst: str) -> BudgetSpec | None:
        """Return an analyst's budget at a private table, None for all of the table's; raise PolicyError as `get_budget` does."""
        given = self.analysts.get(analyst, self.per_analyst)
        own = self.get_budget(name)
        if given is None:
            return None
        delta = own.delta if given.delta is None else given.delta
        return BudgetSpec(
            epsilon=given.epsilon, delta=delta, accountant=own.accountant, renew=given.renew or own.renew
        )

    def resolve_analyst_name(self, name: str) -> str:
        """Return an analyst's name as the policy lists it, whatever its case or spaces; the name itself if it is not listed."""
        wanted = normalize_account_name(name)
        return next((listed for listed in self.analysts if normalize_account_name(listed) == wanted), name)

    def get_readings(self) -> dict[str, TableReading]:
        """Return how the files of each table are read, by the folded names of tables."""
        return {
            normalize_name(name): TableReading(
                NameMap({column: found.reading for column, found in table.columns.items()}),
                table.file or FileReading(),
            )
            for name, table in self.tables.items()
        }

    def resolve_source_paths(self, beside: Path) -> dict[str, Path]:
        """Return the paths of the tables' sources by table name, relative to the policy's folder."""
        return {
            name: beside / table.source for name, table in self.tables.items() if table.source is not None
        }

    def get_unit(self, name: str) -> Unit:
        """Return where the privacy unit of a private table is found. Raises PolicyError for other tables."""
        trail = [self._require_private_table(name)]
        while (link := trail[-1].unit_link) is not None:
            trail.append(self._require_private_table(link.table))
        root = trail.pop()
        unit = Unit("row", None) if is_row(root.unit) else Unit("column", root.unit)
        while trail and (link := trail.pop().unit_link) is not None:
            keys = [normalize_name(key) for key in link.keys]
            direct = (
                unit.kind == "column" and unit.column is not None and [normalize_name(unit.column)] == keys
            )
            unit = Unit("column" if direct else "indirect", link.names[0])
        return unit

    def describe_unit(self, name: str) -> str:
        """Return where the privacy unit of a private table's rows is found, in words: a column, each row, or a link."""
        unit, link = self.get_unit(name), self._require_private_table(name).unit_link
        if unit.kind == "indirect" and link is not None:
            equal = (f"{ours} = {link.table}.{key}" for ours, key in zip(link.names, link.keys, strict=True))
            return f"through {' and '.join(equal)}"
        return unit.column or "each row"

    def list_referenced_columns(self, name: str) -> tuple[str, ...]:
        """Return the columns of a table through which other tables find their unit, in the order of those tables."""
        links = (table.unit_link for table in self.tables.values())
        found = (
            link.keys
            for link in links
            if link is not None and normalize_name(link.table) == normalize_name(name)
        )
        return tuple(dict.fromkeys(keys[0] for keys in found if len(keys) == 1))

    def iterate_links(self) -> Iterator[tuple[str, Link]]:
        """Yield each link with the table that declares it."""
        for name, table in self.tables.items():
            yield from ((name, link) for link in table.all_links)

    def compute_digest(self) -> str:
        """Return the SHA-256 in hexadecimal of the whole policy as read; two spellings of one number give the same digest."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()

    def _require_private_table(self, name: str) -> Table:
        table = self.find_table(name)
        if table is None:
            raise PolicyError(f"the policy declares no table {name}", code="undeclared_table")
        if table.public:
            raise PolicyError(f"the table {name} is public, so it has no privacy unit", code="public_table")
        return table


# The JSON schema of a policy file, for editors that complete and check YAML.


def build_json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a policy.

    It knows keys, types and ranges; what spans keys is checked by `load` alone.
    """
    schema = Policy.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "dpsql policy"}

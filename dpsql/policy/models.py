"""The policy as frozen pydantic models, with the keys of the YAML file.

Building a model directly raises pydantic's `ValidationError`; `dpsql.policy.load` raises `PolicyError`
with the file, the line and the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from dpsql.errors import PolicyError
from dpsql.policy.check import cap_problems, policy_problems, table_problems
from dpsql.policy.domain import ColumnType
from dpsql.policy.fields import (
    AS_DICT,
    CONVERTING,
    Accountant,
    Bounds,
    ColumnName,
    Delta,
    Epsilon,
    Neighbors,
    Partition,
    Reference,
    Renewal,
    Values,
    Version,
    as_dict,
)
from dpsql.policy.links import is_row
from dpsql.policy.names import NameMap, account_name, declared, fold, name_problems
from dpsql.policy.problem import refusal, refusals

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Unit:
    """Where a private table's privacy unit is found.

    `row`: each row is a unit. `column`: the column of this table holds the unit's id. `indirect`: the
    column leads to another table's row, whose unit it is (follow `Table.link` from table to table).
    """

    kind: Literal["row", "column", "indirect"]
    column: str | None


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, revalidate_instances="always")


class BudgetSpec(_Model):
    """The most that all answers together may lose: (epsilon, delta), composed by an accountant."""

    epsilon: Epsilon = Field(description="Total epsilon, above 0.")
    delta: Delta = Field(
        default=Fraction(0), description="Total delta, at least 0 and below 1; zcdp and gdp need one above 0."
    )
    accountant: Accountant = Field(
        default_factory=lambda read: "zcdp" if read.get("delta") else "pure",
        description="How losses add up: pure, basic, zcdp or gdp. Default: zcdp when delta is above 0, else pure.",
    )

    renew: Renewal | None = Field(
        default=None,
        description="daily, weekly, monthly or yearly: the budget begins anew, and the guarantee is one for each period. Default: never.",
    )

    @model_validator(mode="after")
    def _has_delta(self) -> BudgetSpec:
        if self.accountant in CONVERTING and not self.delta:
            hint = "write a small delta such as 1e-7, or `accountant: pure`"
            words = f"accountant {self.accountant} needs a delta above 0"
            raise refusal("delta_required", words, hint=hint, at=("delta",))
        return self


class BudgetOverride(_Model):
    """The parts of the policy's budget that differ for one table; None is the policy's."""

    epsilon: Epsilon | None = Field(default=None, description="Total epsilon of this table, above 0.")
    delta: Delta | None = Field(default=None, description="Total delta of this table.")
    accountant: Accountant | None = Field(default=None, description="The accountant of this table.")
    renew: Renewal | None = Field(default=None, description="When the budget of this table begins anew.")


class AnalystBudget(_Model):
    """The most that one analyst may lose of each table's budget; None is the table's."""

    epsilon: Epsilon = Field(description="Total epsilon of the analyst at each table, above 0.")
    delta: Delta | None = Field(default=None, description="Total delta of the analyst at each table.")
    renew: Renewal | None = Field(default=None, description="When the analyst's budget begins anew.")


class Column(_Model):
    """What a column may hold.

    `bounds` are Fraction for numbers, date or datetime (no time zone) for days and moments. `values` is
    a public domain: int, float, str, date, datetime or bool as `type` says. A value outside its bounds
    counts as the nearer bound; one outside its domain counts as NULL. `nullable=False` says that NULL
    is no possible value: rows that hold one are dropped, the claim is not trusted.
    """

    type: ColumnType = Field(description="The type that the column is read as.")
    bounds: Bounds = Field(
        default=None, description="[lower, upper]: values are clamped to it. Never taken from the data."
    )
    values: Values = Field(
        default=None, description="All values that may occur, public knowledge; others count as NULL."
    )
    nullable: bool = Field(
        default=True, description="false: NULL is not a possible value, rows that hold it are dropped."
    )

    @model_validator(mode="after")
    def _bounds_or_values(self) -> Column:
        if self.bounds is not None and self.values is not None:
            raise refusal(
                "bounds_and_values",
                "a column has bounds or values, not both",
                hint="keep one",
                at=("values",),
            )
        return self

    @property
    def numeric_bounds(self) -> tuple[Fraction, Fraction] | None:
        """The bounds of an integer or double column; None for other types and without bounds."""
        if self.bounds is None:
            return None
        low, high = self.bounds
        return (low, high) if isinstance(low, Fraction) and isinstance(high, Fraction) else None


class Link(_Model):
    """A foreign key that leads a table's rows towards their privacy unit."""

    column: ColumnName = Field(description="The column of this table that holds the key.")
    references: Reference = Field(description="The column it refers to, as <table>.<column>.")

    @property
    def table(self) -> str:
        """The referenced table, as written in the link."""
        return self.references.partition(".")[0]

    @property
    def key(self) -> str:
        """The referenced column, as written in the link."""
        return self.references.partition(".")[2]


def _columns(columns: Mapping[str, Column]) -> NameMap[Column]:
    return _checked(columns, "column", dots=True)


def _tables(tables: Mapping[str, Table]) -> NameMap[Table]:
    if not tables:
        raise refusal(
            "no_tables", "declares no table", hint="a table that is not declared does not exist for analysts"
        )
    return _checked(tables, "table", dots=False)


def _checked(entries: Mapping[str, V], kind: str, *, dots: bool) -> NameMap[V]:
    problems = name_problems(entries, kind, dots=dots)
    if problems:
        raise refusals(problems)
    return NameMap(entries)


class Table(_Model):
    """A table that analysts may query: public, or private with its unit and contribution bounds.

    `rows_per_unit` and `max_groups` bound one privacy unit's contribution, in rows and groups;
    `min_frequency` is in privacy units. For a public table only `columns` means anything.
    """

    public: bool = Field(
        default=False, description="true: nobody needs protection from answers about this table."
    )
    unit: ColumnName | None = Field(
        default=None, description="The column with the unit's id, or `row`: each row is a unit."
    )
    link: Link | None = Field(
        default=None, description="Instead of unit: the foreign key that leads to the unit."
    )
    rows_per_unit: int = Field(
        default=1,
        ge=1,
        le=10**9,
        description="Most rows of one unit that count, enforced. Required unless unit is `row`.",
    )
    partition: Partition = Field(
        default=None,
        description="Declared columns that are constant for a unit: their values compose in parallel.",
    )
    max_groups: int | None = Field(
        default=None, ge=1, description="Most GROUP BY groups of a unit that count."
    )
    max_epsilon: Epsilon | None = Field(
        default=None, description="The most epsilon that one query of this table may cost."
    )
    min_frequency: int = Field(default=1, ge=1, description="Fewest distinct units behind a released group.")
    max_failures: int | None = Field(
        default=None, ge=1, description="Failures of this table's queries while they ran that lock it."
    )
    budget: BudgetOverride | None = Field(default=None, description="Overrides parts of the policy's budget.")
    columns: Annotated[Mapping[str, Column], BeforeValidator(as_dict), AfterValidator(_columns), AS_DICT] = (
        Field(default_factory=lambda: NameMap({}), description="The columns that analysts may use.")
    )

    @model_validator(mode="after")
    def _keys_agree(self) -> Table:
        given = {key: value for key in self.model_fields_set if (value := getattr(self, key)) is not None}
        if problems := table_problems(given):
            raise refusals(problems)
        return self

    def canonical(self, column: str) -> str | None:
        """The declared spelling of a column's name, or None when it is not declared."""
        return declared(column, self.columns)

    @model_serializer(mode="wrap")
    def _own_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = rest(self)
        if self.max_failures is None:
            written.pop("max_failures", None)
        return (
            {key: written[key] for key in ("public", "columns") if key in written} if self.public else written
        )


MIN_EPSILON = Fraction(1, 10**6)
"""Noise for less is so large that no answer is meant by it."""


def _analysts(named: Mapping[str, AnalystBudget]) -> NameMap[AnalystBudget]:
    return _checked(named, "analyst", dots=True)


class Policy(_Model):
    """Whom the data protects, how much may be lost, and what analysts may touch."""

    version: Literal[1] = Field(description="The version of this format.")
    privacy_unit: str = Field(description="What one privacy unit is, in words: patient, customer, household.")
    neighbors: Neighbors = Field(
        default="add_remove", description="Whether a unit is added or removed, or replaced."
    )
    budget: BudgetSpec = Field(description="The budget of every private table that does not override it.")
    tables: Annotated[Mapping[str, Table], BeforeValidator(as_dict), AfterValidator(_tables), AS_DICT] = (
        Field(description="The tables that exist for analysts.")
    )
    data_version: Version = Field(default="1", description="Changed by the owner when the data changes.")
    database: str | None = Field(
        default=None,
        description="The database's own name, for ever. Default: its file's path; then no other may take its place.",
    )
    max_epsilon: Epsilon | None = Field(default=None, description="The most epsilon that one query may cost.")
    min_epsilon: Epsilon = Field(
        default=MIN_EPSILON,
        description="The least epsilon that a query may ask for: below it an answer is noise alone.",
    )
    max_failures: int | None = Field(
        default=None,
        ge=1,
        description="Failures of a table's queries while they ran that lock it until its owner has looked. Default: 3.",
    )
    per_analyst: AnalystBudget | None = Field(
        default=None, description="What each analyst who is not listed may spend of each table's budget."
    )
    analysts: Annotated[
        Mapping[str, AnalystBudget], BeforeValidator(as_dict), AfterValidator(_analysts), AS_DICT
    ] = Field(
        default_factory=lambda: NameMap({}),
        description="What these analysts may spend of each table's budget.",
    )

    @field_validator("version", mode="before")
    @classmethod
    def _whole_version(cls, version: object) -> object:
        if type(version) is not int or version != 1:
            raise refusal("version", "must be 1, the only version that this dpsql reads")
        return version

    @field_validator("privacy_unit")
    @classmethod
    def _words(cls, words: str) -> str:
        if not words.strip():
            raise refusal("empty_key", "must say in words what one privacy unit is")
        return words.strip()

    @field_validator("database")
    @classmethod
    def _name(cls, name: str | None) -> str | None:
        if name is not None and not name.strip():
            raise refusal("empty_key", "must not be empty")
        return None if name is None else name.strip()

    @field_validator("data_version", mode="before")
    @classmethod
    def _as_text(cls, version: object) -> object:
        if isinstance(version, (date, datetime)):
            version = version.isoformat()
        elif isinstance(version, (int, float, Decimal)) and not isinstance(version, bool):
            version = str(version)
        if isinstance(version, str) and not version.strip():
            raise refusal("empty_key", "must not be empty")
        return version

    @model_serializer(mode="wrap")
    def _said_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without newer keys that say nothing: digests stay what they were."""
        unset = {key for key in ("database", "max_failures") if getattr(self, key) is None}
        unset |= {"min_epsilon"} if self.min_epsilon == MIN_EPSILON else set()
        return {key: value for key, value in rest(self).items() if key not in unset}

    @model_validator(mode="after")
    def _tables_agree(self) -> Policy:
        problems = policy_problems(self.budget, self.tables)
        problems += cap_problems(self.min_epsilon, self.max_epsilon)
        if problems:
            raise refusals(problems)
        return self

    def table(self, name: str) -> Table | None:
        """The table of that name, in any case, or None when it is not declared."""
        return self.tables.get(name)

    def canonical(self, name: str) -> str | None:
        """The declared spelling of a table's name, or None when it is not declared."""
        return declared(name, self.tables)

    def private_tables(self) -> tuple[str, ...]:
        """The declared names of the private tables, in the policy's order."""
        return tuple(name for name, table in self.tables.items() if not table.public)

    def max_failures_of_tables(self) -> dict[str, int]:
        """How many failures lock each private table of which the policy says it."""
        most = {name: self.tables[name].max_failures or self.max_failures for name in self.private_tables()}
        return {name: count for name, count in most.items() if count is not None}

    def budget_of(self, name: str) -> BudgetSpec:
        """The budget of a private table: its own keys, then the policy's. Raises PolicyError otherwise."""
        own = self._private(name).budget
        given = {} if own is None else {key: value for key, value in own if value is not None}
        return BudgetSpec.model_validate({**dict(self.budget), **given})

    def budget_of_analyst(self, name: str, analyst: str) -> BudgetSpec | None:
        """What an analyst may spend of a private table's budget, None for all of it; PolicyError as `budget_of`."""
        given = self.analysts.get(analyst, self.per_analyst)
        own = self.budget_of(name)
        if given is None:
            return None
        delta = own.delta if given.delta is None else given.delta
        return BudgetSpec(
            epsilon=given.epsilon, delta=delta, accountant=own.accountant, renew=given.renew or own.renew
        )

    def analyst(self, name: str) -> str:
        """An analyst's name as it is listed, where it is, whatever its case or spaces; as it is given elsewhere."""
        wanted = account_name(name)
        return next((listed for listed in self.analysts if account_name(listed) == wanted), name)

    def unit_of(self, name: str) -> Unit:
        """Where the privacy unit of a private table is found. Raises PolicyError for other tables."""
        trail = [self._private(name)]
        while (link := trail[-1].link) is not None:
            trail.append(self._private(link.table))
        root = trail.pop()
        unit = Unit("row", None) if is_row(root.unit) else Unit("column", root.unit)
        while trail and (link := trail.pop().link) is not None:
            direct = unit.kind == "column" and unit.column is not None and fold(unit.column) == fold(link.key)
            unit = Unit("column" if direct else "indirect", link.column)
        return unit

    def links_to(self, name: str) -> tuple[str, ...]:
        """The columns of a table that others link to, in the order in which these are declared."""
        links = (table.link for table in self.tables.values() if table.link is not None)
        return tuple(dict.fromkeys(link.key for link in links if fold(link.table) == fold(name)))

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of the whole policy as read: the same for two spellings of one number."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()

    def _private(self, name: str) -> Table:
        table = self.table(name)
        if table is None:
            raise PolicyError(f"the policy declares no table {name}", code="undeclared_table")
        if table.public:
            raise PolicyError(f"the table {name} is public: it has no privacy unit", code="public_table")
        return table

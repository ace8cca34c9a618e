"""The dataflow, in order: parse, lower, analyse, choose, verify, charge, run, release, post-process.

All but the charge, the engine's run and the draws are pure functions over frozen values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpsql import catalog
from dpsql.accounting import Budget, Entry, Ledger, Quote
from dpsql.accounting.events import Pure, to_json
from dpsql.accounting.ledger import Account
from dpsql.analysis.analyse import analyse
from dpsql.analysis.choose import Measured, Price, choose
from dpsql.analysis.verify import verify
from dpsql.backends import Backend, Exact
from dpsql.backends.scratch import Scratch
from dpsql.errors import InternalError, QueryRejected
from dpsql.mechanisms import Entropy, SystemEntropy
from dpsql.plan import show
from dpsql.plan.nodes import Join, Post, private_tables, released_columns
from dpsql.plan.types import Value
from dpsql.policy import Policy
from dpsql.release import ReleasedTable, release
from dpsql.result import Receipt, Result
from dpsql.sql.emit import Statement, emit
from dpsql.sql.lower import lower
from dpsql.sql.parse import parse
from dpsql.sql.post import ORDINAL, RELEASED, emit_post
from dpsql.sql.rows import emit_multiplicity
from dpsql.uncertainty import Uncertainty


def budget(policy: Policy, table: str) -> Budget:
    """The budget that a policy gives to a private table."""
    spec = policy.budget_of(table)
    return Budget(spec.accountant, spec.epsilon, spec.delta)


@dataclass(frozen=True, slots=True)
class PublicTables:
    """Look-ups in public tables, whose values are no secret."""

    backend: Backend
    _known: dict[str, int] = field(default_factory=dict)

    def multiplicity(self, join: Join) -> int:
        """The most rows of the right side of `join` that one row can be equal to."""
        sql = emit_multiplicity(join)
        if sql not in self._known:
            self._known[sql] = self.backend.public_number(sql)
        return self._known[sql]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as it is asked: its text, parameters, loss and own contribution bound."""

    sql: str
    parameters: tuple[Value, ...] = ()
    epsilon: Fraction = Fraction(1)
    delta: Fraction | None = None
    max_groups: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that is decided about a query before anything is charged or any private row is read."""

    asked: Asked
    explain: bool
    tables: tuple[str, ...]
    post: Post
    plan: Measured
    statement: Statement
    post_sql: str
    price: Price


@dataclass(frozen=True)
class Engine:
    """One policy, one database, one ledger; `analyst` is who asks."""

    policy: Policy
    backend: Backend
    ledger: Ledger
    analyst: str
    entropy: Entropy = field(default_factory=SystemEntropy)

    @cached_property
    def catalog(self) -> catalog.Catalog:
        """What exists for an analyst."""
        return catalog.build(self.policy, self.backend.schema())

    @property
    def public(self) -> PublicTables:
        """What may be looked up before a charge, each thing once."""
        return PublicTables(self.backend)

    def account(self, table: str) -> Account:
        """The budget of a table with its accountant and limit."""
        return Account.of(budget(self.policy, table))

    def prepare(self, asked: Asked) -> Prepared:
        """Everything up to the charge: pure, but for look-ups in public tables.

        Raises QueryRejected with the place in the text.
        """
        parsed = parse(asked.sql)
        cap = self.policy.max_epsilon
        if cap is not None and asked.epsilon > cap:
            raise QueryRejected(
                f"epsilon {float(asked.epsilon):g} is above the policy's cap of {float(cap):g} for one query",
                code="epsilon_cap",
                hint="ask with a smaller epsilon",
            )
        public = self.public
        post = lower(parsed, self.catalog, public, asked.parameters, asked.max_groups)
        if not self.backend.parses(asked.sql):
            # The parser here forgives much that the engine does not; an answer must not rest on a guess.
            raise QueryRejected(
                "the database's own parser cannot read the query", code="syntax", text=asked.sql
            )
        tables = private_tables(post.release.input)
        replace = self.policy.neighbors == "replace"
        analysis = analyse(post.release, public, replace=replace)
        price = self._price(tables, asked)
        plan = choose(analysis, price)
        verify(plan)
        return Prepared(asked, parsed.explain, tables, post, plan, emit(analysis), emit_post(post), price)

    def _price(self, tables: Sequence[str], asked: Asked) -> Price:
        """What a loss buys from each table; unless stated, delta is spent in proportion to the loss.

        So a table's delta is not used up before its loss is.
        """
        accounts = [self.account(table) for table in tables]
        delta = asked.delta
        if delta is None:
            delta = min(_share(account, asked.epsilon) for account in accounts)
        rhos = [account.accountant.gaussian_rho(asked.epsilon) for account in accounts]
        known = [rho for rho in rhos if rho is not None]
        return Price(asked.epsilon, min(known) if len(known) == len(rhos) else None, delta)

    def quote(self, prepared: Prepared) -> tuple[Quote, ...]:
        """What the ledger would say to the charge now; writes nothing."""
        event = prepared.plan.event
        return () if event is None else self.ledger.dry_run(dict.fromkeys(prepared.tables, event))

    def answer(self, prepared: Prepared) -> Result:
        """Charges durably first, then reads, noises and post-processes what was prepared."""
        scratch = Scratch(RELEASED, self._released_columns(prepared))
        try:
            # A query whose post-processing cannot even be bound fails here, before it is charged.
            scratch.query(prepared.post_sql)
            entries = self._charge(prepared)
            table = self._release(prepared)
            ordinals = list(range(len(table.rows)))
            series = list(zip(*table.rows, strict=True)) if table.rows else [() for _ in table.columns]
            scratch.fill([*series, ordinals])
            rows, types = scratch.query(prepared.post_sql)
        finally:
            scratch.close()
        return self._result(prepared, table, rows, types, entries)

    def _released_columns(self, prepared: Prepared) -> list[tuple[str, str]]:
        columns = [(column.name, column.type.value) for column in released_columns(prepared.post.release)]
        return [*columns, (ORDINAL, "BIGINT")]

    def _charge(self, prepared: Prepared) -> tuple[Entry, ...]:
        event = prepared.plan.event
        if event is None:
            return ()  # the keys alone, all of them public
        details = {
            "plan": show.digest(prepared.post),
            "data_version": self.policy.data_version,
            "mechanisms": list(_mechanisms(prepared.plan)),
        }
        return self.ledger.charge(
            dict.fromkeys(prepared.tables, event),
            analyst=self.analyst,
            query=prepared.asked.sql,
            details=details,
        )

    def _release(self, prepared: Prepared) -> ReleasedTable:
        # What is not charged, because it follows from the policy alone, reads nothing private either.
        exact = Exact([]) if prepared.plan.event is None else self.backend.run(prepared.statement.sql)
        failed = ""
        try:
            return release(prepared.plan, prepared.statement, exact, self.entropy)
        except Exception as error:  # noqa: BLE001  (its words and its frames may hold exact values)
            failed = type(error).__name__
        raise InternalError(f"the noise could not be added ({failed}); the charge stays", code="release")

    def _result(
        self,
        prepared: Prepared,
        table: ReleasedTable,
        rows: Sequence[tuple[Any, ...]],
        types: Sequence[str],
        entries: Sequence[Entry],
    ) -> Result:
        uncertainty = Uncertainty(prepared.plan, prepared.post, table, tuple(int(row[-1]) for row in rows))
        width = len(prepared.post.outputs)
        return Result(
            columns=tuple(output.name for output in prepared.post.outputs),
            types=tuple(types[:width]),
            rows=tuple(tuple(row[:width]) for row in rows),
            scales=tuple(
                tuple(uncertainty.scale(row, column) for column in range(width)) for row in range(len(rows))
            ),
            receipt=self.receipt(prepared, entries),
            _interval_of=uncertainty.interval,
        )

    def receipt(self, prepared: Prepared, entries: Sequence[Entry]) -> Receipt:
        """The receipt of a query that was charged as `entries` say, or, without any, explained."""
        event = prepared.plan.event
        return Receipt(
            query=prepared.asked.sql,
            plan=show.digest(prepared.post),
            analyst=self.analyst,
            privacy_unit=self.policy.privacy_unit,
            neighbors=self.policy.neighbors,
            data_version=self.policy.data_version,
            policy=self.policy.digest(),
            mechanisms=tuple(_mechanisms(prepared.plan)),
            loss=None if event is None else json.loads(to_json(event)),
            entries=tuple(
                {
                    "id": entry.id,
                    "table": entry.table,
                    "at": entry.at.isoformat(),
                    "loss": str(entry.spend.loss_fraction),
                    "delta": str(entry.spend.delta_fraction),
                    "digest": entry.digest,
                }
                for entry in entries
            ),
            versions=_versions(self.backend),
        )


def _share(account: Account, epsilon: Fraction) -> Fraction:
    """The delta of an account that goes with a loss."""
    loss = account.accountant.cost(Pure(epsilon)).loss_fraction
    delta = account.limit.delta_fraction * min(loss / account.limit.loss_fraction, Fraction(1))
    # A short fraction: rounding it down is safe, and long ones only slow the arithmetic.
    return Fraction(int(delta * 10**30), 10**30)


def _mechanisms(plan: Measured) -> list[dict[str, Any]]:
    return [
        {
            "statistic": measured.block.name,
            "noise": measured.mechanism.describe(),
            "l1_sensitivity": str(measured.sensitivity.l1),
            "l2_sensitivity_squared": str(measured.sensitivity.l2_squared),
            "cells": len(measured.block.cells),
        }
        for measured in plan.blocks
    ]


def _versions(backend: Backend) -> dict[str, str]:
    return {backend.name: backend.version, **{name: _version(name) for name in ("dpsql", "sqlglot")}}


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"

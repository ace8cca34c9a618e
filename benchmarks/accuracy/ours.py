"""dpsql's answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import dpsql
from benchmarks.accuracy.data import DELTA, rules
from benchmarks.accuracy.questions import Question
from dpsql.backends import Backend, DatabaseIdentity, Exact, TableOrigin, TemporaryTables
from dpsql.backends.dialect import Dialect
from dpsql.engine.engine import Engine
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query


@dataclass(frozen=True, slots=True)
class Remembering:
    """A backend that runs each statement once.

    The statement and the database are the same each time and so is what it finds; all that differs between
    two answers is the noise, and that is drawn anew. Everything but the scan is done for each answer.
    """

    inner: Backend
    name: str
    version: str
    _found: dict[str, Exact] = field(default_factory=dict)
    _over: list[str] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        """What statements are written in."""
        return self.inner.dialect

    @property
    def is_unchanging(self) -> bool:
        """Whether public rows may be remembered."""
        return self.inner.is_unchanging

    def run_statement(self, sql: str) -> Exact:
        """What the statement found when it was run first, over the same temporary tables."""
        name = "\n".join([*self._over, sql])
        if name not in self._found:
            self._found[name] = self.inner.run_statement(sql)
        return self._found[name]

    @contextmanager
    def stage_tables(self, tables: Sequence[tuple[str, str]]) -> Iterator[None]:
        """The temporary tables, which are made for each answer: a later statement depends on what was chosen."""
        with self.inner.stage_tables(tables):
            self._over.extend(sql for _, sql in tables)
            try:
                yield
            finally:
                self._over.clear()

    @property
    def database_identity(self) -> DatabaseIdentity | None:
        """Which database this is."""
        return self.inner.database_identity

    @property
    def database_name(self) -> str:
        """The name that the database has in the engine."""
        return self.inner.database_name

    def find_origin(self, table: str) -> TableOrigin | None:
        """Where a table's rows come from."""
        return self.inner.find_origin(table)

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:
        """Whether the engine can bind the statement."""
        return sql in self._found or self.inner.can_bind(sql, held)

    def lock(self) -> AbstractContextManager[object]:
        """Keeps other threads away."""
        return self.inner.lock()

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """The tables' columns."""
        return self.inner.read_schema()

    def read_public_number(self, sql: str) -> int:
        """A number of public tables."""
        return self.inner.read_public_number(sql)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Rows of public tables."""
        return self.inner.read_public_rows(sql)

    def can_parse(self, text: str) -> bool:
        """Whether the engine reads the text."""
        return self.inner.can_parse(text)

    def open_snapshot(self) -> AbstractContextManager[None]:
        """The database as it is at the start."""
        return self.inner.open_snapshot()

    def close(self) -> None:
        """Lets the database go."""
        self.inner.close()


@contextmanager
def engine(path: Path, question: Question) -> Iterator[Engine]:
    """dpsql's engine over the file, which scans it once for each statement."""
    with dpsql.connect(path, policy=rules(question), ledger=":memory:", replay=False) as connection:
        inner = connection.engine
        yield replace(inner, backend=Remembering(inner.backend, inner.backend.name, inner.backend.version))


def answers(path: Path, question: Question, epsilon: float, runs: int) -> list[list[tuple[Any, ...]]] | str:
    """The rows of so many answers at that ε, or why there is none."""
    with engine(path, question) as over:
        asked = Query(
            question.sql,
            epsilon=Fraction(str(epsilon)),
            delta=Fraction(str(DELTA)),
            max_groups=question.groups_per_unit if question.seeks_keys else None,
        )
        try:
            prepared = plan_and_match(over, asked)
        except dpsql.Error as refused:
            return str(refused).splitlines()[0]
        return [list(answer_query(over, prepared).rows) for _ in range(runs)]

"""A query as it is asked, and all that is decided about it before anything is charged or read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from dpsql.accounting.events import Composed, Event
from dpsql.analysis.choose import Measured, Price
from dpsql.errors import ProgrammingError, QueryRejected
from dpsql.plan.nodes import Post, Release, released_columns
from dpsql.plan.types import Value
from dpsql.sql.dialect import DUCKDB
from dpsql.sql.emit import Statement
from dpsql.sql.options import Options
from dpsql.sql.post import ORDINAL, Copies, Originals

Number = TypeVar("Number", Fraction, int)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as it is asked: its text, parameters, loss and own contribution bound.

    `default` is the loss of a query that is asked with none, and says none itself. `dialect` is that of the text.
    """

    sql: str
    parameters: tuple[Value, ...] = ()
    epsilon: Fraction | None = Fraction(1)
    delta: Fraction | None = None
    max_groups: int | None = None
    default: Fraction | None = None
    dialect: str = DUCKDB


@dataclass(frozen=True, slots=True)
class Terms:
    """What a query is answered at: its loss, its delta for group keys, None for a share, and its own bound."""

    epsilon: Fraction
    delta: Fraction | None
    max_groups: int | None


def terms(asked: Asked, options: Options) -> Terms:
    """What the call and the query say together.

    Raises QueryRejected where they say different things, ProgrammingError where nothing says the loss.
    """
    epsilon = _agreed("epsilon", asked.epsilon, options.epsilon)
    if epsilon is None:
        epsilon = asked.default
    if epsilon is None:
        raise ProgrammingError(
            "how much may this query lose?", code="epsilon_missing", hint="execute(…, epsilon=0.1)"
        )
    delta = _agreed("delta", asked.delta, options.delta)
    return Terms(epsilon, delta, _agreed("max_groups", asked.max_groups, options.max_groups))


def _agreed(name: str, called: Number | None, written: Number | None) -> Number | None:
    if called is not None and written is not None and called != written:
        raise QueryRejected(
            f"the query says one {name}, and the call says another",
            code="ambiguous",
            hint="say it in one of the two",
        )
    return called if written is None else written


@dataclass(frozen=True, slots=True)
class PreparedRelease:
    """One release of a statement: what is measured of which tables, and what it may spend."""

    release: Release
    tables: tuple[str, ...]
    plan: Measured
    statement: Statement
    price: Price

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of the released table with their engine types, and the ordinal of its rows."""
        named = [(column.name, column.type.value) for column in released_columns(self.release)]
        return [*named, (ORDINAL, "BIGINT")]


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that is decided about a query before anything is charged or any private row is read.

    `releases` are in the order in which they are answered; there are none where the query reads
    nothing private. `post_sql` is what is done with them, over the tables that `above` names.
    """

    asked: Asked
    terms: Terms
    explain: bool
    post: Post
    releases: tuple[PreparedRelease, ...]
    above: Copies | Originals
    post_sql: str

    @property
    def only(self) -> PreparedRelease:
        """The release of a statement that has one."""
        (release,) = self.releases
        return release

    @property
    def plan(self) -> Measured:
        """What is measured by a statement with one release."""
        return self.only.plan

    @property
    def statement(self) -> Statement:
        """The SQL of a statement with one release."""
        return self.only.statement

    @property
    def price(self) -> Price:
        """What a statement with one release may spend."""
        return self.only.price

    @property
    def tables(self) -> tuple[str, ...]:
        """The private tables that are read."""
        return tuple(dict.fromkeys(table for release in self.releases for table in release.tables))

    @property
    def event(self) -> Event | None:
        """Everything that is released, as one event."""
        return _composed([release.plan.event for release in self.releases])

    @property
    def charges(self) -> dict[str, Event]:
        """What each table is charged; nothing for one of which public keys alone are asked."""
        events = {
            table: _composed([release.plan.event for release in self.releases if table in release.tables])
            for table in self.tables
        }
        return {table: event for table, event in events.items() if event is not None}


def _composed(events: Sequence[Event | None]) -> Event | None:
    charged = tuple(event for event in events if event is not None)
    return Composed(charged) if len(charged) > 1 else next(iter(charged), None)

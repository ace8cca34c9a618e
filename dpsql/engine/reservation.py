"""Reservations: a part of budgets that only the queries of one connection spend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dpsql.engine.loss_split import compute_proportional_delta
from dpsql.errors import LossError, ProgrammingError
from dpsql.policy.request.loss import DisplayedFraction
from dpsql.privacy.accounting import get_accountant
from dpsql.privacy.accounting.charge import NOTHING
from dpsql.privacy.accounting.events import Composed, Event, Pure, Selection

if TYPE_CHECKING:
    from dpsql.engine.engine import Engine


class Reservation:
    """A reserved part of the budgets of tables: until it ends, the connection's queries spend from it and from nothing else.

    It ends with `close`, at the end of a `with` block, and when the connection closes; what it has not spent is then returned.
    After a crash it stays reserved: `Connection.resume` continues it, `dpsql ledger return` ends it.
    """

    def __init__(self, number: int, engine: Engine, end: Callable[[], None]) -> None:
        self.number = number
        self._ledger = engine.ledger
        self._analyst = engine.analyst
        self._on_close = end
        self._is_closed = False

    def left(self) -> dict[str, Fraction]:
        """Return the ε of the largest query that still fits, by the names of the budgets, as `Connection.budget` has them.

        It is rounded down, and {} once the reservation has ended.
        """
        accountants = {state.key: get_accountant(state.accountant) for state in self._ledger.list_states()}
        return {
            state.key.name: DisplayedFraction(
                accountants[state.key].compute_remaining_epsilon(NOTHING, state.remaining)
            )
            for state in self._ledger.list_reservations()
            if state.number == self.number
        }

    def close(self) -> None:
        """Return to the budgets what is not spent, durably; a second call does nothing."""
        if not self._is_closed:
            self._ledger.close_reservation(self.number, by=self._analyst)
            self._is_closed = True
            self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reserve_budgets(
    engine: Engine,
    end: Callable[[], None],
    epsilon: Fraction,
    delta: Fraction | None,
    tables: Iterable[str] | None,
) -> Reservation:
    """Reserve of each table what a query of all of it would be charged; see `Connection.reserve`."""
    names = (
        engine.policy.list_private_tables()
        if tables is None
        else [_resolve_private_table(engine, name) for name in tables]
    )
    if not names:
        raise ProgrammingError("a reservation needs a private table, and there is none", code="slice_table")
    charges = {name: _build_reserved_event(engine, name, epsilon, delta) for name in names}
    entries = engine.ledger.reserve(charges, analyst=engine.analyst, details=_build_details(engine, charges))
    return Reservation(entries[0].id, engine, end)


def resume_reservation(engine: Engine, end: Callable[[], None], number: int) -> Reservation:
    """Return the reservation with this number, which the engine's analyst holds; see `Connection.resume`."""
    found = engine.ledger.list_reservations()
    if not any(state.number == number and state.holder == engine.analyst for state in found):
        raise ProgrammingError(
            f"{engine.analyst!r} holds no open reservation {number}",
            code="slice_closed",
            hint="it has ended, or another analyst holds it; dpsql budget lists the open ones",
        )
    return Reservation(number, engine, end)


def _resolve_private_table(engine: Engine, name: str) -> str:
    found = engine.policy.find_table_name(name)
    if found is None or found not in engine.policy.list_private_tables():
        raise ProgrammingError(
            f"the policy has no private table {name}",
            code="slice_table",
            hint="name a private table of the policy",
        )
    return found


def _build_reserved_event(engine: Engine, table: str, epsilon: Fraction, delta: Fraction | None) -> Event:
    """Return the event that is reserved of a table: the loss, and the δ that belongs to it or was requested."""
    share = compute_proportional_delta(engine.get_account(table), epsilon) if delta is None else delta
    if not 0 <= share < 1:
        raise LossError("delta is at least 0 and below 1")
    loss = Pure(epsilon)
    return Composed((loss, Selection(share))) if share else loss


def _build_details(engine: Engine, charges: Mapping[str, Event]) -> dict[str, object]:
    return {"policy": engine.policy_digest, "tables": sorted(charges)}

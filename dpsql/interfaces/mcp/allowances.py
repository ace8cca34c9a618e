"""The limits of assistants on top of an account: the largest ε of a question, and an ε for all questions together, kept in a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from dpsql.errors import BudgetExhausted, OperationalError, QueryRejected
from dpsql.policy.names import normalize_account_name
from dpsql.policy.request.loss import format_rounded
from dpsql.results.result import Result

_STEP = Fraction(1, 10**12)
"""The unit of the file: losses are rounded up to it, and the budget down."""
_METADATA = sa.MetaData()
_ALLOWANCES = sa.Table(
    "dpsql_assistants",
    _METADATA,
    sa.Column("account", sa.String(300), primary_key=True),
    sa.Column("spent", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class AssistantLimits:
    """The most that assistants of one account may spend: in one question, and in all of them together; None is no limit."""

    max_epsilon: Fraction | None = None
    budget: Fraction | None = None

    def require_below_cap(self, loss: Fraction) -> None:
        """Raise QueryRejected (`epsilon_cap`) for a loss above the cap."""
        if self.max_epsilon is not None and loss > self.max_epsilon:
            raise QueryRejected(
                f"epsilon {float(min(loss, Fraction(10**300))):g} is above the cap of {float(self.max_epsilon):g} for one question of an assistant",
                code="epsilon_cap",
                hint="use a smaller epsilon",
            )

    def clamp_default(self, default: Fraction | None) -> Fraction | None:
        """Return the default loss of a question that states none, at most the cap."""
        if default is None or self.max_epsilon is None:
            return default
        return min(default, self.max_epsilon)


class AllowanceStore:
    """What the assistants of each account have spent, in an SQLite file that all servers of one policy share.

    Claim: with a budget B, the ε of all charged questions of one account through this interface, over any number of clients,
    sessions, tokens and processes that use the same file, add up to at most B. A question whose release is already stored is
    answered after that, too.
    Why: a question is counted before it runs, by one UPDATE whose condition is that the sum stays within B, and SQLite runs one
    UPDATE at a time. It is subtracted only if its error or its answer says that nothing was charged; where a process ends in
    between, it stays counted.
    Not claimed: privacy. The ledger holds the budgets that the guarantee rests on; whoever may write this file may remove it.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the file, or keep the numbers in memory if there is none. Raises OperationalError (`assistants`)."""
        self.path, self._lock = path, threading.Lock()
        pool = {"poolclass": sa.pool.StaticPool} if path is None else {}
        self._engine = sa.create_engine(
            "sqlite://" if path is None else f"sqlite:///{path}",
            connect_args={"check_same_thread": False, "timeout": 30},
            **pool,
        )
        with self._begin_change() as connection:
            _METADATA.create_all(connection)

    @contextmanager
    def _begin_change(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction. Raises OperationalError (`assistants`) if the file cannot be read or written."""
        failed = False
        try:
            with self._lock, self._engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError:
            failed = True
        if failed:
            raise OperationalError(
                f"cannot read and write {self.path}, the file with what assistants have spent",
                code="assistants",
                hint="make it a file that can be written, or name another one with --assistants",
            )

    def take_loss(self, analyst: str, loss: Fraction, budget: Fraction) -> bool:
        """Count the loss of a question before it runs, and return whether the budget allows it; if not, nothing is counted."""
        account, size, most = normalize_account_name(analyst), _round_up(loss), floor(budget / _STEP)
        if size > most:
            return False
        with self._begin_change() as connection:
            _add_account(connection, account)
            taken = connection.execute(
                _ALLOWANCES.update()
                .where(_ALLOWANCES.c.account == account, _ALLOWANCES.c.spent + size <= most)
                .values(spent=_ALLOWANCES.c.spent + size)
            )
            return bool(taken.rowcount)

    def change_spent(self, analyst: str, loss: Fraction, *, back: bool) -> None:
        """Count a loss without a limit, or subtract it again (`back`)."""
        account, size = normalize_account_name(analyst), _round_up(loss) * (-1 if back else 1)
        with self._begin_change() as connection:
            _add_account(connection, account)
            connection.execute(
                _ALLOWANCES.update()
                .where(_ALLOWANCES.c.account == account)
                .values(spent=_ALLOWANCES.c.spent + size)
            )

    def get_spent(self, analyst: str) -> Fraction:
        """Return the ε of all charged questions of an account."""
        account = normalize_account_name(analyst)
        wanted = sa.select(_ALLOWANCES.c.spent).where(_ALLOWANCES.c.account == account)
        with self._begin_change() as connection:
            return (connection.execute(wanted).scalar() or 0) * _STEP

    def close(self) -> None:
        """Close the file."""
        self._engine.dispose()


def query_within_budget(
    store: AllowanceStore,
    analyst: str,
    loss: Fraction,
    budget: Fraction | None,
    *,
    run: Callable[[], Result],
    is_free: Callable[[], bool],
) -> Result:
    """Run a question and count its loss, unless it was not charged.

    Raises BudgetExhausted (`assistant_budget`) if the budget of assistants does not suffice and the question is not free.
    """
    if budget is None:
        return run()
    taken = store.take_loss(analyst, loss, budget)
    if not taken and not is_free():
        left = max(budget - store.get_spent(analyst), Fraction(0))
        raise BudgetExhausted(
            f"the assistants of {analyst} may spend ε {float(budget):g} in all, of which"
            f" {format_rounded(left) if left else '0'} is left, and the question costs ε {format_rounded(loss, up=True)}",
            code="assistant_budget",
            hint="use a smaller epsilon; questions that were answered before are free; only the person who started the"
            " server can raise the budget",
        )
    try:
        result = run()
    except Exception as error:
        if taken and getattr(error, "charged", None) is False:
            store.change_spent(analyst, loss, back=True)
        raise
    charged = bool(result.receipt.entries)
    if taken != charged:
        try:
            store.change_spent(analyst, loss, back=taken)
        except OperationalError as error:
            error.charged = charged
            raise
    return result


def _add_account(connection: sa.Connection, account: str) -> None:
    row = insert(_ALLOWANCES).values(account=account, spent=0)
    connection.execute(row.on_conflict_do_nothing())


def _round_up(loss: Fraction) -> int:
    return ceil(loss / _STEP)

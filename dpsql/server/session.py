"""One user's session: how each of its statements is described and answered.

Whatever a client sends reaches private data through `Connection.query` alone. Utility statements and catalogue queries
read the policy at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.errors import Error, OperationalError
from dpsql.request.loss import amount, rounded
from dpsql.server.asking import Asker, Planned
from dpsql.server.audit import Caller
from dpsql.server.protocol.failure import Failed, Failure
from dpsql.server.protocol.tasks import Answer, DescribeStatement, Description, RunStatement
from dpsql.server.protocol.values import BOOL, INT8, NUMERIC, TEXT, Column, decoded, oid_of
from dpsql.server.running import NotBegun, Running
from dpsql.server.service import Service
from dpsql.server.settings import Settings
from dpsql.server.sqlstates import failure, unforeseen
from dpsql.server.statements import control, count_parameters, first_words, named_parameters, without_comments
from dpsql.server.users import User
from dpsql.shell.costs import charged

if TYPE_CHECKING:
    from dpsql.connection import Connection
    from dpsql.ledger import BudgetLeft, BudgetState
    from dpsql.request.query import QueryOptions
    from dpsql.result import Result

_T = TypeVar("_T")
_SET = re.compile(
    r"\s*SET\s+(?:(?:SESSION|LOCAL)\s+(?!CHARACTERISTICS))?"
    r"(?:(?P<zone>TIME\s+ZONE)\s+|(?P<names>NAMES)\s+|(?P<mode>(?:SESSION\s+CHARACTERISTICS\s+AS\s+)?TRANSACTION)\b"
    r"|(?P<name>[\w.]++)(?:\s*+=|\s++TO\b)\s*+)(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_TAGS = {"begin": "BEGIN", "commit": "COMMIT", "rollback": "ROLLBACK", "savepoint": "SAVEPOINT"}
_UTILITIES = {"set", "reset", "show", "discard", "deallocate"}
_MOST_CHARACTERS = 10_000
"""Characters of a utility statement: it is read where all sessions wait for it."""
_BUDGET = (
    Column("table", TEXT),
    Column("analyst", TEXT),
    Column("epsilon", NUMERIC),
    Column("delta", NUMERIC),
    Column("accountant", TEXT),
    Column("queries", INT8),
    Column("spent_epsilon", NUMERIC),
    Column("next_query_epsilon", NUMERIC),
    Column("locked", BOOL),
)
_PLAN = (Column("plan", TEXT),)


class Session:
    """What one logged-in user asks, one statement after the other."""

    def __init__(self, service: Service, user: User, peer: str = "") -> None:
        self.user, self._peer = user, peer
        self.settings = Settings(user.name, service.epsilon)
        self._service = service
        self._running = Running(service, user)
        self._last: Result | None = None
        self._described_last: _Described | None = None

    async def describe(self, task: DescribeStatement) -> Description | Failure:
        """The columns and parameters of a statement; nothing is charged."""
        return await self._guarded(task.text, lambda: self._described(task))

    async def run(self, task: RunStatement) -> Answer | Failure:
        """The answer to a statement."""
        found = await self._guarded(task.text, lambda: self._answered(task))
        if isinstance(found, Failure) and found.position is not None and task.start:
            return _moved(found, task.start)
        return found

    def cancel(self) -> None:
        """Cancels the statement that runs or waits now, if there is one; see `Running.cancel`."""
        self._running.cancel()

    def stop(self) -> None:
        """Ends the statement that runs or waits now for the owner, if there is one; see `Running.stop`."""
        self._running.stop()

    def leave(self) -> None:
        """The client is gone; see `Running.leave`."""
        self._running.leave()

    async def _guarded(self, text: str, work: Callable[[], _T]) -> _T | Failure:
        """What `work` gives in a worker thread, or what the client is told of its failure."""
        if _is_utility(text) and not _waits(text):
            return _caught(text, work)
        try:
            found = await self._running.run(lambda: _caught(text, work), self.settings.timeout)
        except OperationalError as error:
            return failure(error, text)
        except NotBegun:
            return Failure("57014", "the statement was cancelled before it began; nothing was charged")
        if isinstance(found, Failure) and found.sqlstate == "57014" and found.charged is False:
            return Failure("57014", _NOT_CHARGED[self._running.stopped])
        return found

    def _described(self, task: DescribeStatement) -> Description:
        text, types = task.text, task.types
        if not text:
            return Description(None, ())
        if _is_utility(text):
            return Description(_utility_columns(text, self._last), types)
        values = task.values
        if values is None:
            types = self._service.catalogue.parameters(text, types)
            values = tuple(map(_sample, types))
        looked = self._looked_around(text, values)
        if looked is not None:
            return Description(looked[0], types)
        reloads = self._service.reloads
        planned = self._running.asking(lambda asker: self._planned(asker, text, values))
        found = _Described(text, values, self.settings.options(), reloads, planned)
        # What was planned by samples of the types may have other columns with the values.
        self._described_last = None if task.values is None else found
        return Description(found.columns, types)

    def _as_described(self, text: str, values: tuple[Any, ...]) -> _Described | None:
        """What was described last, where it is of this statement; a reload alone changes the catalogue."""
        last = self._described_last
        if last is None or last.values is not values or last.text != text:
            return None
        same = (last.options, last.reloads) == (self.settings.options(), self._service.reloads)
        return last if same else None

    def _looked_around(
        self, text: str, values: tuple[Any, ...]
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]] | None:
        """The answer to a catalogue query, which reads the policy alone; None for what is for the engine."""
        if self.settings.dialect != "postgres" or first_words(text, 1) == ["explain"]:
            return None
        query = self._service.catalogue.query(text)
        if query is None:
            return None
        return self._service.catalogue.answer(query, self.user.name, self._setting, values)

    def _setting(self, name: str) -> str | None:
        try:
            return self.settings.get(name)
        except Failed:
            return None

    def _planned(self, asker: Asker, text: str, values: tuple[Any, ...]) -> Planned | None:
        """The plan of a query; None for EXPLAIN, whose columns are known."""
        if first_words(text, 1) == ["explain"]:
            return None
        self._require_asking()
        query, places = named_parameters(text)
        try:
            return asker.plan(query, _named(text, values), **self.settings.options())
        except Error as error:
            raise _Refused(failure(error, query, places)) from None

    def _require_asking(self) -> None:
        if not self.user.role.asks:
            raise Failed("42501", f"{self.user.name} is {self.user.role.value}, who asks nothing")

    def _answered(self, task: RunStatement) -> Answer:
        text = task.text
        command = control(text)
        if command is not None:
            return Answer(_TAGS[command])
        if _is_utility(text):
            return self._utility(text)
        looked = self._looked_around(text, task.values)
        if looked is not None:
            columns, rows = looked
            return Answer(f"SELECT {len(rows)}", task.columns or columns, rows)
        self._require_asking()
        return self._running.asking(lambda asker: self._query(asker, task))

    def _query(self, asker: Asker, task: RunStatement) -> Answer:
        text = task.text
        query, places = named_parameters(text)
        described = self._as_described(text, task.values)
        self._described_last = None  # a plan of many parameters is large
        if described is None and task.columns is not None and (task.values or self._service.reloads):
            options, reloads = self.settings.options(), self._service.reloads
            planned = self._planned(asker, text, task.values)
            described = _Described(text, task.values, options, reloads, planned)
        if described is not None and task.columns not in (None, described.columns):
            raise Failed(
                "0A000",
                "with these parameters the answer has columns of other types than the statement was described with",
                "cast the parameters; nothing was charged",
            )
        what = "explain" if first_words(text, 1) == ["explain"] else "query"
        caller = Caller(
            self.user.name, self._service.policy.analyst(self.user.name), "postgresql", self._peer
        )
        try:
            with self._service.audit.asking(caller, what) as outcome:
                if described is None or described.planned is None:
                    result = asker.query(query, _named(text, task.values), **self.settings.options())
                else:
                    result = asker.answer(described.planned)
                outcome.answered(result)
                left = asker.left(result.receipt)
        except Error as error:
            raise _Refused(failure(error, query, places)) from None
        columns = tuple(
            Column(name, oid_of(kind)) for name, kind in zip(result.columns, result.types, strict=True)
        )
        if result.receipt.explained:
            return Answer("EXPLAIN", columns, result.rows)
        self._last = result
        wanted = self.settings.get("dpsql.notices") == "on"
        loss = self._service.loss(query, self.settings.dialect, self.settings.get("dpsql.epsilon"))
        notices = _notices(result, loss, left) if wanted else ()
        return Answer(f"SELECT {len(result)}", task.columns or columns, result.rows, notices)

    def _utility(self, text: str) -> Answer:
        if len(text) > _MOST_CHARACTERS:
            raise Failed("54000", f"a statement of the session has at most {_MOST_CHARACTERS:,} characters")
        words, text = first_words(text, 2), without_comments(text)
        match words:
            case ["show", *_]:
                return self._show(text)
            case ["discard", *_]:
                self.settings.reset()
                return Answer("DISCARD ALL", statuses=self.settings.reported())
            case ["deallocate", *_]:
                raise Failed("0A000", "DEALLOCATE is not supported: statements are closed by the protocol")
        before = self.settings.reported()
        if words[0] == "reset":
            name = text.split(None, 1)[1].strip() if len(text.split(None, 1)) > 1 else ""
            if name.lower() == "all":
                self.settings.reset()
            else:
                self.settings.set(name, None)
            tag = "RESET"
        else:
            self._set(text)
            tag = "SET"
        changed = {name: value for name, value in self.settings.reported().items() if before[name] != value}
        return Answer(tag, statuses=changed)

    def _set(self, text: str) -> None:
        match = _SET.fullmatch(text)
        if match is None:
            raise Failed("42601", "SET takes a name and a value", "SET dpsql.epsilon = 0.1")
        if match["mode"]:
            if re.search(r"READ\s+WRITE", match["value"], re.IGNORECASE):
                raise Failed("25006", "dpsql only reads: there are no transactions that write")
            return
        name = "TimeZone" if match["zone"] else "client_encoding" if match["names"] else match["name"]
        value = match["value"].rstrip()
        self.settings.set(name, ", ".join(_unquoted(part) for part in value.split(",")))

    def _show(self, text: str) -> Answer:
        name = _setting_of(text)
        columns = _utility_columns(text, self._last)
        rows: list[tuple[Any, ...]]
        match name:
            case "dpsql.budget":
                rows = self._budget()
            case "dpsql.receipt":
                rows = [(self._last_answer().receipt.to_json(),)]
            case "dpsql.intervals":
                rows = list(self._last_answer().with_ends(0.95).rows)
            case "all":
                rows = list(self.settings.all())
            case _:
                rows = [(self.settings.get(name),)]
        return Answer("SHOW", columns, rows)

    def _last_answer(self) -> Result:
        if self._last is None:
            raise Failed("55000", "there is no answer yet in this session")
        return self._last

    def _budget(self) -> list[tuple[Any, ...]]:
        def rows(connection: Connection) -> list[tuple[Any, ...]]:
            own = connection.budget().values()
            states = connection.engine.ledger.states() if self.user.role.oversees else own
            return [_budget_row(state) for state in states]

        return self._running.with_connection(rows)


_NOT_CHARGED = (
    "the statement was cancelled; nothing was charged",
    "the statement was stopped at the owner's limit; nothing was charged",
)


@dataclass(frozen=True, slots=True)
class _Described:
    """A statement whose columns a client was told: with these values, settings and number of reloads, as planned.

    `values` are told apart by identity, since equal ones may have other types, signs or digits.
    """

    text: str
    values: tuple[Any, ...]
    options: QueryOptions
    reloads: int
    planned: Planned | None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the answer."""
        if self.planned is None:
            return _PLAN
        return tuple(Column(name, oid_of(kind)) for name, kind in self.planned.columns)


class _Refused(Failed):
    """A failure that is described already."""

    def __init__(self, described: Failure) -> None:
        super().__init__(described.sqlstate, described.message)
        self.failure = described


def _caught(text: str, work: Callable[[], _T]) -> _T | Failure:
    """What `work` gives, or what the client is told of its failure; no error's own words but those of dpsql."""
    try:
        return work()
    except Failed as error:
        return error.failure
    except Error as error:
        return failure(error, text)
    except Exception:  # noqa: BLE001  (whatever it is, its words may quote private values)
        return unforeseen()


def _is_utility(text: str) -> bool:
    """Whether a statement is of the session, and none for the engine."""
    words = first_words(text, 1)
    return not words or words[0] in _UTILITIES or control(text) is not None


def _waits(text: str) -> bool:
    """Whether a utility statement waits for the ledger."""
    return first_words(text, 1) == ["show"] and _setting_of(text) == "dpsql.budget"


def _setting_of(text: str) -> str:
    return " ".join(without_comments(text[:_MOST_CHARACTERS]).split()[1:]).strip('"').lower()


def _unquoted(part: str) -> str:
    part = part.strip()
    if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"":
        return part[1:-1].replace(part[0] * 2, part[0])
    return part


def _utility_columns(text: str, last: Result | None) -> tuple[Column, ...] | None:
    """The columns of a utility statement's answer; None for one without rows."""
    if first_words(text, 1) != ["show"]:
        return None
    name = _setting_of(text)
    match name:
        case "dpsql.budget":
            return _BUDGET
        case "dpsql.intervals":
            beside = None if last is None else last.with_ends(0.95)
            if beside is None:
                return (Column(name, TEXT),)
            return tuple(map(Column, beside.columns, map(oid_of, beside.types)))
        case "all":
            return (Column("name", TEXT), Column("setting", TEXT))
        case _:
            return (Column(name.rpartition(".")[2] if name.startswith("dpsql.") else name, TEXT),)


def _budget_row(state: BudgetState) -> tuple[Any, ...]:
    return (
        state.table,
        state.analyst,
        Decimal(rounded(state.epsilon, 6).replace(",", "")),
        Decimal(rounded(state.delta, 6).replace(",", "")),
        state.accountant,
        state.queries,
        Decimal(rounded(state.spent_epsilon, up=True).replace(",", "")),
        Decimal(rounded(state.remaining_epsilon).replace(",", "")),
        bool(state.locked),
    )


def _named(text: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """The values of the parameters that the text has, by the names that they are given in it."""
    return {f"p{number}": value for number, value in enumerate(values, 1)} if count_parameters(text) else {}


def _sample(oid: int) -> Any:
    """A value of a parameter's type, for a plan before the values are known."""
    samples = {16: b"true", 20: b"1", 21: b"1", 23: b"1", 26: b"1", 700: b"1.5", 701: b"1.5", 1700: b"1.5"}
    samples |= {1082: b"2000-01-01", 1114: b"2000-01-01", 1184: b"2000-01-01"}
    return decoded(samples.get(oid, b"x"), oid, 0)


def _moved(found: Failure, start: int) -> Failure:
    """A failure whose place is that in a text of several statements."""
    return replace(found, position=(found.position or 0) + start)


def _notices(result: Result, epsilon: Any, left: Sequence[BudgetLeft]) -> tuple[Failure, ...]:
    """The warnings of an answer, the ± of its columns, and its price."""
    loss = None if epsilon is None else amount(epsilon)
    found = [Failure("01000", text, severity="WARNING") for text in result.notices]
    found += [Failure("00000", text, severity="NOTICE") for text in _errors(result)]
    price = charged(result.receipt, loss, left)
    return (*found, Failure("00000", price, severity="NOTICE"))


def _errors(result: Result) -> list[str]:
    """A line for each column with noise: the half-width of its 95% intervals, the largest where there are several."""
    lines = list[str]()
    intervals = result.intervals(0.95)
    for place, name in enumerate(result.columns):
        widths = [(row[place][1] - row[place][0]) / 2 for row in intervals if row[place] is not None]  # type: ignore[index]
        if widths:
            most = "at most " * (len(set(widths)) > 1)
            lines.append(f"{name} ±95%: {most}{max(widths):,.4g}")
    return lines

"""One user's session: how each of its statements is described and answered.

Whatever a client sends reaches private data through `Connection.query` alone. Utility statements and catalogue queries
read the policy at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.errors import Error, OperationalError
from dpsql.request.loss import amount, rounded
from dpsql.server.asking import Asker, Planned
from dpsql.server.audit import Caller
from dpsql.server.memory import size_of
from dpsql.server.protocol.conversation import TOO_MANY_STATEMENTS
from dpsql.server.protocol.failure import Failed, Failure
from dpsql.server.protocol.tasks import (
    Answer,
    DescribeStatement,
    Description,
    InferTypes,
    ReadText,
    RunStatement,
)
from dpsql.server.protocol.values import BOOL, INT4, INT8, NUMERIC, TEXT, Column, decoded, element_of, oid_of
from dpsql.server.running import NotBegun, Running
from dpsql.server.service import Lane, Service
from dpsql.server.settings import Settings
from dpsql.server.sqlstates import failure, unforeseen
from dpsql.server.statements import (
    Statement,
    count_parameters,
    named_parameters,
    read_statements,
    without_comments,
)
from dpsql.server.users import User
from dpsql.shell.costs import charged
from dpsql.sql.catalogue.rewrite import MOST_CHARACTERS as MOST_OF_CATALOGUE

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
_TAGS |= {"release": "RELEASE", "rollback to": "ROLLBACK"}
_DISCARDS = {"all", "plans", "sequences", "temp", "temporary"}
_UTILITIES = {"set", "reset", "show", "discard", "deallocate", "close", "unlisten"}
_ENDS = re.compile(
    r"\s*SELECT\s+(?:pg_catalog\s*\.\s*)?(?P<name>pg_(?:cancel|terminate)_backend)\s*\(\s*(?P<number>\d{1,10}|\$1)"
    r"(?:\s*::\s*int(?:4|eger)?)?\s*\)(?:\s+AS\s+\w+)?\s*",
    re.IGNORECASE,
)
"""What owners end others' statements and sessions with, as in PostgreSQL."""
_LONGEST_ENDING = 200
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
        self.running = Running(service, user)
        self.memory = service.memory.open(user.name)
        self._service = service
        self._last: Result | None = None
        self._described_last: _Described | None = None

    async def read(self, task: ReadText) -> tuple[Statement, ...] | Failure:
        """The statements of a long text."""

        def read() -> tuple[Statement, ...]:
            try:
                return read_statements(task.text)
            except ValueError:
                raise Failed("54000", TOO_MANY_STATEMENTS) from None

        return await self._guarded(task.text, Lane.looking, read)

    async def infer(self, task: InferTypes) -> tuple[int, ...] | Failure:
        """The types of a statement's parameters."""
        text, types = task.statement.text, task.types
        return await self._guarded(
            text, Lane.looking, lambda: self._service.catalogue.parameters(text, types)
        )

    async def describe(self, task: DescribeStatement) -> Description | Failure:
        """The columns and parameters of a statement; nothing is charged."""
        statement, text = task.statement, task.text
        if self._is_utility(statement) or not text:
            return _caught(text, lambda: self._described_utility(task))
        if self._is_look(statement):
            looked = await self._guarded(text, Lane.looking, lambda: self._described_look(task))
            if looked is not None:
                return looked
        return await self._guarded(text, Lane.asking, lambda: self._described(task))

    async def run(self, task: RunStatement) -> Answer | Failure:
        """The answer to a statement."""
        found = await self._answer(task)
        if isinstance(found, Failure) and found.position is not None and task.statement.start:
            return _moved(found, task.statement.start)
        return found

    async def _answer(self, task: RunStatement) -> Answer | Failure:
        statement, text = task.statement, task.text
        self.running.text = text[:_MOST_CHARACTERS]
        if self._is_utility(statement):
            if _waits(statement) or self._ending(text) is not None:
                return await self._guarded(text, Lane.looking, lambda: self._utility(task))
            return _caught(text, lambda: self._utility(task))
        if self._is_look(statement):
            looked = await self._guarded(text, Lane.looking, lambda: self._answered_look(task))
            if looked is not None:
                return looked
        return await self._guarded(text, Lane.asking, lambda: self._answered(task))

    def _is_utility(self, statement: Statement) -> bool:
        return _is_utility(statement) or self._ending(statement.text) is not None

    def _is_look(self, statement: Statement) -> bool:
        """Whether a statement is most probably a catalogue query: it names none of the policy's tables.

        Nothing but its lane rests on this.
        """
        if self.settings.dialect != "postgres" or statement.is_explain:
            return False
        if len(statement.text) > MOST_OF_CATALOGUE:
            return False
        text = statement.text.lower()
        return not any(name in text for name in self._service.declared)

    def cancel(self) -> None:
        """Cancels the statement that runs or waits now, if there is one; see `Running.cancel`."""
        self.running.cancel()

    def stop(self) -> None:
        """Ends the statement that runs or waits now for the owner, if there is one; see `Running.stop`."""
        self.running.stop()

    def leave(self) -> None:
        """The client is gone; see `Running.leave`."""
        self.running.leave()
        self.memory.close()

    async def _guarded(self, text: str, lane: Lane, work: Callable[[], _T]) -> _T | Failure:
        """What `work` gives in a worker thread, or what the client is told of its failure."""
        try:
            found = await self.running.run(lambda: _caught(text, work), self.settings.timeout, lane)
        except OperationalError as error:
            return failure(error, text)
        except NotBegun:
            return Failure("57014", "the statement was cancelled before it began; nothing was charged")
        not_charged = isinstance(found, Failure) and found.sqlstate == "57014" and found.charged is False
        if lane is Lane.asking and not_charged:
            return Failure("57014", _NOT_CHARGED[self.running.stopped])
        return found

    def _described_utility(self, task: DescribeStatement) -> Description:
        if not task.text:
            return Description(None, ())
        ending = self._ending(task.text)
        if ending is not None:
            return Description((Column(ending["name"].lower(), BOOL),), (INT4,) * len(task.types))
        return Description(_utility_columns(task.statement, self._last), task.types)

    def _typed(self, task: DescribeStatement) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """The types of a statement's parameters, and their values or samples of them."""
        if task.values is not None:
            return task.types, task.values
        types = self._service.catalogue.parameters(task.text, task.types)
        return types, tuple(map(_sample, types))

    def _described_look(self, task: DescribeStatement) -> Description | None:
        types, values = self._typed(task)
        looked = self._looked_around(task.statement, values, self.settings.copy())
        return None if looked is None else Description(looked[0], types)

    def _described(self, task: DescribeStatement) -> Description:
        text = task.text
        types, values = self._typed(task)
        looked = self._looked_around(task.statement, values, self.settings.copy())
        if looked is not None:
            return Description(looked[0], types)
        reloads = self._service.reloads
        planned = self.running.asking(lambda asker: self._planned(asker, task.statement, values))
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
        self, statement: Statement, values: tuple[Any, ...], settings: Settings
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]] | None:
        """The answer to a catalogue query, which reads the policy alone; None for what is for the engine.

        What it sets is set in `settings`.
        """
        if self.settings.dialect != "postgres" or statement.is_explain:
            return None
        query = self._service.catalogue.query(statement.text)
        if query is None:
            return None
        service = self._service
        seen = partial(service.activity.seen_by, self.user)
        return service.catalogue.answer(
            query, self.user.name, self._setting, values, seen, assign=settings.assign
        )

    def _setting(self, name: str) -> str | None:
        try:
            return self.settings.get(name)
        except Failed:
            return None

    def _planned(self, asker: Asker, statement: Statement, values: tuple[Any, ...]) -> Planned | None:
        """The plan of a query; None for EXPLAIN, whose columns are known."""
        text = statement.text
        if statement.is_explain:
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

    def _answered_look(self, task: RunStatement) -> Answer | None:
        before = self.settings.reported()
        looked = self._looked_around(task.statement, task.values, self.settings)
        if looked is None:
            return None
        columns, rows = looked
        changed = self._changed(before)
        return Answer(
            f"SELECT {len(rows)}", task.columns or columns, rows, statuses=changed, size=size_of(rows)
        )

    def _changed(self, before: dict[str, str]) -> dict[str, str]:
        """The settings that clients follow and that were others before."""
        return {name: value for name, value in self.settings.reported().items() if before[name] != value}

    def _answered(self, task: RunStatement) -> Answer:
        looked = self._answered_look(task)
        if looked is not None:
            return looked
        self._require_asking()
        return self.running.asking(lambda asker: self._query(asker, task))

    def _query(self, asker: Asker, task: RunStatement) -> Answer:
        text = task.text
        query, places = named_parameters(text)
        described = self._as_described(text, task.values)
        self._described_last = None  # a plan of many parameters is large
        if described is None and task.columns is not None and (task.values or self._service.reloads):
            options, reloads = self.settings.options(), self._service.reloads
            planned = self._planned(asker, task.statement, task.values)
            described = _Described(text, task.values, options, reloads, planned)
        if described is not None and task.columns not in (None, described.columns):
            raise Failed(
                "0A000",
                "with these parameters the answer has columns of other types than the statement was described with",
                "cast the parameters; nothing was charged",
            )
        what = "explain" if task.statement.is_explain else "query"
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
        size = size_of(result.rows)
        self._last = result if self.memory.fits("last answer", size) else None
        wanted = self.settings.get("dpsql.notices") == "on"
        loss = self._service.loss(query, self.settings.dialect, self.settings.get("dpsql.epsilon"))
        notices = _notices(result, loss, left) if wanted else ()
        return Answer(f"SELECT {len(result)}", task.columns or columns, result.rows, notices, size=size)

    def _utility(self, task: RunStatement) -> Answer:
        statement, text = task.statement, task.text
        if statement.command is not None:
            return Answer(_TAGS[statement.command])
        if len(text) > _MOST_CHARACTERS:
            raise Failed("54000", f"a statement of the session has at most {_MOST_CHARACTERS:,} characters")
        ending = self._ending(text)
        if ending is not None:
            return self._end(ending, task.values)
        words, text = statement.words, without_comments(text)
        match words:
            case ("show", *_):
                return self._show(statement)
            case ("discard" | "unlisten", *_):
                return self._discard(words)
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
        return Answer(tag, statuses=self._changed(before))

    def _discard(self, words: tuple[str, ...]) -> Answer:
        """What pools of connections send between two users of one: there is little to discard."""
        match words:
            case ("discard", "all"):
                self.settings.reset()
                self._last = self._described_last = None
                self.memory.drop("last answer")
                return Answer("DISCARD ALL", statuses=self.settings.reported())
            case ("discard", what) if what in _DISCARDS:
                return Answer(f"DISCARD {'TEMP' if what == 'temporary' else what.upper()}")
            case ("unlisten", _):
                return Answer("UNLISTEN")
            case _:
                raise Failed("42601", f"{words[0].upper()} takes one word", "DISCARD ALL, UNLISTEN *")

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

    @staticmethod
    def _ending(text: str) -> re.Match[str] | None:
        """What a statement is that ends another's statement or session."""
        return _ENDS.fullmatch(without_comments(text)) if len(text) <= _LONGEST_ENDING else None

    def _end(self, ending: re.Match[str], values: tuple[Any, ...]) -> Answer:
        """Ends what a member runs, or its session; false where there is none that this user may end."""
        name, number = ending["name"].lower(), ending["number"]
        given = str(values[0]) if number == "$1" else number
        if not re.fullmatch(r"\d{1,10}", given):
            raise Failed("22P02", f"{name} takes the pid of a session or request")
        wanted = int(given)
        found = self._service.activity.of(self.user, wanted)
        if found is not None:
            ends_session = name == "pg_terminate_backend"
            self._service.end(found, self.user, session=ends_session)
        notices = () if found is not None else (_unknown_process(wanted),)
        return Answer("SELECT 1", (Column(name, BOOL),), ((found is not None,),), notices)

    def _show(self, statement: Statement) -> Answer:
        name = _setting_of(statement.text)
        columns = _utility_columns(statement, self._last)
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

        return self.running.with_connection(rows)


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


def _is_utility(statement: Statement) -> bool:
    """Whether a statement is of the session, and none for the engine."""
    words = statement.words
    return not words or words[0] in _UTILITIES or statement.command is not None


def _waits(statement: Statement) -> bool:
    """Whether a utility statement waits for the ledger."""
    return statement.words[:1] == ("show",) and _setting_of(statement.text) == "dpsql.budget"


def _unknown_process(number: int) -> Failure:
    return Failure(
        "01000",
        f"PID {number} is no session or request that you may end",
        "SELECT pid, usename, state, query FROM pg_stat_activity",
        severity="WARNING",
    )


def _setting_of(text: str) -> str:
    return " ".join(without_comments(text[:_MOST_CHARACTERS]).split()[1:]).strip('"').lower()


def _unquoted(part: str) -> str:
    part = part.strip()
    if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"":
        return part[1:-1].replace(part[0] * 2, part[0])
    return part


def _utility_columns(statement: Statement, last: Result | None) -> tuple[Column, ...] | None:
    """The columns of a utility statement's answer; None for one without rows."""
    if statement.words[:1] != ("show",):
        return None
    name = _setting_of(statement.text)
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
    element = element_of(oid)
    if element is not None:
        return (_sample(element),)
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

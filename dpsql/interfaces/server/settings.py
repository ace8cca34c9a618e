"""The settings of a session, and its utility statements: SET, SHOW, RESET, DISCARD, and the functions that end statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.errors import Error
from dpsql.interfaces.server.limits import SessionMemory
from dpsql.interfaces.server.protocol.errors import Failure, StatementError
from dpsql.interfaces.server.protocol.messages import SERVER_VERSION
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    DescribeStatement,
    RunStatement,
    StatementDescription,
)
from dpsql.interfaces.server.protocol.values import (
    BOOL,
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    Column,
    get_oid,
)
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.statement_runs import StatementRunner
from dpsql.interfaces.server.statements import Statement
from dpsql.policy.request.loss import format_rounded, parse_amount, parse_confidence, parse_target_error
from dpsql.policy.request.query import QueryOptions
from dpsql.sql.parse.dialect import DIALECTS
from dpsql.sql.parse.scanner import collapse_space

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.ledger import BudgetState
    from dpsql.results.result import Result


# The settings of a session: those that clients send and expect, and dpsql's own.


def _parse_short_text(value: str) -> str:
    if len(value) > 200:
        raise ValueError
    return value


def _make_choice_parser(*allowed: str) -> Callable[[str], str]:
    def parse_choice(value: str) -> str:
        found = value.strip().lower()
        if found not in allowed:
            raise ValueError
        return allowed[0] if found in ("utf-8", "unicode", "true", "1", "yes", "false", "0", "no") else found

    return parse_choice


def _parse_date_style(value: str) -> str:
    if value.strip().lower().split(",")[0].strip() not in ("iso", "default"):
        raise ValueError
    return "ISO, MDY"


def _parse_encoding(value: str) -> str:
    if value.strip("' ").lower().replace("-", "") not in ("utf8", "unicode"):
        raise ValueError
    return "UTF8"


def _parse_number(value: str) -> str:
    if not re.fullmatch(r"-?\d{1,9}", value.strip()):
        raise ValueError
    return value.strip()


def _parse_milliseconds(value: str) -> str:
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h)?", value.strip())
    if match is None:
        raise ValueError
    return str(int(match[1]) * {None: 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}[match[2]])


_ON, _OFF = _make_choice_parser("on", "true", "1", "yes"), _make_choice_parser("off", "false", "0", "no")


def _parse_boolean(value: str) -> str:
    try:
        return _ON(value)
    except ValueError:
        return _OFF(value)


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    default: str
    parse: Callable[[str], str] = _parse_short_text
    is_reported: bool = False
    is_fixed: bool = False


_FIXED = {
    "block_size": "8192", "data_checksums": "off", "default_transaction_deferrable": "off", "lc_collate": "C", "lc_ctype": "C",
    "lc_messages": "C", "lc_monetary": "C", "lc_numeric": "C", "lc_time": "C", "listen_addresses": "localhost",
    "max_connections": "200", "max_function_args": "100", "segment_size": "131072", "shared_preload_libraries": "",
    "ssl": "off", "transaction_deferrable": "off", "wal_level": "replica", "max_prepared_transactions": "0",
    "session_replication_role": "origin", "hot_standby": "on", "default_tablespace": "", "temp_tablespaces": "",
    "default_table_access_method": "heap", "password_encryption": "scram-sha-256", "role": "none",
}  # fmt: skip
"""Settings that tools ask for and nobody changes, with PostgreSQL's values."""
_KNOWN = {
    setting.name.lower(): setting
    for setting in (
        _Setting("server_version", SERVER_VERSION, is_reported=True, is_fixed=True),
        _Setting("server_version_num", "150000", is_fixed=True),
        _Setting("server_encoding", "UTF8", is_reported=True, is_fixed=True),
        _Setting("client_encoding", "UTF8", _parse_encoding, is_reported=True),
        _Setting("DateStyle", "ISO, MDY", _parse_date_style, is_reported=True),
        _Setting("TimeZone", "UTC", is_reported=True),
        _Setting("IntervalStyle", "postgres", is_reported=True),
        _Setting("integer_datetimes", "on", is_reported=True, is_fixed=True),
        _Setting("standard_conforming_strings", "on", _ON, is_reported=True),
        _Setting("is_superuser", "off", is_reported=True, is_fixed=True),
        _Setting("session_authorization", "", is_reported=True, is_fixed=True),
        _Setting("application_name", "", is_reported=True),
        _Setting("default_transaction_read_only", "on", _ON, is_reported=True),
        _Setting("in_hot_standby", "off", is_reported=True, is_fixed=True),
        _Setting("transaction_read_only", "on", _ON),
        _Setting("transaction_isolation", "read committed"),
        _Setting("default_transaction_isolation", "read committed"),
        _Setting("extra_float_digits", "1", _parse_number),
        _Setting("statement_timeout", "0", _parse_milliseconds),
        _Setting("lock_timeout", "0", _parse_milliseconds),
        _Setting("idle_in_transaction_session_timeout", "0", _parse_milliseconds),
        _Setting("idle_session_timeout", "0", _parse_milliseconds),
        _Setting("search_path", '"$user", public'),
        _Setting("client_min_messages", "notice"),
        _Setting("bytea_output", "hex"),
        _Setting("row_security", "on"),
        _Setting("jit", "off"),
        _Setting("max_identifier_length", "63", is_fixed=True),
        _Setting("synchronous_commit", "on"),
        _Setting("geqo", "on"),
        _Setting("max_index_keys", "32", is_fixed=True),
        *(_Setting(name, value, is_fixed=True) for name, value in _FIXED.items()),
        _Setting("dpsql.epsilon", "", lambda value: _parse_amount(value, "epsilon")),
        _Setting("dpsql.delta", "", lambda value: _parse_amount(value, "delta")),
        _Setting("dpsql.max_groups", "", lambda value: value and _parse_groups(value)),
        _Setting("dpsql.target_error", "", lambda value: _require_readable(value, parse_target_error)),
        _Setting("dpsql.confidence", "", lambda value: _require_readable(value, parse_confidence)),
        _Setting("dpsql.dialect", "postgres", _make_choice_parser(*sorted(DIALECTS))),
        _Setting("dpsql.replay", "on", _parse_boolean),
        _Setting("dpsql.notices", "on", _parse_boolean),
    )
}
_ALIASES = {
    "time zone": "timezone",
    "names": "client_encoding",
    "session characteristics": "transaction_isolation",
    "transaction isolation level": "transaction_isolation",
    "transaction": "transaction_isolation",
}


def _parse_groups(value: str) -> str:
    if not int(_parse_number(value)) >= 1:
        raise ValueError
    return str(int(value))


def _parse_amount(value: str, name: str) -> str:
    return _require_readable(value, lambda text: parse_amount(text, name))


def _require_readable(value: str, reader: Callable[[str], object]) -> str:
    """Return the text of a number after `reader` accepted it; an empty text means no number."""
    if value:
        reader(value)
    return value


class Settings:
    """The settings of one session."""

    def __init__(self, user: str, epsilon: str | None = None) -> None:
        self._defaults = {"session_authorization": user, "dpsql.epsilon": epsilon or ""}
        self._values = dict[str, str]()

    def set_startup_values(self, stated: Iterable[tuple[str, str]]) -> None:
        """Set the values of the startup packet, to which RESET returns. Raises as `set_value`."""
        for name, value in stated:
            self.set_value(name, value)
        self._defaults |= self._values
        self._values.clear()

    def get_value(self, name: str) -> str:
        """Return a setting's value. Raises StatementError if there is no such setting."""
        known = _get_setting(name)
        key = known.name.lower()
        return self._values.get(key, self._defaults.get(key, known.default))

    def set_value(self, name: str, value: str | None) -> None:
        """Set a setting, to its default for None. Raises StatementError for an invalid value."""
        known = _get_setting(name)
        key = known.name.lower()
        if value is None or value.lower() == "default":
            self._values.pop(key, None)
            return
        if known.is_fixed:
            raise StatementError("55P02", f'parameter "{known.name}" cannot be changed')
        try:
            self._values[key] = known.parse(value)
        except Error as error:
            failed = StatementError(
                "22023", f'invalid value for parameter "{known.name}": {error.message}', error.hint
            )
        except ValueError:
            failed = StatementError("22023", f'invalid value for parameter "{known.name}"')
        else:
            return
        raise failed

    def assign_value(self, name: str, value: str) -> str:
        """Set a setting, and return its value. Raises as `set_value`."""
        self.set_value(name, value)
        return self.get_value(name)

    def copy(self) -> Settings:
        """Return a copy of the settings."""
        found = Settings("")
        found._defaults, found._values = self._defaults, self._values.copy()
        return found

    def reset_all(self) -> None:
        """Set all settings to their defaults."""
        self._values.clear()

    def get_reported(self) -> dict[str, str]:
        """Return the settings that are reported to clients."""
        return {
            setting.name: self.get_value(setting.name) for setting in _KNOWN.values() if setting.is_reported
        }

    def list_changes(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the reported settings that have other values than before."""
        return {name: value for name, value in self.get_reported().items() if before[name] != value}

    def list_values(self) -> list[tuple[str, str]]:
        """List all settings with their values."""
        return [(setting.name, self.get_value(setting.name)) for setting in _KNOWN.values()]

    @property
    def dialect(self) -> str:
        """Return the SQL dialect of queries."""
        return self.get_value("dpsql.dialect")

    @property
    def timeout(self) -> float | None:
        """Return the seconds after which a statement is cancelled, or None for no limit."""
        return int(self.get_value("statement_timeout")) / 1_000 or None

    def list_idle_limits(self, *, in_transaction: bool) -> list[tuple[str, float]]:
        """List the settings that end an idle session, with their seconds; 0 means that there is no limit."""
        name = "idle_in_transaction_session_timeout" if in_transaction else "idle_session_timeout"
        return [(name, int(self.get_value(name)) / 1_000)]

    def to_query_options(self) -> QueryOptions:
        """Return the options of queries."""
        options: QueryOptions = {
            "dialect": self.dialect,
            "replay": self.get_value("dpsql.replay") == "on",
        }
        if epsilon := self.get_value("dpsql.epsilon"):
            options["epsilon"] = Fraction(epsilon)
        if delta := self.get_value("dpsql.delta"):
            options["delta"] = Fraction(delta)
        if groups := self.get_value("dpsql.max_groups"):
            options["max_groups"] = int(groups)
        if target := self.get_value("dpsql.target_error"):
            options["target_error"] = target
            options.pop("epsilon", None)
        if confidence := self.get_value("dpsql.confidence"):
            options["confidence"] = Fraction(confidence)
        return options


def _get_setting(name: str) -> _Setting:
    key = " ".join(name.lower().split())
    known = _KNOWN.get(_ALIASES.get(key, key))
    if known is None:
        own = ", ".join(name for name in _KNOWN if name.startswith("dpsql."))
        raise StatementError(
            "42704", f'unrecognized configuration parameter "{name}"', f"dpsql's parameters are {own}"
        )
    return known


def parse_startup_settings(parameters: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the settings that a startup packet states, including those in `options`, such as `-c dpsql.epsilon=0.1`."""
    own = {"user", "database", "options", "replication"}
    found = [
        (name, value)
        for name, value in parameters.items()
        if name not in own and not name.startswith("_pq_.")
    ]
    words = re.split(r"(?<!\\)\s+", parameters.get("options", "").strip())
    text = " ".join(words).replace("\\ ", " ")
    given = re.finditer(r"(?:-c\s*|--)([\w.\-]+)=((?:\\.|\S)*)", text)
    return [*found, *((match[1].replace("-", "_"), match[2]) for match in given)]


# Utility statements of a session: SET, SHOW, RESET, DISCARD, and the functions that end statements and sessions.


_SET = re.compile(
    r"\s*SET\s+(?:(?:SESSION|LOCAL)\s+(?!CHARACTERISTICS))?"
    r"(?:(?P<zone>TIME\s+ZONE)\s+|(?P<names>NAMES)\s+|(?P<mode>(?:SESSION\s+CHARACTERISTICS\s+AS\s+)?TRANSACTION)\b"
    r"|(?P<name>[\w.]++)(?:\s*+=|\s++TO\b)\s*+)(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_IDENTITY = re.compile(
    r"SET\s+(?:(?:SESSION|LOCAL)\s+)?(?:SESSION\s+AUTHORIZATION\s+DEFAULT|ROLE\s+(?:=\s*|TO\s+)?'?(?:NONE|DEFAULT)'?)\s*",
    re.IGNORECASE,
)
"""SET that returns to the user who logged in, as pools send it."""
_TAGS = {"begin": "BEGIN", "commit": "COMMIT", "rollback": "ROLLBACK", "savepoint": "SAVEPOINT"}
_TAGS |= {"release": "RELEASE", "rollback to": "ROLLBACK"}
_DISCARDS = {"all", "plans", "sequences", "temp", "temporary"}
_ENDS = re.compile(
    r"\s*SELECT\s+(?:pg_catalog\s*\.\s*)?(?P<name>pg_(?:cancel|terminate)_backend)\s*\(\s*(?P<number>\d{1,10}|\$1)"
    r"(?:\s*::\s*int(?:4|eger)?)?\s*\)(?:\s+AS\s+\w+)?\s*",
    re.IGNORECASE,
)
"""The functions that end statements and sessions, as in PostgreSQL."""
_LONGEST_ENDING = 200
_UTILITIES = {"set", "reset", "show", "discard", "deallocate", "close", "unlisten"}
MOST_CHARACTERS = 10_000
"""The largest number of characters of a utility statement, which is parsed while all sessions wait."""
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


def is_utility(statement: Statement) -> bool:
    """Return whether a statement is for the session and not for the engine."""
    words = statement.words
    return (
        not words
        or words[0] in _UTILITIES
        or statement.command is not None
        or _match_backend_call(statement.text) is not None
    )


def takes_time(statement: Statement) -> bool:
    """Return whether a utility statement reads the ledger or writes to the audit log."""
    reads_ledger = statement.words[:1] == ("show",) and parse_setting_name(statement.text) == "dpsql.budget"
    return reads_ledger or _match_backend_call(statement.text) is not None


def _match_backend_call(text: str) -> re.Match[str] | None:
    """Match a call that ends another client's statement or session."""
    return _ENDS.fullmatch(collapse_space(text)) if len(text) <= _LONGEST_ENDING else None


def make_unknown_process_notice(number: int) -> Failure:
    """Return the warning that no session or request has a PID that the user may end."""
    return Failure(
        "01000",
        f"no session or request that you may end has PID {number}",
        "list them: SELECT pid, usename, state, query FROM pg_stat_activity",
        severity="WARNING",
    )


def parse_setting_name(text: str) -> str:
    """Return the folded name of the setting that a SHOW statement reads."""
    return " ".join(collapse_space(text[:MOST_CHARACTERS]).split()[1:]).strip('"').lower()


def unquote_value(part: str) -> str:
    """Return the value of a SET statement without its quotation marks."""
    part = part.strip()
    if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"":
        return part[1:-1].replace(part[0] * 2, part[0])
    return part


def find_utility_columns(statement: Statement, last: Result | None) -> tuple[Column, ...] | None:
    """Return the columns of a utility statement's answer, or None without rows."""
    if statement.words[:1] != ("show",):
        return None
    name = parse_setting_name(statement.text)
    match name:
        case "dpsql.budget":
            return _BUDGET
        case "dpsql.intervals":
            extended = None if last is None else last.with_interval_columns(0.95)
            if extended is None:
                return (Column(name, TEXT),)
            return tuple(map(Column, extended.columns, map(get_oid, extended.types)))
        case "all":
            return (Column("name", TEXT), Column("setting", TEXT))
        case _:
            return (Column(name.rpartition(".")[2] if name.startswith("dpsql.") else name, TEXT),)


def to_budget_row(state: BudgetState) -> tuple[Any, ...]:
    """Return a budget as a row of SHOW dpsql.budget."""
    return (
        state.table,
        state.analyst,
        Decimal(format_rounded(state.epsilon, 6).replace(",", "")),
        Decimal(format_rounded(state.delta, 6).replace(",", "")),
        state.accountant,
        state.queries,
        Decimal(format_rounded(state.spent_epsilon, up=True).replace(",", "")),
        Decimal(format_rounded(state.remaining_epsilon).replace(",", "")),
        bool(state.locked),
    )


class LastAnswer:
    """The last answer of a session, for SHOW; its size is entered in the memory of the session's user."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory
        self.result: Result | None = None

    def keep_result(self, result: Result, size: int) -> None:
        """Keep a result, if there is room for it."""
        self.result = result if self._memory.try_hold_bytes("last answer", size) else None

    def require_result(self) -> Result:
        """Return the result. Raises StatementError if there is none."""
        if self.result is None:
            raise StatementError("55000", "this session has no answer yet")
        return self.result

    def drop_result(self) -> None:
        """Forget the result."""
        self.result = None
        self._memory.drop_items("last answer")


class UtilityStatements:
    """The utility statements of a session: they change its settings, or read at most the policy and the ledger."""

    def __init__(
        self, service: Service, settings: Settings, runner: StatementRunner, last_answer: LastAnswer
    ) -> None:
        self._service, self._settings, self._runner = service, settings, runner
        self._last_answer = last_answer

    def describe_statement(self, task: DescribeStatement) -> StatementDescription:
        """Describe the columns of a utility statement's answer."""
        if not task.text:
            return StatementDescription(None, ())
        ending = _match_backend_call(task.text)
        if ending is not None:
            return StatementDescription((Column(ending["name"].lower(), BOOL),), (INT4,) * len(task.types))
        return StatementDescription(
            find_utility_columns(task.statement, self._last_answer.result), task.types
        )

    def run_statement(self, task: RunStatement) -> Answer:
        """Run a utility statement."""
        statement, text = task.statement, task.text
        if statement.command is not None:
            return Answer(_TAGS[statement.command])
        if len(text) > MOST_CHARACTERS:
            raise StatementError(
                "54000", f"a statement of the session has at most {MOST_CHARACTERS:,} characters"
            )
        ending = _match_backend_call(text)
        if ending is not None:
            return self._run_backend_call(ending, task.values)
        match statement.words:
            case ("show", *_):
                return self._run_show(statement)
            case ("discard" | "unlisten", *_):
                return self._run_discard(statement.words)
            case ("reset", *_):
                return self._run_reset(collapse_space(text))
            case _:
                return self._run_set(collapse_space(text))

    def _run_show(self, statement: Statement) -> Answer:
        name = parse_setting_name(statement.text)
        columns = find_utility_columns(statement, self._last_answer.result)
        rows: list[tuple[Any, ...]]
        match name:
            case "dpsql.budget":
                rows = self._runner.run_with_connection(self._list_budgets)
            case "dpsql.receipt":
                rows = [(self._last_answer.require_result().receipt.to_json(),)]
            case "dpsql.intervals":
                rows = list(self._last_answer.require_result().with_interval_columns(0.95).rows)
            case "all":
                rows = list(self._settings.list_values())
            case _:
                rows = [(self._settings.get_value(name),)]
        return Answer("SHOW", columns, rows)

    def _list_budgets(self, connection: Connection) -> list[tuple[Any, ...]]:
        own = connection.budget().values()
        can_view_all = self._runner.user.role.can_view_all
        states = connection.engine.ledger.list_states() if can_view_all else own
        return [to_budget_row(state) for state in states]

    def _run_reset(self, text: str) -> Answer:
        before = self._settings.get_reported()
        name = text.split(None, 1)[1].strip() if len(text.split(None, 1)) > 1 else ""
        if name.lower() == "all":
            self._settings.reset_all()
        elif name.lower() in ("role", "session authorization"):
            pass  # the user is always the one who logged in
        else:
            self._settings.set_value(name, None)
        return Answer("RESET", statuses=self._settings.list_changes(before))

    def _run_set(self, text: str) -> Answer:
        before = self._settings.get_reported()
        if _IDENTITY.fullmatch(text):
            return Answer("SET")
        match = _SET.fullmatch(text)
        if match is None:
            raise StatementError(
                "42601", "SET takes a name and a value", "for example: SET dpsql.epsilon = 0.1"
            )
        if match["mode"]:
            if re.search(r"READ\s+WRITE", match["value"], re.IGNORECASE):
                raise StatementError("25006", "dpsql supports read-only transactions only")
        else:
            name = "TimeZone" if match["zone"] else "client_encoding" if match["names"] else match["name"]
            parts = match["value"].rstrip().split(",")
            self._settings.set_value(name, ", ".join(map(unquote_value, parts)))
        return Answer("SET", statuses=self._settings.list_changes(before))

    def _run_discard(self, words: tuple[str, ...]) -> Answer:
        """Run DISCARD or UNLISTEN, which connection pools send between two users."""
        match words:
            case ("discard", "all"):
                self._settings.reset_all()
                self._last_answer.drop_result()
                return Answer("DISCARD ALL", statuses=self._settings.get_reported())
            case ("discard", what) if what in _DISCARDS:
                return Answer(f"DISCARD {'TEMP' if what == 'temporary' else what.upper()}")
            case ("unlisten", _):
                return Answer("UNLISTEN")
            case _:
                raise StatementError(
                    "42601", f"{words[0].upper()} takes one word", "write DISCARD ALL or UNLISTEN *"
                )

    def _run_backend_call(self, call: re.Match[str], values: tuple[Any, ...]) -> Answer:
        """End a client's statement or session; the result is false if this user may end none of that number."""
        name, number = call["name"].lower(), call["number"]
        given = str(values[0]) if number == "$1" else number
        if not re.fullmatch(r"\d{1,10}", given):
            raise StatementError("22P02", f"{name} takes the PID of a session or request")
        user, wanted = self._runner.user, int(given)
        found = self._service.activity.find_client(user, wanted)
        if found is not None:
            self._service.stop_client(found, user, session=name == "pg_terminate_backend")
        notices = () if found is not None else (make_unknown_process_notice(wanted),)
        return Answer("SELECT 1", (Column(name, BOOL),), ((found is not None,),), notices)

"""The settings of a session: those that clients send and expect, and dpsql's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import Error
from dpsql.request.loss import amount
from dpsql.request.query import QueryOptions
from dpsql.request.target import confidence_amount, error_amount
from dpsql.server.protocol.failure import Failed
from dpsql.sql.read.dialect import DIALECTS

VERSION = "15.0"
"""The version of PostgreSQL whose catalogue and protocol are spoken; clients choose their queries by it."""


def _any(value: str) -> str:
    if len(value) > 200:
        raise ValueError
    return value


def _one_of(*allowed: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        found = value.strip().lower()
        if found not in allowed:
            raise ValueError
        return allowed[0] if found in ("utf-8", "unicode", "true", "1", "yes", "false", "0", "no") else found

    return check


def _date_style(value: str) -> str:
    if value.strip().lower().split(",")[0].strip() not in ("iso", "default"):
        raise ValueError
    return "ISO, MDY"


def _encoding(value: str) -> str:
    if value.strip("' ").lower().replace("-", "") not in ("utf8", "unicode"):
        raise ValueError
    return "UTF8"


def _number(value: str) -> str:
    if not re.fullmatch(r"-?\d{1,9}", value.strip()):
        raise ValueError
    return value.strip()


def _milliseconds(value: str) -> str:
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h)?", value.strip())
    if match is None:
        raise ValueError
    return str(int(match[1]) * {None: 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}[match[2]])


_ON, _OFF = _one_of("on", "true", "1", "yes"), _one_of("off", "false", "0", "no")


def _boolean(value: str) -> str:
    try:
        return _ON(value)
    except ValueError:
        return _OFF(value)


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    default: str
    check: Callable[[str], str] = _any
    reported: bool = False
    fixed: bool = False


_KNOWN = {
    setting.name.lower(): setting
    for setting in (
        _Setting("server_version", VERSION, reported=True, fixed=True),
        _Setting("server_version_num", "150000", fixed=True),
        _Setting("server_encoding", "UTF8", reported=True, fixed=True),
        _Setting("client_encoding", "UTF8", _encoding, reported=True),
        _Setting("DateStyle", "ISO, MDY", _date_style, reported=True),
        _Setting("TimeZone", "UTC", reported=True),
        _Setting("IntervalStyle", "postgres", reported=True),
        _Setting("integer_datetimes", "on", reported=True, fixed=True),
        _Setting("standard_conforming_strings", "on", _ON, reported=True),
        _Setting("is_superuser", "off", reported=True, fixed=True),
        _Setting("session_authorization", "", reported=True, fixed=True),
        _Setting("application_name", "", reported=True),
        _Setting("default_transaction_read_only", "on", _ON, reported=True),
        _Setting("in_hot_standby", "off", reported=True, fixed=True),
        _Setting("transaction_read_only", "on", _ON),
        _Setting("transaction_isolation", "read committed"),
        _Setting("default_transaction_isolation", "read committed"),
        _Setting("extra_float_digits", "1", _number),
        _Setting("statement_timeout", "0", _milliseconds),
        _Setting("lock_timeout", "0", _milliseconds),
        _Setting("idle_in_transaction_session_timeout", "0", _milliseconds),
        _Setting("idle_session_timeout", "0", _milliseconds),
        _Setting("search_path", '"$user", public'),
        _Setting("client_min_messages", "notice"),
        _Setting("bytea_output", "hex"),
        _Setting("row_security", "on"),
        _Setting("jit", "off"),
        _Setting("max_identifier_length", "63", fixed=True),
        _Setting("synchronous_commit", "on"),
        _Setting("geqo", "on"),
        _Setting("max_index_keys", "32", fixed=True),
        _Setting("dpsql.epsilon", "", lambda value: _amount(value, "epsilon")),
        _Setting("dpsql.delta", "", lambda value: _amount(value, "delta")),
        _Setting("dpsql.max_groups", "", lambda value: value and _groups(value)),
        _Setting("dpsql.target_error", "", lambda value: _read(value, error_amount)),
        _Setting("dpsql.confidence", "", lambda value: _read(value, confidence_amount)),
        _Setting("dpsql.dialect", "postgres", _one_of(*sorted(DIALECTS))),
        _Setting("dpsql.replay", "on", _boolean),
        _Setting("dpsql.notices", "on", _boolean),
    )
}
_SPELT = {
    "time zone": "timezone",
    "names": "client_encoding",
    "session characteristics": "transaction_isolation",
    "transaction isolation level": "transaction_isolation",
    "transaction": "transaction_isolation",
}


def _groups(value: str) -> str:
    if not int(_number(value)) >= 1:
        raise ValueError
    return str(int(value))


def _amount(value: str, name: str) -> str:
    return _read(value, lambda text: amount(text, name))


def _read(value: str, reader: Callable[[str], object]) -> str:
    """The text of a number that its reader takes; an empty one stands for none."""
    if value:
        reader(value)
    return value


class Settings:
    """The settings of one session."""

    def __init__(self, user: str, epsilon: str | None = None) -> None:
        self._defaults = {"session_authorization": user, "dpsql.epsilon": epsilon or ""}
        self._values = dict[str, str]()

    def begin(self, stated: Iterable[tuple[str, str]]) -> None:
        """Takes the settings that a client begins with, which RESET goes back to. Raises Failed as `set`."""
        for name, value in stated:
            self.set(name, value)
        self._defaults |= self._values
        self._values.clear()

    def get(self, name: str) -> str:
        """A setting's value. Raises Failed where there is no such setting."""
        known = _known(name)
        key = known.name.lower()
        return self._values.get(key, self._defaults.get(key, known.default))

    def set(self, name: str, value: str | None) -> None:
        """Sets a setting, to its default for None. Raises Failed for a value that it does not take."""
        known = _known(name)
        key = known.name.lower()
        if value is None or value.lower() == "default":
            self._values.pop(key, None)
            return
        if known.fixed:
            raise Failed("55P02", f'parameter "{known.name}" cannot be changed')
        try:
            self._values[key] = known.check(value)
        except Error as error:
            failed = Failed(
                "22023", f'invalid value for parameter "{known.name}": {error.message}', error.hint
            )
        except ValueError:
            failed = Failed("22023", f'invalid value for parameter "{known.name}"')
        else:
            return
        raise failed

    def assign(self, name: str, value: str) -> str:
        """Sets a setting, and returns its value. Raises Failed as `set`."""
        self.set(name, value)
        return self.get(name)

    def copy(self) -> Settings:
        """The same settings, to be changed apart."""
        found = Settings("")
        found._defaults, found._values = self._defaults, self._values.copy()
        return found

    def reset(self) -> None:
        """Sets all settings to their defaults."""
        self._values.clear()

    def reported(self) -> dict[str, str]:
        """The settings that clients follow."""
        return {setting.name: self.get(setting.name) for setting in _KNOWN.values() if setting.reported}

    def all(self) -> list[tuple[str, str]]:
        """Every setting with its value."""
        return [(setting.name, self.get(setting.name)) for setting in _KNOWN.values()]

    @property
    def dialect(self) -> str:
        """The dialect in which queries are read."""
        return self.get("dpsql.dialect")

    @property
    def timeout(self) -> float | None:
        """Seconds after which a statement is cancelled; None for no limit."""
        return int(self.get("statement_timeout")) / 1_000 or None

    def idle_limits(self, *, in_transaction: bool) -> list[tuple[str, float]]:
        """The settings that end a session in which nothing is asked, with their seconds; 0 is no limit."""
        name = "idle_in_transaction_session_timeout" if in_transaction else "idle_session_timeout"
        return [(name, int(self.get(name)) / 1_000)]

    def options(self) -> QueryOptions:
        """The terms of a query that states none itself."""
        options: QueryOptions = {"dialect": self.dialect, "replay": self.get("dpsql.replay") == "on"}
        if epsilon := self.get("dpsql.epsilon"):
            options["epsilon"] = Fraction(epsilon)
        if delta := self.get("dpsql.delta"):
            options["delta"] = Fraction(delta)
        if groups := self.get("dpsql.max_groups"):
            options["max_groups"] = int(groups)
        if target := self.get("dpsql.target_error"):
            options["target_error"] = target
            options.pop("epsilon", None)
        if confidence := self.get("dpsql.confidence"):
            options["confidence"] = Fraction(confidence)
        return options


def _known(name: str) -> _Setting:
    key = " ".join(name.lower().split())
    known = _KNOWN.get(_SPELT.get(key, key))
    if known is None:
        own = ", ".join(name for name in _KNOWN if name.startswith("dpsql."))
        raise Failed("42704", f'unrecognized configuration parameter "{name}"', f"dpsql's own are {own}")
    return known


def of_startup(parameters: Mapping[str, str]) -> list[tuple[str, str]]:
    """The settings that a startup packet states, those of `options` among them, as in `-c dpsql.epsilon=0.1`."""
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

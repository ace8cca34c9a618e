"""The settings of a session: those that clients send and expect, and dpsql's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import Error
from dpsql.interfaces.server.protocol.backend import SERVER_VERSION
from dpsql.interfaces.server.protocol.failure import StatementError
from dpsql.policy.request.loss import parse_amount
from dpsql.policy.request.query import QueryOptions
from dpsql.policy.request.target import parse_confidence, parse_target_error
from dpsql.sql.parse.dialect import DIALECTS


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
        """List the settings that end an idle session, with their seconds; 0 is no limit."""
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

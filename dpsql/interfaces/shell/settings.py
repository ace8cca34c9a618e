"""The shell's settings, from ~/.config/dpsql/config.toml with defaults, and its state between two entries."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from dpsql.api.base_connection import BaseConnection
from dpsql.errors import ProgrammingError
from dpsql.interfaces.shell.answers import AnswerFormat, View
from dpsql.policy.request.loss import Target, parse_amount
from dpsql.verification.certificate import get_config_folder

if TYPE_CHECKING:
    from dpsql.results.result import Receipt


PLAIN: Final = "none"
"""The theme without colors."""
SWITCHES: Final = ("auto", "on", "off")
DIALECTS: Final = ("duckdb", "postgres", "spark", "snowflake", "bigquery", "tsql")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a session starts with; each field is a key of the file.

    `expanded` shows rows as lines, one per column; `auto` does so if a table is wider than the terminal. `pager` is the command
    that shows long output; `auto` is $PAGER, else `less`. `ask_above` is the ε above which the shell shows the price of a query
    and asks for confirmation.
    """

    expanded: str = "auto"
    pager: str = "auto"
    timing: bool = False
    progress: bool = True
    theme: str = "default"
    format: str = "table"
    dialect: str = "duckdb"
    history: bool = True
    ask_above: Fraction = Fraction(1)


def get_config_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the settings: $XDG_CONFIG_HOME/dpsql/config.toml, by default under ~/.config."""
    return get_config_folder(environment) / "config.toml"


def load_settings(path: Path) -> Settings:
    """Load the settings of a file, or the defaults if it does not exist.

    Raises ProgrammingError (`config`) for a file that cannot be read, an unknown key, or an invalid value.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except OSError as error:
        raise _make_error(path, f"cannot read the file: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _make_error(path, f"invalid TOML: {error}") from None
    known = {field.name for field in fields(Settings)}
    for key in found:
        if key not in known:
            raise _make_error(path, f"unknown setting {key}", f"settings are {', '.join(sorted(known))}")
    return Settings(**{key: _check_setting(path, key, value) for key, value in found.items()})


def list_themes() -> tuple[str, ...]:
    """Return the names of themes: those of Pygments, and one without colors."""
    from pygments.styles import get_all_styles

    return (PLAIN, *sorted(get_all_styles()))


def require_theme(name: str) -> str:
    """Return the name of a theme. Raises ProgrammingError if it is unknown."""
    if name not in list_themes():
        raise ProgrammingError(
            f"unknown theme {name}", code="argument", hint=f"use one of {', '.join(list_themes())}"
        )
    return name


def require_switch(value: str) -> str:
    """Return `auto`, `on` or `off`. Raises ProgrammingError for other words."""
    if value not in SWITCHES:
        raise ProgrammingError(
            f"{value} is not one of auto, on and off", code="argument", hint="use auto, on or off"
        )
    return value


def _check_setting(path: Path, key: str, value: Any) -> Any:
    check = _CHECKS[key]
    try:
        return check(value)
    except (ProgrammingError, ValueError, TypeError) as error:
        hint = error.hint if isinstance(error, ProgrammingError) else None
        said = error.message if isinstance(error, ProgrammingError) else str(error)
        raise _make_error(path, f"{key}: {said}", hint) from None


def _require_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("the value must be true or false")
    return value


def _require_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("the value must be a non-empty string")
    return value


def _make_choice_check(*known: str) -> Callable[[Any], str]:
    def require_choice(value: Any) -> str:
        if value not in known:
            raise ValueError(f"the value must be one of {', '.join(known)}")
        return str(value)

    return require_choice


def _parse_switch(value: Any) -> str:
    return require_switch(("on" if value else "off") if isinstance(value, bool) else _require_text(value))


def _parse_theme(value: Any) -> str:
    return require_theme(_require_text(value))


def _parse_amount(value: Any) -> Fraction:
    return parse_amount(value, "ask_above")


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "expanded": _parse_switch,
    "pager": _require_text,
    "timing": _require_boolean,
    "progress": _require_boolean,
    "theme": _parse_theme,
    "format": _make_choice_check("table", "csv", "json", "markdown"),
    "dialect": _make_choice_check(*DIALECTS),
    "history": _require_boolean,
    "ask_above": _parse_amount,
}


def _make_error(path: Path, what: str, hint: str | None = None) -> ProgrammingError:
    return ProgrammingError(f"{path}: {what}", code="config", hint=hint)


# The state of a session between two entries.


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """A query that a command runs, the file for its answer, and whether rows are shown as lines."""

    sql: str
    output: Path | None = None
    expanded: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to an entry: `text`, and `remarks` with the charge; `quit` ends the shell.

    `note` marks the confirmation of a setting, which is not data. `buffer` is the beginning of the next entry, `query` the next
    query to run, and `file` the file whose entries run next; `interrupted` means that Ctrl-C ended the entry.
    """

    text: str = ""
    failed: bool = False
    quit: bool = False
    note: bool = False
    remarks: str = ""
    buffer: str = ""
    query: PendingQuery | None = None
    file: Path | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Terminal:
    """Functions of a terminal: ask yes or no, edit a text, show progress."""

    confirm: Callable[[str], bool]
    edit: Callable[[str], str]
    progress: TextIO | None = None


@dataclass(slots=True)
class SessionState:
    """The connection, the display of answers, and the default options of queries.

    `epsilon` is None until a loss is set; `target` takes precedence over it. `table` is the private table that was charged last,
    and `receipt` belongs to the last answer. `buffer` is the unfinished statement before a command, `last_sql` the last query that
    ran, and `output` the file for answers; `terminal` is None for a pipe.
    """

    connection: BaseConnection
    view: View = field(default_factory=View)
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    max_groups: int | None = None
    format: AnswerFormat = AnswerFormat.TABLE
    table: str | None = None
    receipt: Receipt | None = None
    dialect: str = "duckdb"
    target: Target | None = None
    settings: Settings = field(default_factory=Settings)
    buffer: str = ""
    last_sql: str = ""
    output: Path | None = None
    terminal: Terminal | None = None

"""The settings of the shell, from a file and by commands."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import ProgrammingError
from dpsql.interfaces.shell.settings import DIALECTS, Settings, get_config_path, load_settings
from dpsql.sql.parse.dialect import DIALECTS as READ


def test_settings_missing_from_the_file_keep_their_defaults(tmp_path: Path) -> None:
    """Without a file, all settings have their defaults."""
    path = tmp_path / "config.toml"
    assert load_settings(path) == Settings()
    path.write_text('expanded = "off"\nask_above = 0.25\ntheme = "monokai"\ntiming = true\n')
    assert load_settings(path) == Settings(
        expanded="off", ask_above=Fraction(1, 4), theme="monokai", timing=True
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1", "unknown setting colour"),
        ("timing = 1", "timing: the value must be true or false"),
        ('theme = "mud"', "theme: unknown theme mud"),
        ("ask_above = 0", "ask_above must be a finite number above zero"),
        ('format = "xml"', "format: the value must be one of table"),
        ("pager = ", "invalid TOML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, said: str) -> None:
    """With the file, the key, and what there is."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ProgrammingError, match=r"config\.toml") as caught:
        load_settings(path)
    assert caught.value.code == "config"
    assert said in str(caught.value)


def test_settings_are_in_the_xdg_config_directory() -> None:
    """The XDG directory for settings if it is absolute, else the one under the home directory."""
    assert get_config_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/dpsql/config.toml")
    assert (
        get_config_path({"XDG_CONFIG_HOME": "relative"}) == Path.home() / ".config" / "dpsql" / "config.toml"
    )


def test_the_dialects_are_those_that_are_read() -> None:
    """The list stands apart so that settings are read without the parser."""
    assert set(DIALECTS) == set(READ)

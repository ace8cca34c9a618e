"""The configuration that engines are opened with and cannot leave, and the part of the machine that a process has."""

from __future__ import annotations

import os
from typing import TypeAlias

Config: TypeAlias = dict[str, bool | str | int | float | list[str]]
LOCKED: Config = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
    "memory_limit": "80%",
    "temp_directory": "",
    "explain_output": "all",
    "enable_external_access": False,
    "allowed_configs": ["disabled_filesystems", "disabled_optimizers", "enable_progress_bar"],
    "lock_configuration": True,
}
"""The second wall behind the whitelist: no file, extension, variable of the program or setting.

Memory is bounded by a share of the machine's, and nothing is written to disk but into a folder of the owner's choice: a
statement that needs more fails. The settings left open are those that `lock_down` closes.
"""

_PARTS = [1]


def use_part(processes: int) -> None:
    """Lets the engines of this process, from the next one on, use its part of the machine, as one of so many processes."""
    _PARTS[0] = processes


def build_locked_config() -> Config:
    """`LOCKED`, for this process's part of the machine."""
    if _PARTS[0] == 1:
        return LOCKED
    threads = max(1, (os.cpu_count() or 1) // _PARTS[0])
    return {**LOCKED, "memory_limit": f"{80 / _PARTS[0]:.2f}%", "threads": threads}

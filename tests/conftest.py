"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import gc
import os

import pytest
import speeds
from hypothesis import HealthCheck, Phase, settings

# Tests make many objects and little garbage: looking for it less often is worth a twentieth of their time.
gc.set_threshold(200_000, 20, 20)
# The settings of whoever runs the tests are not those of the shells that they start.
os.environ["XDG_CONFIG_HOME"] = os.devnull
# What a fork inherits is not its to collect: engines in it would wait for threads that only the parent has, or crash.
os.register_at_fork(after_in_child=gc.freeze)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option `--speed`."""
    speeds.options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Notes the speed, and how long searches are that do not say it themselves."""
    speeds.configured(config)
    if config.getoption("--measure"):
        config.pluginmanager.register(speeds.Meter())
    # Machines are shared and noisy: no test may fail because it was slow.
    settings.register_profile(
        "dpsql",
        max_examples=speeds.examples(100),
        derandomize=not speeds.is_deep(),  # a change is not refused for what another run would not have drawn
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile(
        "faults", settings.get_profile("dpsql"), phases=[Phase.explicit, Phase.generate]
    )  # of a planted fault any failure will do, small or large
    settings.load_profile(config.getoption("--hypothesis-profile", None) or "dpsql")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs the tests of the speed that is asked for."""
    speeds.selected(config, items)

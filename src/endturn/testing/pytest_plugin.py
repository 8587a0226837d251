"""`pytest --endturn`.

A test fails whose turns were cut off and handed over unfinished, though its assertions hold.
"""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

MARK = "endturn_unfinished"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("endturn").addoption(
        "--endturn",
        action="store_true",
        help="observe the model calls of each test, and fail it where a truncated answer was not "
        "continued",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Observe from now on, if that is asked for."""
    config.addinivalue_line(
        "markers", f"{MARK}: `pytest --endturn` lets this test's turns be cut off"
    )
    if config.getoption("--endturn"):
        # without the option endturn is not loaded
        watch = resolve_name("endturn.testing.pytest_turns:Watch")
        config.pluginmanager.register(watch(), "endturn-watch")

"""`pytest --endturn`: fails tests whose truncated turns were returned unfinished."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

MARK = "endturn_unfinished"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("endturn").addoption(
        "--endturn",
        action="store_true",
        help="observe the model calls of each test, and fail it if a truncated answer was not "
        "continued",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the observer, if the option is set."""
    config.addinivalue_line(
        "markers", f"{MARK}: `pytest --endturn` accepts truncated turns in this test"
    )
    if config.getoption("--endturn"):
        # without the option endturn is not loaded
        watch = resolve_name("endturn.testing.pytest_turns:Watch")
        config.pluginmanager.register(watch(), "endturn-watch")

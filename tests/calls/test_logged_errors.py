"""Errors are logged with their class and stack, without their text and without a filter on the logger."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest

import endturn
from endturn.calls import listeners, log_exception


def test_the_log_says_what_was_raised_and_where_but_not_its_text(caplog: pytest.LogCaptureFixture) -> None:
    assert logging.getLogger("endturn").filters == []
    try:
        raise KeyError("sk-secret")
    except KeyError:
        log_exception(logging.WARNING, "reading %s failed", "a response")
    (record,) = caplog.records
    first, *stack, last = record.getMessage().splitlines()
    assert first == "reading a response failed"
    assert stack[0] == "Traceback (most recent call last):"
    assert [__file__ in line for line in stack[1:]] == [True]
    assert last == "builtins.KeyError"
    assert "sk-secret" not in caplog.text
    assert (record.exc_info, record.filename) == (None, Path(__file__).name)


def test_a_failing_listener_is_logged_without_the_text_of_its_exception(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_consecutive_failures", {})

    def listener(record: object) -> None:
        raise ValueError("what the model said")

    listeners.emit(object(), to=(listener,))  # type: ignore[arg-type]  # any record
    assert "builtins.ValueError" in caplog.text
    assert "what the model said" not in caplog.text


def test_a_level_that_is_off_formats_no_stack(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "endturn")
    log_exception(logging.DEBUG, "%s", "unseen", error=ValueError())
    assert caplog.records == []


SOURCES = sorted(Path(endturn.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_module_logs_an_exception_in_another_way(path: Path) -> None:
    """`exc_info` and `Logger.exception` print the text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            assert "exc_info" not in [keyword.arg for keyword in node.keywords]
            is_method = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
            if is_method and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                assert (node.func.value.id, node.func.attr) != ("log", "exception")

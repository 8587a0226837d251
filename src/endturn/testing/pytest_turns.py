"""The plugin of `pytest --endturn`: fails each test that leaves a truncated turn unfinished."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack

import pytest

from endturn.calls import STOPPED_BY_PERSON, Record, Turn, TurnEnded, TurnOutcome, subscribe
from endturn.instrumentation import instrument, uninstrument
from endturn.testing.pytest_plugin import MARK


class Watch:
    """Observes the turns of the running test."""

    def __init__(self) -> None:
        self._unfinished: list[tuple[Turn, TurnOutcome]] = []
        self._observing = ExitStack()

    def _on_record(self, record: Record) -> None:
        if (
            isinstance(record, TurnEnded)
            and record.turn.unfinished
            and record.outcome not in STOPPED_BY_PERSON
        ):
            self._unfinished.append((record.turn, record.outcome))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Observe a test from its fixtures on: it may continue their turns."""
        self._observe()
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Fail a passing test if it or its fixtures left a turn unfinished."""
        with self._observing.pop_all():
            yield
        self._fail_if_unfinished(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Do the same for the teardown of the test's fixtures."""
        self._observing.close()  # a fixture failed, and the test was not called
        self._observe()
        with self._observing.pop_all():
            yield
        self._fail_if_unfinished(item)

    def _observe(self) -> None:
        self._unfinished.clear()
        self._observing.callback(subscribe(self._on_record))
        instrument()
        # ends the open turns: nothing continues them any more
        self._observing.callback(uninstrument)

    def _fail_if_unfinished(self, item: pytest.Item) -> None:
        if self._unfinished and item.get_closest_marker(MARK) is None:
            lines = "".join(
                f"\n  {turn.provider or 'a provider'}, {turn.model or 'a model'}: {outcome.value}, "
                f"{turn.iterations} {'call' if turn.iterations == 1 else 'calls'}, "
                f"{turn.output_tokens} tokens"
                for turn, outcome in self._unfinished
            )
            pytest.fail(
                f"truncated turns were returned unfinished:{lines}\n"
                "Continue truncated answers, raise "
                f"max_tokens, or mark the test @pytest.mark.{MARK}",
                pytrace=False,
            )

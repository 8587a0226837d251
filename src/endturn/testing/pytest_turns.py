"""What `pytest --endturn` does.

Observes the turns of each test, and fails it where one was left unfinished.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack

import pytest

from endturn.calls import STOPPED_BY_PERSON, Record, Turn, TurnEnded, TurnOutcome, subscribe
from endturn.instrumentation import instrument, uninstrument
from endturn.testing.pytest_plugin import MARK


class Watch:
    """Knows the turns of the test that runs."""

    def __init__(self) -> None:
        self._unfinished: list[tuple[Turn, TurnOutcome]] = []
        self._observing = ExitStack()

    def _note(self, record: Record) -> None:
        if (
            isinstance(record, TurnEnded)
            and record.turn.unfinished
            and record.outcome not in STOPPED_BY_PERSON
        ):
            self._unfinished.append((record.turn, record.outcome))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Observe a test from its fixtures on: it may continue what they began."""
        self._observe()
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Fail a test that passes, where a turn of it or of its fixtures was left unfinished."""
        with self._observing.pop_all():
            yield
        self._judge(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Do the same for what the test's fixtures do afterwards."""
        self._observing.close()  # a fixture failed, and the test was not called
        self._observe()
        with self._observing.pop_all():
            yield
        self._judge(item)

    def _observe(self) -> None:
        self._unfinished.clear()
        self._observing.callback(subscribe(self._note))
        instrument()
        # which ends turns that are open: nobody continues them any more
        self._observing.callback(uninstrument)

    def _judge(self, item: pytest.Item) -> None:
        if self._unfinished and item.get_closest_marker(MARK) is None:
            each = "".join(
                f"\n  {turn.provider or 'a provider'}, {turn.model or 'a model'}: {outcome.value}, "
                f"{turn.iterations} {'call' if turn.iterations == 1 else 'calls'}, "
                f"{turn.output_tokens} tokens"
                for turn, outcome in self._unfinished
            )
            pytest.fail(
                f"cut off and handed over unfinished:{each}\n"
                "Ask for the rest where the stop reason says that it was cut off, raise "
                f"max_tokens, or mark the test @pytest.mark.{MARK}",
                pytrace=False,
            )

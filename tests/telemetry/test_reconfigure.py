"""A second `instrument()` or `configure()`: what it gives takes the place of what was set before."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.instrumentation.decorators import observe_turn
from endturn.instrumentation.instrument import begin, instrument
from endturn.instrumentation.zero_code import EndturnInstrumentor
from endturn.telemetry import cleanup
from endturn.telemetry.otel_providers import Options
from tests.telemetry.mocked import ASK, STREAM, WHOLE, body, chat, events
from tests.telemetry.stage import Recording, Stage

SECRET: dict[str, Any] = {**ASK, "messages": [{"role": "user", "content": "a secret of many words"}]}


def hide(text: str) -> str:
    return text.replace("secret", "[hidden]")


def shout(text: str) -> str:
    return text.upper()


def said(stage: Stage) -> str | None:
    """What is recorded on its span of one call, as asked."""
    chat(body(WHOLE)).chat.completions.create(**SECRET)
    cleanup.run()
    recorded: str | None = stage.finished()[-1]["attributes"].get("gen_ai.input.messages")
    return recorded


# --- Where somebody else started it --------------------------------------------------------------------------------


def test_the_hosts_own_call_decides_where_the_process_was_started_observed(recording: Recording) -> None:
    """Its redaction, and agents among the labels, take effect from then on; what it leaves out stays."""
    stage = recording(events="spans", content="SPAN_ONLY")
    assert "secret" in (said(stage) or "")
    instrument(redact=hide, agent=True)
    assert "a [hidden] of" in (said(stage) or "")
    assert stage.finished()[-1]["events"]  # as the file said
    observe_turn(agent="support")(lambda: said(stage))()
    assert any("support" in key for key in stage.points()["endturn.turns"])


def test_content_can_be_switched_on_and_off_while_calls_are_observed(recording: Recording) -> None:
    """`announce` asks the recorder anew whether it takes what is said."""
    stage = recording()
    assert said(stage) is None
    instrument(content="SPAN_ONLY")
    assert "secret" in (said(stage) or "")
    instrument(content="no_content")
    assert said(stage) is None


def test_what_is_open_and_counted_stays(recording: Recording) -> None:
    """A stream that began before the host's own call ends its span after it, and its response is counted once."""
    stage = recording()
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    next(stream)
    chat(body(WHOLE)).chat.completions.create(**ASK)
    instrument(agent=True, redact=hide)
    assert len(list(stream)) > 0
    cleanup.run()
    assert [span["name"] for span in stage.finished()] == ["chat gpt-5.6-mini"] * 2
    assert sum(stage.points()["endturn.responses"].values()) == 2


def test_whoever_starts_the_process_may_do_so_twice(recording: Recording) -> None:
    """A configuration file and `opentelemetry-instrument`: what says nothing changes nothing, and the host decides."""
    stage = recording(content="SPAN_ONLY")
    begin(Options())
    EndturnInstrumentor().instrument(events="both")
    instrument(redact=hide)
    assert "[hidden]" in (said(stage) or "")
    EndturnInstrumentor().uninstrument()


# --- Whoever called it first ---------------------------------------------------------------------------------------


def test_what_a_later_call_gives_takes_the_place_of_what_was_set(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest stays; one that asks for the same, or for nothing, is silent."""
    stage, second = recording(events="logs", content="SPAN_ONLY", redact=hide), Stage()
    with caplog.at_level(logging.INFO, "endturn"):
        instrument()
        instrument(events="logs", content="SPAN_ONLY", tracer_provider=stage.tracers)
        assert not [message for message in caplog.messages if "recorded from now on" in message]
        instrument(redact=shout, tracer_provider=second.tracers)
    assert len([message for message in caplog.messages if "recorded from now on" in message]) == 1
    assert "A SECRET OF MANY WORDS" in (said(second) or "")
    assert not stage.finished()


def test_options_are_checked_each_time(recording: Recording) -> None:
    """A later call's mistakes are the same errors, and nothing changes."""
    stage = recording()
    with pytest.raises(TypeError, match="redakt"):
        instrument(redakt=hide)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="redact is a function"):
        instrument(redact="hide", content="SPAN_ONLY")  # type: ignore[arg-type]
    assert said(stage) is None

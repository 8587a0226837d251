"""A second `instrument()` or `configure()`: what of it is taken; a redaction and less content always are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.instrumentation.instrument import Providers, begin, guarded, instrument, recorder, uninstrument
from endturn.instrumentation.zero_code import EndturnInstrumentor
from endturn.telemetry import cleanup, content
from endturn.telemetry.otel_providers import Options
from tests.telemetry.mocked import ASK, STREAM, WHOLE, body, chat, events
from tests.telemetry.stage import Stage

SECRET: dict[str, Any] = {**ASK, "messages": [{"role": "user", "content": "a secret of many words"}]}


def hide(text: str) -> str:
    return text.replace("secret", "[hidden]")


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in (content.CAPTURE, content.EMIT_EVENT, content.MAX_CHARS, content.REDACT):
        monkeypatch.delenv(variable, raising=False)
    yield
    uninstrument()
    cleanup.run()


def of(stage: Stage) -> Providers:
    return stage.tracers, stage.meters, stage.loggers


def said(stage: Stage) -> str | None:
    """What is recorded on its span of one call, as asked."""
    chat(body(WHOLE)).chat.completions.create(**SECRET)
    cleanup.run()
    recorded: str | None = stage.finished()[-1]["attributes"].get("gen_ai.input.messages")
    return recorded


# --- Where somebody else started it --------------------------------------------------------------------------------


def test_the_hosts_own_call_decides_where_the_process_was_started_observed() -> None:
    """Its redaction, content, events, agent and prices take effect from then on; what it leaves out stays."""
    stage = Stage()
    begin(Options(events="spans", content="SPAN_ONLY"), of(stage), for_host=True)
    assert "secret" in (said(stage) or "")
    instrument(redact=hide, agent=True, prices={"gpt-5.6-mini": (1.0, 2.0)})
    assert "a [hidden] of" in (said(stage) or "")
    assert stage.finished()[-1]["events"]  # as the file said
    made = recorder()
    assert made is not None
    assert (made._out.agent, made._out.options.prices) == (True, {"gpt-5.6-mini": (1.0, 2.0)})


def test_content_can_be_switched_on_and_off_while_calls_are_observed() -> None:
    """`announce` asks the recorder anew whether it takes what is said."""
    stage = Stage()
    begin(Options(), of(stage), for_host=True)
    assert said(stage) is None
    instrument(content="SPAN_ONLY")
    assert "secret" in (said(stage) or "")
    instrument(content="no_content")
    assert said(stage) is None


def test_what_is_open_and_counted_stays() -> None:
    """A stream that began before the host's own call ends its span after it, and its response is counted once."""
    stage = Stage()
    begin(Options(), of(stage), for_host=True)
    stream = chat(events(*STREAM)).chat.completions.create(**ASK, stream=True)
    next(stream)
    chat(body(WHOLE)).chat.completions.create(**ASK)
    instrument(agent=True, redact=hide)
    assert len(list(stream)) > 0
    cleanup.run()
    assert [span["name"] for span in stage.finished()] == ["chat gpt-5.6-mini"] * 2
    assert sum(stage.points()["endturn.responses"].values()) == 2


def test_providers_of_the_hosts_own_call_take_over() -> None:
    """Where the host hands over its own, signals go there."""
    first, second = Stage(), Stage()
    begin(Options(), of(first), for_host=True)
    instrument(tracer_provider=second.tracers)
    chat(body(WHOLE)).chat.completions.create(**ASK)
    cleanup.run()
    assert (len(first.finished()), len(second.finished())) == (0, 1)
    assert sum(first.points()["endturn.responses"].values()) == 1


def test_whoever_starts_the_process_may_do_so_twice() -> None:
    """A configuration file and `opentelemetry-instrument`: what says nothing changes nothing, and the host decides."""
    stage = Stage()
    begin(Options(content="SPAN_ONLY"), of(stage), for_host=True)
    begin(Options(), for_host=True)
    EndturnInstrumentor().instrument(events="both")
    instrument(redact=hide)
    assert "[hidden]" in (said(stage) or "")
    EndturnInstrumentor().uninstrument()


# --- Where the host called it twice --------------------------------------------------------------------------------


def test_the_first_calls_settings_stay(caplog: pytest.LogCaptureFixture) -> None:
    """A later one's are named in a warning; one that asks for the same, or for nothing, is silent."""
    stage = Stage()
    begin(Options(events="logs", content="SPAN_ONLY"), of(stage))
    with caplog.at_level(logging.WARNING, "endturn"):
        instrument()
        instrument(events="logs", content="span_only", tracer_provider=stage.tracers)
        assert not caplog.records
        instrument(events="spans", agent=True, content="SPAN_AND_EVENT", tracer_provider=Stage().tracers)
    (warning,) = caplog.messages
    assert warning.endswith("not used: events, agent, content, tracer_provider")
    assert "secret" in (said(stage) or "")


def test_a_redaction_is_never_dropped() -> None:
    """Neither the first call's nor a later one's; the same one given again is asked once."""
    stage = Stage()
    begin(Options(content="SPAN_ONLY", redact=hide), of(stage))
    for _ in range(3):
        instrument(redact=shout)
        instrument(redact=lambda text: text + "!")
    assert 'A [HIDDEN] OF MANY WORDS!"' in (said(stage) or "")


def test_less_content_is_less() -> None:
    """What either call leaves out is left out, in place and in length."""
    stage = Stage()
    begin(Options(content="SPAN_AND_EVENT"), of(stage))
    instrument(content_max_chars=8)
    assert "a secret… [" in (said(stage) or "")
    instrument(content="EVENT_ONLY", content_max_chars=100)
    assert said(stage) is None


@pytest.mark.parametrize(
    ("before", "asked", "kept"),
    [
        ("SPAN_AND_EVENT", "SPAN_ONLY", "SPAN_ONLY"),
        ("SPAN_ONLY", "SPAN_AND_EVENT", "SPAN_ONLY"),
        ("SPAN_ONLY", "EVENT_ONLY", "NO_CONTENT"),
        ("NO_CONTENT", "SPAN_ONLY", "NO_CONTENT"),
        ("EVENT_ONLY", None, "EVENT_ONLY"),
        (None, "SPAN_ONLY", "NO_CONTENT"),  # the environment says nothing
    ],
)
def test_the_narrower_of_two_words(before: str | None, asked: str | None, kept: str) -> None:
    """What both allow."""
    assert guarded(Options(content=before), Options(content=asked))[0].content == kept


@pytest.mark.parametrize("for_host", [True, False], ids=["started observed", "by the host"])
def test_options_are_checked_each_time(for_host: bool) -> None:
    """A later call's mistakes are the same errors, and nothing changes."""
    stage = Stage()
    begin(Options(), of(stage), for_host=for_host)
    with pytest.raises(TypeError, match="redakt"):
        instrument(redakt=hide)
    with pytest.raises(UsageError, match="redact is a function"):
        instrument(redact="hide", content="SPAN_ONLY")
    assert said(stage) is None

"""What the designs ask of a host's side: stored messages, reasons in a provider's words, logs, and one estimate."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from endturn import (
    ContinuationController,
    ContinuationPolicy,
    Message,
    ScriptedProvider,
    StopReason,
    instrument,
    uninstrument,
)
from endturn.testing.scripted import Ending, break_off, call, partial_call, reason, say
from tests.support import turns
from tests.support.turns import NOW, SEARCH, Played, ask, said
from tests.telemetry.stage import Stage

every_format = pytest.mark.parametrize(
    "format_name", ["openai_chat", "anthropic", "bedrock_converse", "openai_responses"]
)
WHOLE_CALL = call("search", {"q": "x"}, text="So: ")
CUT_CALLS = {
    "cut off": partial_call("now", {"now": True}, after=1, text="So: "),
    "whole, of a cut response": call("now", {"now": True}, text="So: ").but(stop=StopReason.MAX_TOKENS),
    "of a lost stream": partial_call("now", {"now": True}, after=1, text="So: ").but(ending=Ending.TIDY),
}


def calls_in(message: Message) -> list[str]:
    """The names of the calls that a message holds, in either mirror of it."""
    blocks = json.dumps(message.blocks and message.blocks.items)
    return sorted(
        {each.name for each in message.tool_calls} | {name for name in ("search", "now") if f'"{name}"' in blocks}
    )


@every_format
@pytest.mark.parametrize(("name", "stream"), [*((name, True) for name in CUT_CALLS), ("cut off", False)])
def test_the_message_of_a_response_leaves_cut_calls_out(format_name: str, name: str, stream: bool) -> None:
    """Without a controller too, what is stored cannot be run or sent again: no mirror of it has the call."""
    provider = ScriptedProvider([CUT_CALLS[name], WHOLE_CALL], format=format_name)
    request = ask(tools=(SEARCH, NOW))
    response: Any = list(provider.stream(request))[-1] if stream else provider.complete(request)
    message = response.message()
    assert calls_in(message) == []
    assert (message.text, message.stop_reason) == ("So: ", response.stop_reason)
    assert calls_in(response.message(include_cut=True)) == ["now"]
    whole = provider.complete(ask().but(messages=(*ask().messages, message, Message(role="user", content="And?"))))
    assert '"now"' not in json.dumps(provider.received[-1].body)
    assert (whole.message().tool_calls, whole.message().blocks) == (whole.tool_calls, whole.blocks)


WORDS = {
    "openai_chat": ["stop", "length", None],
    "anthropic": ["end_turn", "max_tokens", None],
    "bedrock_converse": ["end_turn", "max_tokens", None],
    "openai_responses": ["completed", "incomplete:max_output_tokens", "in_progress"],
}


@pytest.mark.parametrize(("format_name", "words"), WORDS.items(), ids=WORDS)
def test_the_last_assistant_message_says_why_it_ended(format_name: str, words: list[str | None]) -> None:
    """In the provider's own word, verbatim; a lost stream said none, or how far it was."""
    script = [say("Because."), reason(StopReason.MAX_TOKENS, "Becau"), break_off("Becau")]
    provider = ScriptedProvider(script, format=format_name)
    policy = ContinuationPolicy.preset("wave", continuation_max_attempts=0)
    controller = ContinuationController(provider.stream, policy=policy)
    assert [controller.run(ask()).messages[-1].finish_reason for _ in script] == words


def test_an_unknown_reason_is_logged_once_without_telemetry(caplog: pytest.LogCaptureFixture) -> None:
    """Once for each provider, model and value, with the value itself."""
    caplog.set_level(logging.DEBUG, "endturn")
    for model, value in (("drift-1", "halted"), ("drift-1", "halted"), ("drift-1", "parked"), ("drift-2", "halted")):
        provider = ScriptedProvider(reason(value, "So."))
        assert ContinuationController(provider).run(ask(model=model)).outcome == "unknown_reason"
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("endturn")]
    assert [sum(value in line for line in lines) for value in ("halted", "parked")] == [2, 1]


def test_a_provider_without_usage_has_one_estimate_everywhere() -> None:
    """The result, the events, the turn's span and the metric agree; a cut response has used its limit."""
    stage = Stage()
    instrument(**stage.providers())
    try:
        script = turns.cut("Hello there, wo", tokens=None), said("rld, and good bye.", tokens=None)
        usage = ContinuationController(Played(*script)).run(ask()).usage
    finally:
        uninstrument()
    assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (54, 105, True)
    told = {event["name"]: event.get("endturn.continuation.output_tokens") for event in stage.events()}
    assert (told["endturn.continuation_attempt"], told["endturn.continuation_terminated"]) == (100, 105)
    (span,) = (span["attributes"] for span in stage.finished() if span["name"].startswith("invoke_agent"))
    assert (span["gen_ai.usage.input_tokens"], span["gen_ai.usage.output_tokens"]) == (54, 105)
    assert sorted(stage.points()["endturn.continuation.tokens"].values()) == [5, 53]

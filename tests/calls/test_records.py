"""The records that listeners receive."""

from __future__ import annotations

import pytest

from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.calls.records import CallEnded, CallStarted, Content, ResponseIdentity
from endturn.calls.turn import Turn
from endturn.vocabulary.messages import Usage
from endturn.vocabulary.stop import Stop, StopReason

STARTED = CallStarted(
    number=1,
    request=RequestFacts(
        model="gpt-5", max_tokens=64, stream=True, choice_count=2, temperature=0.2, top_p=0.9, top_k=40, seed=7,
        stop_sequences=("END",), reasoning_level="low", previous_response_id="resp_0", output_type="json",
    ),
    endpoint=EndpointFacts(operation="chat", provider="openai", server_address="localhost", server_port=8080),
    turn=Turn(),
    iteration=1,
    started_ns=0,
    started_s=0.0,
    identity=ResponseIdentity(),
)  # fmt: skip
ENDED = CallEnded(
    started=STARTED,
    response=ResponseFacts(
        stop=Stop(StopReason.MAX_TOKENS, "length"), id="r1", model="gpt-5-08", usage=Usage(100, 64),
        reasons=("length", None), truncated_choices=1, output_chars=80,
    ),
    duration_s=1.0,
)  # fmt: skip
FINISHED = ResponseFacts(stop=Stop(StopReason.END_TURN, "stop"))


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [
        (STARTED, "model", "gpt-5"),
        (STARTED, "maximum", 64),
        (STARTED, "stream", True),
        (STARTED, "choices", 2),
        (STARTED, "temperature", 0.2),
        (STARTED, "top_p", 0.9),
        (STARTED, "top_k", 40),
        (STARTED, "seed", 7),
        (STARTED, "stop_sequences", ("END",)),
        (STARTED, "reasoning_level", "low"),
        (STARTED, "previous_id", "resp_0"),
        (STARTED, "output_type", "json"),
        (STARTED, "operation", "chat"),
        (STARTED, "provider", "openai"),
        (STARTED, "server_address", "localhost"),
        (STARTED, "server_port", 8080),
        (ENDED, "stop", Stop(StopReason.MAX_TOKENS, "length")),
        (ENDED, "whole", False),
        (ENDED._replace(response=FINISHED), "whole", True),
        (Content(is_system_separate=True), "beside", True),
        (Content(), "beside", False),
        (ENDED, "usage", Usage(100, 64)),
        (ENDED, "response_id", "r1"),
        (ENDED, "response_model", "gpt-5-08"),
        (ENDED, "reasons", ("length", None)),
        (ENDED, "truncated_choices", 1),
        (ENDED, "output_chars", 80),
    ],
)
def test_earlier_names_of_facts_are_read(record: CallStarted | CallEnded | Content, name: str, value: object) -> None:
    """A listener that was written before the facts had objects of their own reads the same; it can set nothing."""
    assert getattr(record, name) == value
    with pytest.raises(AttributeError):
        setattr(record, name, value)

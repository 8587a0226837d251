"""What was said, recorded where the host asks for it: in the conventions' shape, redacted, bounded; else not at all."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import jsonschema
import openai
import pytest

from endturn.calls import listeners
from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.calls.records import Content
from endturn.continuation.controller import ContinuationController
from endturn.formats import Context, format_of
from endturn.instrumentation._instrument import uninstrument
from endturn.instrumentation.body import capture_content
from endturn.instrumentation.decorators import observe_provider_call
from endturn.settings import environment
from endturn.telemetry import content, messages, schema
from endturn.telemetry.content import ContentPolicy, as_text
from endturn.vocabulary.messages import ChatResponse, Message, Request, ToolCall
from endturn.vocabulary.stop import Stop, StopReason
from tests.formats.replies import DONE_EVENT, anthropic_stream, chat_body, chunk, said as streamed
from tests.support import turns
from tests.support.turns import Played
from tests.telemetry.mocked import adopting, body, chat, claude, events
from tests.telemetry.stage import Recording, Stage

INPUT, OUTPUT = schema.INPUT_MESSAGES.key, schema.OUTPUT_MESSAGES.key
SYSTEM, TOOLS, CUT = schema.SYSTEM_INSTRUCTIONS.key, schema.TOOL_DEFINITIONS.key, schema.CONTENT_CUT.key
DETAILS = schema.INFERENCE_DETAILS.name
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "How?"}]}

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EMIT_EVENT = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"
MAX_CHARS = "ENDTURN_CONTENT_MAX_CHARS"
REDACT = "ENDTURN_REDACT"
PARTS, MESSAGES, DEFINITIONS = json.loads(Path(__file__).with_name("content_schemas.json").read_text()).values()
SCHEMAS = {SYSTEM: PARTS, INPUT: MESSAGES, OUTPUT: MESSAGES, TOOLS: DEFINITIONS}
"""What the conventions' JSON schemas demand."""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (CAPTURE, EMIT_EVENT, MAX_CHARS, REDACT):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(environment, "_warned", set())
    monkeypatch.setattr(content, "_failed_redactions", set())


def spans(stage: Stage) -> list[dict[str, Any]]:
    """The content of each span, parsed."""
    told = [span["attributes"] for span in stage.finished()]
    return [{key: json.loads(each[key]) for key in SCHEMAS if key in each} for each in told]


def said(stage: Stage) -> dict[str, Any]:
    """That of the one span."""
    (found,) = spans(stage)
    return found


def details(stage: Stage) -> list[dict[str, Any]]:
    """The attributes of the details events."""
    records = [each.log_record for each in stage.logs.get_finished_logs()]
    return [dict(record.attributes or {}) for record in records if record.event_name == DETAILS]


def ask() -> None:
    """One call, which is answered."""
    chat(body(chat_body({"content": "So."}))).chat.completions.create(**ASK)


QUESTION = {"role": "user", "parts": [{"type": "text", "content": "How?"}]}
ANSWERED = {"role": "assistant", "parts": [{"type": "text", "content": "So."}], "finish_reason": "stop"}

# --- Where -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "argument", "where"),
    [
        ({CAPTURE: "NO_CONTENT"}, None, ""),
        ({CAPTURE: "SPAN_ONLY"}, None, "span"),
        ({CAPTURE: "EVENT_ONLY"}, None, "event"),
        ({CAPTURE: " span_and_event "}, None, "span, event"),
        ({CAPTURE: "true"}, None, ""),  # an older generation's word, for something else
        ({CAPTURE: "SPAN_ONLY"}, "NO_CONTENT", ""),
        ({}, "SPAN_ONLY", "span"),
        ({}, " event_only ", "event"),
        # The event has a switch of its own: switched off, it takes the content along.
        ({EMIT_EVENT: "true"}, "NO_CONTENT", "empty event"),
        ({EMIT_EVENT: "TRUE"}, "EVENT_ONLY", "event"),
        ({EMIT_EVENT: "false"}, "EVENT_ONLY", ""),
        ({EMIT_EVENT: "perhaps"}, "SPAN_AND_EVENT", "span, event"),
        ({EMIT_EVENT: "perhaps"}, "NO_CONTENT", ""),
    ],
)
def test_where_content_goes(
    recording: Recording, variables: dict[str, str], argument: str | None, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conventions' words, whatever their case, by variable or argument; nothing else captures anything.

    Mirrored on a span the event is flat: span events hold JSON, as spans do, for not every SDK takes objects there.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stage = recording(content=argument, events="both")
    assert listeners.takes_content() is (where not in ("", "empty event"))
    ask()
    expected = {INPUT: [QUESTION], OUTPUT: [ANSWERED]}
    assert said(stage) == (expected if "span" in where else {})
    found = details(stage)
    assert len(found) == ("event" in where)
    for event in found:
        structured = {key: event[key] for key in (INPUT, OUTPUT) if key in event}
        assert json.loads(json.dumps(structured)) == ({} if "empty" in where else expected)
        assert (event["gen_ai.request.model"], event["gen_ai.response.finish_reasons"]) == ("m", ("stop",))
    mirrored = [event for span in stage.spans.get_finished_spans() for event in span.events if event.name == DETAILS]
    assert [json.loads(str((event.attributes or {}).get(OUTPUT, "[]"))) for event in mirrored] == [
        (event.get(OUTPUT) and [ANSWERED]) or [] for event in found
    ]


# --- What --------------------------------------------------------------------------------------------------------

CALLED = {"type": "tool_call", "id": "c1", "name": "find", "arguments": {"q": 1}}
THOUGHT = {"type": "reasoning", "content": "Hm"}
TEXT = {"type": "text", "content": "Look"}


def _with_bytes(found: dict[str, Any]) -> Any:
    return found["$bytes"].encode() if "$bytes" in found else found


REQUESTS = json.loads(Path(__file__).with_name("content.json").read_text(), object_hook=_with_bytes)
"""A request of each format, and what is recorded of it."""

ANSWER = ChatResponse(
    text="Look",
    reasoning="Hm",
    tool_calls=(ToolCall(id="c1", name="find", arguments={"q": 1}, arguments_raw='{"q": 1}'),),
    stop=Stop(StopReason.TOOL_CALL),
    id="r",
    model="m",
)
PLAIN = ChatResponse(text="Look", stop=Stop(StopReason.MAX_TOKENS), id="r", model="m")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", REQUESTS)
def test_every_format_gives_the_conventions_messages(name: str, streamed: bool) -> None:
    """Texts, calls, results, thinking; placeholders for media; system prompts where they travelled; both directions."""
    speaks_as, body, expected = REQUESTS[name].values()
    speaks, scope = format_of(speaks_as), SimpleNamespace()
    asked = speaks.request_summary(body).with_facts(stream=streamed)
    context = Context("", "p", asked)
    captured = capture_content(scope, speaks, body, context)  # type: ignore[arg-type]  # what a call is to who gathers
    plain = speaks_as in ("completions", "ollama")
    word = speaks.voice.words.get(ANSWER.stop.reason)
    answer = PLAIN if plain else ANSWER.but(stop=replace(ANSWER.stop, raw=word))
    reply = speaks.reply(answer, stream=streamed)
    for item in reply if streamed else [reply]:
        captured.append(item)
    stop = PLAIN.stop if plain else ANSWER.stop
    found = ContentPolicy.of("SPAN_AND_EVENT", None, None).attributes(scope.content(stop))
    for key, value in found.items():
        jsonschema.validate(value, SCHEMAS[key])
        for each in value if SCHEMAS[key] is MESSAGES else ():
            jsonschema.validate(each["parts"], PARTS)
    (answer,) = found.pop(OUTPUT)
    assert answer["parts"] == ([TEXT] if plain else [THOUGHT, TEXT, CALLED])
    assert answer["finish_reason"] == ("length" if plain else "tool_call")
    assert found == expected
    assert all(json.loads(text) for text in as_text(found).values())


def texts(stage: Stage) -> list[list[str]]:
    """What was answered in each call."""
    answers = [[part for message in each.get(OUTPUT, ()) for part in message["parts"]] for each in spans(stage)]
    return [[part["content"] for part in parts] for parts in answers]


def test_several_choices_are_several_messages(recording: Recording) -> None:
    """Each answer that was asked for, whole and streamed, in order."""
    stage = recording(content="SPAN_ONLY")
    whole = chat_body({"content": "one"})
    whole["choices"].append({**whole["choices"][0], "index": 1, "message": {"role": "assistant", "content": "two"}})
    pieces = [chunk({"content": "two"}, "stop", index=1), chunk({"content": "one"}, "stop", index=0), DONE_EVENT]
    chat(body(whole)).chat.completions.create(**ASK, n=2)
    list(chat(events(*pieces)).chat.completions.create(**ASK, n=2, stream=True))
    assert texts(stage) == [["one", "two"]] * 2


def test_a_stream_that_breaks_keeps_what_came(recording: Recording) -> None:
    """The part that arrived is the answer; a refused request has none; one left early has what was read.

    LiteLLM reads no stream of Anthropic's to its `message_stop`: the reason that had come before is the message's too.
    """
    stage = recording(content="SPAN_ONLY")
    pieces = [chunk({"content": word}) for word in ("One", " two")]
    broken = events(*pieces, error=httpx2.ReadError("gone"))
    client = chat(broken, body({}, 400), events(*pieces, DONE_EVENT))
    with pytest.raises(openai.APIConnectionError):
        list(client.chat.completions.create(**ASK, stream=True))
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**ASK)
    messages = list(ASK["messages"])
    left = client.chat.completions.create(model="m", messages=messages, stream=True)
    messages.append({"role": "user", "content": "later"})  # what a host changes later was not said
    next(left)
    left.close()
    stream = claude(events(*anthropic_stream([streamed("One")], "max_tokens"))).messages.create(
        **ASK, max_tokens=9, stream=True
    )
    while next(stream).type != "message_delta":
        pass
    stream.close()
    assert texts(stage) == [["One two"], [], ["One"], ["One"]]
    assert all(each[INPUT] == [QUESTION] for each in spans(stage))
    assert spans(stage)[-1][OUTPUT][0]["finish_reason"] == "length"


def test_a_function_of_the_hosts_own_is_heard(recording: Recording) -> None:
    """A controller's provider, or one that is observed: it returns a body or our response, or yields deltas."""
    stage = recording(content="SPAN_ONLY")
    request = Request(model="m", messages=(Message(role="user", content="How?"),))

    @observe_provider_call(provider="p", format="openai_chat")
    def theirs(history: list[Any], model: str) -> Any:
        return chat_body({"content": "So."})

    observe: Any = observe_provider_call(provider="p")
    theirs(ASK["messages"], "m")
    observe(Played(turns.said("So.")))(request)
    list(observe(Played(turns.said("So."), chunk=1))(request))
    for size in (None, 1):
        ContinuationController(Played(turns.said("So."), chunk=size)).run(request)
    told = [found for found in spans(stage) if found]
    assert [found[INPUT] for found in told] == [[QUESTION]] * 5
    assert [found[OUTPUT][0]["parts"] for found in told] == [[{"type": "text", "content": "So."}]] * 5


def test_a_span_of_another_keeps_its_own_content(recording: Recording) -> None:
    """An instrumentation that follows the same variable writes what was said itself; any other's span is given it."""
    for scope, wanted in (("opentelemetry.instrumentation.genai.openai", False), ("somebody", True)):
        stage = recording(content="SPAN_ONLY")
        tracer = stage.tracers.get_tracer(scope)
        with tracer.start_as_current_span("chat m"):
            scope_of = open_call(Layer.CLIENT, RequestFacts(model="m"), EndpointFacts(provider="p"), adopt=adopting())
            assert scope_of is not None
            scope_of.attach_content(None, PLAIN)
            scope_of.end(ResponseFacts(stop=PLAIN.stop))
        assert (OUTPUT in said(stage)) is wanted
        uninstrument()


# --- How much ----------------------------------------------------------------------------------------------------


def attributes(*messages: Message, max_chars: int | None = None, redact: Any = None) -> dict[str, Any]:
    """What is recorded of a request."""
    asked = Content(request=Request(model="m", messages=messages))
    return ContentPolicy.of("SPAN_ONLY", max_chars, redact).attributes(asked)


def test_a_text_is_cut_and_says_so() -> None:
    """At the given length; the rest is counted, and an attribute tells without a look at the text. Of a conversation
    the newest messages are kept, in their order; what there is no room for is left out."""
    found = attributes(Message(role="user", content="x" * 1_010), max_chars=10)
    assert found[INPUT][0]["parts"][0]["content"] == "xxxxxxxxxx… [1,000 more characters]"
    assert found[CUT] is True
    assert CUT not in attributes(Message(role="user", content="x" * 10), max_chars=10)
    history = [Message(role="user", content=f"{number:04} " + "x" * 95) for number in range(1_000)]
    found = attributes(*history, max_chars=100)
    kept = [message["parts"][0]["content"][:4] for message in found[INPUT]]
    assert (kept[-1], kept) == ("0999", sorted(kept))
    assert len(json.dumps(found[INPUT])) < 2_000
    assert found[CUT] is True


ARGUMENTS: dict[str, Any] = {
    "numbers": {"a": {"b": ["x" * 50_000, *range(50_000)]}},
    "keys": {str(number): "" for number in range(50_000)},
    "nothing": [[[[[[]]]]]] * 50_000,
    "what JSON lacks": {"n": 10**400, "f": float("inf"), "u": "\ud800", "b": b"bytes"},
}


@pytest.mark.parametrize("value", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_bounded_whatever_they_are(value: Any) -> None:
    """Deep, wide, or none of JSON's: they become JSON of a bounded size, which UTF-8 can hold."""
    made = ToolCall(id="1", name="f", arguments={"given": value})
    found = attributes(Message(role="assistant", tool_calls=(made,)), max_chars=100)
    text = as_text(found)[INPUT]
    assert len(text.encode()) < 5_000
    json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("variable", "word", "longest", "warning"),
    [
        (MAX_CHARS, "5", 5, None),
        (MAX_CHARS, "", 8192, None),
        (MAX_CHARS, "-1", 8192, "='-1' cannot be used: use a whole number of characters"),
        (MAX_CHARS, "many", 8192, "='many' cannot be used: use a whole number of characters"),
        (CAPTURE, "everything", 8192, "='everything' cannot be used: use one of NO_CONTENT, SPAN_ONLY"),
        (CAPTURE, "false", 8192, None),
        (CAPTURE, "", 8192, None),
    ],
)
def test_a_variable_that_cannot_be_used_is_warned_of_once(
    variable: str, word: str, longest: int, warning: str | None, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the variable, and the words that it takes; the default stands."""
    monkeypatch.setenv(variable, word)
    for _ in range(3):
        policy = ContentPolicy.of(None if variable == CAPTURE else "SPAN_ONLY", None, None)
    assert policy.longest == longest
    assert len(caplog.records) == (warning is not None)
    assert warning is None or f"{variable}{warning}" in caplog.text


# --- Redaction ---------------------------------------------------------------------------------------------------


def hide(text: str) -> str:
    """A redaction as hosts write them."""
    return text.replace("4111111111111111", "[card]").replace("Ann", "[name]")


def test_every_text_is_redacted() -> None:
    """In texts, arguments, their keys, numbers, results, tools, the answer; whole, before any cut."""
    made = ToolCall(id="1", name="f", arguments={"Ann": [{"card": 4111111111111111}, "of Ann"], "n": 1})
    history = (
        Message(role="system", content="Ann asks"),
        Message(role="user", content="I am Ann"),
        Message(role="assistant", tool_calls=(made,)),
        Message(role="tool", tool_call_id="1", content=[{"type": "text", "text": "Ann paid"}]),
    )
    answer = ChatResponse(text="Dear Ann", reasoning="Ann…", stop=Stop(StopReason.END_TURN))
    said = Content(request=Request(model="m", messages=history), is_system_separate=True, responses=(answer,))
    text = json.dumps(ContentPolicy.of("SPAN_ONLY", 1_000, hide).attributes(said))
    assert [text.count(word) for word in ("[name]", "Ann", "4111", '"n": 1')] == [7, 0, 0, 1]
    short = attributes(Message(role="user", content="card: 4111111111111111"), max_chars=8, redact=hide)
    assert "4111" not in json.dumps(short)


def failing(text: str) -> str:
    """A redaction that quotes what it chokes on."""
    raise ValueError(f"cannot redact {text}")


@pytest.mark.parametrize("redact", [failing, lambda text: None, "no_such_module:f"])
def test_what_cannot_be_redacted_is_not_recorded(
    recording: Recording, redact: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call goes on, its other telemetry too; the loss is counted, and logged once, without the text."""
    options = {}
    if isinstance(redact, str):
        monkeypatch.setenv(REDACT, redact)
    else:
        options["redact"] = redact
    stage = recording(content="SPAN_AND_EVENT", **options)
    ask()
    ask()
    assert spans(stage) == [{}, {}]
    assert [set(event) & set(SCHEMAS) for event in details(stage)] == [set(), set()]
    assert [span["attributes"]["endturn.stop.reason"] for span in stage.finished()] == ["end_turn"] * 2
    assert listeners.listener_failures() == {"redact": 2}
    lines = [line for line in caplog.messages if "the content of these calls is not recorded" in line]
    assert len(lines) == 1
    is_missing = isinstance(redact, str)  # then its name is worth more than a stack
    assert ("Traceback" not in lines[0], "No module named 'no_such_module'" in lines[0]) == (is_missing, is_missing)
    assert "How?" not in caplog.text
    assert "So." not in caplog.text


def test_a_redaction_that_ends_the_process_ends_nothing(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A module that is a script, or a function that calls exit(): the call goes on, without content."""
    (tmp_path / "exits_on_import.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "fails_on_import.py").write_text("1 / 0\n")
    (tmp_path / "exits.py").write_text("import sys\ndef hide(text): sys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("exits_on_import:hide", "fails_on_import:hide", "exits:hide"):
        monkeypatch.setenv(REDACT, name)
        stage = recording(content="SPAN_AND_EVENT")
        ask()
        assert spans(stage)[-1] == {}
    assert "'exits_on_import:hide' cannot be imported (SystemExit: 3)" in caplog.text
    assert "'fails_on_import:hide' cannot be imported (ZeroDivisionError: division by zero)" in caplog.text
    assert "the redaction exits:hide failed" in caplog.text


def test_a_redaction_is_found_by_name(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For hosts that change no code: `module:function`; what is no such name is said when recording begins."""
    monkeypatch.setenv(REDACT, "tests.telemetry.test_content:hide")
    assert attributes(Message(role="user", content="Ann"))[INPUT][0]["parts"][0]["content"] == "[name]"
    monkeypatch.setenv(REDACT, "my_redaction")
    recording()
    assert "ENDTURN_REDACT='my_redaction' cannot be used: use module:function" in caplog.text


def test_what_raises_while_it_is_recorded_costs_only_the_content(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours in rendering is logged; span, event and metrics of the call are there."""
    caplog.set_level(logging.DEBUG, "endturn")
    stage = recording(content="SPAN_AND_EVENT")
    monkeypatch.setattr(listeners, "_logged_labels", set())
    monkeypatch.setattr(messages.MessageWriter, "answer", failing)
    ask()
    assert len(spans(stage)) == len(details(stage)) == 1
    assert "recording what was said failed" in caplog.text

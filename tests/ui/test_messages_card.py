"""The card *What was said*: on every cut turn, with the words where they are recorded, and nowhere else."""

from __future__ import annotations

import json
import re
import time
from html import escape
from typing import Any

import pytest

from endturn.telemetry import schema
from tests.support.otlp import pairs
from tests.ui.support import CUT, SECOND, Served, log, span, span_of_others

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
QUESTION, ANSWER = "Where is my order?", "It left on Monday and is in the"
LIMITED = {"gen_ai.request.max_tokens": 40, "gen_ai.usage.output_tokens": 40}


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def content(*messages: dict[str, Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes of a call as the conventions have them."""
    return {schema.INPUT_MESSAGES.key: json.dumps(messages), schema.OUTPUT_MESSAGES.key: json.dumps(answers)}


def message(role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts), **more}


ASKED = message("user", text(QUESTION))
SAID = content(ASKED, answers=[message("assistant", text(ANSWER), finish_reason="length")])


def send(page: Served, number: int, attributes: dict[str, Any], **more: Any) -> None:
    """Send the call of a turn with this number, a second after the one before."""
    start = time.time_ns() + (number - 20) * SECOND
    about = {"endturn.turn.iteration": number} | attributes
    answer = page.post("traces", span(spanId=f"{number:016x}", start_ns=start, attributes=about, **more))
    assert answer.status == 200


def card(page: Served, turn: str = "t1") -> str:
    """What the card says, without tags; "" where there is none."""
    answer = page.ask(f"/turns/{turn}").text
    found = re.search(r'(?s)<section class="card w12 said".*?</section>', answer)
    plain = re.sub(r"<[^>]+>", " ", found[0]) if found else ""
    return re.sub(r"\s+", " ", plain).strip()


def test_a_turn_that_was_cut_once_shows_the_question_and_where_the_answer_broke_off(page: Served) -> None:
    send(page, 1, CUT | LIMITED | SAID)
    said = card(page)
    assert (
        f"The user's last message {QUESTION} The end of the answer {ANSWER} cut here, 40 of 40 tokens"
        in said.replace("&#39;", "'")
    )
    assert "The conversation, 2 messages" in said
    assert CAPTURE not in said


@pytest.mark.parametrize(
    ("facts", "mark"),
    [(LIMITED, "cut here, 40 of 40 tokens"), ({"gen_ai.usage.output_tokens": 40}, "cut here, after 40 tokens"),
     ({}, "cut here")],
)  # fmt: skip
def test_the_torn_mark_says_what_is_known_of_the_limit(page: Served, facts: dict[str, Any], mark: str) -> None:
    send(page, 1, CUT | facts | SAID)
    assert f"{ANSWER} {mark} The conversation" in card(page)


@pytest.mark.parametrize("continued", [False, True])
def test_every_cut_turn_without_content_names_the_one_setting_that_records_it(page: Served, continued: bool) -> None:
    send(page, 1, CUT)
    if continued:
        send(page, 2, {"endturn.continuation.index": 1})
    answer = page.ask("/turns/t1").text
    assert answer.count(CAPTURE) == 1
    assert CAPTURE in card(page)


def test_a_turn_that_was_not_cut_has_a_card_only_where_words_are_recorded(page: Served) -> None:
    send(page, 1, {})
    assert card(page) == ""
    send(page, 2, {"endturn.turn.id": "t2"} | content(ASKED, answers=[message("assistant", text("At home."))]))
    assert "The end of the answer At home. The conversation" in card(page, "t2")


def test_the_text_stands_nowhere_that_it_was_not_asked_for(page: Served) -> None:
    """The list shows the question of recorded turns alone; other pages and the file of turns show no text."""
    send(page, 1, CUT | SAID)
    send(page, 2, CUT | {"endturn.turn.id": "t2"})
    listed = page.ask("/turns").text
    assert listed.count(QUESTION) == 2  # the line, and its title
    for path in (
        "/",
        "/reasons",
        "/alerts",
        "/turns/t2",
        "/export/turns.csv?range=all",
        "/export/numbers.csv?range=all",
    ):
        assert QUESTION not in page.ask(path).text
        assert ANSWER not in page.ask(path).text


def test_the_list_shows_eighty_characters_of_the_question(page: Served) -> None:
    send(page, 1, content(message("user", text("Why\n is it " + "so " * 100)), answers=[]))
    page_text = page.ask("/turns").text
    (line,) = re.findall(r'<tr class="question"><td colspan="8"><span[^>]*>([^<]*)</span>', page_text)
    assert line == "Why is it " + "so " * 23 + "…"
    assert len(line) == 80


def test_of_a_continued_turn_the_question_is_the_user_s_and_the_answer_whole(page: Served) -> None:
    """Not the request to go on, which is a message in the user's name, too."""
    send(page, 1, CUT | LIMITED | SAID)
    again = [ASKED, message("assistant", text(ANSWER)), message("user", text("Go on."))]
    rest = content(*again, answers=[message("assistant", text(" van."))])
    send(page, 2, rest | {"endturn.continuation.index": 1})
    said = card(page)
    assert "last message Where is my order? The end" in said
    assert f"The end of the answer {ANSWER} van. The conversation, 4 messages" in said
    assert "cut here" not in said
    assert QUESTION in page.ask("/turns").text
    assert "Go on." not in page.ask("/turns").text


def test_a_cut_tool_call_is_shown_as_far_as_it_came(page: Served) -> None:
    call = {"type": "tool_call", "name": "pay", "arguments": '{"to": "A'}
    answers = [message("assistant", text("I pay."), call)]
    send(page, 1, CUT | LIMITED | content(ASKED, answers=answers))
    said = card(page).replace("&#34;", '"')
    assert 'The end of the answer I pay. The end of the answer: a tool call pay({"to": "A cut here, 40 of 40' in said


def test_of_a_tool_loop_the_last_answer_is_shown_and_the_whole_conversation(page: Served) -> None:
    call = message("assistant", {"type": "tool_call", "name": "find", "arguments": {}})
    result = message("tool", {"type": "tool_call_response", "response": "a van"})
    send(page, 1, content(ASKED, answers=[call]) | {"endturn.stop.reason": "tool_call"})
    send(page, 2, CUT | LIMITED | content(ASKED, call, result, answers=[message("assistant", text("In a"))]))
    said = card(page)
    assert "The end of the answer In a cut here, 40 of 40 tokens The conversation, 4 messages" in said
    assert "tool call: find({}) tool tool result: a van assistant In a" in said


def test_a_conversation_that_the_server_keeps_is_put_together(page: Served) -> None:
    """Each request has only what is new."""
    send(page, 1, content(ASKED, answers=[message("assistant", text("Which one?"))]))
    send(page, 2, content(message("tool", text("The red one.")), answers=[message("assistant", text("In a van."))]))
    assert "The conversation, 4 messages" in card(page)


def test_an_answer_that_was_cut_and_left_stands_before_the_last_one(page: Served) -> None:
    send(page, 1, CUT | LIMITED | SAID)
    send(page, 2, content(ASKED, answers=[message("assistant", text("Sorry."))]))
    said = card(page)
    assert (
        f"The end of the answer that was cut off {ANSWER} cut here, 40 of 40 tokens The end of the answer Sorry."
        in said
    )


def test_a_repair_s_call_takes_the_place_of_the_cut_one(page: Served) -> None:
    cut_call = message("assistant", {"type": "tool_call", "name": "pay", "arguments": '{"to'})
    whole = message("assistant", {"type": "tool_call", "name": "pay", "arguments": {"to": "A"}})
    send(page, 1, CUT | LIMITED | content(ASKED, answers=[cut_call]))
    attributes = {"endturn.continuation.index": 1, "endturn.continuation.strategy": "repair"}
    page.post("logs", log("endturn.continuation_attempt", **attributes))
    send(page, 2, content(ASKED, cut_call, answers=[whole])
         | {"endturn.continuation.index": 1, "endturn.stop.reason": "tool_call"})  # fmt: skip
    said = card(page).replace("&#34;", '"')
    assert 'a tool call pay({"to": "A"}) The conversation' in said
    assert "cut here" not in said
    send(page, 3, content(ASKED, whole, answers=[message("assistant", text("Paid."))]))
    assert "The end of the answer Paid. The conversation" in card(page)
    assert "cut off" not in card(page)


def test_each_choice_has_its_end(page: Served) -> None:
    """Which of them were cut off is what each one's own reason says; the tokens are those of all."""
    names = (("Luna, Sim", "length"), ("Tom", "stop"))
    answers = [message("assistant", text(name), finish_reason=reason) for name, reason in names]
    send(page, 1, CUT | LIMITED | content(ASKED, answers=answers))
    said = card(page)
    assert (
        "The end of the answer, choice 1 of 2 Luna, Sim cut here The end of the answer, choice 2 of 2 Tom The" in said
    )
    many = [message("assistant", text(str(n))) for n in range(40)]
    send(page, 2, {"endturn.turn.id": "t2"} | content(ASKED, answers=many))
    assert "choice 8 of 40" in card(page, "t2")
    assert "and 32 other ends" in card(page, "t2")


def test_an_answer_that_went_into_reasoning_says_so(page: Served) -> None:
    thought = {"type": "reasoning", "content": "The user may mean"}
    send(page, 1, CUT | LIMITED | content(ASKED, answers=[message("assistant", thought)]))
    assert "reasoning, and no text The user may mean cut here" in card(page)


def test_an_image_is_named_and_what_is_markup_is_text(page: Served) -> None:
    image = {"type": "blob", "modality": "image", "mime_type": "image/png", "size": 27, "content": "aGlkZGVu"}
    hostile = '<img src=x onerror="alert(1)">'
    asked = message("user", text(hostile), image)
    send(page, 1, CUT | content(asked, answers=[message("assistant", text(hostile))]))
    for path in ("/turns/t1", "/turns"):
        answer = page.ask(path).text
        assert hostile not in answer
        assert escape(hostile, quote=False) in answer.replace("&#34;", '"')
        assert "aGlkZGVu" not in answer
    assert "[image, image/png, 27 bytes]" in card(page)


def test_everything_is_bounded_and_says_so(page: Served) -> None:
    long = [message("user", text(f"{n} " + "x" * 500)) for n in range(400)]
    send(page, 1, CUT | content(*long, answers=[message("assistant", text("y" * 1000))]))
    said = card(page)
    assert "The conversation, 401 messages The first 201 are left out: a page shows the newest." in said
    assert f"… {'y' * 300} cut here" in said
    assert len(page.ask("/turns/t1").text) < 700_000


def test_what_was_left_out_when_it_was_recorded_is_said(page: Served) -> None:
    send(page, 1, CUT | SAID | {"endturn.content.cut": True})
    assert "Some of it was too long, and is left out." in card(page)


# --- Where content stands ---------------------------------------------------------------------------------------------


def test_content_of_a_log_event_is_shown_on_its_turn(page: Served) -> None:
    """EVENT_ONLY: the values are lists there."""
    send(page, 1, CUT | LIMITED)
    event = log("gen_ai.client.inference.operation.details")
    (record,) = event["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    record |= {"spanId": f"{1:016x}", "traceId": "0af7651916cd43dd8448eb211c80319c"}
    for key, value in SAID.items():
        record["attributes"].append({"key": key, "value": _any(json.loads(value))})
    assert page.post("logs", event).status == 200
    assert f"{ANSWER} cut here, 40 of 40 tokens" in card(page)
    assert QUESTION in page.ask("/turns").text


def _any(value: Any) -> dict[str, Any]:
    """A value of JSON as OTLP has it."""
    match value:
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [_any(each) for each in value]}}
        case _:
            return {"kvlistValue": {"values": [{"key": key, "value": _any(each)} for key, each in value.items()]}}


FOREIGN = {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["length"]}


def test_content_of_a_span_s_events_is_shown_on_the_turn_of_another_instrumentation(page: Served) -> None:
    events = [
        {"name": "gen_ai.user.message", "timeUnixNano": "0", "attributes": pairs({"content": QUESTION})},
        {"name": "exception", "timeUnixNano": "0", "attributes": pairs({"exception.message": "secret"})},
        {"name": "gen_ai.choice", "timeUnixNano": "0", "attributes": pairs({"message": ANSWER})},
    ]
    page.post("traces", span_of_others(FOREIGN, spanId="ab" * 8, events=events))
    said = card(page, "ab" * 8)
    assert f"last message {QUESTION} The end of the answer {ANSWER} cut here" in said
    assert QUESTION in page.ask("/turns").text
    assert page.store.read_tuples("SELECT name FROM events ORDER BY name") == [
        ("gen_ai.choice",),
        ("gen_ai.user.message",),
    ]


def test_content_of_log_events_of_older_conventions_is_found_by_the_span(page: Served) -> None:
    """They say no turn: their span does."""
    page.post("traces", span_of_others(FOREIGN, spanId="ab" * 8))
    for name, body in (
        ("gen_ai.user.message", {"content": QUESTION}),
        ("gen_ai.choice", {"message": {"content": ANSWER}}),
    ):
        event = log(name)
        (record,) = event["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
        record |= {"spanId": "ab" * 8, "attributes": [], "body": _any(body)}
        assert page.post("logs", event).status == 200
    assert f"last message {QUESTION} The end of the answer {ANSWER} cut here" in card(page, "ab" * 8)
    assert QUESTION in page.ask("/turns").text


def test_content_in_another_instrumentation_s_words_is_shown(page: Served) -> None:
    others = {
        "openinference.span.kind": "LLM", "llm.model_name": "gpt-5", "llm.finish_reason": "length",
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": QUESTION,
        "llm.output_messages.0.message.content": ANSWER,
    }  # fmt: skip
    page.post("traces", span_of_others(others, spanId="ab" * 8))
    assert f"last message {QUESTION} The end of the answer {ANSWER} cut here" in card(page, "ab" * 8)


def test_an_export_that_is_sent_again_adds_no_text(page: Served) -> None:
    request = span(attributes=CUT | SAID)
    for _ in range(2):
        page.post("traces", request)
    assert page.store.read_tuples("SELECT count(*) FROM texts") == [(1,)]

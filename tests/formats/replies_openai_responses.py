"""Replies of the Responses API, written out by hand in the shapes of openai 3.54: whole bodies and streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from openai.types.responses import Response, ResponseStreamEvent

from endturn.formats import Context, Event, RequestSummary

Json = dict[str, Any]

USAGE: Json = {
    "input_tokens": 31,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 3},
    "output_tokens": 17,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 48,
}


def body(output: list[Json], status: Any = "completed", /, **more: Any) -> Json:
    """A response."""
    return {
        "id": "resp_68a1",
        "object": "response",
        "created_at": 1763700000,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": "gpt-5.6-mini-2026-08-01",
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": USAGE,
        **more,
    }


def cut(output: list[Json], reason: str | None = "max_output_tokens", **more: Any) -> Json:
    """A response that is incomplete."""
    return body(output, "incomplete", incomplete_details={"reason": reason}, **more)


def failed(code: str | None, message: str = "Something went wrong.", output: list[Json] | None = None) -> Json:
    """A response that failed."""
    return body(output or [], "failed", error={"code": code, "message": message}, usage=None)


def part(text: str, *annotations: Json) -> Json:
    """A piece of visible text."""
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def no(text: str) -> Json:
    """A refusal."""
    return {"type": "refusal", "refusal": text}


def say(*parts: str | Json, status: str = "completed", id: str = "msg_1", **more: Any) -> Json:
    """A message."""
    content = [part(each) if isinstance(each, str) else each for each in parts]
    return {"id": id, "type": "message", "status": status, "role": "assistant", "content": content, **more}


def call(call_id: str, name: str, arguments: str, *, status: str = "completed", **more: Any) -> Json:
    """A call of a client's function."""
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        **more,
    }


def think(*summary: str, id: str = "rs_1", **more: Any) -> Json:
    """Reasoning, with what the API shows of it."""
    shown = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": id, "type": "reasoning", "summary": shown, "encrypted_content": "gAAAAB", **more}


WEATHER = call("call_a", "weather", '{"city": "Zürich", "days": [1, 2]}')
CLOCK = call("call_b", "clock", "{}")
SQL: Json = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_c", "name": "sql", "input": "SELECT 1"}
SEARCH: Json = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "tides"},
}
CITED = part(
    "High at noon.", {"type": "url_citation", "start_index": 0, "end_index": 4, "url": "https://t", "title": "T"}
)
INTERPRETED: Json = {
    "id": "ci_1",
    "type": "code_interpreter_call",
    "status": "completed",
    "code": "6 * 7",
    "container_id": "cntr_1",
    "outputs": None,
}
MCP: Json = {
    "id": "mcp_1",
    "type": "mcp_call",
    "status": "completed",
    "server_label": "docs",
    "name": "find",
    "arguments": '{"q": "tides"}',
    "output": '{"status": "incomplete", "stop_reason": "max_tokens"}',
    "error": None,
}
CLICK: Json = {
    "id": "cu_1",
    "type": "computer_call",
    "status": "completed",
    "call_id": "call_d",
    "action": {"type": "click", "button": "left", "x": 1, "y": 2},
    "pending_safety_checks": [],
}
PATCH: Json = {
    "id": "apc_1",
    "type": "apply_patch_call",
    "status": "completed",
    "call_id": "call_e",
    "operation": {"type": "delete_file", "path": "a.txt"},
}
SHELL: Json = {
    "id": "sh_1",
    "type": "shell_call",
    "status": "completed",
    "call_id": "call_f",
    "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None},
    "environment": {"type": "local"},
}
LOCAL_SHELL: Json = {
    "id": "lsh_1",
    "type": "local_shell_call",
    "status": "completed",
    "call_id": "call_g",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
FIND_TOOLS: Json = {
    "id": "tsc_1",
    "type": "tool_search_call",
    "status": "completed",
    "call_id": "call_h",
    "execution": "client",
    "arguments": {"query": "weather"},
}
X_SEARCH: Json = {
    "id": "ctc_2",
    "type": "custom_tool_call",
    "status": "completed",
    "call_id": "xs_call_1",
    "name": "x_keyword_search",
    "input": '{"query": "tides"}',
}

PROGRAM: Json = {
    "id": "cm_1",
    "type": "program",
    "call_id": "call_p",
    "code": 'text(await tools.stock({sku: "x"}));',
    "fingerprint": "gAAAAAC",
}
STOCK = call("call_i", "stock", '{"sku":"x"}', status="in_progress", caller={"type": "program", "caller_id": "call_p"})

BODIES: dict[str, Json] = {
    "text": body([say("Grüezi 👋🏽, the answer is 42.\n\n  Done. ")]),
    "reasoning": body([think("**Multiplying**\n\n", "six times seven"), say("42", phase="final_answer")]),
    "open reasoning": body(
        [
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "six times seven"}],
            },
            say("42"),
        ]
    ),
    "length": cut([say("The answer is", status="incomplete")]),
    "reasoning only": cut([think(status="incomplete")]),
    "tool calls": body([think("Look."), say("Looking.", phase="commentary"), WEATHER, CLOCK]),
    "cut call": cut([WEATHER, call("call_b", "clock", '{"zone": "Eu', status="incomplete")]),
    "cut call that says completed": cut([WEATHER, CLOCK]),
    "no call id": body([call("", "clock", "{}"), call("", "clock", "{}")]),
    "custom tool": body([SQL]),
    "program's call": body([think(), PROGRAM, STOCK]),
    "cut program's call": cut([PROGRAM, STOCK]),
    "computer": body([CLICK]),
    "refusal": body([say(no("I cannot help with that."))]),
    "half a refusal": body([say("Well. ", no("No."))]),
    "filtered": cut([say("Well, ", status="incomplete")], "content_filter"),
    "messages": cut([say("Hm")], "max_messages"),
    "steered": cut([say("First,")], "steered"),
    "failed": failed("invalid_prompt", "Invalid prompt."),
    "server error": failed("server_error", output=[say("So far", status="incomplete")]),
    "window": failed("context_length_exceeded"),
    "policy": failed("bio_policy"),
    "no code": body([], "failed", usage=None),
    "cancelled": body([say("So", status="incomplete")], "cancelled", background=True),
    "queued": body([], "queued", background=True, usage=None),
    "in progress": body([think("Hm"), say("So far", status="in_progress")], "in_progress", background=True, usage=None),
    "asked for a job": body([], "in_progress", usage=None),
    "left open": body([say("So", status="in_progress")], "in_progress", usage=None),
    "server tools": body([SEARCH, INTERPRETED, MCP, say(CITED)]),
    "image": body([{"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "aGk="}]),
    "empty": body([]),
    "unknown status": body([say("Hm")], "tired"),
    "unknown reason": cut([say("Hm")], "tired"),
    "no reason": body([say("Hm")], "incomplete"),
    "null": body([say("Hm")], None),
}


def context(name: str) -> Context:
    """What is known besides the reply: of one, that it was asked for as a job."""
    return Context(provider="openai", asked=RequestSummary(maximum=1000, background=name == "asked for a job"))


def named(*events: Json) -> list[Event]:
    """Events whose names are their types, numbered."""
    return [Event(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]


def begun(**more: Any) -> list[Json]:
    """How a stream begins."""
    head = body([], "in_progress", usage=None, **more)
    return [{"type": "response.created", "response": head}, {"type": "response.in_progress", "response": head}]


def ended(response: Json, word: str | None = None) -> Json:
    """How a stream ends."""
    return {"type": f"response.{word or response['status']}", "response": response}


def added(index: int, item: Json) -> Json:
    """An item begins."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Json) -> Json:
    """An item is whole."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def word(index: int, delta: str, item_id: str = "msg_1", content: int = 0, kind: str = "output_text") -> Json:
    """A piece of text."""
    there = {"item_id": item_id, "output_index": index, "content_index": content}
    return {"type": f"response.{kind}.delta", **there, "delta": delta, "logprobs": []}


def said(index: int, *words: str, item: Json | None = None) -> list[Json]:
    """A streamed message."""
    whole = item or say("".join(words))
    there = {"item_id": whole["id"], "output_index": index, "content_index": 0}
    (content,) = whole["content"]
    kind = content["type"]
    name = "refusal" if kind == "refusal" else "text"
    return [
        added(index, {**whole, "status": "in_progress", "content": []}),
        {"type": "response.content_part.added", **there, "part": {**content, name: ""}},
        *(word(index, each, whole["id"], kind=kind) for each in words),
        {"type": f"response.{kind}.done", **there, name: "".join(words), "logprobs": []},
        {"type": "response.content_part.done", **there, "part": content},
        done(index, whole),
    ]


def used(index: int, item: Json, *pieces: str, whole: bool = True) -> list[Json]:
    """A streamed call."""
    there = {"item_id": item["id"], "output_index": index}
    events = [
        added(index, {**item, "status": "in_progress", "arguments": ""}),
        *({"type": "response.function_call_arguments.delta", **there, "delta": piece} for piece in pieces),
    ]
    if whole:
        given = "".join(pieces)
        events.append({"type": "response.function_call_arguments.done", **there, "arguments": given})
        events.append(done(index, item))
    return events


def thought(index: int, item: Json, *words: str) -> list[Json]:
    """Streamed reasoning with one summary."""
    there = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    (summary,) = item["summary"]
    return [
        added(index, {"id": item["id"], "type": "reasoning", "summary": []}),
        {"type": "response.reasoning_summary_part.added", **there, "part": {**summary, "text": ""}},
        *({"type": "response.reasoning_summary_text.delta", **there, "delta": each} for each in words),
        {"type": "response.reasoning_summary_text.done", **there, "text": "".join(words)},
        {"type": "response.reasoning_summary_part.done", **there, "part": summary},
        done(index, item),
    ]


WORDS = tuple(f"wörd {number} " for number in range(150))
THOUGHT = think("six times seven")
REFUSED = say(no("I cannot."))
CUT_CLOCK = call("call_b", "clock", '{"zone": "Eu', status="incomplete")

STREAMS: dict[str, list[Event]] = {
    "text": named(*begun(), *said(0, *WORDS), ended(body([say("".join(WORDS))]))),
    "reasoning": named(
        *begun(), *thought(0, THOUGHT, "six times ", "seven"), *said(1, "42"), ended(body([THOUGHT, say("42")]))
    ),
    "tool calls": named(
        *begun(),
        *used(0, WEATHER, '{"city": "Zür', 'ich", "days": [1, 2]}'),
        *used(1, CLOCK, "{}"),
        ended(body([WEATHER, CLOCK])),
    ),
    "cut call": named(
        *begun(),
        *used(0, WEATHER, '{"city": "Zürich", "days": [1, 2]}'),
        *used(1, CUT_CLOCK, '{"zone"', ': "Eu', whole=False),
        done(1, CUT_CLOCK),
        ended(cut([WEATHER, CUT_CLOCK])),
    ),
    "program's call": named(
        *begun(),
        added(0, {**PROGRAM, "code": ""}),
        done(0, PROGRAM),
        *used(1, STOCK, '{"sku":', '"x"}'),
        ended(body([PROGRAM, STOCK])),
    ),
    "refusal": named(*begun(), *said(0, "I can", "not.", item=REFUSED), ended(body([REFUSED]))),
    "search": named(
        *begun(),
        added(0, {**SEARCH, "status": "in_progress"}),
        {"type": "response.web_search_call.in_progress", "item_id": "ws_1", "output_index": 0},
        {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 0},
        {"type": "response.web_search_call.completed", "item_id": "ws_1", "output_index": 0},
        done(0, SEARCH),
        *said(1, "High at ", "noon.", item=say(CITED)),
        ended(body([SEARCH, say(CITED)])),
    ),
    "failed": named(*begun(), *said(0, "So ", "far")[:-1], ended(failed("server_error"))),
    "a job": named(*begun(background=True), *said(0, "So ", "far")[:-3]),
    # vLLM's shapes: no sequence numbers, one terminal for all, an output that tells nothing, other ids.
    "loose": [
        Event(None, each)
        for each in (
            *begun(),
            word(0, "The answer ", "x"),
            word(0, "is", "x"),
            ended(cut([], usage={"input_tokens": 3, "output_tokens": 2}), "completed"),
        )
    ],
    "only the end": named(*begun(), ended(body([think("Look."), say("Looking."), WEATHER]))),
    "unheard of": named({"type": "response.aurora", "status": "completed"}, *begun(), ended(body([]))),
}


def body_object(raw: Json) -> Any:
    """A body as the SDK hands it out."""
    return cast(Any, Response).construct(**raw)


def event_objects(events: Sequence[Event]) -> list[Any]:
    """A stream's events as the SDK hands them out."""
    from openai._models import construct_type  # what the SDK itself builds events with

    return [construct_type(type_=cast(Any, ResponseStreamEvent), value=event.data) for event in events]

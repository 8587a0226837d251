"""Cohere's chat API: v2, which our client speaks and a scripted server answers; v1's requests, bodies and events too.

Over HTTP, v1 streams lines of JSON where v2 streams server-sent events; Bedrock's Command R speaks v1 within AWS's
messages. Whoever has v1's events, each as an object, reads them here: the dialect "v1" is its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Message, Request, Tool
from endturn.events import Strategy
from endturn.formats.cohere_reader import NAME as NAME, REPLY
from endturn.formats.errors import error_words
from endturn.formats.format import Format
from endturn.formats.framing import DONE
from endturn.formats.next_request import continued_message, own_blocks
from endturn.formats.reading import arguments, items, member, text
from endturn.formats.request_summary import SEGMENTS, asked, routed_by
from endturn.formats.scripting import function_call, raw_reason, words, written_arguments, written_usage
from endturn.formats.settings import FUNCTION, written_settings
from endturn.formats.summaries import Event, Framing, RequestSummary, Route, Voice
from endturn.stop_reasons import tables

REASONS: Final = tables(NAME)
"""dialect → raw value → row. The dialect "" is v2; Bedrock's Command R speaks "v1"."""

_ID: Final = "c14c80c3-18eb-4519-9460-0000"
"""How ids begin: with eight digits more, each is a UUID, as Cohere's are."""
_PATH: Final = rf"{SEGMENTS}/v2/chat"
_SETTINGS: Final = {name: name for name in ("max_tokens", "temperature", "seed")}
_ANY_JSON: Final = {"type": "json_object"}


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a chat request goes."""
    return Route("POST", "/v1/chat" if dialect == "v1" else "/v2/chat")


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for; of v1, the results of tools and the new message stand after its history."""
    history, system = items(kwargs.get("messages")), None
    if not history and isinstance(kwargs.get("message"), str):
        system = text(kwargs.get("preamble")) or None
        results, message = items(kwargs.get("tool_results")), kwargs["message"]
        history = [*items(kwargs.get("chat_history"))]
        history += [{"role": "TOOL", "tool_results": results}] if results else []
        history += [{"role": "user", "content": message}] if message else []
    return asked(NAME, kwargs, history, system)


# --- Requests ---------------------------------------------------------------------------------------------------------


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /v2/chat, or with the dialect "v1" that of /v1/chat.

    v2 knows no choice of one tool among several: that tool is offered alone, and required. v1 has no choice at all:
    with "none", no tool is offered.
    """
    is_v1 = dialect == "v1"
    body: Json = {"model": request.model, **(_conversation_v1(request.messages) if is_v1 else {})}
    if not is_v1:
        body["messages"] = [written for message in request.messages if (written := _written(message)) is not None]
    named = [tool for tool in request.tools if tool.name == request.tool_choice]
    if request.tools and is_v1 and request.tool_choice != "none":
        body["tools"] = [_tool_v1(tool) for tool in request.tools]
    elif request.tools and not is_v1:
        body["tools"] = [FUNCTION.written(tool) for tool in named or request.tools]
        if request.tool_choice != "auto":
            body["tool_choice"] = "NONE" if request.tool_choice == "none" else "REQUIRED"
    body |= written_settings(request, _SETTINGS)
    if request.format is not None:
        schema = {} if request.format == _ANY_JSON else {"schema" if is_v1 else "json_schema": request.format}
        body["response_format"] = {**_ANY_JSON, **schema}
    if stream:
        body["stream"] = True
    return body | request.extra


def _written(message: Message) -> Json | None:
    """One message in v2's shape; None for an assistant message that says nothing, which the API refuses."""
    if own := own_blocks(message, NAME):
        return _replayed(message, own[0]) if message.role == "assistant" else own[0]
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content}
    if message.role != "assistant":
        return {"role": message.role, "content": message.content}
    said: Json = {"content": message.content} if message.text.strip() else {}
    calls: Json = {"tool_calls": [function_call(call) for call in message.tool_calls]} if message.tool_calls else {}
    return {"role": "assistant", **said, **calls} if said or calls else None


def _replayed(message: Message, block: Json) -> Json | None:
    """A message as the provider wrote it, but for empty parts, and calls that were taken out of the history since.

    Their plan goes with the last of them.
    """
    kept = {call.id for call in message.tool_calls}
    calls = [call for call in items(block.get("tool_calls")) if member(call, "id") in kept]
    content = block.get("content")
    if isinstance(content, list):
        content = [part for part in content if _says(part)]
    now = {"content": content, "tool_calls": calls, "tool_plan": block.get("tool_plan") if calls else None}
    written = {name: value for name, value in {**block, **now}.items() if value or name not in now}
    return written if calls or _is_visible(content) else None


def _says(part: Any) -> bool:
    kind = member(part, "type")
    return kind not in ("text", "thinking") or bool(text(member(part, kind)).strip())


def _is_visible(content: Any) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return any(member(part, "type") != "thinking" for part in items(content))


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing whitespace stripped);
            `resend` (the answer verbatim, nothing after it).
    """
    return continued_message(request, cut, _unfinished, format=NAME, prompt=prompt, strategy=strategy)


def _unfinished(message: Json, said: str) -> Json:
    """The message of a cut response without its calls and their plan, and without thinking that led to nothing."""
    content = [dict(part) for part in items(message.get("content")) if _says(part)]
    while content and content[-1].get("type") == "thinking":
        content.pop()
    if content and content[-1].get("type") == "text" and said == said.rstrip():
        content[-1]["text"] = text(content[-1].get("text")).rstrip()
    kept = {name: value for name, value in message.items() if name not in ("tool_calls", "tool_plan")}
    return {**kept, "content": content}


# --- v1's requests: one message, the history before it, results of tools without ids ----------------------------------

_ROLES_V1: Final = {"user": "USER", "assistant": "CHATBOT", "system": "SYSTEM", "tool": "TOOL"}
_TYPES_V1: Final = {"integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
"""JSON Schema's types as Python's: "any python data type, such as 'str', 'bool'"."""


def _conversation_v1(messages: tuple[Message, ...]) -> Json:
    body: Json = {}
    history: list[Json] = []
    calls: dict[str, Json] = {}
    if messages and messages[0].role == "system":
        body["preamble"], messages = messages[0].text, messages[1:]
    for message in messages:
        entry: Json = {"role": _ROLES_V1[message.role], "message": message.text}
        if message.role == "tool":
            # A result repeats the call that it answers. What a tool answered is an object: of text, one around it.
            call = calls.get(message.tool_call_id or "", {"name": "", "parameters": {}})
            result = {"call": call, "outputs": [arguments(message.text) or {"text": message.text}]}
            if not history or "tool_results" not in history[-1]:
                history.append({"role": "TOOL", "tool_results": []})
            history[-1]["tool_results"].append(result)
            continue
        if message.tool_calls:
            asks = {each.id: each.arguments or arguments(each.arguments_raw) or {} for each in message.tool_calls}
            entry["tool_calls"] = [{"name": each.name, "parameters": asks[each.id]} for each in message.tool_calls]
            calls |= zip(asks, entry["tool_calls"], strict=True)
        if message.role != "assistant" or message.text.strip() or message.tool_calls:
            history.append(entry)
    last = history.pop() if messages and messages[-1].role in ("user", "tool") else {}
    body["message"] = last.get("message", "")
    if history:
        body["chat_history"] = history
    if "tool_results" in last:
        body["tool_results"] = last["tool_results"]
    return body


def _tool_v1(tool: Tool) -> Json:
    """A tool with its parameters one by one: v1 knows no schema of the whole."""
    required, properties = items(tool.parameters.get("required")), tool.parameters.get("properties")
    written: Json = {"name": tool.name, "description": tool.description}
    if isinstance(properties, dict) and properties:
        written["parameter_definitions"] = {
            name: {
                "description": text(member(value, "description")),
                "type": _TYPES_V1.get(text(member(value, "type")), "str"),
                "required": name in required,
            }
            for name, value in properties.items()
        }
    return written


# --- Scripted replies -------------------------------------------------------------------------------------------------

_ROWS: Final = {**REASONS[""], **REASONS["v1"]}
_USAGE: Final = {
    "billed_units.input_tokens": "input_tokens",
    "billed_units.output_tokens": "output_tokens",
    "tokens.input_tokens": "input_tokens",
    "tokens.output_tokens": "output_tokens",
    "cached_tokens": "cache_read_tokens",
}


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as v2 would send it, whichever version is asked: a body, or the events of a stream."""
    end: Json = {"finish_reason": raw_reason(response.stop, _ROWS)}
    if usage := written_usage(response.usage, _USAGE):
        end["usage"] = usage
    said = {"thinking": response.reasoning, "text": response.text}
    content = [{"type": kind, kind: each} for kind, each in said.items() if each]
    calls = [function_call(call) for call in response.tool_calls]
    if not stream:
        message = {"content": content, "tool_calls": calls}
        kept = {name: value for name, value in message.items() if value}
        return {"id": response.id, "message": {"role": "assistant", **kept}, **end}
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    data: list[Json] = [{"type": "message-start", "id": response.id, "delta": {"message": empty}}]
    for index, part in enumerate(content):
        kind = part["type"]
        data.append(_event("content-start", index, content={**part, kind: ""}))
        data += [_event("content-delta", index, content={kind: word}) for word in words(part[kind])]
        data.append({"type": "content-end", "index": index})
    for index, (call, written) in enumerate(zip(response.tool_calls, calls, strict=True)):
        given = written_arguments(call)
        begun = {**written, "function": {"name": call.name, "arguments": ""}}
        data.append(_event("tool-call-start", index, tool_calls=begun))
        data += [_event("tool-call-delta", index, tool_calls={"function": {"arguments": w}}) for w in words(given)]
        if call.closed:
            data.append({"type": "tool-call-end", "index": index})
    if response.stop.terminal_seen:
        data.append({"type": "message-end", "delta": end})
        return [*(Event(each["type"], each) for each in data), Event(None, DONE)]
    if data[-1]["type"].endswith("-end"):
        data.pop()
    return [Event(each["type"], each) for each in data]


def _event(kind: str, index: int, **message: object) -> Json:
    return {"type": kind, "index": index, "delta": {"message": message}}


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, the `message-end` that tells of it."""
    said = error_words("cohere", status, code, message).message
    if not stream:
        return {"id": f"{_ID}{number:08d}", "message": said}
    reason = "TIMEOUT" if status in (408, 504) else "ERROR"
    return Event("message-end", {"type": "message-end", "delta": {"error": said, "finish_reason": reason}})


FORMAT: Final = Format(
    name=NAME,
    provider="cohere",
    framing=Framing.SSE,
    reasons=REASONS,
    voice=Voice(_ID, "tool_", "x-debug-trace-id"),
    replies=REPLY,
    route=route,
    routed=routed_by(_PATH),
    request_summary=request_summary,
    body=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)

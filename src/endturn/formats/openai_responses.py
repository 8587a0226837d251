"""The Responses API of OpenAI, and of those who speak it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode

from endturn.chat import Blocks, ChatResponse, Json, Message, Request
from endturn.formats.format import Format
from endturn.formats.next_request import asking_on, resent
from endturn.formats.openai_responses_items import answered, paired, written
from endturn.formats.openai_responses_objects import client_call
from endturn.formats.openai_responses_reader import NAME as NAME, REPLY
from endturn.formats.openai_responses_reasons import REASONS as REASONS, WORDS
from endturn.formats.openai_responses_reply import reply as reply, reply_error as reply_error
from endturn.formats.reading import SEGMENTS, count, items, text
from endturn.formats.request_members import asked
from endturn.formats.summaries import Framing, RequestSummary, Route, Routed, Voice
from endturn.formats.tools import ToolShape
from endturn.records import Strategy
from endturn.stop import Resume

PROVIDER: Final = "openai"
# Unlike in chat, a schema is strict here unless it says otherwise, and a strict one leaves nothing optional.
_TOOL: Final = ToolShape(beside={"type": "function", "strict": False})
FRAMING: Final = Framing.SSE
VOICE: Final = Voice("resp_", "call_", "x-request-id", WORDS)

_PATH: Final = re.compile(rf"(?:{SEGMENTS}/(?:v1|openai))?/responses(?:/(?P<id>[^/]+))?")
_CHOICES: Final = ("auto", "none", "required")
_DONE: Final = ("completed", "failed", None)


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request goes: to make a response, or to fetch one by its id.

    A stream that is fetched begins after the event whose sequence number is `starting_after` in the request's `extra`.
    """
    if request.retrieve is None:
        return Route("POST", "/responses")
    query = {"stream": "true"} if stream else {}
    after = count(request.extra.get("starting_after"))
    if stream and after is not None:
        query["starting_after"] = str(after)
    return Route("GET", f"/responses/{quote(request.retrieve, safe='')}" + (f"?{urlencode(query)}" if query else ""))


def routed(method: str, path: str) -> Routed | None:
    """`/v1/responses` after whatever a gateway puts before it, or without `/v1`; Azure's older `/openai/responses`."""
    place, _, query = path.partition("?")
    found = _PATH.fullmatch(place)
    if found is None:
        return None
    if method == "POST" and found["id"] is None:
        return Routed()
    if method == "GET" and found["id"] is not None:
        return Routed(stream=parse_qs(query).get("stream") == ["true"], retrieve=unquote(found["id"]))
    return None


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /responses; nothing where a response is fetched. The API has no seed: it is left out.

    A system message that stands first is the instructions; any other keeps its place among the items.
    """
    if request.retrieve is not None:
        return {}
    body: Json = {"model": request.model}
    messages = request.messages
    if messages and _instructs(messages[0]):
        body["instructions"] = messages[0].content
        messages = messages[1:]
    body["input"] = written(messages, stored=request.extra.get("store") is not False)
    if request.tools:
        body["tools"] = [_TOOL.written(tool) for tool in request.tools]
        if request.tool_choice != "auto":
            named = request.tool_choice not in _CHOICES
            body["tool_choice"] = {"type": "function", "name": request.tool_choice} if named else request.tool_choice
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.format is not None:
        body["text"] = _text(request.format)
    if request.previous_id is not None:
        body["previous_response_id"] = request.previous_id
    if stream:
        body["stream"] = True
    return body | request.extra


def _instructs(message: Message) -> bool:
    return message.role == "system" and message.blocks is None and isinstance(message.content, str)


def _text(format_: Json) -> Json:
    if format_ == {"type": "json_object"}:
        return {"format": format_}
    return {"format": {"type": "json_schema", "name": "answer", "schema": format_}}


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    A response that is still being made is fetched. The API takes no prefill: it is prompted instead.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used where nothing is asked.
        strategy: `prompt`; `resend` (the answer verbatim, nothing after it).
    """
    if cut.stop.resume is Resume.RETRIEVE_SAME_ID:
        return request.but(retrieve=cut.id)
    request = request.but(retrieve=None)
    if (again := resent(request, cut, strategy)) is not None:
        return again
    partial = cut.message().but(tool_calls=(), blocks=_unfinished(cut))
    answer = partial if written((partial,), stored=True) else None
    return asking_on(request, answer, prompt=prompt, strategy=Strategy.PROMPT)


def _unfinished(cut: ChatResponse) -> Blocks | None:
    """The items of a cut response that may be replayed: no call without its result, no reasoning without its items."""
    if cut.blocks is None or cut.blocks.format != NAME:
        return None
    results = answered(cut.blocks.items)

    def whole(item: Json) -> bool:
        if client_call(item):
            return text(item.get("call_id")) in results
        return not text(item.get("type")).endswith("_call") or item.get("status") in _DONE

    return Blocks(NAME, tuple(paired(cut.blocks.items, whole)))


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for."""
    given = kwargs.get("input")
    history = [{"role": "user", "content": given}] if isinstance(given, str) else items(given)
    return asked(NAME, kwargs, history, kwargs.get("instructions"))


FORMAT: Final = Format(
    name=NAME,
    provider=PROVIDER,
    framing=FRAMING,
    reasons=REASONS,
    voice=VOICE,
    replies=REPLY,
    route=route,
    routed=routed,
    request_summary=request_summary,
    encode=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)

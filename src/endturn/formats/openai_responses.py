"""The Responses API of OpenAI, and of those who speak it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from endturn.chat import Blocks, ChatResponse, Json, Message, Request
from endturn.events import Strategy
from endturn.formats import openai_responses_reader as reader
from endturn.formats.encoding import encoded
from endturn.formats.errors import error_words
from endturn.formats.format import Format
from endturn.formats.next_request import asking_on, own_blocks, resent
from endturn.formats.openai_responses_reader import BACKGROUND, COMPLETED, GIVEN, NAME, RUNNING, client_call
from endturn.formats.reading import items, member, text
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.scripting import raw_reason, written_reply
from endturn.formats.summaries import Event, Voice
from endturn.stop import Resume, StopReason

_PATH: Final = rf"(?:{SEGMENTS}/(?:v1|openai))?/responses(?:/(?P<id>[^/]+))?"


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /responses. The API has no seed: it is left out.

    A system message that stands first is the instructions; any other keeps its place among the items.
    """
    messages, instructions = request.messages, None
    first = messages[0] if messages else None
    if first is not None and first.role == "system" and first.blocks is None and isinstance(first.content, str):
        instructions, messages = first.content, messages[1:]
    replay = partial(_replayed, stored=request.extra.get("store") is not False)
    return encoded(NAME, request, stream=stream, replay=replay, messages=messages, instructions=instructions)


def _replayed(message: Message, blocks: Iterable[Json], *, stored: bool) -> list[Json]:
    """The items of a response as they came, but for calls that were taken out of the history since.

    Args:
        stored: the server keeps responses. Where it does not, it cannot find a reasoning item by its id: only one that
            brings its content, encrypted or not, is sent.
    """
    held = {"", *(call.id for call in message.tool_calls), *_answered(blocks)}

    def stays(item: Json) -> bool:
        if item.get("type") == "reasoning":
            return stored or bool(item.get("encrypted_content") or item.get("content"))
        is_ours = text(item.get("type")) in GIVEN and client_call(item)
        return not is_ours or text(item.get("call_id")) in held

    return _paired(blocks, stays)


def _answered(blocks: Iterable[Json]) -> set[str]:
    """The calls whose results stand beside them: the server ran them."""
    return {text(item.get("call_id")) for item in blocks if text(item.get("type")).endswith("_output")} - {""}


def _paired(blocks: Iterable[Json], keep: Callable[[Json], bool]) -> list[Json]:
    """The items to keep, without empty messages, and without reasoning whose own items all went.

    "Item 'rs_…' of type 'reasoning' was provided without its required following item": a 400.
    """
    kept: list[Json] = []
    thoughts: list[Json] = []
    after = ""
    for item in blocks:
        kind = text(item.get("type"))
        if kind == "reasoning":
            thoughts = (thoughts if after == kind else []) + ([item] if keep(item) else [])
        elif keep(item) and (item.get("role") != "assistant" or _visible(item).strip()):
            kept += [*thoughts, item]
            thoughts = []
        after = kind
    return kept


def _visible(item: Json) -> str:
    """The text of a message, its refusals included."""
    content = item.get("content")
    parts = items(content)
    return text(content) + "".join(text(member(part, "text")) or text(member(part, "refusal")) for part in parts)


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
    blocks = _unfinished(cut)
    answer = cut.message().but(tool_calls=(), blocks=Blocks(NAME, tuple(blocks))) if blocks else None
    return asking_on(request, answer, prompt=prompt, strategy=Strategy.PROMPT)


def _unfinished(cut: ChatResponse) -> list[Json]:
    """The items of a cut response that may be replayed: no call without its result, no reasoning without its items."""
    blocks = own_blocks(cut, NAME)
    if blocks is None:
        return [{"role": "assistant", "content": cut.text}] if cut.text.strip() else []
    results = _answered(blocks)

    def whole(item: Json) -> bool:
        if client_call(item):
            return text(item.get("call_id")) in results
        return not text(item.get("type")).endswith("_call") or item.get("status") in (COMPLETED, "failed", None)

    return _paired(blocks, whole)


# --- Scripted replies -------------------------------------------------------------------------------------------------

_WORDS: Final = {
    StopReason.TOOL_CALL: COMPLETED,
    StopReason.REFUSED: COMPLETED,
    StopReason.PAUSED: "in_progress",
    StopReason.ERROR: "failed:server_error",
}
"""What the API says for a reason where that is not the first row that means it: calls and refusals are in the output,
a job says that it is one."""
_ENDED: Final = (COMPLETED, "incomplete", "failed", "cancelled")
_CUT: Final = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.MISSING)


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A scripted response as the API would send it: a body, or the events of a stream."""
    stop = response.stop
    status, _, why = (raw_reason(stop, BACKGROUND) or "").partition(":")
    failed = {"code": why or None, "message": error_words("openai_chat", 500, why or None, None).message}
    goes_on = not status or status in RUNNING
    own = {
        "bare": text(response.id).removeprefix("resp_"),
        "begun": status if status in RUNNING else "in_progress",
        "ended": status if status in _ENDED else COMPLETED,
        "state": "incomplete" if stop.reason in _CUT and not response.tool_calls else COMPLETED,
        "background": stop.reason is StopReason.PAUSED,
        "error": failed if status == "failed" else None,
        "details": {"reason": why} if status == "incomplete" else None,
    }
    response = response.with_stop(terminal_seen=False) if goes_on else response
    said = written_reply(NAME, dialect, response, status or None, own, stream=stream)
    if not isinstance(said, list):
        return said
    return [Event(event.name, event.data | {"sequence_number": number}) for number, event in enumerate(said)]


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    voice=Voice("resp_", "call_", "x-request-id", _WORDS),
    paths={"": "/responses"},
    routed=routed_by(_PATH),
    body=encode,
    resume=resume,
    fetches=True,
    reader=reader.Reader,
    own_rows=reader.rows,
    called=("a response", "an event of a response's stream"),
    objects=("output[]", "response.output[]", "item", "part"),
    own_faulty=reader.faulty,
    failed=reader.failed,
    blocks=reader.output_of,
    has_end=True,
    own_reply=reply,
)

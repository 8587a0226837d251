"""Ollama's own API: `/api/chat`, and what `/api/generate` says, in lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Message
from endturn.formats.encoding import encodes
from endturn.formats.fold import Fold
from endturn.formats.format import Format, error_beside
from endturn.formats.next_request import resumes_message, without_lost_calls
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens, usage_in
from endturn.formats.reading import items, member, minted, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.scripting import figures
from endturn.formats.summaries import Context, Framing, Voice
from endturn.stop import StopReason

NAME: Final = "ollama"

_PATH: Final = rf"{SEGMENTS}/api/(?:chat|(?P<prompt>generate))"


class Reader:
    """Reads lines, or one body, which is a stream's only line, the one with `done: true`.

    A prompt that does not fit the window is cut by the server, and nothing in the response says so:
    `prompt_eval_count` counts what was left of it. Responses have no id.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._named = False
        self._calls = 0

    def __call__(self, line: Any) -> Iterator[Part]:
        """The parts of a line."""
        if error := member(line, "error"):
            yield Fault(error)
            return
        if not self._named:
            self._named = True
            yield Head(None, text_or_none(member(line, "model")))
        message = member(line, "message")
        if message is None:  # of /api/generate
            message = {"content": member(line, "response"), "thinking": member(line, "thinking")}
        if thought := text(member(message, "thinking")):
            yield Reasoning(thought)
        yield Text(text(member(message, "content")))
        for call in items(member(message, "tool_calls")):
            if isinstance(function := member(call, "function"), Mapping):
                given = function.get("arguments")
                # Each call comes whole, in one line. A minted id is of this response alone, and goes into the block.
                id_ = text(member(call, "id")) or minted(member(line, "created_at"), self._calls)
                said = given if isinstance(given, dict | str) else None
                yield Call(self._calls, id_, text(function.get("name")), said, closed=True)
                self._calls += 1
                if self._keep:
                    yield Block("message", {"tool_calls": [{**call, "id": id_}]})
        if member(line, "done") is True:
            yield Reason(member(line, "done_reason"))
            if (usage := usage_in(NAME, line)) is not None:
                yield Tokens(usage)
            yield End()


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, as the server would have it back."""
    said, thought = "".join(fold.text), "".join(fold.reasoning)
    if said or thought or fold.calls:
        thinking = {"thinking": thought} if thought else {}
        yield {"role": "assistant", "content": said, **fold.blocks.get("message", {}), **thinking}


def _replayed(message: Message, own: Sequence[Json]) -> list[Json]:
    written = without_lost_calls(message, own[0])
    return [written] if "tool_calls" in written or text(written.get("content")).strip() else []


def _unfinished(message: Json, said: str) -> Json:
    """The message of a cut response without its calls."""
    return {**{name: value for name, value in message.items() if name != "tool_calls"}, "content": said}


def _says(response: ChatResponse, stop: str | None, dialect: str) -> Json:
    """The end of a response, without which it has no figures; a reason that is empty is left out."""
    done = stop is not None
    return {"stop": stop or None, "done": done, "took": 1 if done else None, **({} if done else figures(None))}


FORMAT: Final = Format(
    name=NAME,
    provider="ollama",
    framing=Framing.NDJSON,
    voice=Voice("", "call_", "x-request-id", {StopReason.TOOL_CALL: "stop"}),
    paths={"": "/api/chat"},
    routed=routed_by(_PATH),
    body=encodes(NAME, _replayed),
    resume=resumes_message(NAME, _unfinished),
    reader=Reader,
    called=("a response", "a line of a stream"),
    needs=("message", "response"),
    objects=("message",),
    failed=error_beside(),
    blocks=_blocks,
    has_end=True,
    says=_says,
)

"""What Ollama's own API answers, as parts; and what its words mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import shortened
from endturn.formats.fold import Fold, Reply
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens
from endturn.formats.reading import count, items, member, minted, text
from endturn.formats.summaries import Context
from endturn.stop_reasons import tables

NAME: Final = "ollama"

REASONS: Final = tables(NAME)

_OWN: Final = frozenset({"role", "content", "thinking", "tool_calls"})


class Reader:
    """Reads lines, or one body, which is a stream's only line, the one with `done: true`.

    A prompt that does not fit the window is cut by the server, and nothing in the response says so:
    `prompt_eval_count` counts what was left of it. Responses have no id.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._model: str | None = None
        self._calls = 0

    def __call__(self, line: Any) -> Iterator[Part]:
        """The parts of a line."""
        if error := member(line, "error"):
            yield Fault(error)
            return
        message = member(line, "message")
        said = member(line, "response") if message is None else member(message, "content")
        if (model := member(line, "model")) != self._model and text(model):
            self._model = model
            yield Head(None, model, replaces=True)
        if thought := text(member(line if message is None else message, "thinking")):
            yield Reasoning(thought)
        yield Text(text(said))
        if calls := member(message, "tool_calls"):
            for call in items(calls):
                if member(call, "function") is not None:
                    yield from self._call(call, line)
        if self._keep and isinstance(message, Mapping):
            yield Block(
                "message", {name: value for name, value in message.items() if name not in _OWN and value is not None}
            )
        if member(line, "done") is True:
            yield Reason(member(line, "done_reason"))
            asked, answered = count(member(line, "prompt_eval_count")), count(member(line, "eval_count"))
            if asked is not None or answered is not None:
                yield Tokens(Usage(asked, answered))
            yield End()

    def _call(self, call: Any, line: Any) -> Iterator[Part]:
        """A call: each comes whole, in one line. Its id is of this response alone, and in the block too."""
        id_ = text(member(call, "id")) or minted(member(line, "created_at"), self._calls)
        function = member(call, "function")
        given = member(function, "arguments")
        name = text(member(function, "name"))
        yield Call(self._calls, id_, name, given if isinstance(given, dict | str) else None, closed=True)
        self._calls += 1
        if self._keep:
            yield Block("message", {"tool_calls": [{**call, "id": id_}]})


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, with what no other member says."""
    said, thought = "".join(fold.text), "".join(fold.reasoning)
    extra = fold.blocks.get("message", {})
    if said or thought or fold.calls:
        thinking = {"thinking": thought} if thought else {}
        calls = {"tool_calls": extra["tool_calls"]} if fold.calls else {}
        yield {"role": "assistant", "content": said, **extra, **thinking, **calls}


def _faulty(data: Any, whole: bool) -> str | None:
    if not isinstance(data, Mapping):
        return f"{'a response' if whole else 'a line of a stream'} is an object, not {shortened(repr(data), 80)}"
    message = data.get("message")
    if whole and not isinstance(message, Mapping) and not isinstance(data.get("response"), str):
        return "a response has a `message`, or a `response` of text"
    return None if isinstance(message, Mapping | None) else "a message is not an object"


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    return data if isinstance(data, Mapping) and data.get("error") else None


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=lambda ctx: REASONS[""],
    faulty=_faulty,
    failed=_failed,
    blocks=_blocks,
    has_end=True,
)

"""What generateContent answers, as parts. A body is a stream of one chunk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import shortened
from endturn.formats.fold import Reply
from endturn.formats.parts import Block, Call, Fault, Head, Part, Reason, Reasoning, Text, Token, Tokens, Vocabulary
from endturn.formats.reading import count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import raw_text
from endturn.stop_reasons import tables

NAME: Final = "gemini"
REASONS: Final = tables(NAME)
"""dialect → raw value → row. Why a prompt was blocked stands beside the candidates, in words of its own."""


@cache
def _snake(name: str) -> str:
    return re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name)


def either(thing: Any, name: str) -> Any:
    """The member of that name: JSON has it in camelCase, what SDKs dump in snake_case (and JSON may, too)."""
    if thing.__class__ is not dict:
        return member(thing, _snake(name))
    value = thing.get(name)
    return thing.get(_snake(name)) if value is None else value


_WORDS: Final = frozenset({"text", "thought"})


@dataclass(slots=True)
class _Call:
    """A client call. Vertex AI may send its arguments in pieces, each with its place.

    Attributes:
        key: of its block. sent: what its first piece says of it: its name, and its id where the format gave one.
        given: the arguments that came as an object; None where one of them was none.
        beside: what its part holds beside the call: a signature.
    """

    key: int
    id: str
    name: str
    sent: Json
    given: Json | None = field(default_factory=dict)
    pieces: list[Any] = field(default_factory=list)
    beside: Json = field(default_factory=dict)


class Reader:
    """Reads chunks; a body is a stream of one. The finish reason is the terminal: no event follows it."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._id: str | None = None
        self._calls = 0
        self._open: _Call | None = None
        self._blocks = 0
        self._thinking: bool | None = None  # of the last block, where words may be added to it

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of a chunk. Asked for without `alt=sse`, a stream is one array of them; so is an error's answer."""
        for chunk in event if isinstance(event, list) else (event,):
            if not isinstance(chunk, dict):
                continue
            if self._id is None:
                self._id = text_or_none(either(chunk, "responseId"))
                yield Head(self._id, text_or_none(either(chunk, "modelVersion")))
            # Cumulative. Vertex AI's chunks before the last may name nothing but the traffic's type.
            if (usage := _usage(either(chunk, "usageMetadata"))) is not None:
                yield Tokens(usage)
            stopped = False
            for candidate in items(chunk.get("candidates")):
                index = count(member(candidate, "index")) or 0
                reason = either(candidate, "finishReason")
                if index == 0:
                    for place, part in enumerate(items(member(member(candidate, "content"), "parts"))):
                        said = member(part, "text")
                        if said.__class__ is str and len(part) == 1 and not self._keep:
                            yield Text(said)
                        else:
                            yield from self._part(part, first=place == 0)
                if index or reason is not None:
                    yield Reason(_word(reason), index)
                if index == 0 and reason is not None:
                    stopped = True
                    if token := text_or_none(either(candidate, "continuationToken")):
                        yield Token(token)
            feedback = either(chunk, "promptFeedback")
            if feedback is not None and not stopped and (blocked := _word(either(feedback, "blockReason"))):
                yield Vocabulary(REASONS["promptFeedback"])
                yield Reason(blocked, detail="prompt")
            if error := chunk.get("error"):
                yield Fault(error)

    def _part(self, part: Any, *, first: bool) -> Iterator[Part]:
        """One part. Those of tools that the server runs are no calls of the client's."""
        said, called = text(member(part, "text")), either(part, "functionCall")
        if said:
            yield Reasoning(said) if member(part, "thought") is True else Text(said)
        if isinstance(called, dict):
            yield from self._call(part, called)
        elif self._keep and isinstance(part, dict) and (said or not part.keys() <= _WORDS):
            # Words go on over chunks, as long as no part holds anything that belongs to it alone.
            thinking = part.get("thought") is True if part.keys() <= _WORDS else None
            if not first or thinking is None or thinking is not self._thinking:
                self._blocks += 1
            self._thinking = thinking
            yield Block(self._blocks, part)

    def _call(self, part: Json, piece: Json) -> Iterator[Part]:
        """A call, or a piece of one."""
        id_, name, given = text(piece.get("id")), text(piece.get("name")), piece.get("args")
        pieces = items(either(piece, "partialArgs"))
        call = self._open
        goes_on = call is not None and name in ("", call.name) and id_ in ("", call.id)
        if call is None or not goes_on:
            # Vertex AI ends a streamed call with an empty one, also after the piece that was its last.
            if not (id_ or name or given or pieces):
                return
            self._blocks += 1
            self._thinking = None
            sent = {"id": id_, "name": name} if id_ else {"name": name}
            call = _Call(self._blocks, id_ or minted(self._id, self._calls, name), name, sent)
            self._calls += 1
        call.pieces += pieces
        call.given = None if call.given is None or not isinstance(given, dict | None) else call.given | (given or {})
        call.beside |= {name: value for name, value in part.items() if value is not piece}
        closed = either(piece, "willContinue") is not True
        self._open = None if closed else call
        arguments = _arguments(call) if closed else None
        yield Call(call.key, call.id, call.name, arguments, closed=closed)
        if self._keep and call.pieces and arguments is not None:
            yield Block(call.key, {**call.beside, "functionCall": {**call.sent, "args": arguments}}, begins=True)
        elif self._keep:
            yield Block(call.key, part)


_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")
_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['([^']*)'\]|\["([^"]*)"\]""")
_PLACE: Final = re.compile(rf"\$(?:{_STEP.pattern})+")


def _arguments(call: _Call) -> Json | None:
    """A call's arguments; None where they are no object, or a piece of them has no place.

    Each piece names its place (`$.foo.bar[0]`) and holds one value there. A text comes in several, one after the other.
    """
    found = call.given
    for place, pieces in groupby(call.pieces, key=lambda piece: text(either(piece, "jsonPath"))):
        said = [(name, value) for piece in pieces for name in _VALUES if (value := either(piece, name)) is not None]
        if not said or found is None:
            continue
        name, value = said[-1]
        if all(isinstance(value, str) and name == "stringValue" for name, value in said):
            value = "".join(value for _, value in said)
        elif name == "nullValue":
            value = None
        try:
            found = _put(value, _steps(place), found)
        except (LookupError, RecursionError):
            return None
    return found


def _steps(place: str) -> list[str | int]:
    if _PLACE.fullmatch(place) is None:
        raise LookupError(place)
    return [int(step[2]) if step[2] else step[1] or step[3] or step[4] or "" for step in _STEP.finditer(place)]


def _put(value: Any, steps: Sequence[str | int], inside: Any) -> Any:
    """An object or a list with a value at its place, if there is one. A list grows by one at most."""
    if not steps:
        return inside + value if isinstance(inside, str) and isinstance(value, str) else value
    step, *further = steps
    inside = ([] if isinstance(step, int) else {}) if inside is None else inside
    if isinstance(step, str) and isinstance(inside, dict):
        return {**inside, step: _put(value, further, inside.get(step))}
    if isinstance(step, int) and isinstance(inside, list) and step <= len(inside):
        here = inside[step] if step < len(inside) else None
        return [*inside[:step], _put(value, further, here), *inside[step + 1 :]]
    raise LookupError(step)


def _word(value: Any) -> str | None:
    """A reason by its value: as it is in JSON, or (LangChain) the Python spelling of an enumeration's member."""
    word = raw_text(value)
    return None if word is None else word.removeprefix("FinishReason.").removeprefix("BlockedReason.")


_COUNTED: Final = (
    *("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    *("cachedContentTokenCount", "totalTokenCount"),
)
_COUNTED_SNAKE: Final = tuple(_snake(name) for name in _COUNTED)


def _usage(told: Any) -> Usage | None:
    """Tokens as Google counts them: cached ones are part of the prompt's, a server tool's results are input too."""
    if not isinstance(told, dict):
        return None
    names = _COUNTED_SNAKE if "total_token_count" in told else _COUNTED
    prompt, tools, said, thought, cached, total = [count(told[name]) if name in told else None for name in names]
    asked = prompt if tools is None else (prompt or 0) + tools
    output = said if thought is None else (said or 0) + thought
    if asked is None and output is None and cached is None:
        return None
    # "The sum of" all four; where it is that of the others alone, the candidates' figure has the thoughts in it.
    if thought and asked is not None and asked + (said or 0) == total:
        output = said
    return Usage(asked, output, thought, cached)


# The members of a response, in either spelling: what has none of them is something else.
_MEMBERS: Final = ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId")


def _faulty(data: Any, whole: bool) -> str | None:
    """What cannot be read must not look like an answer that says nothing."""
    chunks = data if isinstance(data, list) and data else [data]
    for chunk in chunks:
        candidates = chunk.get("candidates") or [] if isinstance(chunk, dict) else None
        if not isinstance(candidates, list) or not all(map(_is_candidate, candidates)):
            return f"a response of generateContent is an object with candidates, not {shortened(repr(data), 80)}"
    if whole and all(either(chunk, name) is None for chunk in chunks for name in _MEMBERS):
        return f"a response of generateContent has `candidates`; this has {sorted(map(str, chunks[0]))[:8]}"
    return None


def _is_candidate(candidate: Any) -> bool:
    content = candidate.get("content") or {} if isinstance(candidate, dict) else None
    parts = content.get("parts") or [] if isinstance(content, dict) else None
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    chunks = [chunk for chunk in (data if isinstance(data, list) else [data]) if isinstance(chunk, dict)]
    error = next((chunk["error"] for chunk in chunks if chunk.get("error")), None)
    answered = any(chunk.get("candidates") for chunk in chunks)
    return None if error is None or answered else {"error": error}


REPLY: Final = Reply(name=NAME, reader=Reader, rows=lambda ctx: REASONS[""], faulty=_faulty, failed=_failed)

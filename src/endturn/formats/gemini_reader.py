"""What generateContent answers, as parts. A body is a stream of one chunk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import shortened
from endturn.formats.fold import Fold, Reply
from endturn.formats.parts import Block, Call, Fault, Head, Part, Reason, Reasoning, Text, Token, Tokens, Vocabulary
from endturn.formats.reading import PLAIN, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import raw_text
from endturn.stop_reasons import tables

NAME: Final = "gemini"

REASONS: Final = tables(NAME)
"""dialect → raw value → row. Why a prompt was blocked stands beside the candidates, in words of its own."""

PROMPT: Final = "prompt"
"""The detail of a stop that the prompt caused: there is no answer at all."""

# The members of a response, in either spelling: what has none of them is something else.
_KNOWN: Final = frozenset(
    {"candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata"}
    | {"modelVersion", "model_version", "responseId", "response_id"}
)
_WORDS: Final = frozenset({"text", "thought"})
_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['([^']*)'\]|\["([^"]*)"\]""")
_VALUES: Final = (("stringValue", "string_value"), ("numberValue", "number_value"), ("boolValue", "bool_value"))


def either(thing: Any, name: str, snake: str) -> Any:
    """The member of that name: JSON has it in camelCase, what SDKs dump in snake_case (and JSON may, too)."""
    value = member(thing, name)
    return member(thing, snake) if value is None else value


class _Call:
    """One client call while it arrives: whole, or (Vertex AI) its arguments in pieces, each with its place.

    Attributes:
        sent: the id is the format's own, not minted.
        open: the format said that more of it follows.
        block: the key of its part among the blocks.
    """

    def __init__(self, position: int, id_: str, name: str, block: int, *, sent: bool) -> None:
        self.position, self.id, self.name, self.block, self.sent = position, id_, name, block, sent
        self.open = False
        self.beside: Json = {}
        self.fragments: list[Any] = []

    def arguments(self) -> Json | None:
        """The arguments; None where they are no object, or not whole."""
        if self.open:
            return None
        found: Json = {}
        for fragment in self.fragments:
            given = member(fragment, "args")
            if not isinstance(given, dict | None):
                return None
            found |= given or {}
        if not (pieces := self._pieces()):
            return found
        found = deepcopy(found)
        return found if _place_all(pieces, found) else None

    def _pieces(self) -> list[Any]:
        every = (items(either(fragment, "partialArgs", "partial_args")) for fragment in self.fragments)
        return [piece for pieces in every for piece in pieces]

    def part(self) -> Json:
        """The part in the format's own shape."""
        pieces = self._pieces()
        if len(self.fragments) == 1 and not pieces:
            return {**self.beside, "functionCall": self.fragments[0]}
        function: Json = {"id": self.id} if self.sent else {}
        function["name"] = self.name
        arguments = self.arguments()
        if arguments is not None:
            return {**self.beside, "functionCall": {**function, "args": arguments}}
        # Kept as it came where it is not whole: nothing that was put together can be taken for the model's.
        more = {"willContinue": True} if self.open else {}
        return {**self.beside, "functionCall": {**function, "partialArgs": pieces, **more}}


class Reader:
    """Reads chunks. The finish reason is the terminal: no event follows it."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._id: str | None = None
        self._model: str | None = None
        self._begun: set[int] = set()
        self._reasoned = False
        self._calls: list[_Call] = []
        self._blocks = 0
        self._last: Json | None = None  # the last part, where words may be added to it

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of a chunk. Asked for without `alt=sse`, a stream is one array of them; so is an error's answer."""
        for chunk in event if isinstance(event, list) else (event,):
            if self._id is None or self._model is None:
                self._id = self._id or text_or_none(either(chunk, "responseId", "response_id"))
                self._model = self._model or text_or_none(either(chunk, "modelVersion", "model_version"))
                yield Head(self._id, self._model)
            # Cumulative. Vertex AI's chunks before the last may name nothing but the traffic's type.
            usage = usage_of(either(chunk, "usageMetadata", "usage_metadata"))
            if usage is not None:
                yield Tokens(usage)
            for position, candidate in enumerate(items(member(chunk, "candidates"))):
                index = count(member(candidate, "index"))
                index = position if index is None else index
                if index == 0:
                    for place, part in enumerate(items(member(member(candidate, "content"), "parts"))):
                        said = member(part, "text")
                        if not self._keep and said.__class__ is str and len(part) == 1:
                            yield Text(said)
                        else:
                            yield from self._part(part, first=place == 0)
                    if token := text_or_none(either(candidate, "continuationToken", "continuation_token")):
                        yield Token(token)
                reason = either(candidate, "finishReason", "finish_reason")
                if reason is not None or index not in self._begun:
                    self._begun.add(index)
                    self._reasoned = self._reasoned or (index == 0 and reason is not None)
                    yield Reason(_word(reason, "FinishReason."), index)
            feedback = either(chunk, "promptFeedback", "prompt_feedback")
            if feedback is not None and (blocked := either(feedback, "blockReason", "block_reason")) is not None:
                yield from self._blocked(_word(blocked, "BlockedReason."))
            if error := member(chunk, "error"):
                yield Fault(error)

    def _blocked(self, raw: str | None) -> Iterator[Part]:
        """Why a prompt was blocked, where no candidate says why it stopped."""
        if raw is not None and not self._reasoned:
            yield Vocabulary(REASONS["promptFeedback"])
            yield Reason(raw, detail=PROMPT)

    def _part(self, part: Any, *, first: bool) -> Iterator[Part]:
        """One part. Those of tools that the server runs are no calls of the client's."""
        fragment = either(part, "functionCall", "function_call")
        said = text(member(part, "text"))
        call = None
        if fragment is not None and not isinstance(fragment, PLAIN):
            call = self._call(fragment)
            if call is not None:
                yield self._piece(call, part, fragment)
        elif fragment is not None:
            return
        if said:
            yield Reasoning(said) if member(part, "thought") is True else Text(said)
        if not self._keep or not isinstance(part, Mapping):
            return
        if call is not None:
            self._last = None
            yield Block(call.block, {"functionCall": call}, begins=True)  # put together when all of it is there
        elif fragment is None and (said or not part.keys() <= _WORDS):  # chunks without words close a stream
            if first and self._last is not None and _goes_on(self._last, part):
                yield Block(self._blocks - 1, {"text": said})
            else:
                self._last = dict(part)
                self._blocks += 1
                yield Block(self._blocks - 1, self._last)

    def _call(self, fragment: Any) -> _Call | None:
        """The call that a part belongs to; none where it only marks an end."""
        id_, name = text(member(fragment, "id")), text(member(fragment, "name"))
        call = self._calls[-1] if self._calls else None
        goes_on = call is not None and call.open and name in ("", call.name) and (id_ in ("", call.id) or not call.sent)
        if not goes_on:
            # Vertex AI ends a streamed call with an empty one, also after the piece that was its last.
            if not (id_ or name or member(fragment, "args") or either(fragment, "partialArgs", "partial_args")):
                return None
            position = len(self._calls)
            call = _Call(position, id_ or minted(self._id, position, name), name, self._blocks, sent=bool(id_))
            self._blocks += 1
            self._calls.append(call)
        assert call is not None
        call.open = either(fragment, "willContinue", "will_continue") is True
        return call

    def _piece(self, call: _Call, part: Any, fragment: Any) -> Call:
        if self._keep:
            call.beside |= {name: value for name, value in part.items() if value is not fragment}
            call.fragments.append(fragment)
        given = call.arguments() if self._keep else None
        return Call(call.position, call.id, call.name, given, closed=not call.open)


def _goes_on(here: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Whether another chunk's first part only adds words: neither holds anything that belongs to it alone."""
    plain = here.keys() <= _WORDS and there.keys() <= _WORDS and isinstance(there.get("text"), str)
    return plain and here.get("thought") == there.get("thought")


def _place_all(pieces: Sequence[Any], into: Json) -> bool:
    """Put the pieces of streamed arguments together; whether they fit.

    Each names its place (`$.foo.bar[0]`) and holds one value there. A text comes in several, one after the other.
    """
    path, words = "", [""]
    for piece in pieces:
        said = either(piece, "stringValue", "string_value")
        place = text(either(piece, "jsonPath", "json_path"))
        if place != path and len(words) > 1:
            if not _place(path, "".join(words), into):
                return False
            words = [""]
        path = place
        if isinstance(said, str):
            words.append(said)
            continue
        known = [value for names in _VALUES if (value := either(piece, *names)) is not None]
        none = either(piece, "nullValue", "null_value") is not None
        if (known or none) and not _place(place, known[0] if known else None, into):
            return False
    return len(words) == 1 or _place(path, "".join(words), into)


def _place(path: str, value: Any, into: Json) -> bool:
    """Put a value where a path says; whether there is such a place. A list grows by one at most."""
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return False
        steps.append(int(found[2]) if found[2] else found[1] or found[3] or found[4] or "")
        at = found.end()
    if not steps or path[0] != "$":
        return False
    inside: Any = into
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if not isinstance(inside, list if isinstance(step, int) else dict):
            return False
        place: Any = step
        known = place < len(inside) if isinstance(step, int) else place in inside
        fresh: Any = value
        if following is not None:
            fresh = inside[place] if known else [] if isinstance(following, int) else {}
        elif known and isinstance(value, str) and isinstance(inside[place], str):
            fresh = inside[place] + value
        if known or isinstance(step, str):
            inside[place] = fresh
        elif isinstance(inside, list) and step == len(inside):
            inside.append(fresh)
        else:
            return False
        inside = fresh
    return True


def _word(value: Any, kind: str) -> str | None:
    """A reason by its value: as it is in JSON, or (LangChain) the Python spelling of an enumeration's member."""
    word = raw_text(value)
    return None if word is None else word.removeprefix(kind)


_COUNTED: Final = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
    "totalTokenCount",
)
_SNAKE: Final = tuple(re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name) for name in _COUNTED)


def usage_of(usage: Any) -> Usage | None:
    """Tokens as Google counts them: cached ones are part of the prompt's, a server tool's results are input too."""
    if not isinstance(usage, Mapping):
        return None
    names = _COUNTED if usage.keys() & _COUNTED else _SNAKE
    prompt, tools, said, thought, cached, total = [count(usage.get(name)) for name in names]
    asked = None if prompt is None and tools is None else (prompt or 0) + (tools or 0)
    output = None if said is None and thought is None else (said or 0) + (thought or 0)
    if asked is None and output is None and cached is None:
        return None
    # "The sum of" all four; where it is that of the others alone, the candidates' figure has the thoughts in it.
    if thought and asked is not None and asked + (said or 0) == total:
        output = said
    return Usage(asked, output, thought, cached)


def _blocks(fold: Fold) -> Iterable[Json]:
    """The parts of the answer."""
    for block in fold.blocks.values():
        call = block.get("functionCall")
        yield call.part() if isinstance(call, _Call) else block


def _faulty(data: Any, whole: bool) -> str | None:
    """What cannot be read must not look like an answer that says nothing."""
    chunks = data if isinstance(data, list) and data else [data]
    for chunk in chunks:
        candidates = chunk.get("candidates") or () if isinstance(chunk, Mapping) else None
        if not isinstance(candidates, list | tuple) or not all(map(_is_candidate, candidates)):
            return f"a response of generateContent is an object with candidates, not {shortened(repr(data), 80)}"
    if whole and not any(chunk.keys() & _KNOWN for chunk in chunks):
        return f"a response of generateContent has `candidates`; this has {sorted(map(str, chunks[0]))[:8]}"
    return None


def _is_candidate(candidate: Any) -> bool:
    content = candidate.get("content") or {} if isinstance(candidate, Mapping) else None
    parts = content.get("parts") or () if isinstance(content, Mapping) else None
    return isinstance(parts, list | tuple) and all(isinstance(part, Mapping) for part in parts)


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    chunks = [chunk for chunk in (data if isinstance(data, list) else [data]) if isinstance(chunk, Mapping)]
    error = next((chunk["error"] for chunk in chunks if chunk.get("error")), None)
    answered = any(chunk.get("candidates") for chunk in chunks)
    return None if error is None or answered else {"error": error}


REPLY: Final = Reply(
    name=NAME, reader=Reader, rows=lambda ctx: REASONS[""], faulty=_faulty, failed=_failed, blocks=_blocks
)

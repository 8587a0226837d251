"""Responses of generateContent, whole or streamed, as ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError
from endturn.stop import Resume
from endturn.wires import Context, Event
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.gemini_watch import Call, Watch, either
from endturn.wires.reading import items, member, plain, text

NAME: Final = "gemini"

# The members of a response, in either spelling: what has none of them is something else.
_KNOWN: Final = frozenset(
    {"candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata"}
    | {"modelVersion", "model_version", "responseId", "response_id"}
)
_WORDS: Final = frozenset({"text", "thought"})
_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['([^']*)'\]|\["([^"]*)"\]""")
_VALUES: Final = (("stringValue", "string_value"), ("numberValue", "number_value"), ("boolValue", "bool_value"))


class _Part:
    """One part of the answer while it is built: of words that go on over several chunks, or of one call's pieces."""

    __slots__ = ("call", "fragments", "part", "words")

    def __init__(self, part: Json, call: Call | None = None) -> None:
        self.part = part
        self.words = [text(part.get("text"))]  # Of a call's part: what else it says; by the format, nothing.
        self.call = call
        self.fragments: list[Any] = []

    def add(self, part: Mapping[str, Any]) -> None:
        """Take the next piece of the call; what stands beside it is kept: the signature may come with any."""
        fragment = either(part, "functionCall", "function_call")
        self.part |= {name: value for name, value in part.items() if fragment is not value}
        self.fragments.append(fragment)

    def goes_on_in(self, part: Mapping[str, Any]) -> bool:
        """Whether another chunk's first part only adds words: neither holds anything that belongs to it alone."""
        here, there = self.part, part
        return (
            self.call is None
            and here.keys() <= _WORDS
            and there.keys() <= _WORDS
            and isinstance(there.get("text"), str)
            and here.get("thought") == there.get("thought")
        )

    def arguments(self) -> Json | None:
        """The call's arguments; None where they are no object, or not whole."""
        if self.call is None or self.call.open:
            return None
        found: Json = {}
        for fragment in self.fragments:
            given = member(fragment, "args")
            if not isinstance(given, dict | None):
                return None
            found |= given or {}
        pieces = self.pieces()
        if not pieces:
            return found
        found = deepcopy(found)
        return found if _place_all(pieces, found) else None

    def pieces(self) -> list[Any]:
        """The pieces of streamed arguments."""
        return [
            piece for fragment in self.fragments for piece in items(either(fragment, "partialArgs", "partial_args"))
        ]

    def finished(self) -> Json:
        """The part in the wire's own shape."""
        if self.call is None:
            return self.part | {"text": "".join(self.words)} if len(self.words) > 1 else self.part
        if len(self.fragments) == 1 and not self.pieces():
            return {**self.part, "functionCall": self.fragments[0]}
        function: Json = {"id": self.call.id} if self.call.sent else {}
        function["name"] = self.call.name
        arguments = self.arguments()
        if arguments is not None:
            return {**self.part, "functionCall": {**function, "args": arguments}}
        # Kept as it came where it is not whole: nothing that was put together can be taken for the model's.
        more = {"willContinue": True} if self.call.open else {}
        return {**self.part, "functionCall": {**function, "partialArgs": self.pieces(), **more}}


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


class Kept:
    """Keeps what an answer holds, beside the watch that reads it."""

    __slots__ = ("_parts", "deltas")

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._parts: list[_Part] = []

    def part(self, part: Any, call: Call | None, *, first: bool, started: bool) -> None:
        """Take a part. Words that go on are joined across chunks only: a signature belongs to the part it came with."""
        if call is not None:
            self._call(part, call, started)
        elif either(part, "functionCall", "function_call") is not None:
            return  # The end of a streamed call.
        said = text(member(part, "text"))
        if said:
            self.deltas.append(Delta(reasoning=said) if part.get("thought") is True else Delta(text=said))
        if call is not None or (not said and part.keys() <= _WORDS):
            return  # Chunks without words close a stream.
        if first and self._parts and self._parts[-1].goes_on_in(part):
            self._parts[-1].words.append(said)
        else:
            self._parts.append(_Part(dict(part)))

    def _call(self, part: Mapping[str, Any], call: Call, started: bool) -> None:
        if started:
            self._parts.append(_Part({}, call))
        kept = next(each for each in reversed(self._parts) if each.call is call)
        kept.add(part)
        kept.words.append(text(part.get("text")))
        arguments = kept.arguments()
        raw = "" if arguments is None else json.dumps(arguments)
        id_, name = (call.id, call.name or None) if started else (None, None)
        self.deltas.append(Delta(call=CallFragment(call.position, id_, name, raw)))

    def response(self, watch: Watch, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """All that was kept, with what the watch made of it."""
        seen = watch.close()
        said: list[str] = []
        thought: list[str] = []
        calls: list[ToolCall] = []
        for kept in self._parts:
            (thought if kept.part.get("thought") is True else said).extend(kept.words)
            if kept.call is not None:
                calls.append(
                    ToolCall(
                        id=kept.call.id,
                        name=kept.call.name,
                        arguments=kept.arguments(),
                        closed=watch.closed(kept.call),
                    )
                )
        blocks = tuple(kept.finished() for kept in self._parts)
        # A checkpoint's token that no CONTINUATION follows resumes a text that has gone on since.
        token = watch.token if seen.stop.resume is Resume.NATIVE_TOKEN else None
        return ChatResponse(
            text="".join(said),
            tool_calls=tuple(calls),
            usage=seen.usage,
            reasoning="".join(thought) or None,
            stop=seen.stop,
            id=seen.id,
            model=seen.model,
            blocks=Blocks(NAME, blocks) if blocks else None,
            token=token,
            quota=quota(headers),
        )


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_ctx", "_keep", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._keep = Kept()
        self._watch = Watch(ctx, self._keep)

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is not one of this format.
            ProviderError: the stream reports an error before any finish reason; `partial` holds what had arrived.
        """
        error = next((chunk["error"] for chunk in _chunks(event.data, self._ctx) if chunk.get("error")), None)
        self._keep.deltas.clear()
        self._watch.see(event.data)
        if error is not None and self._watch.broken:
            failure = error_of(200, {}, {"error": error}, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return tuple(self._keep.deltas)

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self._keep.response(self._watch)


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response: a stream of one chunk, or, asked for without `alt=sse`, an array of them.

    Raises:
        DecodeError: it is not a response of generateContent.
        ProviderError: it is an error that came under a status of success.
    """
    body = plain(body)
    chunks = _chunks(body, ctx)
    if not any(chunk.get("candidates") for chunk in chunks):
        error = next((chunk["error"] for chunk in chunks if chunk.get("error")), None)
        if error is not None:
            raise error_of(200, headers or {}, {"error": error}, ctx=ctx)
    if not any(chunk.keys() & _KNOWN for chunk in chunks):
        raise DecodeError(
            f"a response of generateContent has `candidates`; this has {sorted(map(str, chunks[0]))[:8]}",
            provider=ctx.provider,
            body=shortened(repr(body)),
        )
    keep = Kept()
    watch = Watch(ctx, keep)
    watch.see(body)
    return keep.response(watch, headers)


def _chunks(data: Any, ctx: Context) -> Sequence[Mapping[str, Any]]:
    """The chunks of an event or a body.

    Raises:
        DecodeError: the shape is wrong: what cannot be read must not look like an answer that says nothing.
    """
    chunks = data if isinstance(data, list) and data else [data]
    for chunk in chunks:
        candidates = chunk.get("candidates") or () if isinstance(chunk, Mapping) else None
        if not isinstance(candidates, list | tuple) or not all(map(_is_candidate, candidates)):
            raise DecodeError(
                f"a response of generateContent is an object with candidates, not {shortened(repr(data), 80)}",
                provider=ctx.provider,
                body=shortened(repr(data)),
            )
    return chunks


def _is_candidate(candidate: Any) -> bool:
    content = candidate.get("content") or {} if isinstance(candidate, Mapping) else None
    parts = content.get("parts") or () if isinstance(content, Mapping) else None
    return isinstance(parts, list | tuple) and all(isinstance(part, Mapping) for part in parts)

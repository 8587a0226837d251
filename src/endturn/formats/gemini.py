"""generateContent of Google: the Gemini API, and Vertex AI.

Google's own SDK (google-genai 3.4.0) follows continuation tokens by itself unless `automatic_continuation` is False: it
hides the hops, and whoever watches its objects sees one response.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from endturn.chat import ChatResponse, Json, Usage
from endturn.formats.encoding import encodes
from endturn.formats.format import Format
from endturn.formats.next_request import resumes
from endturn.formats.parts import (
    Block,
    Call,
    Fault,
    Head,
    Part,
    Reason,
    Reasoning,
    Text,
    Token,
    Tokens,
    Vocabulary,
)
from endturn.formats.reading import count, first, items, member, minted, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, asked, routed_by
from endturn.formats.summaries import Context, RequestSummary, Voice
from endturn.stop import StopReason, raw_text
from endturn.stop_reasons import rows_of

NAME: Final = "gemini"

# --- Replies ----------------------------------------------------------------------------------------------------------

_WORDS: Final = frozenset({"text", "thought"})
_MEMBERS: Final = ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId")
"""The members of a response: what has none of them is something else."""
_OF_SDK: Final = ("prompt_feedback", "usage_metadata", "model_version", "response_id")
"""What tells that the SDK has dumped a response by its own names."""
_COUNTED: Final = (
    *("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    *("cachedContentTokenCount", "totalTokenCount"),
)
# Words by their numbers, which Google's older clients ask for (`$alt=json;enum-encoding=int`). Higher numbers mean one
# thing to the Gemini API and another to Vertex AI.
_FINISH_REASONS: Final = ("FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
_BLOCK_REASONS: Final = ("BLOCKED_REASON_UNSPECIFIED", "SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT")


@dataclass(slots=True)
class _Call:
    """A client call. Vertex AI may send its arguments in pieces, each with its place.

    Attributes:
        key: of its block.
        block: what its parts say, but for the arguments.
        given: the arguments that came as an object; None where one of them was none.
    """

    key: int
    id: str
    name: str
    block: Json
    given: Json | None = field(default_factory=dict)
    pieces: list[Any] = field(default_factory=list)


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
            if not chunk.keys().isdisjoint(_OF_SDK):
                chunk = _camelled(chunk)
            if self._id is None:
                self._id = text_or_none(chunk.get("responseId"))
                yield Head(self._id, text_or_none(chunk.get("modelVersion")))
            # Cumulative. Vertex AI's chunks before the last may name nothing but the traffic's type.
            if (usage := _usage(chunk.get("usageMetadata"))) is not None:
                yield Tokens(usage)
            stopped = False
            for candidate in items(chunk.get("candidates")):
                index, reason = count(member(candidate, "index")) or 0, member(candidate, "finishReason")
                if index == 0:
                    for place, part in enumerate(items(member(member(candidate, "content"), "parts"))):
                        said = member(part, "text")
                        if said.__class__ is str and len(part) == 1 and not self._keep:
                            yield Text(said)
                        else:
                            yield from self._part(part, first=place == 0)
                if index or reason is not None:
                    yield Reason(_word(reason, _FINISH_REASONS), index)
                if index == 0 and reason is not None:
                    stopped = True
                    if token := text_or_none(member(candidate, "continuationToken")):
                        yield Token(token)
            feedback = None if stopped else chunk.get("promptFeedback")
            if feedback is not None and (blocked := _word(member(feedback, "blockReason"), _BLOCK_REASONS)):
                yield Vocabulary(rows_of(NAME, "promptFeedback"))  # words of its own
                yield Reason(blocked, detail="prompt")
            if error := chunk.get("error"):
                yield Fault(error)

    def _part(self, part: Any, *, first: bool) -> Iterator[Part]:
        """One part. Those of tools that the server runs are no calls of the client's."""
        said, called = text(member(part, "text")), member(part, "functionCall")
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
        pieces, call = items(piece.get("partialArgs")), self._open
        if call is None or name not in ("", call.name) or id_ not in ("", call.id):
            # Vertex AI ends a streamed call with an empty one, also after the piece that was its last.
            if not (id_ or name or given or pieces):
                return
            self._blocks += 1
            self._thinking = None
            sent = {"id": id_, "name": name} if id_ else {"name": name}
            call = _Call(self._blocks, id_ or minted(self._id, self._calls, name), name, {"functionCall": sent})
            self._calls += 1
        call.pieces += pieces
        call.given = None if call.given is None or not isinstance(given, dict | None) else call.given | (given or {})
        call.block = {**part, **call.block}
        closed = piece.get("willContinue") is not True
        self._open = None if closed else call
        arguments = _arguments(call) if closed else None
        yield Call(call.key, call.id, call.name, arguments, closed=closed)
        if self._keep and call.pieces and arguments is not None:
            whole = {**call.block["functionCall"], "args": arguments}
            yield Block(call.key, {**call.block, "functionCall": whole}, begins=True)
        elif self._keep:
            yield Block(call.key, part)


_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")
_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\[["']([^"']*)["']\]""")
_PLACE: Final = re.compile(rf"\$(?:{_STEP.pattern})+")


def _arguments(call: _Call) -> Json | None:
    """A call's arguments; None where they are no object, or a piece of them has no place.

    Each piece names its place (`$.foo.bar[0]`) and holds one value there. A text comes in several, one after the other.
    """
    whole: Json = {"$": call.given}
    try:
        for piece in call.pieces:
            named = [(name, value) for name in _VALUES if (value := member(piece, name)) is not None]
            if named and call.given is not None:
                _put(whole, text(member(piece, "jsonPath")), None if named[0][0] == "nullValue" else named[0][1])
    except (LookupError, AttributeError, TypeError):
        return None
    return call.given


def _put(holder: Any, place: str, value: Any) -> None:
    """Put a value at its place. A text goes on there; a list grows by one at most."""
    if _PLACE.fullmatch(place) is None:
        raise LookupError(place)
    key: str | int = "$"
    for name, index, quoted in _STEP.findall(place):
        if holder[key] is None:
            holder[key] = [] if index else {}
        holder, key = holder[key], int(index) if index else name or quoted
        if key == len(holder) and index:
            holder.append(None)
        elif not index:
            holder.setdefault(key, None)
    holder[key] = holder[key] + value if isinstance(holder[key], str) and isinstance(value, str) else value


def _camelled(thing: Any) -> Any:
    """A response as JSON has it, of one that the SDK has dumped by its own names."""
    if not isinstance(thing, dict):
        return [*map(_camelled, thing)] if isinstance(thing, list) else thing
    own = ("args", "response")  # what tools are given, and answer
    return {_camel_case(name): value if name in own else _camelled(value) for name, value in thing.items()}


def _camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


def _word(value: Any, numbered: tuple[str, ...]) -> str | None:
    """A reason as it is in JSON, of one by its number, or (LangChain) in an enumeration's Python spelling."""
    if value.__class__ is int and 0 <= value < len(numbered):
        return numbered[value]
    word = raw_text(value)
    return None if word is None else word.removeprefix("FinishReason.").removeprefix("BlockedReason.")


def _usage(told: Any) -> Usage | None:
    """Tokens as Google counts them: cached ones are part of the prompt's, a server tool's results are input too.

    Read one by one, for they stand in every chunk.
    """
    if not isinstance(told, dict):
        return None
    prompt, tools, said, thought, cached, total = [count(told.get(name)) for name in _COUNTED]
    asked = prompt if tools is None else (prompt or 0) + tools
    output = said if thought is None else (said or 0) + thought
    if asked is None and output is None and cached is None:
        return None
    # "The sum of" all four; where it is that of the others alone, the candidates' figure has the thoughts in it.
    if thought and asked is not None and asked + (said or 0) == total:
        output = said
    return Usage(asked, output, thought, cached)


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    chunks = [chunk for chunk in (data if isinstance(data, list) else [data]) if isinstance(chunk, dict)]
    error = next((chunk["error"] for chunk in chunks if chunk.get("error")), None)
    return None if error is None or any(chunk.get("candidates") for chunk in chunks) else {"error": error}


# --- Where a request goes ---

_PATH: Final = (
    rf"{SEGMENTS}(?:/v\d+)?{SEGMENTS}/(?:models/)?(?P<model>(?:(?<=/models/)|tunedModels/|endpoints/)[^/:]+)"
    r":(?:(?P<whole>generateContent)|(?P<stream>streamGenerateContent))"
)
_NAMED: Final = re.compile(r"(?:models|tunedModels|endpoints|publishers|projects)/.")


def _in_path(model: str) -> str:
    """A model may be named with what it is: "tunedModels/mine", "endpoints/123"."""
    return quote(model) if _NAMED.match(model) else f"models/{quote(model, safe='')}"


# --- What a request says ---


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for: a body, or the SDK's arguments (`config` is a dictionary or its object)."""
    given, config = kwargs.get("contents"), kwargs.get("config")
    settings = first(kwargs, "generationConfig", "generation_config") if config is None else config
    return asked(
        NAME,
        settings,
        model=text(kwargs.get("model")),
        stream=kwargs.get("stream") is True,
        history=given if isinstance(given, list | tuple) else () if given is None else (given,),
        system=first(kwargs if config is None else config, "systemInstruction", "system_instruction"),
    )


# --- What a scripted server says ---


def _says(response: ChatResponse, stop: str | None, dialect: str) -> Json:
    # The SDK stops where the token is the one that it has sent.
    token = urlsafe_b64encode(f"after {response.id}".encode()).decode()
    return {"token": token if stop == "CONTINUATION" else None}


FORMAT: Final = Format(
    name=NAME,
    provider="gcp.gemini",
    # A call of a tool is told by the part, beside a STOP; the full window by a MAX_TOKENS.
    voice=Voice(
        "response-", "function-call-", "x-request-id", {StopReason.TOOL_CALL: "STOP", StopReason.ERROR: "OTHER"}
    ),
    paths={"": "/{model}:[generateContent|streamGenerateContent?alt=sse]"},
    in_path=_in_path,
    routed=routed_by(_PATH),
    body=encodes(NAME),
    resume=resumes(NAME, lambda said: {"text": said}, forced="toolConfig"),
    own_summary=request_summary,
    reader=Reader,
    called=("a response of generateContent", "a chunk of generateContent"),
    needs=(*_MEMBERS, *_OF_SDK),
    objects=("candidates[].content.parts[]",),
    lists=True,
    failed=_failed,
    says=_says,
)

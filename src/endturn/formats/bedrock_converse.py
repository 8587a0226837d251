"""The Converse API of Amazon Bedrock: one format for all the models that it serves."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.chat import Json, Message
from endturn.formats.encoding import encodes
from endturn.formats.errors import error_words
from endturn.formats.fold import Fold
from endturn.formats.format import Format
from endturn.formats.history import call_in
from endturn.formats.next_request import resumes, sent_back
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens, usage_in
from endturn.formats.reading import count, items, member, minted, object_or_text, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import Context, Event, Framing, Voice

NAME: Final = "bedrock_converse"

# --- Replies ----------------------------------------------------------------------------------------------------------


class Reader:
    """Reads events, each an object of one member, or one whole body. boto3 gives blobs as bytes."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._begun: dict[int, bool] = {}  # the blocks that have begun, by index: whether it is a call of the client's

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        for name, payload in event.items() if isinstance(event, dict) else ():
            index = count(member(payload, "contentBlockIndex")) or 0
            match name:
                case "contentBlockDelta":
                    yield from self._delta(index, member(payload, "delta"))
                case "contentBlockStart":
                    yield from self._start(index, member(payload, "start"), closed=False)
                case "contentBlockStop" if self._begun.get(index):
                    yield Call(index, closed=True)
                case "messageStop":
                    yield _reason(payload)
                case "metadata":
                    yield from _figures(payload)
                    yield End()
                case "output" if payload is not None:
                    yield from self._content(member(payload, "message"))
                    yield _reason(event)
                    yield from _figures(event)
                    yield End(whole=True)
                case _ if (error := exception(name, payload)) is not None:
                    yield Fault(error)

    def _content(self, message: Any) -> Iterator[Part]:
        for index, block in enumerate(items(member(message, "content"))):
            # What stands beside citations is text like any other.
            cited = items(member(member(block, "citationsContent"), "content"))
            yield Text("".join(text(member(part, "text")) for part in (block, *cited)))
            yield Reasoning(text(member(member(member(block, "reasoningContent"), "reasoningText"), "text")))
            yield from self._start(index, block, closed=True)

    def _start(self, index: int, block: Any, *, closed: bool) -> Iterator[Part]:
        """A block begins, or is there: an object with one member, named after its kind."""
        use = call_in(block)
        self._begun[index] = use is not None
        if use is not None:
            # An id for a call that has none, in the block too: the result that answers it must name the same.
            id_, name = text(use.get("toolUseId")), text(use.get("name"))
            use = {**use, "toolUseId": id_ or minted(name, index)}
            given = use.get("input", {})
            yield Call(index, use["toolUseId"], name, given if isinstance(given, dict | str) else "", closed=closed)
            block = {**block, "toolUse": use}
        if self._keep and isinstance(block, dict):
            yield Block(index, block)

    def _delta(self, index: int, delta: Any) -> Iterator[Part]:
        """A piece of a block. Text and reasoning begin without a start."""
        for kind, content in delta.items() if isinstance(delta, dict) else ():
            piece = content
            match kind:
                case "text":
                    piece = text(content)
                    yield Text(piece)
                case "reasoningContent":
                    yield Reasoning(text(member(content, "text")))
                case "toolUse":
                    if index not in self._begun:
                        return  # A call that nobody named.
                    piece = {"input": text(member(content, "input"))}
                    if self._begun[index]:
                        yield Call(index, arguments=piece["input"])
                case "toolResult":
                    piece = {"content": [*items(content)]}
                case "citation":
                    kind, piece = "citations", [content]
            if self._keep:
                self._begun.setdefault(index, False)
                yield Block(index, {kind: piece})


def _reason(holder: Any) -> Part:
    # What matched is told only where the request asked for it: additionalModelResponseFieldPaths ["/stop_sequence"],
    # and for streams ["/delta/stop_sequence"], for the fields are those of the model's own last event.
    fields = member(holder, "additionalModelResponseFields")
    matched = (text_or_none(member(each, "stop_sequence")) for each in (fields, member(fields, "delta")))
    return Reason(member(holder, "stopReason"), detail=next(filter(None, matched), None))


def _figures(holder: Any) -> Iterator[Part]:
    if (found := usage_in(NAME, member(holder, "usage"))) is not None:
        yield Tokens(found)
    # Where a prompt router was asked, the model that it chose; the API names no other.
    router = member(member(holder, "trace"), "promptRouter")
    yield Head(model=text_or_none(member(router, "invokedModelId")))


def exception(name: str, payload: Any) -> Json | None:
    """An exception event as an error, its type beside its message; None for any other event."""
    if not name.endswith("Exception") and not text(member(payload, "message")):
        return None
    return {**(payload if isinstance(payload, dict) else {}), "type": name}


def _blocks(fold: Fold) -> Iterable[Json]:
    """The content blocks as a body has them, from their pieces; bytes in base64."""
    for block in fold.blocks.values():
        match block:
            case {"citations": cited, **rest}:
                said = {"text": text(rest.get("text"))}
                block = {"citationsContent": {"content": [said], "citations": cited}}
            case {"toolUse": {**use}}:
                raw = use.get("input") or {}
                block = {"toolUse": {**use, "input": object_or_text(raw) if isinstance(raw, str) else raw}}
            case {"reasoningContent": {"text": _} | {"signature": _} as thought}:
                block = {"reasoningContent": {"reasoningText": {"text": "", **thought}}}
        yield json.loads(json.dumps(block, default=lambda blob: base64.b64encode(blob).decode()))


def _failed(data: Any) -> Any:
    """The exception that stands where an answer should."""
    found = (exception(*each) for each in (data.items() if isinstance(data, dict) else ()))
    return next(filter(None, found), None)


# --- Requests ---------------------------------------------------------------------------------------------------------


def _replayed(message: Message, own: Iterable[Json]) -> list[Json]:
    """The blocks of an answer. A type that some models give a call is none that the API takes."""
    return [_untyped(block) for block in sent_back(own, message.tool_calls)]


def _untyped(block: Json) -> Json:
    use = call_in(block)
    return block if use is None else {"toolUse": {name: use[name] for name in use if name != "type"}}


# --- Scripted replies -------------------------------------------------------------------------------------------------

_IN_STREAMS: Final[Mapping[str, str]] = {
    "InternalServerException": "internalServerException",
    "ModelErrorException": "modelStreamErrorException",
    "ServiceUnavailableException": "serviceUnavailableException",
    "ThrottlingException": "throttlingException",
}
"""The exceptions that a stream knows by a name of their own; any other is validationException there."""


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body, its type as AWS's JSON has it; within a stream, an exception."""
    said = error_words(NAME, status, code, message)
    if stream:
        return Event(None, {_IN_STREAMS.get(said.type, "validationException"): {"message": said.message}})
    return {"__type": said.type, "message": said.message}


FORMAT: Final = Format(
    name=NAME,
    provider="aws.bedrock",
    framing=Framing.EVENTSTREAM,
    voice=Voice("", "tooluse_", "x-amzn-requestid"),
    # The model is quoted as botocore does, an ARN's ':' and '/' too.
    paths={"": "/model/{model}/converse[|-stream]"},
    routed=routed_by(rf"{SEGMENTS}/model/(?P<model>.+)/converse(?:(?P<stream>-stream)|(?P<whole>))"),
    body=encodes(NAME, _replayed),
    resume=resumes(NAME, lambda said: {"text": said}, forced="toolConfig.toolChoice"),
    reader=Reader,
    called=("an answer of Converse", "an event of a Converse stream"),
    needs=("output.message.content",),
    objects=("output.message.content[]",),
    failed=_failed,
    blocks=_blocks,
    own_error=reply_error,
)

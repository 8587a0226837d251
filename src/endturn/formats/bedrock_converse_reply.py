"""Our responses as Bedrock's Converse API would send them: for a provider that plays a script."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Usage
from endturn.formats.bedrock_converse_reader import NAME, REASONS, client_call
from endturn.formats.error_words import error_words
from endturn.formats.reading import items, text
from endturn.formats.scripting import raw_reason
from endturn.formats.summaries import Event

_WORD: Final = re.compile(r"\s*\S+|\s+")

_IN_STREAMS: Final[Mapping[str, str]] = {
    "InternalServerException": "internalServerException",
    "ModelErrorException": "modelStreamErrorException",
    "ServiceUnavailableException": "serviceUnavailableException",
    "ThrottlingException": "throttlingException",
}
"""The exceptions that a stream knows by a name of their own; any other is validationException there."""


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the events of a stream."""
    raw = raw_reason(response.stop, REASONS[""])
    ending: Json = {"stopReason": raw}
    if raw == "stop_sequence" and response.stop.detail:
        fields = {"stop_sequence": response.stop.detail}
        ending["additionalModelResponseFields"] = {"delta": fields} if stream else fields
    figures: Json = {"metrics": {"latencyMs": 1}}
    if response.usage is not None:
        figures["usage"] = _usage(response.usage)
    if response.model is not None and response.model.startswith("arn:"):
        figures["trace"] = {"promptRouter": {"invokedModelId": response.model}}
    blocks = _blocks(response)
    if not stream:
        content = [_whole(block) for block in blocks]
        return {"output": {"message": {"role": "assistant", "content": content}}, **ending, **figures}
    data: list[Json] = [{"messageStart": {"role": "assistant"}}]
    cut = {call.id for call in response.tool_calls if not call.closed}
    for index, block in enumerate(blocks):
        start, deltas = _pieces(block)
        at = {"contentBlockIndex": index}
        if start is not None:
            data.append({"contentBlockStart": {"start": start, **at}})
        data += [{"contentBlockDelta": {"delta": delta, **at}} for delta in deltas]
        use = block.get("toolUse")
        breaks_off = not response.stop.terminal_seen and index == len(blocks) - 1
        if not breaks_off and not (client_call(use) and use.get("toolUseId") in cut):
            data.append({"contentBlockStop": at})
    if response.stop.terminal_seen:
        data += [{"messageStop": ending}, {"metadata": figures}]
    return [Event(None, each) for each in data]


def _whole(block: Json) -> Json:
    """A block as a body has it: the input of a call that was cut is an object all the same, an empty one."""
    use = block.get("toolUse")
    return {"toolUse": {**use, "input": {}}} if use is not None and isinstance(use.get("input"), str) else block


def _pieces(block: Json) -> tuple[Json | None, list[Json]]:
    """A block as a stream sends it: its start, which text and reasoning have not, and its deltas."""
    kind, content = next(iter(block.items()), ("text", ""))
    if kind == "text":
        return None, [{"text": word} for word in _WORD.findall(text(content))]
    if not isinstance(content, Mapping):
        return None, []
    match kind:
        case "citationsContent":
            said = "".join(text(part.get("text")) for part in items(content.get("content")))
            cited = [{"citation": each} for each in items(content.get("citations"))]
            return None, [{"text": word} for word in _WORD.findall(said)] + cited
        case "reasoningContent" if isinstance(content.get("reasoningText"), Mapping):
            thought = content["reasoningText"]
            pieces: list[Json] = [{"text": word} for word in _WORD.findall(text(thought.get("text")))]
            if thought.get("signature"):
                pieces.append({"signature": thought["signature"]})
            return None, [{"reasoningContent": piece} for piece in pieces]
        case "reasoningContent":
            return None, [{"reasoningContent": content}]
        case "toolUse":
            given = content.get("input")
            raw = given if isinstance(given, str) else json.dumps(given) if given else ""
            start = {name: value for name, value in content.items() if name != "input"}
            return {"toolUse": start}, [{"toolUse": {"input": word}} for word in _WORD.findall(raw) or [""]]
        case "toolResult":
            start = {name: value for name, value in content.items() if name != "content"}
            return {"toolResult": start}, [{"toolResult": [each]} for each in items(content.get("content"))]
        case _:
            return None, [{kind: content}]


def _blocks(response: ChatResponse) -> list[Json]:
    if response.blocks is not None and response.blocks.format == NAME:
        return list(response.blocks.items)
    blocks: list[Json] = []
    if response.reasoning:
        thought = {"text": response.reasoning, "signature": "c2NyaXB0ZWQ="}
        blocks.append({"reasoningContent": {"reasoningText": thought}})
    if response.text:
        blocks.append({"text": response.text})
    for call in response.tool_calls:
        given: Any = call.arguments_raw if call.arguments is None else call.arguments
        blocks.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": given or {}}})
    return blocks


def _usage(usage: Usage) -> Json:
    read, made = usage.cache_read_tokens, usage.cache_write_tokens
    whole, generated = usage.input_tokens or 0, usage.output_tokens or 0
    written: Json = {
        "inputTokens": max(0, whole - (read or 0) - (made or 0)),
        "outputTokens": generated,
        "totalTokens": whole + generated,
    }
    if read is not None:
        written["cacheReadInputTokens"] = read
    if made is not None:
        written["cacheWriteInputTokens"] = made
    return written


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body, its type as AWS's JSON has it; within a stream, an exception."""
    said = error_words(NAME, status, code, message)
    if stream:
        return Event(None, {_IN_STREAMS.get(said.type, "validationException"): {"message": said.message}})
    return {"__type": said.type, "message": said.message}

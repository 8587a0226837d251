"""Read a request's body, in any format's shape, as our Request.

Used by scripted providers and for captured content.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from endturn.errors import DecodeError
from endturn.formats.call_arguments import arguments
from endturn.formats.content_parts import medium, thinking_text, visible_text
from endturn.formats.format import Format
from endturn.formats.history import BODY, body_of, call_in, result_in, role, says_error
from endturn.formats.reading import (
    first_member,
    first_text,
    items,
    member,
    mint_id,
    text,
    text_or_none,
    value_at,
)
from endturn.formats.settings import LIMIT_MEMBERS, SETTINGS_MEMBERS, tools_in
from endturn.vocabulary import Blocks, Json, Message, Request, ToolCall

_MESSAGES_OPTIONAL: Final = frozenset(
    {"bedrock_converse", "completions", "gemini_interactions", "ollama", "openai_responses"}
)
"""Formats whose requests may have no messages: an earlier response, a managed prompt or token ids
replace them, or nothing does."""
_PART_FORMATS: Final = frozenset({"anthropic", "bedrock_converse", "gemini"})
"""Formats that send an answer back part by part; the others send back the message."""
_ITEM_FORMATS: Final = frozenset({"openai_responses", "gemini_interactions"})
"""Formats whose history is a list of items, of which several make up one answer."""

_REQUEST_MEMBERS: Final = frozenset(
    {
        *(
            "model",
            "model_id",
            "system",
            "instructions",
            "systemInstruction",
            "system_instruction",
            "preamble",
        ),
        *("messages", "message", "contents"),
        *(
            "chat_history",
            "tool_results",
            "stream",
            "stream_options",
            "temperature",
            "seed",
            "random_seed",
        ),
        *(
            "previous_response_id",
            "previous_interaction_id",
            "continuation_token",
            "continuationToken",
        ),
    }
)
"""Members that have a field in our Request, whatever their value."""
_PROMPT_MEMBERS: Final = ("prompt", "inputs", "inputText", "input", "text")
"""Members that hold the prompt, if they are text; of several prompts, the message has the first."""
_DEFAULT_VALUES: Final[tuple[Any, ...]] = (None, [], {"type": "text"})
"""Default values of tools and of the answer's format."""
_FREE_CHOICES: Final = {"tool_choice": "auto", "function_call": "auto"}  # defaults, too

_CHOICES: Final = {"none": "none", "required": "required", "any": "required"}
_SCHEMA_PATHS: Final = (
    *(
        "response_format.json_schema.schema",
        "response_format.json_schema",
        "response_format.schema",
    ),
    *("text.format.schema", "output_config.format.schema", "output_format.schema", "format"),
    *("outputConfig.textFormat.structure.jsonSchema.schema", "generationConfig.responseJsonSchema"),
    "generation_config.response_json_schema",
)
"""The paths of the schema of a request's answer."""


def request_of(format: Format, body: Json) -> Request:
    """Return a request's body as our Request.

    `extra` holds members that our Request lacks, or would write differently.

    Args:
        body: including `model` and `stream`, wherever the format has them.

    Raises:
        DecodeError: the body is not in the format.
    """
    # A managed prompt determines the model, and Cohere's first API has a default.
    model_or_prompt = first_text(body, "model", "model_id", "agent") or body.keys() & {
        "prompt",
        "message",
    }
    if not model_or_prompt and format.name not in ("completions", "bedrock_invoke"):
        raise DecodeError("a request must name its `model`")
    format = format if format.inner is None else format.inner(body)
    name, summary = format.name, format.request_summary(body)
    if not summary.history and name not in _MESSAGES_OPTIONAL:
        raise DecodeError(f"a request of the format {name} needs messages, or a prompt text")
    schema = _schema(body)
    request = Request(
        model=first_text(body, "model", "model_id"),
        messages=(),
        tools=tuple(tools_in(body)),
        tool_choice=_tool_choice(body),
        max_tokens=summary.facts.max_tokens or None,
        temperature=summary.facts.temperature,
        seed=summary.facts.seed,
        format={"type": "json_object"} if schema is None and summary.json_format else schema,
        token=text_or_none(first_member(body, "continuation_token", "continuationToken")),
        previous_id=summary.facts.previous_response_id,
    )
    is_first_api = name == "cohere" and "message" in body
    messages = _messages("" if is_first_api else name, summary.history)
    if system := _content(first_member(summary.system, "parts") or summary.system):
        messages.insert(0, Message(role="system", content=system))
    covered = _REQUEST_MEMBERS | (LIMIT_MEMBERS if request.max_tokens else frozenset())
    if name in _ITEM_FORMATS or isinstance(first_member(body, *_PROMPT_MEMBERS), str):
        covered |= {"input"} if name in _ITEM_FORMATS else {*_PROMPT_MEMBERS}
    encoded = format.encode(request, dialect="v1" if is_first_api else "")
    return request.but(
        messages=tuple(messages), extra=_extra_members(body, _FREE_CHOICES | encoded, covered)
    )


def _extra_members(body: Json, encoded: Json, covered: frozenset[str]) -> Json:
    """Return the members of a body that our Request lacks, or would write differently.

    Settings objects are reduced in the same way.
    """
    extra: Json = {}
    for name, value in body.items():
        if name in SETTINGS_MEMBERS and isinstance(value, dict):
            value = _extra_members(value, _FREE_CHOICES | (encoded.get(name) or {}), covered)
            if not value:
                continue
        if name not in covered and value not in _DEFAULT_VALUES and value != encoded.get(name):
            extra[name] = value
    return extra


# --- Tools and the form of the answer -------------------------------------------------------------


def _tool_choice(body: Json) -> str:
    config = first_member(body, "toolConfig", "tool_config")
    choice = first_member(body, "tool_choice") or first_member(
        config, "toolChoice", "functionCallingConfig"
    )
    choice = choice or value_at(body, "generation_config.tool_choice")
    if isinstance(choice, str):
        return _CHOICES.get(choice.lower(), "auto")
    tool_name = (
        first_member(choice, "name")
        or value_at(choice, "function.name")
        or value_at(choice, "tool.name")
    )
    allowed = items(
        first_member(choice, "allowedFunctionNames") or value_at(choice, "allowed_tools.tools")
    )
    if isinstance(tool_name, str) or (
        len(allowed) == 1 and isinstance(tool_name := allowed[0], str)
    ):
        return tool_name
    word = first_member(choice, "type", "mode") or next(
        iter(choice if isinstance(choice, dict) else ()), ""
    )
    return _CHOICES.get(text(word).lower(), "auto")


def _schema(body: Json) -> Json | None:
    for path in _SCHEMA_PATHS:
        schema = value_at(body, path)
        if isinstance(schema, str):  # Converse's is JSON in JSON.
            schema = arguments(schema)
        if isinstance(schema, dict):
            return schema
    return None


# --- The conversation -----------------------------------------------------------------------------

_PART_MEMBERS: Final = frozenset({"type", "json", "image", "document", "video", "searchResult"})
"""Members of a result's content part that an object from a tool lacks."""
_RESULT_TEXT_MEMBERS: Final = ("output", "error", "content", "text")
"""The members of an object that is a result's text."""
_MESSAGE_MEMBERS: Final = frozenset({*BODY, "role", "type", "tool_call_id"})
"""The members of a message that our Message holds completely."""


def _parts(value: Any) -> list[Json]:
    return [
        part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)
    ]


def _content(value: Any) -> str | list[Json]:
    """Return text, or parts; a single part of text becomes that text."""
    if isinstance(value, str | None):
        return value or ""
    parts = _parts(value)
    single = parts[0] if len(parts) == 1 and parts[0].keys() <= {"type", "text"} else {}
    return single["text"] if isinstance(single.get("text"), str) else parts


def _messages(format_: str, history: Iterable[Any]) -> list[Message]:
    answers: list[list[Message]] = []
    pending_calls: _PendingCalls = OrderedDict()
    for position, raw in enumerate(history):
        for message in _messages_of(format_, raw, position, pending_calls):
            if (
                format_ in _ITEM_FORMATS
                and answers
                and answers[-1][-1].role == message.role == "assistant"
            ):
                answers[-1].append(message)
            else:
                answers.append([message])
    return [_merge_items(messages) for messages in answers]


_PendingCalls = OrderedDict[str, ToolCall]
"""Calls without a result so far, by their ids: some formats have no ids in their results."""


def _messages_of(
    format_: str, raw: Any, position: int, pending_calls: _PendingCalls
) -> Iterator[Message]:
    speaker, body = _speaker(format_, raw), body_of(raw)
    if speaker is None or not isinstance(body, str | list | dict | None):
        raise DecodeError(
            "a message needs a known role, and text or a list of parts as its content"
        )
    parts = _parts(body)
    if speaker == "assistant":
        calls = tuple(_calls(format_, raw, parts, position))
        for call in calls:
            pending_calls.setdefault(call.id, call)
        visible = text(body) or "".join(
            visible_text(part) for part in parts if thinking_text(part) is None
        )
        visible = "" if role(raw) == "thought" else visible
        replay = tuple(parts) if format_ in _PART_FORMATS and parts else (raw,)
        yield Message(
            role=speaker,
            content=visible,
            tool_calls=calls,
            blocks=_blocks(format_, speaker, raw, *replay),
        )
        return
    results = [(result, part) for part in parts if (result := result_in(part)) is not None]
    rest = [part for part in parts if result_in(part) is None]
    if speaker == "tool":
        results = results or [
            (result, raw) for result in items(member(raw, "tool_results")) or (raw,)
        ]
    for result, part in results:
        yield _result(result, _blocks(format_, "tool", part, part), pending_calls)
    if speaker != "tool" and (rest or not results):
        content = _content(raw if body is None else rest if isinstance(body, list) else body)
        yield Message(
            role=speaker,
            content=content,
            blocks=None if results else _blocks(format_, speaker, raw, raw),
        )


def _speaker(format_: str, raw: Any) -> Any:
    speaker = role(raw)
    if speaker in ("system", "user", "assistant", "tool"):
        return speaker
    if format_ not in _ITEM_FORMATS or not isinstance(raw, dict):
        return None
    if text(raw.get("type")).endswith("_output"):
        return "tool"
    return "user" if medium(raw) else "assistant"


def _blocks(format_: str, speaker: str, raw: Any, *replay: Json) -> Blocks | None:
    """Return the blocks that are sent back for a message; None if our Message holds all of it.

    A system message within the history keeps its place, in formats that have system messages
    outside the history. Cohere's first API (`""`) has no blocks.
    """
    if not format_ or not isinstance(raw, dict):
        return None
    is_placed = speaker == "system" and format_ in _PART_FORMATS | _ITEM_FORMATS
    is_answer = speaker == "assistant" and (
        format_ in _ITEM_FORMATS or raw.get("content", raw).__class__ is not str
    )
    is_ours = (
        raw.keys() <= _MESSAGE_MEMBERS
        and text(raw.get("role")) in ("", speaker)
        and not is_placed
        and not is_answer
    )
    return None if is_ours else Blocks(format_, replay)


def _calls(format_: str, raw: Any, parts: list[Json], position: int) -> Iterator[ToolCall]:
    pairs = [
        (call, first_member(call, "function", "custom") or call)
        for call in items(member(raw, "tool_calls"))
    ]
    pairs += [(call, call) for part in (raw, *parts) if (call := call_in(part)) is not None]
    # Ollama's `encode` has the same seed.
    seed = ("history",) if format_ == "ollama" else ("history", position)
    for number, (call, function) in enumerate(pairs):
        call_arguments = first_member(function, "arguments", "input", "args", "parameters")
        yield ToolCall(
            id=first_text(call, "call_id", "toolUseId", "id") or mint_id(*seed, number),
            name=text(member(function, "name")),
            arguments_raw=call_arguments if isinstance(call_arguments, str) else None,
            arguments=arguments(call_arguments)
            if isinstance(call_arguments, str)
            else call_arguments
            if isinstance(call_arguments, dict)
            else None,
        )


def _result(result: Any, blocks: Blocks | None, pending_calls: _PendingCalls) -> Message:
    """Return a tool result; without an id it belongs to the first pending call of its name."""
    id_ = first_text(result, "tool_call_id", "tool_use_id", "toolUseId", "call_id", "id")
    if not id_:
        name = first_text(result, "name", "tool_name") or text(value_at(result, "call.name"))
        id_ = next((call.id for call in pending_calls.values() if name in ("", call.name)), name)
    pending_calls.pop(id_, None)
    content = _result_content(
        first_member(result, "content", "output", "result", "response", "outputs")
    )
    return Message(
        role="tool", content=content, tool_call_id=id_, is_error=says_error(result), blocks=blocks
    )


def _result_content(value: Any) -> str | list[Json]:
    """Return a tool result's content: text, or parts.

    An object becomes JSON text, except one that holds only a text, such as Gemini's.
    """
    objects = _parts(value)
    if len(objects) != 1 or objects[0].keys() & _PART_MEMBERS:
        return _content(value)
    (single,) = objects
    inner = first_member(single, *_RESULT_TEXT_MEMBERS) if len(single) == 1 else None
    return _content(inner) if isinstance(inner, str | list) else json.dumps(single)


def _merge_items(messages: list[Message]) -> Message:
    """Merge the items of one answer."""
    last = messages[-1]
    if len(messages) == 1:
        return last
    blocks: list[Json] = []
    for message in messages:
        blocks = [] if message.blocks is None else blocks
        blocks.extend(() if message.blocks is None else message.blocks.items)
    return last.but(
        content="".join(message.text for message in messages),
        tool_calls=tuple(call for message in messages for call in message.tool_calls),
        blocks=Blocks(last.blocks.format, tuple(blocks)) if last.blocks is not None else None,
    )

"""A request's body, in any format's shape, as our Request.

What a scripted provider was asked, what content shows.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from endturn.errors import DecodeError
from endturn.formats.call_arguments import arguments
from endturn.formats.content_parts import medium, said, thought
from endturn.formats.format import Format
from endturn.formats.history import BODY, body_of, call_in, result_in, role, says_error
from endturn.formats.reading import at, first, items, member, minted, text, text_or_none
from endturn.formats.settings import LIMIT_MEMBERS, SETTINGS_MEMBERS, tools_in
from endturn.vocabulary import Blocks, Json, Message, Request, ToolCall

_OPTIONAL: Final = frozenset(
    {"bedrock_converse", "completions", "gemini_interactions", "ollama", "openai_responses"}
)
"""Formats where something else may stand for messages: an earlier response, a managed prompt,
tokens, nothing."""
_IN_PARTS: Final = frozenset({"anthropic", "bedrock_converse", "gemini"})
"""Formats whose answers are sent back part by part; of the others, the message is sent back."""
_ITEMS: Final = frozenset({"openai_responses", "gemini_interactions"})
"""Formats whose history is a list of items: several of them make up one answer."""

_OURS: Final = frozenset(
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
"""Members that our Request has words for, whatever they say."""
_PROMPTS: Final = ("prompt", "inputs", "inputText", "input", "text")
"""Members that say what is asked, where they are text; of several prompts, the message holds the
first."""
_USUAL: Final[tuple[Any, ...]] = (None, [], {"type": "text"})
"""What the tools and the form of an answer are where nothing is said of them."""
_FREE: Final = {"tool_choice": "auto", "function_call": "auto"}  # what nothing means, too

_CHOICES: Final = {"none": "none", "required": "required", "any": "required"}
_SCHEMAS: Final = (
    *(
        "response_format.json_schema.schema",
        "response_format.json_schema",
        "response_format.schema",
    ),
    *("text.format.schema", "output_config.format.schema", "output_format.schema", "format"),
    *("outputConfig.textFormat.structure.jsonSchema.schema", "generationConfig.responseJsonSchema"),
    "generation_config.response_json_schema",
)
"""Where a request says which schema its answer has."""


def request_of(format: Format, body: Json) -> Request:
    """A request's body as our Request.

    `extra` holds what ours does not say, or would say in another way.

    Args:
        body: with `model` and `stream` in it, wherever the format has them.

    Raises:
        DecodeError: it is not in the format.
    """
    # A managed prompt names it, and Cohere's first API has one of its own.
    named = text(first(body, "model", "model_id", "agent")) or body.keys() & {"prompt", "message"}
    if not named and format.name not in ("completions", "bedrock_invoke"):
        raise DecodeError("a request must name its `model`")
    format = format if format.inner is None else format.inner(body)
    name, seen = format.name, format.request_summary(body)
    if not seen.history and name not in _OPTIONAL:
        raise DecodeError(f"a request of the format {name} needs messages, or a prompt text")
    schema = _schema(body)
    request = Request(
        model=text(first(body, "model", "model_id")),
        messages=(),
        tools=tuple(tools_in(body)),
        tool_choice=_tool_choice(body),
        max_tokens=seen.facts.max_tokens or None,
        temperature=seen.facts.temperature,
        seed=seen.facts.seed,
        format={"type": "json_object"} if schema is None and seen.json_format else schema,
        token=text_or_none(first(body, "continuation_token", "continuationToken")),
        previous_id=seen.facts.previous_response_id,
    )
    is_first_api = name == "cohere" and "message" in body
    messages = _messages("" if is_first_api else name, seen.history)
    if system := _content(first(seen.system, "parts") or seen.system):
        messages.insert(0, Message(role="system", content=system))
    ours = _OURS | (LIMIT_MEMBERS if request.max_tokens else frozenset())
    if name in _ITEMS or isinstance(first(body, *_PROMPTS), str):
        ours |= {"input"} if name in _ITEMS else {*_PROMPTS}
    written = format.encode(request, dialect="v1" if is_first_api else "")
    return request.but(messages=tuple(messages), extra=_left(body, _FREE | written, ours))


def _left(body: Json, written: Json, ours: frozenset[str]) -> Json:
    """The members of a body that are neither among ours, nor as we write them.

    Settings are looked through as well.
    """
    left: Json = {}
    for name, value in body.items():
        if name in SETTINGS_MEMBERS and isinstance(value, dict):
            value = _left(value, _FREE | (written.get(name) or {}), ours)
            if not value:
                continue
        if name not in ours and value not in _USUAL and value != written.get(name):
            left[name] = value
    return left


# --- Tools and the form of the answer -------------------------------------------------------------


def _tool_choice(body: Json) -> str:
    config = first(body, "toolConfig", "tool_config")
    choice = first(body, "tool_choice") or first(config, "toolChoice", "functionCallingConfig")
    choice = choice or at(body, "generation_config.tool_choice")
    if isinstance(choice, str):
        return _CHOICES.get(choice.lower(), "auto")
    named = first(choice, "name") or at(choice, "function.name") or at(choice, "tool.name")
    several = items(first(choice, "allowedFunctionNames") or at(choice, "allowed_tools.tools"))
    if isinstance(named, str) or (len(several) == 1 and isinstance(named := several[0], str)):
        return named
    word = first(choice, "type", "mode") or next(
        iter(choice if isinstance(choice, dict) else ()), ""
    )
    return _CHOICES.get(text(word).lower(), "auto")


def _schema(body: Json) -> Json | None:
    for path in _SCHEMAS:
        schema = at(body, path)
        if isinstance(schema, str):  # Converse's is JSON in JSON.
            schema = arguments(schema)
        if isinstance(schema, dict):
            return schema
    return None


# --- The conversation -----------------------------------------------------------------------------

_ARE_PARTS: Final = frozenset({"type", "json", "image", "document", "video", "searchResult"})
"""What tells a part of a result from an object that a tool answered."""
_WORDS: Final = ("output", "error", "content", "text")
"""The members of an object that is a result's text."""
_PLAIN: Final = frozenset({*BODY, "role", "type", "tool_call_id"})
"""The members of a message that ours says whole."""


def _parts(value: Any) -> list[Json]:
    return [
        part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)
    ]


def _content(value: Any) -> str | list[Json]:
    """Text, or parts; parts that are one text are that text."""
    if isinstance(value, str | None):
        return value or ""
    parts = _parts(value)
    only = parts[0] if len(parts) == 1 and parts[0].keys() <= {"type", "text"} else {}
    return only["text"] if isinstance(only.get("text"), str) else parts


def _messages(format_: str, history: Iterable[Any]) -> list[Message]:
    answers: list[list[Message]] = []
    waiting: _Waiting = OrderedDict()
    for place, raw in enumerate(history):
        for message in _read(format_, raw, place, waiting):
            if (
                format_ in _ITEMS
                and answers
                and answers[-1][-1].role == message.role == "assistant"
            ):
                answers[-1].append(message)
            else:
                answers.append([message])
    return [_joined(messages) for messages in answers]


_Waiting = OrderedDict[str, ToolCall]
"""Calls that wait for their result, by their ids: some formats have no ids in their results."""


def _read(format_: str, raw: Any, place: int, waiting: _Waiting) -> Iterator[Message]:
    speaker, body = _speaker(format_, raw), body_of(raw)
    if speaker is None or not isinstance(body, str | list | dict | None):
        raise DecodeError(
            "a message needs a known role, and text or a list of parts as its content"
        )
    parts = _parts(body)
    if speaker == "assistant":
        calls = tuple(_calls(format_, raw, parts, place))
        for call in calls:
            waiting.setdefault(call.id, call)
        words = text(body) or "".join(said(part) for part in parts if thought(part) is None)
        words = "" if role(raw) == "thought" else words
        sent = tuple(parts) if format_ in _IN_PARTS and parts else (raw,)
        yield Message(
            role=speaker,
            content=words,
            tool_calls=calls,
            blocks=_blocks(format_, speaker, raw, *sent),
        )
        return
    results = [(result, part) for part in parts if (result := result_in(part)) is not None]
    rest = [part for part in parts if result_in(part) is None]
    if speaker == "tool":
        results = results or [
            (result, raw) for result in items(member(raw, "tool_results")) or (raw,)
        ]
    for result, whole in results:
        yield _result(result, _blocks(format_, "tool", whole, whole), waiting)
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
    if format_ not in _ITEMS or not isinstance(raw, dict):
        return None
    if text(raw.get("type")).endswith("_output"):
        return "tool"
    return "user" if medium(raw) else "assistant"


def _blocks(format_: str, speaker: str, raw: Any, *sent: Json) -> Blocks | None:
    """What is sent back in place of a message; None where ours says all of it.

    A system message keeps its place where others stand beside the history. Cohere's first API
    (`""`) has no blocks.
    """
    if not format_ or not isinstance(raw, dict):
        return None
    is_placed = speaker == "system" and format_ in _IN_PARTS | _ITEMS
    is_answer = speaker == "assistant" and (
        format_ in _ITEMS or raw.get("content", raw).__class__ is not str
    )
    is_ours = (
        raw.keys() <= _PLAIN
        and text(raw.get("role")) in ("", speaker)
        and not is_placed
        and not is_answer
    )
    return None if is_ours else Blocks(format_, sent)


def _calls(format_: str, raw: Any, parts: list[Json], place: int) -> Iterator[ToolCall]:
    listed = [
        (call, first(call, "function", "custom") or call)
        for call in items(member(raw, "tool_calls"))
    ]
    listed += [(call, call) for each in (raw, *parts) if (call := call_in(each)) is not None]
    # as its own encode knows them
    seed = ("history",) if format_ == "ollama" else ("history", place)
    for number, (call, about) in enumerate(listed):
        given = first(about, "arguments", "input", "args", "parameters")
        yield ToolCall(
            id=text(first(call, "call_id", "toolUseId", "id")) or minted(*seed, number),
            name=text(member(about, "name")),
            arguments_raw=given if isinstance(given, str) else None,
            arguments=arguments(given)
            if isinstance(given, str)
            else given
            if isinstance(given, dict)
            else None,
        )


def _result(result: Any, blocks: Blocks | None, waiting: _Waiting) -> Message:
    """A tool's result; without an id it answers the first call of its name that waits for one."""
    id_ = text(first(result, "tool_call_id", "tool_use_id", "toolUseId", "call_id", "id"))
    if not id_:
        name = text(first(result, "name", "tool_name")) or text(at(result, "call.name"))
        id_ = next((call.id for call in waiting.values() if name in ("", call.name)), name)
    waiting.pop(id_, None)
    content = _answered(first(result, "content", "output", "result", "response", "outputs"))
    return Message(
        role="tool", content=content, tool_call_id=id_, is_error=says_error(result), blocks=blocks
    )


def _answered(value: Any) -> str | list[Json]:
    """What a tool answered: text, or parts.

    An object as JSON, but for one that is a text alone, such as Gemini's.
    """
    objects = _parts(value)
    if len(objects) != 1 or objects[0].keys() & _ARE_PARTS:
        return _content(value)
    (only,) = objects
    inner = first(only, *_WORDS) if len(only) == 1 else None
    return _content(inner) if isinstance(inner, str | list) else json.dumps(only)


def _joined(messages: list[Message]) -> Message:
    """Items of one answer together."""
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

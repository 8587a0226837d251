"""Reads messages from spans and events of any known instrumentation.

OpenTelemetry's conventions (now and before 1.37), OpenInference, OpenLLMetry, Vercel's AI SDK,
Logfire, Langfuse, Google's ADK and MLflow: from each, the result is a list of messages, each with a
role and parts. Values of an unknown shape are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from endturn.telemetry import schema
from endturn.ui import content_names as names
from endturn.ui.bounds import parse_json

TEXT: Final = "text"
REASONING: Final = "reasoning"
TOOL_CALL: Final = "tool call"
TOOL_RESULT: Final = "tool result"
_DEPTH: Final = 8
"""The most nested levels of lists and objects that are searched for messages."""
MOST_MESSAGES: Final = 2000
"""The most messages that are read from one attribute."""

_ROLE_EVENT: Final = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_WRAPPERS: Final = frozenset({"message", "message_content", "tool_call"})
"""Levels of OpenInference's attribute names that repeat the level above."""
_LISTS: Final = ("messages", "contents", "choices", "candidates", "output", "input", "prompt")
"""Members of a request's or a response's JSON that hold its messages, in this order."""
_ROLES: Final = {"model": "assistant", "ai": "assistant", "human": "user", "function": "tool"}
_MESSAGE_TYPES: Final = frozenset({"message", "human", "ai", "system", "user", "assistant"})
_WHOSE: Final = {TOOL_CALL: "assistant", REASONING: "assistant", TOOL_RESULT: "tool"}
_REASONING_TYPES: Final = frozenset({"reasoning", "thinking", "redacted_thinking"})
_CALL_TYPES: Final = frozenset(
    {"tool_call", "tool_use", "tool-call", "function_call", "custom_tool_call", "server_tool_use"}
)
_RESULT_TYPES: Final = frozenset(
    {"tool_call_response", "tool_result", "tool-result", "function_call_output"}
)
_TEXT_TYPES: Final = frozenset({"", "text", "input_text", "output_text", "refusal", "json"})


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message.

    Attributes:
        kind: TEXT, REASONING, TOOL_CALL, TOOL_RESULT, or another description: "image, image/png".
        text: its text; "" for images and other media.
    """

    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message of a conversation, or one choice of a response.

    Attributes:
        finish_reason: the finish reason of a choice, as recorded.
    """

    role: str
    parts: tuple[Part, ...]
    finish_reason: str = ""

    def text(self, kind: str = TEXT) -> str:
        """Return the text of the parts of a kind."""
        return "".join(part.text for part in self.parts if part.kind == kind)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The recorded messages of one call.

    Attributes:
        input: the messages of the request; output: the choices of the response.
        is_unreadable: messages are recorded in an unknown form.
        is_shortened: the instrumentation recorded only a part of them.
    """

    input: tuple[RecordedMessage, ...] = ()
    output: tuple[RecordedMessage, ...] = ()
    is_unreadable: bool = False
    is_shortened: bool = False

    @property
    def is_empty(self) -> bool:
        """True if there is no message to show."""
        return not self.input and not self.output


@dataclass(frozen=True, slots=True)
class ContentEvent:
    """An event that carries messages: its name, body and attributes."""

    name: str
    body: Any
    attributes: Mapping[str, Any]


def has_content(attributes: Mapping[str, Any]) -> bool:
    """Return True if an attribute may contain messages, by the names of the attributes."""
    numbered = (*names.NUMBERED_INPUT, *names.NUMBERED_OUTPUT)
    return any(name in attributes for name in names.NAMES) or any(
        name.startswith(numbered) for name in attributes
    )


def read_call(attributes: Mapping[str, Any], events: Iterable[ContentEvent] = ()) -> RecordedCall:
    """Read the messages of a call from its span's attributes and from its events."""
    call = _of_attributes(attributes)
    inputs: list[RecordedMessage] = []
    outputs: list[RecordedMessage] = []
    for event in events:
        messages = _of_event(event)
        inputs += messages.input
        outputs += messages.output
        call = replace(
            call,
            is_unreadable=call.is_unreadable or messages.is_unreadable,
            is_shortened=call.is_shortened or messages.is_shortened,
        )
    # The same messages may be recorded in both places.
    return replace(call, input=call.input or tuple(inputs), output=call.output or tuple(outputs))


def question_of(call: RecordedCall) -> RecordedMessage | None:
    """Return the last message of the user, not counting tool results in the user's role."""
    for message in reversed(call.input):
        kinds = {part.kind for part in message.parts}
        if message.role == "user" and kinds - {TOOL_RESULT}:
            return message
    return None


# --- Attributes and events --------------------------------------------------------------------


def _of_attributes(attributes: Mapping[str, Any]) -> RecordedCall:
    system = messages_of(attributes.get(schema.SYSTEM_INSTRUCTIONS.key), "system")
    inputs, is_input_odd = _first(attributes, names.INPUT, names.NUMBERED_INPUT, "user")
    outputs, is_output_odd = _first(attributes, names.OUTPUT, names.NUMBERED_OUTPUT, "assistant")
    calls = messages_of(attributes.get(names.TOOL_CALLS), "assistant")
    if calls:
        parts = chain.from_iterable(message.parts for message in (*outputs, *calls))
        outputs = [RecordedMessage("assistant", tuple(parts))]
    event_list = parse_json(attributes.get(names.EVENT_LIST))
    if isinstance(event_list, list) and not inputs and not outputs:
        for item in event_list[:MOST_MESSAGES]:
            if isinstance(item, dict):
                event_messages = _of_event(ContentEvent(str(item.get("event.name", "")), item, {}))
                inputs += event_messages.input
                outputs += event_messages.output
    return RecordedCall(
        tuple(system + inputs if inputs else ()),
        tuple(outputs),
        is_unreadable=is_input_odd or is_output_odd,
        is_shortened=attributes.get(schema.CONTENT_CUT.key) is True,
    )


def _first(
    attributes: Mapping[str, Any], plain: Sequence[str], prefixes: Sequence[str], role: str
) -> tuple[list[RecordedMessage], bool]:
    """Return the messages of the first attribute that has any, and True if one is unreadable."""
    is_odd = False
    standard, *others = plain
    for name in (standard, *prefixes, *others):
        if name.endswith("."):
            messages = list(_of_numbered(attributes, name, role))
        else:
            value = attributes.get(name)
            messages = messages_of(value, role)
            is_odd |= not messages and name == standard and value not in (None, "", "[]", [])
        if messages:
            return messages, False
    return [], is_odd


def _of_numbered(
    attributes: Mapping[str, Any], prefix: str, role: str
) -> Iterator[RecordedMessage]:
    """Yield messages from attributes with indexed names: `gen_ai.prompt.0.content`."""
    trees: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        number, _, rest = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and number.isdecimal() and len(number) < 7 and rest:
            _plant(trees.setdefault(int(number), {}), rest, value)
    for _, tree in sorted(trees.items())[:MOST_MESSAGES]:
        members = {name: _as_list(value) for name, value in tree.items()}
        content = members.pop("contents", None) or members.get("content")
        # a list of parts is JSON here
        if isinstance(content, str) and content.startswith("[{"):
            parts = parse_json(content)
            is_parts = isinstance(parts, list) and all(
                isinstance(part, dict) and "type" in part for part in parts
            )
            content = parts if is_parts else content
        message = _message(members | {"content": content}, role, 0)
        if message is not None:
            yield message


def _plant(tree: dict[str, Any], path: str, value: Any) -> None:
    *branches, leaf = [name for name in path.split(".")[:12] if name not in _WRAPPERS] or [
        "message"
    ]
    for branch in branches:
        inner = tree.setdefault(branch, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree.setdefault(leaf, value)


def _as_list(value: Any) -> Any:
    """Convert objects with numeric names into lists, at all levels of a tree."""
    if not isinstance(value, dict):
        return value
    members = {name: _as_list(inner) for name, inner in value.items()}
    if members and all(name.isdecimal() and len(name) < 7 for name in members):
        return [members[name] for name in sorted(members, key=int)]
    return members


def _of_event(event: ContentEvent) -> RecordedCall:
    if event.name == names.DETAILS:
        return _of_attributes(event.attributes)
    if event.name.startswith("gen_ai.content."):
        return _of_attributes(event.attributes)
    body = parse_json(event.body) if isinstance(event.body, str) else event.body
    body = body if isinstance(body, dict) else {"content": event.body or None}
    attributes = {name: _json(value) for name, value in event.attributes.items()}
    nested = attributes.get(names.EVENT_CONTENT)
    members = {**attributes, **(nested if isinstance(nested, dict) else {}), **_without_none(body)}
    if event.name == names.CHOICE:
        message = _message(members, "assistant", 0)
        return RecordedCall(output=() if message is None else (message,))
    if role := _ROLE_EVENT.fullmatch(event.name):
        message = _message(members | {"role": role[1]}, role[1], 0)
        return RecordedCall(input=() if message is None else (message,))
    return RecordedCall()


def _without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _json(value: Any) -> Any:
    """Parse a text that is a JSON object or list; return any other value unchanged."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        tree = parse_json(value)
        return value if tree is None else tree
    return value


# --- Messages and parts -----------------------------------------------------------------------


def messages_of(value: Any, role: str, depth: int = 0) -> list[RecordedMessage]:
    """Return the messages of a value of any known shape; [] for an unknown one.

    Args:
        role: the role of messages that have none.
    """
    if depth > _DEPTH or value is None:
        return []
    if isinstance(value, str):
        tree = _json(value)
        if isinstance(tree, str):
            # JSON that is invalid or nested too deeply is not shown as text
            is_text = bool(tree) and tree[:1] not in ("{", "[")
            return [RecordedMessage(role, (Part(TEXT, tree),))] if is_text else []
        return messages_of(tree, role, depth + 1)
    if isinstance(value, list):
        return _of_list(value, role, depth)
    if isinstance(value, dict):
        return _of_object(value, role, depth)
    return []


def _of_list(values: Sequence[Any], role: str, depth: int) -> list[RecordedMessage]:
    messages: list[RecordedMessage] = []
    loose: dict[str, list[Part]] = {}
    """Parts outside of messages, such as items of OpenAI's Responses, by their role."""

    def join_loose() -> None:
        messages.extend(
            RecordedMessage(loose_role, tuple(parts)) for loose_role, parts in loose.items()
        )
        loose.clear()

    for value in values[:MOST_MESSAGES]:
        raw = _json(value) if depth < _DEPTH else None
        if isinstance(raw, list):
            join_loose()
            messages += messages_of(raw, role, depth + 1)
        elif isinstance(raw, dict) and not _is_part(raw):
            join_loose()
            message = _message(raw, role, depth)
            messages += [] if message is None else [message]
        elif (part := _part(raw, depth)) is not None:
            whose = _WHOSE.get(part.kind, role)
            if whose not in loose:
                join_loose()
            loose.setdefault(whose, []).append(part)
    join_loose()
    return messages


def _is_part(raw: Mapping[str, Any]) -> bool:
    """Return True if an object is a part, not a message: it has a type of a part and no role."""
    if "role" in raw or "parts" in raw or isinstance(raw.get("message"), dict):
        return False
    kind = raw.get("type")
    return "content" not in raw if kind is None else str(kind) not in _MESSAGE_TYPES


def _of_object(value: Mapping[str, Any], role: str, depth: int) -> list[RecordedMessage]:
    for name in _LISTS:
        if isinstance(value.get(name), list | str | dict) and "role" not in value:
            outputs = messages_of(value[name], role, depth + 1)
            if outputs:
                if name == "output":  # items of OpenAI's Responses are one answer
                    outputs = [_joined(outputs)]
                system = messages_of(value.get("system") or value.get("instructions"), "system", 2)
                return (system if role == "user" else []) + outputs
    if text := value.get("combined_chunk_content"):  # Logfire, of a stream
        return messages_of(text, role, depth + 1)
    message = _message(value, role, depth)
    return [] if message is None else [message]


def _joined(messages: Sequence[RecordedMessage]) -> RecordedMessage:
    parts = chain.from_iterable(message.parts for message in messages)
    return RecordedMessage(messages[-1].role, tuple(parts), messages[-1].finish_reason)


def _message(raw: Mapping[str, Any], role: str, depth: int) -> RecordedMessage | None:
    """Return a message; None for an object without any part."""
    inner = raw.get("message")
    if isinstance(inner, dict):
        message = _message(inner, role, depth + 1) if depth < _DEPTH else None
        reason = str(raw.get("finish_reason") or "")
        return message and replace(message, finish_reason=message.finish_reason or reason)
    message_role = str(raw.get("role") or raw.get("type") or role)
    message_role = _ROLES.get(message_role, message_role)
    if message_role not in ("system", "developer", "user", "assistant", "tool"):
        message_role = role
    content = raw["parts"] if isinstance(raw.get("parts"), list) else raw.get("content")
    if isinstance(content, dict) and isinstance(content.get("parts"), list):  # Gemini's candidates
        content = content["parts"]
    parts = list(_parts(inner if content is None and isinstance(inner, str) else content, depth))
    if isinstance(thought := raw.get("reasoning_content"), str) and thought:
        parts.insert(0, Part(REASONING, thought))
    calls = raw.get("tool_calls")
    if isinstance(calls, list):
        parts += [_call_part(call) for call in calls if isinstance(call, dict)]
    if message_role == "tool":
        parts = [Part(TOOL_RESULT, part.text) if part.kind == TEXT else part for part in parts]
    if not parts:
        return None
    return RecordedMessage(message_role, tuple(parts), str(raw.get("finish_reason") or ""))


def _parts(content: Any, depth: int) -> Iterator[Part]:
    if content is None:
        return
    for item in content[:MOST_MESSAGES] if isinstance(content, list) else [content]:
        part = _part(item, depth + 1)
        if part is not None:
            yield part


def _part(raw: Any, depth: int) -> Part | None:
    """Return a part of a message; None for an empty one, and for one nested too deeply."""
    if depth > _DEPTH:
        return None
    if not isinstance(raw, dict):
        is_text = isinstance(raw, str | int | float) and not isinstance(raw, bool)
        return Part(TEXT, str(raw)) if is_text and raw != "" else None
    kind = str(raw.get("type") or "")
    if kind in _REASONING_TYPES or "thinking" in raw or raw.get("thought") is True:
        thought = next((raw[key] for key in ("content", "thinking", "text", "summary")
                        if raw.get(key)), "")  # fmt: skip
        return Part(REASONING, _as_text(thought)) if thought else None
    if kind in _CALL_TYPES or "functionCall" in raw or "function_call" in raw or "toolUse" in raw:
        return _call_part(raw)
    if "toolName" in raw or (kind == "function" and isinstance(raw.get("function"), dict)):
        return _call_part(raw)
    if kind in _RESULT_TYPES or not raw.keys().isdisjoint(("functionResponse", "function_response",
                                                           "toolResult")):  # fmt: skip
        inner = next((raw[key] for key in ("functionResponse", "function_response", "toolResult")
                      if isinstance(raw.get(key), dict)), raw)  # fmt: skip
        result = next((inner[key] for key in ("response", "result", "content", "output")
                       if inner.get(key) is not None), "")  # fmt: skip
        return Part(TOOL_RESULT, _as_text(result))
    if kind in _TEXT_TYPES:
        text = next((raw[key] for key in ("text", "content", "refusal")
                     if isinstance(raw.get(key), str | int | float)), None)  # fmt: skip
        if text is not None:
            return Part(TEXT, str(text)) if text != "" else None
    return _medium(raw, kind)


def _call_part(raw: Mapping[str, Any]) -> Part:
    inner = next((raw[key] for key in ("function", "functionCall", "function_call", "toolUse")
                  if isinstance(raw.get(key), dict)), raw)  # fmt: skip
    name = inner.get("name") or inner.get("toolName") or "a tool"
    arguments = next((inner[key] for key in ("arguments", "input", "args")
                      if inner.get(key) is not None), "")  # fmt: skip
    return Part(TOOL_CALL, f"{name}({_as_text(arguments)})")


def _medium(raw: Mapping[str, Any], kind: str) -> Part | None:
    """Describe an image, audio, file or other medium; its data are not shown."""
    about = raw.get("modality") or kind.removesuffix("_url").removeprefix("input_")
    if not about:
        about = next((key for key in ("inlineData", "inline_data", "fileData", "image", "audio",
                                      "video", "document") if key in raw), "")  # fmt: skip
    if not about:
        return None
    more = [str(about)[:64]]
    if isinstance(mime := raw.get("mime_type"), str):
        more.append(mime[:64])
    if isinstance(size := raw.get("size"), int) and not isinstance(size, bool):
        more.append(f"{size} bytes")
    return Part(", ".join(more))


def _as_text(value: Any) -> str:
    """Return a value as text: the joined texts of a list of parts, or JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(
        isinstance(block, dict) and isinstance(block.get("text") or block.get("content"), str)
        for block in value
    ):  # fmt: skip
        return "".join(str(block.get("text") or block.get("content")) for block in value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError, TypeError):
        return ""

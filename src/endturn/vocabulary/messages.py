"""Requests, messages, responses and their deltas, in no provider's format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SkipValidation,
    TypeAdapter,
    model_validator,
)

from endturn.vocabulary.characters import fix_json_surrogates
from endturn.vocabulary.stop import TRUNCATED, Stop, StopReason

Json = dict[str, Any]
"""One JSON object of a provider's own format: foreign, so untyped inside."""

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Annotated[str, Field(description="the provider's own value, verbatim")]


class _FrozenModel(BaseModel):
    """Base of the models: foreign input is validated once, and unknown fields are an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _fix_surrogates(cls, values: Any) -> Any:
        return fix_json_surrogates(values)

    def but(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced, without validating the new values."""
        return self.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response, or a sum over several. None means that the provider did not say.

    Attributes:
        input_tokens: the whole prompt, cached parts included.
        output_tokens: everything generated, reasoning included.
        reasoning_tokens: the part of the output that was thinking.
        cache_read_tokens, cache_write_tokens: the parts of the input that came from, or went into,
            a prompt cache.
        estimated: True if a figure was estimated because the provider sent none.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        """Add field by field; a figure that only one side has stays."""
        figures = {}
        for name in self.__dataclass_fields__:
            ours, theirs = getattr(self, name), getattr(other, name)
            figures[name] = theirs if ours is None else ours if theirs is None else ours + theirs
        return Usage(**{**figures, "estimated": self.estimated or other.estimated})


class Tool(_FrozenModel):
    """A tool that is offered to the model. `parameters` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: Json = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolCall(_FrozenModel):
    """A tool call by the model.

    Attributes:
        id: the format's id, or one minted by the format if it is missing or empty.
        arguments_raw: the arguments' JSON text as it arrived; None if the format sent an object.
        arguments: the parsed object; None if the text does not parse strictly to an object.
        closed: the call is complete: the format ended its block, and its arguments are a JSON
            object, or none, or the text of a tool that takes text. The tool gate checks whether
            the arguments are valid.
    """

    id: str
    name: str
    arguments_raw: str | None = None
    arguments: Json | None = None
    closed: bool = True


TEXT_TOOLS: Final = frozenset({"finish_response", "finish_task", "task_completed"})
"""Our own tools that end a turn: models also call them with a plain summary instead of an
object."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A response's content in the format's own shape and order, verbatim, for a replay.

    Attributes:
        format: the format that reads and writes this shape.
        items: the content blocks (Anthropic), or the one assistant message (chat).
    """

    format: str
    items: tuple[Json, ...]


def _blocks(value: Any) -> Blocks | None:
    """Return blocks, also from their JSON, so that a stored history can be loaded."""
    if isinstance(value, Blocks):
        items = fix_json_surrogates(value.items)
        return value if items is value.items else Blocks(value.format, items)
    if value is None:
        return value
    match value:
        case {"format": str(name), "items": list() | tuple() as items} if all(
            isinstance(item, dict) for item in items
        ):
            return Blocks(name, tuple(items))
    raise ValueError("blocks must be {'format': name, 'items': [objects]}")


_StoredBlocks = Annotated[SkipValidation[Blocks] | None, BeforeValidator(_blocks)]


class Message(_FrozenModel):
    """One entry of a conversation, as a history stores it.

    Attributes:
        content: text, or content parts in the format's own shape (images and the like), passed
            through.
        tool_calls: an assistant message's calls.
        tool_call_id: the call that a tool message answers.
        is_error: a tool message that reports a failure.
        blocks: an assistant message's content in the format's own shape; wins over `content` when
            sent to that format.
        finish_reason: of an assistant message, the provider's raw value.
        stop_reason: the same, normalised.
        synthetic: written by the controller (the continuation prompt): never shown, never counted
            as user input.
    """

    role: Role
    content: str | list[Json] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool = False
    blocks: _StoredBlocks = None
    finish_reason: FinishReason | None = None
    stop_reason: StopReason | None = None
    synthetic: bool = False

    @property
    def text(self) -> str:
        """The visible text of the content."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content)


def _message_list(value: Any) -> Any:
    """Reject a text: its characters are not messages."""
    if isinstance(value, str | bytes | Message):
        raise ValueError(
            "messages must be a list of messages, such as"
            " [Message(role='user', content='Why?')], not a value of type"
            f" {type(value).__name__}"
        )
    return value


class Request(_FrozenModel):
    """One call to a model, in no provider's shape.

    Attributes:
        max_tokens: the most tokens to generate; None leaves it to the provider.
        tool_choice: "auto", "none", "required", or the name of the one tool to call.
        format: the answer's JSON Schema, or {"type": "json_object"}; None for text.
        token: a native continuation token from the response that this request continues.
        previous_id: the response that the provider should build on.
        retrieve: the id of a running response, to fetch in place of a new call.
        extra: further members of the provider's own body, merged in last.
    """

    model: str
    messages: Annotated[tuple[Message, ...], BeforeValidator(_message_list)]
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = None
    seed: int | None = None
    format: Json | None = None
    token: str | None = None
    previous_id: str | None = None
    retrieve: str | None = None
    extra: Json = Field(default_factory=dict)


@cache
def _stops() -> TypeAdapter[Stop]:
    return TypeAdapter(Stop)


def _stop(value: Any) -> Stop:
    """Return a Stop, also from its JSON or from a StopReason.

    A raw value is rejected, since its meaning depends on the provider's table.
    """
    if isinstance(value, Stop | dict):
        return _stops().validate_python(value)
    if not isinstance(value, str):
        raise ValueError(
            "it should be a Stop, such as the result of endturn.normalize, or a StopReason"
        )
    try:
        reason = StopReason(value)
        return Stop(
            reason, terminal_seen=reason is not StopReason.MISSING, incomplete=reason in TRUNCATED
        )
    except ValueError:
        raise ValueError(
            f"{value!r} is not a StopReason: give a provider's own value as "
            f"stop=endturn.normalize({value!r})"
        ) from None


class ChatResponse(_FrozenModel):
    """One response of a model, complete or not.

    Attributes:
        text: the visible text. The empty string when there is none.
        reasoning: the visible thinking, if the provider shows it.
        stop: a Stop, such as the result of `endturn.normalize`, or a StopReason; `stop_reason` and
            `raw_stop_reason` are views of it.
        blocks: the content in the format's own shape, verbatim.
        token: a native continuation token.
        quota: the limits in the response's headers, e.g. {"remaining_tokens": "1990"}.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    reasoning: str | None = None
    stop: Annotated[SkipValidation[Stop], BeforeValidator(_stop)]
    id: str | None = None
    model: str | None = None
    blocks: _StoredBlocks = None
    token: str | None = None
    quota: dict[str, str] = Field(default_factory=dict)

    @property
    def stop_reason(self) -> StopReason:
        """The normalised reason."""
        return self.stop.reason

    @property
    def raw_stop_reason(self) -> str | None:
        """The provider's value, verbatim."""
        return self.stop.raw

    def message(self, *, include_cut: bool = False) -> Message:
        """Return the assistant message that stores this response in a history.

        Incomplete tool calls (all of a truncated response, and any that was not closed) are left
        out, and with them the blocks, which hold them too: a model could take them for calls that
        were run.

        Args:
            include_cut: keep the incomplete calls.
        """
        calls, blocks = self.tool_calls, self.blocks
        if calls and not include_cut:
            calls = () if self.stop.truncated else tuple(call for call in calls if call.closed)
            blocks = blocks if len(calls) == len(self.tool_calls) else None
        return Message(
            role="assistant",
            content=self.text,
            tool_calls=calls,
            blocks=blocks,
            finish_reason=self.stop.raw,
            stop_reason=self.stop.reason,
        )

    def with_stop(self, **changes: Any) -> ChatResponse:
        """Return a copy whose Stop has some fields replaced."""
        return self.but(stop=replace(self.stop, **changes))


@dataclass(frozen=True, slots=True)
class CallFragment:
    """A piece of a streamed tool call.

    Attributes:
        index: the call's position in the response.
        id, name: come with the call's first fragment.
        arguments: the next piece of the arguments' JSON text.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of a streamed response.

    Visible text, thinking, a piece of a call, or a restart mark.

    `restart` means that the response starts over: its whole text follows the text so far.
    """

    text: str = ""
    reasoning: str = ""
    call: CallFragment | None = None
    restart: bool = False

"""The request for the rest of a truncated answer, and the blocks that an API accepts back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from endturn.calls import Strategy
from endturn.formats.history import call_in
from endturn.formats.reading import first_member, first_text, items, member, text
from endturn.vocabulary import Blocks, ChatResponse, Json, Message, Request, Resume, ToolCall


class UnfinishedBlocks(Protocol):
    """A function that returns the blocks of an incomplete answer that may be sent back.

    `calls` are those of the client's calls that stay.
    """

    def __call__(self, blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]: ...


class ResumeFunction(Protocol):
    """A function that returns the request for the rest of a truncated or paused response.

    Its messages begin with the original's.

    Args:
        prompt: the nudge: the last user message, marked synthetic. Used by `prompt` alone.
        strategy: `prompt`; `prefill` (the partial answer is the last message, without its trailing
            white space, which models reject there); `resend` (the answer verbatim, nothing after
            it); `native_token`.
    """

    def __call__(
        self,
        request: Request,
        response: ChatResponse,
        *,
        prompt: str,
        strategy: str = Strategy.PROMPT,
        dialect: str = "",
    ) -> Request: ...


def block_resumer(
    format: str,
    text_block: Callable[[str], Json],
    *,
    forced_tool_path: str = "tool_choice",
    by_id: bool = False,
) -> ResumeFunction:
    """Return the resume function of a format that sends an answer back as its blocks.

    Args:
        text_block: writes a text as a block.
        forced_tool_path: the path in `extra` that may force a tool call.
        by_id: a continuation token is sent with the id of its response, if the server stores that.
    """

    def resume(
        request: Request,
        response: ChatResponse,
        *,
        prompt: str,
        strategy: str = Strategy.PROMPT,
        dialect: str = "",
    ) -> Request:
        if response.token is not None and (
            strategy == Strategy.NATIVE_TOKEN or response.stop.resume is Resume.NATIVE_TOKEN
        ):
            is_stored = (
                by_id and response.id is not None and request.extra.get("store") is not False
            )
            return request.but(
                token=response.token, previous_id=response.id if is_stored else request.previous_id
            )
        request = request.but(token=None)
        if (resend_request := resend(request, response, strategy)) is not None:
            return resend_request
        native_blocks = own_blocks(response, format)
        blocks = unfinished_parts(
            [text_block(response.text)] if native_blocks is None else native_blocks
        )
        if strategy == Strategy.PREFILL and blocks and isinstance(blocks[-1].get("text"), str):
            blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}
        partial = (
            response.message().but(tool_calls=(), blocks=Blocks(format, tuple(blocks)))
            if blocks
            else None
        )
        return continuation_request(
            request, partial, prompt=prompt, strategy=strategy, forced_tool_path=forced_tool_path
        )

    return resume


def resend(request: Request, response: ChatResponse, strategy: str) -> Request | None:
    """Return the same request with the answer so far, verbatim.

    None if the strategy and the response's `resume` ask for another request.
    """
    if strategy == Strategy.RESEND or response.stop.resume is Resume.RESEND_UNCHANGED:
        return request.but(messages=(*request.messages, response.message()))
    return None


def message_resumer(format: str, unfinished: Callable[[Json, str | None], Json]) -> ResumeFunction:
    """Return the resume function of a format that sends an answer back as one message.

    Args:
        unfinished: returns the message that may be sent back without its calls, from the truncated
            answer's message and text. If the text is None, the message's own stays.
    """

    def resume(
        request: Request,
        response: ChatResponse,
        *,
        prompt: str,
        strategy: str = Strategy.PROMPT,
        dialect: str = "",
    ) -> Request:
        if (resend_request := resend(request, response, strategy)) is not None:
            return resend_request
        # APIs refuse a last message that ends in white space.
        answer_text = response.text.rstrip() if strategy == Strategy.PREFILL else response.text
        native_blocks = own_blocks(response, format)
        blocks = (
            Blocks(format, (unfinished(native_blocks[0], answer_text),)) if native_blocks else None
        )
        partial = (
            response.message().but(content=answer_text, tool_calls=(), blocks=blocks)
            if answer_text.strip()
            else None
        )
        return continuation_request(request, partial, prompt=prompt, strategy=strategy)

    return resume


def own_blocks(message: Message | ChatResponse, format: str) -> tuple[Json, ...] | None:
    """Return a message's blocks in a format's own shape, which win over its content.

    None if it has none.
    """
    return (
        message.blocks.items
        if message.blocks is not None and message.blocks.format == format
        else None
    )


def unfinished_message(unfinished: Callable[[Json, str | None], Json]) -> UnfinishedBlocks:
    """Return the UnfinishedBlocks of a format whose answer is one message.

    The message keeps the given calls; without any it becomes that of `unfinished`.
    """

    def remaining_blocks(blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]:
        message = blocks[0]
        ids = {call.id for call in calls}
        remaining_calls = [
            call for call in items(message.get("tool_calls")) if text(member(call, "id")) in ids
        ]
        return (
            [{**message, "tool_calls": remaining_calls}]
            if remaining_calls
            else [unfinished(message, None)]
        )

    return remaining_blocks


def without_lost_calls(message: Message, block: Json) -> Json:
    """Return a provider's message without calls that were removed from the history since.

    Calls without an id, which older servers and SDKs of Ollama write, always stay.
    """
    ids = {"", *(call.id for call in message.tool_calls)}
    calls = [call for call in items(block.get("tool_calls")) if text(member(call, "id")) in ids]
    rest = {name: value for name, value in block.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest


def continuation_request(
    request: Request,
    partial: Message | None,
    *,
    prompt: str,
    strategy: str,
    forced_tool_path: str = "tool_choice",
) -> Request:
    """Return the same request with the answer so far and the prompt.

    The prompt is the last message, marked synthetic; there is none after a prefill.

    Args:
        partial: the answer so far, without incomplete calls; None if none of it can be sent back.
        forced_tool_path: the path in `extra` that may force a tool call; it is removed, since the
            rest of a text is requested.
    """
    answer = () if partial is None else (partial,)
    nudge = (
        ()
        if strategy == Strategy.PREFILL
        else (Message(role="user", content=prompt, synthetic=True),)
    )
    choice = request.tool_choice if request.tool_choice in ("auto", "none") else "auto"
    return request.but(
        messages=(*request.messages, *answer, *nudge),
        tool_choice=choice,
        extra=_without(request.extra, forced_tool_path),
    )


def _without(extra: dict[str, Any], path: str) -> dict[str, Any]:
    name, _, below = path.partition(".")
    if below and isinstance(extra.get(name), dict):
        return {**extra, name: _without(extra[name], below)}
    return extra if below else {key: value for key, value in extra.items() if key != name}


# --- Blocks that an API accepts back --------------------------------------------------------------

_SIGNATURE_MEMBERS: Final = (
    "signature",
    "thoughtSignature",
    "thought_signature",
    "redactedContent",
)
_THINKING_TYPES: Final = ("thinking", "redacted_thinking", "thought")
_SERVER_CALL_MEMBERS: Final = ("executableCode", "executable_code", "toolCall", "tool_call")
"""Members of calls that Gemini runs itself: the result is in the next part."""


def replayable_blocks(blocks: Iterable[Json], calls: Iterable[ToolCall] = ()) -> list[Json]:
    """Return the blocks without removed calls, and without blocks that APIs reject.

    APIs reject unsigned thinking, blank text, and thinking without a block after it.

    Args:
        calls: the client's calls that are still in the history.
    """
    remaining_calls = [*calls]
    return _without_last_thoughts(
        [block for block in blocks if _is_replayable(block, remaining_calls)]
    )


def _is_replayable(block: Json, remaining_calls: list[ToolCall]) -> bool:
    tool_call = call_in(block)
    if tool_call is not None:
        id_, name, call_args = (
            first_text(tool_call, "toolUseId", "id"),
            member(tool_call, "name"),
            member(tool_call, "args"),
        )
        for position, call in enumerate(remaining_calls):
            # A call without an id is matched by its name and arguments; two equal calls are
            # interchangeable.
            if (
                call.id == id_
                if id_
                else call.name == name and (call.arguments or {}) == (call_args or {})
            ):
                del remaining_calls[position]
                return True
        return False
    reasoning = member(block, "reasoningContent")
    if any(
        first_member(holder, *_SIGNATURE_MEMBERS)
        for holder in (block, reasoning, member(reasoning, "reasoningText"))
    ):
        return True
    if is_thought(block):
        return block.get("type") == "redacted_thinking"
    if block.get("type") == "model_output":
        return any(
            member(part, "type") != "text" or _has_text(part)
            for part in items(block.get("content"))
        )
    return _has_text(block) if "text" in block or block.get("type") == "text" else True


def is_thought(block: Json) -> bool:
    """Return whether a block is thinking."""
    return (
        block.get("thought") is True
        or block.get("type") in _THINKING_TYPES
        or "reasoningContent" in block
    )


def _has_text(part: Any) -> bool:
    return bool(text(member(part, "text")).strip())


def unfinished_parts(blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]:
    """Return the blocks of a truncated answer that may be sent back.

    Without calls that have no result, and blocks that belong to such calls.
    """
    parts = without_unanswered(replayable_blocks(blocks, calls))
    while parts and first_member(parts[-1], *_SERVER_CALL_MEMBERS) is not None:
        parts.pop()
    return _without_last_thoughts(parts)


SEPARATE_SERVER_RESULTS: Final = frozenset({"anthropic", "bedrock_converse", "gemini_interactions"})
"""The formats in which the result of a server tool is a separate block."""


def without_unanswered(blocks: Sequence[Json]) -> list[Json]:
    """Return the blocks without calls of the server's tools that have no result.

    Such calls stay in a last message, which the server continues by itself.
    """
    results = [
        first_member(member(block, "toolResult") or block, "toolUseId", "tool_use_id", "call_id")
        for block in blocks
    ]
    return [
        block
        for block in blocks
        if call_in(block) is not None or _server_call(block) in (None, *results)
    ]


def _without_last_thoughts(blocks: list[Json]) -> list[Json]:
    while blocks and is_thought(blocks[-1]):
        blocks.pop()
    return blocks


def _server_call(block: Json) -> Any:
    """Return the id of a call that the server runs; None for any other block."""
    if (tool_use := member(block, "toolUse")) is not None:
        return text(member(tool_use, "toolUseId"))
    return (
        text(block.get("id")) if text(block.get("type")).endswith(("_tool_use", "_call")) else None
    )

"""The request that asks for the rest of a cut answer, and what of an answer an API takes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from endturn.calls import Strategy
from endturn.formats.history import call_in
from endturn.formats.reading import first, items, member, text
from endturn.vocabulary import Blocks, ChatResponse, Json, Message, Request, Resume, ToolCall


class Unfinished(Protocol):
    """A function that returns the blocks of an incomplete answer that may be sent back.

    For an answer that is not sent back as it came. `calls` are those of the client's calls that go
    with it.
    """

    def __call__(self, blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]: ...


class Resuming(Protocol):
    """Makes the request that asks for the rest of a cut or paused response.

    Its messages begin with the original's.

    Args:
        prompt: the nudge: the last user message, marked synthetic. Used by `prompt` alone.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing white
            space stripped: models refuse it there); `resend` (the answer verbatim, nothing after
            it); `native_token`.
    """

    def __call__(
        self,
        request: Request,
        cut: ChatResponse,
        *,
        prompt: str,
        strategy: str = Strategy.PROMPT,
        dialect: str = "",
    ) -> Request: ...


def resumes(
    format: str, said: Callable[[str], Json], *, forced: str = "tool_choice", by_id: bool = False
) -> Resuming:
    """How a format goes on that sends an answer back as its blocks.

    Args:
        said: a text as a block.
        forced: where `extra` may hold which tool must be called, as a path.
        by_id: a continuation token goes with the id of the response that it came from, where the
            server keeps that.
    """

    def resume(
        request: Request,
        cut: ChatResponse,
        *,
        prompt: str,
        strategy: str = Strategy.PROMPT,
        dialect: str = "",
    ) -> Request:
        if cut.token is not None and (
            strategy == Strategy.NATIVE_TOKEN or cut.stop.resume is Resume.NATIVE_TOKEN
        ):
            is_kept = by_id and cut.id is not None and request.extra.get("store") is not False
            return request.but(
                token=cut.token, previous_id=cut.id if is_kept else request.previous_id
            )
        request = request.but(token=None)
        if (again := resent(request, cut, strategy)) is not None:
            return again
        own = own_blocks(cut, format)
        blocks = unfinished_parts([said(cut.text)] if own is None else own)
        if strategy == Strategy.PREFILL and blocks and isinstance(blocks[-1].get("text"), str):
            blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}
        partial = (
            cut.message().but(tool_calls=(), blocks=Blocks(format, tuple(blocks)))
            if blocks
            else None
        )
        return asking_on(request, partial, prompt=prompt, strategy=strategy, forced=forced)

    return resume


def resent(request: Request, cut: ChatResponse, strategy: str) -> Request | None:
    """The same request with the answer so far, verbatim.

    None where it is to be asked for the rest instead.
    """
    if strategy == Strategy.RESEND or cut.stop.resume is Resume.RESEND_UNCHANGED:
        return request.but(messages=(*request.messages, cut.message()))
    return None


def resumes_message(format: str, unfinished: Callable[[Json, str | None], Json]) -> Resuming:
    """How a format goes on that sends an answer back as one message.

    Args:
        unfinished: from the message of the cut answer and its text, the message that may be sent
            back without its calls. Without a text, its own stays.
    """

    def resume(
        request: Request,
        cut: ChatResponse,
        *,
        prompt: str,
        strategy: str = Strategy.PROMPT,
        dialect: str = "",
    ) -> Request:
        if (again := resent(request, cut, strategy)) is not None:
            return again
        # A last message that ends in white space is refused.
        said = cut.text.rstrip() if strategy == Strategy.PREFILL else cut.text
        own = own_blocks(cut, format)
        blocks = Blocks(format, (unfinished(own[0], said),)) if own else None
        partial = (
            cut.message().but(content=said, tool_calls=(), blocks=blocks) if said.strip() else None
        )
        return asking_on(request, partial, prompt=prompt, strategy=strategy)

    return resume


def own_blocks(said: Message | ChatResponse, format: str) -> tuple[Json, ...] | None:
    """What a message holds in a format's own shape, which wins over its content.

    None where it holds none.
    """
    return said.blocks.items if said.blocks is not None and said.blocks.format == format else None


def unfinished_message(unfinished: Callable[[Json, str | None], Json]) -> Unfinished:
    """What stays of an answer that is one message.

    With calls, all but the others; else as it goes on.
    """

    def left(blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]:
        message = blocks[0]
        ids = {call.id for call in calls}
        kept = [
            call for call in items(message.get("tool_calls")) if text(member(call, "id")) in ids
        ]
        return [{**message, "tool_calls": kept}] if kept else [unfinished(message, None)]

    return left


def without_lost_calls(message: Message, block: Json) -> Json:
    """A message as its provider wrote it, but for calls that were taken out of the history since.

    Of calls without an id, which older servers and SDKs of Ollama's write, nothing tells that they
    were.
    """
    kept = {"", *(call.id for call in message.tool_calls)}
    calls = [call for call in items(block.get("tool_calls")) if text(member(call, "id")) in kept]
    rest = {name: value for name, value in block.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest


def asking_on(
    request: Request,
    partial: Message | None,
    *,
    prompt: str,
    strategy: str,
    forced: str = "tool_choice",
) -> Request:
    """The same request, the answer so far, and the prompt.

    Its last message, marked synthetic; not after a prefill.

    Args:
        partial: the answer so far, without calls that are cut; None where nothing of it can be sent
            back.
        forced: where `extra` may hold which tool must be called, as a path: what is asked for now
            is text.
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
        extra=_without(request.extra, forced),
    )


def _without(extra: dict[str, Any], path: str) -> dict[str, Any]:
    name, _, below = path.partition(".")
    if below and isinstance(extra.get(name), dict):
        return {**extra, name: _without(extra[name], below)}
    return extra if below else {key: value for key, value in extra.items() if key != name}


# --- What an API takes back of its own blocks -----------------------------------------------------

_SIGNATURES: Final = ("signature", "thoughtSignature", "thought_signature", "redactedContent")
_THOUGHTS: Final = ("thinking", "redacted_thinking", "thought")
_UNANSWERED: Final = ("executableCode", "executable_code", "toolCall", "tool_call")
"""What Gemini runs itself: its result stands in the next part."""


def sent_back(blocks: Iterable[Json], calls: Iterable[ToolCall] = ()) -> list[Json]:
    """The blocks without calls that left the history, and without what APIs refuse.

    That is unsigned thinking, blank text, and thinking that nothing follows.

    Args:
        calls: the client's that are still in the history.
    """
    left = [*calls]
    return _without_last_thoughts([block for block in blocks if _is_taken(block, left)])


def _is_taken(block: Json, left: list[ToolCall]) -> bool:
    called = call_in(block)
    if called is not None:
        id_, name, given = (
            text(first(called, "toolUseId", "id")),
            member(called, "name"),
            member(called, "args"),
        )
        for position, call in enumerate(left):
            # One without an id is known by what it asks for; of two that ask the same, it does not
            # matter which.
            if (
                call.id == id_
                if id_
                else call.name == name and (call.arguments or {}) == (given or {})
            ):
                del left[position]
                return True
        return False
    thought = member(block, "reasoningContent")
    if any(
        first(each, *_SIGNATURES) for each in (block, thought, member(thought, "reasoningText"))
    ):
        return True
    if is_thought(block):
        return block.get("type") == "redacted_thinking"
    if block.get("type") == "model_output":
        return any(
            member(part, "type") != "text" or _says(part) for part in items(block.get("content"))
        )
    return _says(block) if "text" in block or block.get("type") == "text" else True


def is_thought(block: Json) -> bool:
    """Whether a block is thinking."""
    return (
        block.get("thought") is True
        or block.get("type") in _THOUGHTS
        or "reasoningContent" in block
    )


def _says(part: Any) -> bool:
    return bool(text(member(part, "text")).strip())


def unfinished_parts(blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]:
    """The blocks of a cut answer that may be sent back.

    No call without its result, nothing that only it explains.
    """
    kept = without_unanswered(sent_back(blocks, calls))
    while kept and first(kept[-1], *_UNANSWERED) is not None:
        kept.pop()
    return _without_last_thoughts(kept)


SERVED_APART: Final = frozenset({"anthropic", "bedrock_converse", "gemini_interactions"})
"""The formats in which the result of a tool that the server runs is a block of its own."""


def without_unanswered(blocks: Sequence[Json]) -> list[Json]:
    """The blocks without calls of the server's tools that have no result.

    They stay where the server goes on alone.
    """
    results = [
        first(member(each, "toolResult") or each, "toolUseId", "tool_use_id", "call_id")
        for each in blocks
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
    """The id of a call that the server runs; None for any other block."""
    if (use := member(block, "toolUse")) is not None:
        return text(member(use, "toolUseId"))
    return (
        text(block.get("id")) if text(block.get("type")).endswith(("_tool_use", "_call")) else None
    )

"""The request that asks for the rest of a cut answer, as far as every format does the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from endturn.chat import Blocks, ChatResponse, Json, Message, Request
from endturn.events import Strategy
from endturn.stop import Resume


def resent(request: Request, cut: ChatResponse, strategy: str) -> Request | None:
    """The same request with the answer so far, verbatim; None where it is to be asked for the rest instead."""
    if strategy == Strategy.RESEND or cut.stop.resume is Resume.RESEND_UNCHANGED:
        return request.but(messages=(*request.messages, cut.message()))
    return None


def continued(
    request: Request,
    cut: ChatResponse,
    unfinished: Sequence[Json],
    *,
    format: str,
    prompt: str,
    strategy: str,
    forced: str = "tool_choice",
) -> Request:
    """The next request in a format that sends an answer back as its blocks.

    Args:
        unfinished: the blocks of the cut answer that may be sent back.
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    blocks = [*unfinished]
    if strategy == Strategy.PREFILL and blocks and isinstance(blocks[-1].get("text"), str):
        # A last message that ends in white space is refused.
        blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}
    partial = cut.message().but(tool_calls=(), blocks=Blocks(format, tuple(blocks))) if blocks else None
    return asking_on(request, partial, prompt=prompt, strategy=strategy, forced=forced)


def continued_message(
    request: Request,
    cut: ChatResponse,
    unfinished: Callable[[Json, str], Json],
    *,
    format: str,
    prompt: str,
    strategy: str,
) -> Request:
    """The next request in a format that sends an answer back as one message.

    Args:
        unfinished: from the message of the cut answer and its text, the message that may be sent back.
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    # A last message that ends in white space is refused.
    said = cut.text.rstrip() if strategy == Strategy.PREFILL else cut.text
    own = own_blocks(cut, format)
    blocks = Blocks(format, (unfinished(own[0], said),)) if own else None
    partial = cut.message().but(content=said, tool_calls=(), blocks=blocks) if said.strip() else None
    return asking_on(request, partial, prompt=prompt, strategy=strategy)


def own_blocks(said: Message | ChatResponse, format: str) -> tuple[Json, ...] | None:
    """What a message holds in a format's own shape, which wins over its content; None where it holds none."""
    return said.blocks.items if said.blocks is not None and said.blocks.format == format else None


def asking_on(
    request: Request, partial: Message | None, *, prompt: str, strategy: str, forced: str = "tool_choice"
) -> Request:
    """The same request, the answer so far, and the prompt: its last message, marked synthetic; not after a prefill.

    Args:
        partial: the answer so far, without calls that are cut; None where nothing of it can be sent back.
        forced: where `extra` may hold which tool must be called, as a path: what is asked for now is text.
    """
    answer = () if partial is None else (partial,)
    nudge = () if strategy == Strategy.PREFILL else (Message(role="user", content=prompt, synthetic=True),)
    choice = request.tool_choice if request.tool_choice in ("auto", "none") else "auto"
    return request.but(
        messages=(*request.messages, *answer, *nudge), tool_choice=choice, extra=_without(request.extra, forced)
    )


def _without(extra: dict[str, Any], path: str) -> dict[str, Any]:
    name, _, below = path.partition(".")
    if below and isinstance(extra.get(name), dict):
        return {**extra, name: _without(extra[name], below)}
    return extra if below else {key: value for key, value in extra.items() if key != name}

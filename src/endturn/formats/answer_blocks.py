"""Edits an answer's blocks for a history: drop calls, replace the text, merge two parts.

A provider's own blocks hold content that its API requires in the next request: signed thinking,
signatures of calls, reasoning items. So they are edited, not dropped, if a call was not run, a text
was shortened, or an overlap was removed. The controller's next request, the result's messages, a
transcript and a resumed turn all use these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from endturn.errors import UsageError
from endturn.formats.next_request import is_thought, replayable_blocks
from endturn.formats.reading import items
from endturn.formats.registry import format_of
from endturn.vocabulary import Blocks, Json, ToolCall

if TYPE_CHECKING:
    from endturn.formats.format import Format

THINKING: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""The members in which messages of chat formats keep thinking."""
_TEXT_TYPES: Final = (None, "text", "output_text")
_CONTAINER_TYPES: Final = (None, "message", "model_output")
"""The types of blocks whose `content` is visible text, or holds it. A message of a chat format has
none."""


def unfinished(
    blocks: Blocks | None, calls: Sequence[ToolCall], *, resend: bool = False
) -> Blocks | None:
    """Return the blocks of an incomplete answer that may be sent back; None if there are none.

    Args:
        calls: the client's calls that stay.
        resend: the answer is sent back to be continued in place: only calls are removed.
    """
    format = _format(blocks)
    if blocks is None or format is None:
        return None
    remaining = (
        replayable_blocks(blocks.items, calls) if resend else format.unfinished(blocks.items, calls)
    )
    return Blocks(blocks.format, tuple(remaining)) if remaining else None


def together(first: Blocks | None, second: Blocks | None, texts: tuple[str, str]) -> Blocks | None:
    """Merge the blocks of one answer that came in two parts.

    Args:
        first, second: None where a part is only text.
        texts: the text of each part.

    Returns:
        None if both are messages of text alone, for which one text is enough, or if their formats
        differ.
    """
    some_blocks = first or second
    format = _format(some_blocks)
    if some_blocks is None or format is None:
        return None
    if first is not None and second is not None and first.format != second.format:
        return None
    parts = [
        _only_text(format, text) if part is None else part.items
        for part, text in zip((first, second), texts, strict=True)
    ]
    if all("role" in block and _is_plain(block) for block in chain(*parts)):
        return None
    if format.one_message and all(parts):
        return Blocks(some_blocks.format, (_merge(parts[0][0], parts[1][0]),))
    return Blocks(some_blocks.format, (*parts[0], *parts[1]))


def with_text(blocks: Blocks | None, text: str, previous: str) -> Blocks | None:
    """Replace the visible text of blocks.

    Only the span that differs is edited in the text blocks. A text block that becomes empty is
    removed, unless it has a signature.

    Args:
        previous: the visible text of the response that the blocks are from.
    """
    if blocks is None or text == previous:
        return blocks
    visible_text = text_of_blocks(blocks)
    if visible_text == text:
        return blocks
    if visible_text.startswith(text):
        before, after = len(text), 0
    else:
        after = _common_length(visible_text[::-1], text[::-1])
        before = _common_length(
            visible_text[: len(visible_text) - after], text[: len(text) - after]
        )
    start, end, new = before, len(visible_text) - after, text[before : len(text) - after]
    offset = 0

    def change(piece: str) -> str:
        nonlocal offset, new
        first, offset = offset, offset + len(piece)
        if offset < start or first > end or (first == end and not new):
            return piece
        head, tail = piece[: max(0, start - first)], piece[max(0, end - first) :]
        inserted, new = new, ""
        return head + inserted + tail

    new_items = [_edit(item, change) for item in blocks.items]
    return Blocks(blocks.format, tuple(item for item in new_items if item is not None))


def _common_length(first: str, second: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def text_of_blocks(blocks: Blocks) -> str:
    """Return the visible text of blocks."""
    pieces: list[str] = []

    def collect(piece: str) -> str:
        pieces.append(piece)
        return piece

    for item in blocks.items:
        _edit(item, collect)
    return "".join(pieces)


def _format(blocks: Blocks | None) -> Format | None:
    try:
        return None if blocks is None else format_of(blocks.format)
    except UsageError:  # a shape that only the host knows
        return None


def _only_text(format: Format, text: str) -> tuple[Json, ...]:
    return (format.text_block(text),) if text.strip() else ()


_PLAIN_MEMBERS: Final = frozenset({"type", "role", "text", "content", "id", "status"})


def _is_plain(block: Any) -> bool:
    """Return whether a block, or a part of its content, holds only text."""
    if not isinstance(block, dict):
        return isinstance(block, str)
    names = {name for name, value in block.items() if value not in (None, "", [], {})}
    is_text = block.get("type") in (*_TEXT_TYPES, *_CONTAINER_TYPES) and not is_thought(block)
    return is_text and names <= _PLAIN_MEMBERS and all(map(_is_plain, items(block.get("content"))))


def _edit(block: Json, change: Callable[[str], str]) -> Json | None:
    """Return a block with its visible texts changed; None if it was text and becomes empty."""
    kind = block.get("type")
    if is_thought(block) or kind in ("thinking", "reasoning"):
        return block
    if isinstance(text := block.get("text"), str) and kind in _TEXT_TYPES:
        new_text = change(text)
        has_signature = "thoughtSignature" in block or "thought_signature" in block
        return {**block, "text": new_text} if new_text or has_signature or not text else None
    if isinstance(text := block.get("refusal"), str) and kind == "refusal":
        new_text = change(text)
        return {**block, "refusal": new_text} if new_text or not text else None
    if kind not in _CONTAINER_TYPES or "content" not in block:
        return block
    content = block["content"]
    if isinstance(content, str):
        new_text = change(content)
        return {**block, "content": new_text} if new_text or not content or kind is None else None
    if not isinstance(content, list):
        return block
    parts = [_edit(part, change) if isinstance(part, dict) else part for part in content]
    remaining = [part for part in parts if part is not None]
    return {**block, "content": remaining} if remaining or not content or kind is None else None


def _merge(first: Json, second: Json) -> Json:
    """Merge two messages of one answer.

    Content and thinking are concatenated; of other members the second's counts.
    """
    message = {**first, **second}
    for name in THINKING:
        thoughts = [message[name] for message in (first, second) if message.get(name)]
        if len(thoughts) > 1:
            message[name] = _concatenate(thoughts[0], thoughts[1], "\n\n")
    contents = [message["content"] for message in (first, second) if message.get("content")]
    if contents:
        message["content"] = (
            contents[0] if len(contents) == 1 else _concatenate(contents[0], contents[1], "")
        )
    return message


def _concatenate(first: Any, second: Any, between: str) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return first + between + second
    return [*chain.from_iterable(_as_parts(content) for content in (first, second))]


def _as_parts(content: Any) -> Iterator[Any]:
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    else:
        yield from items(content)

"""Whole answers that do nothing but speak: most are, and need no watch, nor to be read before their host has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from endturn.chat import Usage
from endturn.stop import Row, StopReason, find_stop
from endturn.wires import Context, Reader, Seen, Watch
from endturn.wires.reading import text_or_none

Plain = tuple[str, Usage | None, Any, Any, str, int]
"""Of such an answer: why it stopped, its usage, id and model, its last characters, and how many there are."""


def read_with(
    plain: Callable[[Context, Any], Plain | None],
    rows: Callable[[Context], Mapping[str, Row]],
    watch: Callable[[Context], Watch],
) -> tuple[Callable[[Context, Any], Seen], Callable[[Context, Any], Reader | None]]:
    """The `whole` and the `glance` of a wire.

    Args:
        plain: what counts of a body that does nothing but speak; None of any other.
        rows: the table that its reason is looked up in.
        watch: reads any body.
    """

    def whole(ctx: Context, body: Any) -> Seen:
        found = plain(ctx, body)
        if found is not None:
            return judged(found, rows(ctx), ctx.asked.maximum, ctx.window)
        watching = watch(ctx)
        watching.see(body)
        return watching.close()

    def glance(ctx: Context, body: Any) -> Reader | None:
        found = plain(ctx, body)
        if found is None:
            return None
        known = rows(ctx)
        row = known.get(found[0])
        if row is None or row.reason is not StopReason.END_TURN or not row.terminal:
            return None
        return judged, found, known, ctx.asked.maximum, ctx.window

    return whole, glance


def judged(plain: Plain, rows: Mapping[str, Row], maximum: int | None, window: int | None) -> Seen:
    """What a watch would have seen, without one."""
    raw, usage, id_, model, tail, chars = plain
    stop = find_stop(
        raw,
        rows,
        output_tokens=usage.output_tokens if usage else None,
        prompt_tokens=usage.input_tokens if usage else None,
        maximum=maximum,
        window=window,
    )
    return Seen(stop, usage, text_or_none(id_), text_or_none(model), tail, chars, (raw,))

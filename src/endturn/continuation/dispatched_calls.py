"""Recognise repeated and replayed tool calls among those that a turn has dispatched."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from endturn.continuation.policy import ContinuationPolicy
from endturn.formats import is_minted, looks_random
from endturn.vocabulary import ChatResponse, ToolCall

log = logging.getLogger("endturn")


class DispatchedCalls:
    """Tool calls of one turn that were run, or answered with an error.

    Args:
        policy: its `rerun_calls` and `max_identical_calls` are the limits.
    """

    __slots__ = ("_batch", "_dispatched_keys", "_policy", "_repetitions")

    def __init__(self, policy: ContinuationPolicy) -> None:
        self._policy = policy
        self._dispatched_keys: set[tuple[str | None, str, str]] = set()
        self._batch: list[str] = []
        self._repetitions = 0

    def refuses(self, response: ChatResponse) -> bool:
        """Return whether a response repeats calls that must not run again; else add its calls."""
        return self._is_replayed(response) or self._is_one_too_many(response.tool_calls)

    def _is_replayed(self, response: ChatResponse) -> bool:
        """Return whether a cache sent the response again: one of its calls was dispatched before.

        A random id proves that. Other ids do not: some servers count calls from zero in each
        response, or send the tool's name; there, the response's id and the arguments have to be
        equal too.
        """
        if self._policy.rerun_calls:
            return False
        call_keys = {
            ("", call.id, "") if _is_unique(call) else (response.id, call.id, call_text(call))
            for call in response.tool_calls
            if response.id is not None or _is_unique(call)
        }
        if not self._dispatched_keys.isdisjoint(call_keys):
            log.warning(
                "[tools] the provider sent a response again whose tool calls have run: they are "
                "not run a second time"
            )
            return True
        self._dispatched_keys |= call_keys
        return False

    def _is_one_too_many(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether the same calls arrived in a row as often as the policy allows."""
        batch = sorted(call_text(call) for call in calls)
        self._repetitions = self._repetitions + 1 if batch == self._batch else 1
        self._batch = batch
        limit = self._policy.max_identical_calls
        return limit is not None and self._repetitions > limit


def _is_unique(call: ToolCall) -> bool:
    """Return whether the call's id is unique, because the server generated it at random."""
    return looks_random(call.id, (call.name,)) and not is_minted(call.id)


def call_text(call: ToolCall) -> str:
    """Return the call as text; it is equal for equal arguments in different notations."""
    arguments = (
        call.arguments_raw if call.arguments is None else json.dumps(call.arguments, sort_keys=True)
    )
    return f"{call.name} {arguments}"

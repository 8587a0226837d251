"""An append-only file of turns: write and read their requests, responses and messages.

    policy = ContinuationPolicy(transcript="turns.jsonl")
    controller = ContinuationController(provider, policy=policy)

    for turn in recover("turns.jsonl"):  # after a crash
        if not turn.ended and not turn.damaged:
            result = controller.run(turn.resume())

The loop can be run after each crash. A turn that had its answer returns it without a call; a turn
that another turn has resumed counts as ended.

**The file holds content**: questions, answers, tools' arguments and results. It is therefore off
unless the policy names a path, and a file that is created here can be read and written by its owner
alone (0600; a file that exists keeps its own mode).

One line is one JSON object, in ASCII: `v` (the version, 1), `turn` (its id), `n` (the line's number
within the turn, from 0) and one of these, defaults left out:

    began     the request, tools included; of a resumed turn also its messages, and the paused
              response that it continues; the format and features of the provider function
    response  a call's response as it arrived, with its stop reason and usage; `raised`: the error
              instead of it, or after a part of it
    message   a message that enters the turn: a nudge (before the call that it goes with), a tool's
              result, an answer; the word "response" for an answer that is all of the last response.
              With an answer or a nudge: `counters` and `usage` of the turn so far
    ended     the outcome

Each line is one write to a file opened for appending, so that turns, threads and processes may
share a local file. A line is with the operating system at once, and survives the process; it is on
the disk when the turn ends. A line that cannot be written is dropped, and that is logged once: no
turn fails because of its transcript. Lines after a missing one are ignored when the turn is read.
In an async controller the few writes of a turn block the loop, as logging does.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, model_validator

from endturn import formats
from endturn.calls import Strategy, TurnOutcome
from endturn.continuation.continuation_request import repair_prompt
from endturn.continuation.history import collapse, record
from endturn.continuation.limits import RESUME_STRATEGIES, Counters
from endturn.continuation.policy import PROMPT
from endturn.continuation.result import (
    RESTARTABLE,
    RESUMABLE,
    Observer,
    Resumption,
    TranscriptEnd,
    TranscriptEntry,
    TranscriptStart,
)
from endturn.errors import (
    DecodeError,
    ProviderError,
    ProviderTimeout,
    ProviderUnavailable,
    RequestRejected,
    UsageError,
)
from endturn.vocabulary import ChatResponse, Message, Request, Resume, Stop, StopReason, Usage

log = logging.getLogger("endturn")

VERSION: Final = 1
AS_IT_CAME: Final = "response"
"""The placeholder for a message that is the complete last response."""
NOT_RECORDED: Final = "the result of this call was not recorded: it may have been run, or not"
"""The result of a tool call whose own result is not in the transcript."""


# --- Lines ----------------------------------------------------------------------------------------

_ERRORS: Final = {
    kind.__name__: kind
    for kind in (RequestRejected, ProviderUnavailable, ProviderTimeout, DecodeError)
}


class _StoredError(BaseModel):
    """An exception of a provider function."""

    type: str
    message: str
    status: int | None = None
    stop: Stop | None = None

    @classmethod
    def of(cls, error: Exception) -> _StoredError:
        provider_fields = (
            {"status": error.status, "stop": error.stop} if isinstance(error, ProviderError) else {}
        )
        return cls(type=type(error).__name__, message=str(error), **provider_fields)

    def error(self, partial: ChatResponse) -> ProviderError:
        """Return an equal error; a ProviderError if its type is not ours."""
        error_class = _ERRORS.get(self.type, ProviderError)
        return error_class(self.message, status=self.status, stop=self.stop, partial=partial)


class _Line(BaseModel):
    """One line: an entry of a turn, in the member of its kind, and its position."""

    v: Literal[1]
    turn: str
    n: int
    began: TranscriptStart | None = None
    response: ChatResponse | None = None
    raised: _StoredError | None = None
    message: Message | Literal["response"] | None = None
    counters: Counters | None = None
    usage: Usage | None = None
    ended: TranscriptEnd | None = None

    @classmethod
    def of(cls, turn: str, number: int, entry: TranscriptEntry, last: ChatResponse | None) -> _Line:
        """Return an entry's line. `last`: the response before it."""
        values: dict[str, Any] = {
            field.name: getattr(entry, field.name) for field in fields(TranscriptEntry)
        }
        if entry.raised is not None:
            values["raised"] = _StoredError.of(entry.raised)
        if (
            entry.counters is not None
            and last is not None
            and entry.message == last.message(include_cut=True)
        ):
            values["message"] = AS_IT_CAME
        return cls.model_construct(v=VERSION, turn=turn, n=number, **values)

    def to_bytes(self) -> bytes:
        """Return the line in ASCII, without defaults."""
        # A warning would show the value: it is content.
        values = self.model_dump(mode="json", exclude_defaults=True, warnings=False)
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"

    @model_validator(mode="after")
    def _require_entry(self) -> Self:
        if not (self.began or self.response or self.message or self.ended):
            raise ValueError("it has no entry")
        return self

    def entry(self, last: ChatResponse | None) -> TranscriptEntry:
        """Return the line's entry. `last`: the response before it."""
        values: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in fields(TranscriptEntry)
        }
        if self.raised is not None and self.response is not None:
            values["raised"] = self.raised.error(self.response)
        if self.message == AS_IT_CAME and last is not None:
            values["message"] = last.message(include_cut=True)
        return TranscriptEntry(**values)


# --- Writing --------------------------------------------------------------------------------------


class Transcript:
    """A file that turns are appended to.

    It is opened for each line, so nothing has to be closed, and a file that was moved away is
    created again.

    Raises:
        UsageError: the file cannot be created or written to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._failures = count()
        try:
            os.close(self._open())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the transcript {str(path)!r} cannot be opened ({_cause_of(error)}): name a file "
                "that this process can read and write, in an existing folder"
            ) from None

    def of(self, turn: str) -> Observer:
        """Return the observer of a turn with this id. It never raises because of the file."""
        numbers = count()
        last: ChatResponse | None = None

        def observe(entry: TranscriptEntry) -> None:
            nonlocal last
            last = entry.response or last
            try:
                self._write(
                    _Line.of(turn, next(numbers), entry, last).to_bytes(),
                    is_last=entry.ended is not None,
                )
            except Exception as error:  # the turn continues whatever the error is
                if next(self._failures) == 0:
                    message = (
                        "[transcript] %r cannot be written (%s): lines are missing from here on"
                    )
                    log.warning(message, str(self._path), _cause_of(error))

        return observe

    def _write(self, line: bytes, *, is_last: bool) -> None:
        descriptor = self._open()
        try:
            if _is_torn(descriptor):
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, "only a part of a line was written")
            if is_last:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)


def _is_torn(descriptor: int) -> bool:
    """Return whether a file ends within a line, because its writer died or the disk was full."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _cause_of(error: Exception) -> str:
    """Return the cause of an error, without the content of the line."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


# --- Reading --------------------------------------------------------------------------------------

_APPENDING_PAUSES: Final = frozenset({Resume.RESEND_UNCHANGED, Resume.NATIVE_TOKEN})
"""The pauses after which the provider sends only the rest: the text before belongs to the turn.
After any other pause, it sends the complete response again."""
_UNFINISHED_REASONS: Final = frozenset(
    {
        StopReason.MAX_TOKENS,
        StopReason.MISSING,
        StopReason.ERROR,
        StopReason.CANCELLED,
        StopReason.TOOL_CALL,
    }
)
"""The stop reasons of an unfinished answer without calls. `tool_call`: its calls were not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A turn from its transcript.

    Attributes:
        turn_id: its id.
        began: its start.
        entries: the entries after the start, in order.
        outcome: its outcome; None if it did not end, or if that line is missing.
        damaged: lines in the middle are missing. Entries after the first missing line are left out.
        continued: a later turn of the file has resumed it.
    """

    turn_id: str
    began: TranscriptStart
    entries: tuple[TranscriptEntry, ...]
    outcome: TurnOutcome | None
    damaged: bool
    continued: bool = False

    @property
    def ended(self) -> bool:
        """True if the turn ended, or another turn has resumed it."""
        return self.outcome is not None or self.continued

    @property
    def request(self) -> Request:
        """The host's request."""
        return self.began.request

    @property
    def answers(self) -> tuple[ChatResponse | Exception, ...]:
        """The exception or response of each call, in order."""
        return tuple(
            entry.raised or entry.response for entry in self.entries if entry.response is not None
        )

    @property
    def segments(self) -> tuple[Message, ...]:
        """The turn's messages one by one, nudges included, as `TurnResult.segments`.

        A nudge at the end, without a response, is left out. A call without a result is answered
        with an error.
        """
        return tuple(
            _with_missing_results(_split_nudges((*self.began.segments, *self._entered_messages))[0])
        )

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, as `TurnResult.messages`.

        It can be sent, with another user message after it.
        """
        return collapse((*self.request.messages, *self.segments))

    @property
    def text(self) -> str:
        """The turn's answers, merged."""
        return _text(collapse(self.segments))

    @property
    def usage(self) -> Usage:
        """The sum over the evaluated responses."""
        return self._totals[1]

    @property
    def _entered_messages(self) -> tuple[Message, ...]:
        return tuple(entry.message for entry in self.entries if entry.message is not None)

    @property
    def _totals(self) -> tuple[Counters, Usage]:
        for entry in reversed(self.entries):
            if (
                entry.counters is not None
                and entry.usage is not None
                and not (entry.message and entry.message.synthetic)
            ):
                return entry.counters, entry.usage
        return self.began.counters, self.began.usage

    @property
    def _truncated_call_names(self) -> tuple[str, ...]:
        """Return the names of the last response's tool calls that were neither run nor answered."""
        judged = [
            answer
            for answer in self.answers
            if isinstance(answer, ChatResponse) and not _is_nothing(answer)
        ]
        entered = [message for message in self._entered_messages if not message.synthetic]
        if not judged or not entered or entered[-1].role != "assistant" or entered[-1].tool_calls:
            return ()
        return tuple(call.name for call in judged[-1].tool_calls)

    def resume(self, *, prompt: str = PROMPT) -> Resumption:
        """Return the resumption of the turn at the end of its transcript.

        Pass it to a controller with the same tools. The rest of a truncated answer is requested
        with the recorded prompt, if there is one; else with the strategy `prompt`, even if the
        model supports others. After a limit the limits are reset; else they continue. A turn that
        was stopped between its answer and the record of its end requests nothing: the controller
        returns the answer.

        Raises:
            UsageError: there is nothing to resume: the answer is complete, another request would
                not help, or lines of the turn are missing.
        """
        if self.damaged:
            raise UsageError(
                f"lines of the turn {self.turn_id!r} are missing: its progress is unknown, start "
                f"another turn"
            )
        kept_segments = (
            self.segments[:-1]
            if self.segments and _is_nothing(self.segments[-1])
            else self.segments
        )
        history = collapse((*self.request.messages, *kept_segments))
        last = history[-1] if len(history) > len(self.request.messages) else None
        pause = self._pause()
        if self.outcome is None and (over := _final_stop(last, pause.response)) is not None:
            return self._resumption_of_answer(history, over)
        strategy = self._strategy(last, pause.response)
        repair_calls = self._truncated_call_names if strategy is Strategy.PROMPT else ()
        if repair_calls:
            strategy, prompt = Strategy.REPAIR, repair_prompt(prompt, repair_calls)
        if (
            self._entered_messages and self._entered_messages[-1].synthetic
        ):  # it was requested with this prompt, without a response
            prompt = self._entered_messages[-1].text
        segments, shown_segments = self.segments, self.segments
        next_request = self.request.but(messages=history)
        pending: tuple[Message, ...] = ()
        if strategy is Strategy.RETRIEVE:
            assert pause.response is not None
            if pause.is_written:  # when the turn ended; it is requested again
                segments, pending = _split_nudges(segments[:-1])
            messages = (*collapse((*self.request.messages, *segments)), *pending)
            next_request = self.request.but(messages=messages, retrieve=pause.response.id)
            superseded_messages = (
                () if pause.superseded is None else (record(pause.superseded, ()),)
            )
            shown_segments = (*segments, *pending, *superseded_messages)
        elif strategy is not None:
            is_begun = last is not None and last.role == "assistant"
            base_request = self.request.but(messages=history[:-1] if is_begun else history)
            truncated = _truncated_response(last if is_begun else None, pause.response)
            format, dialect = formats.format_of(self.began.format), self.began.dialect
            request_strategy = Strategy.PROMPT if strategy is Strategy.REPAIR else strategy
            next_request = format.resume(
                base_request, truncated, prompt=prompt, strategy=request_strategy, dialect=dialect
            )
            pending = tuple(
                message
                for message in next_request.messages[len(base_request.messages) :]
                if message.synthetic
            )
        counters, usage = self._totals
        answers = collapse(shown_segments)
        answer = answers[-1].text if answers and answers[-1].role == "assistant" else ""
        resumption = Resumption(
            request=self.request,
            next=next_request,
            pending=pending,
            strategy=strategy,
            shown=_text(answers),
            answer=answer,
            segments=segments,
            usage=usage,
            counters=counters,
            superseded=pause.superseded,
            repair_calls=repair_calls,
            continues=self.turn_id,
        )
        return resumption.with_fresh_limits() if self.outcome in RESTARTABLE else resumption

    def _resumption_of_answer(self, history: tuple[Message, ...], over: Stop) -> Resumption:
        counters, usage = self._totals
        answers = collapse(self.segments)
        answer = answers[-1].text if answers and answers[-1].role == "assistant" else ""
        return Resumption(
            request=self.request, next=self.request.but(messages=history), shown=_text(answers),
            answer=answer, segments=self.segments, usage=usage, counters=counters,
            continues=self.turn_id, over=over,
        )  # fmt: skip

    def _pause(self) -> _Pause:
        """Return the turn's present pause.

        A lost call does not change it, unless a part of its response is kept.
        """
        pause = _Pause(self.began.paused, None)
        if pause.is_fetched:
            pause.superseded = self.began.paused
        last_response: ChatResponse | None = None
        for entry in self.entries:
            response, message = entry.response, entry.message
            if response is not None:
                is_lost = entry.raised is not None or response.stop.reason is StopReason.MISSING
                last_response = None if is_lost else response
                is_paused = not is_lost and response.stop.reason is StopReason.PAUSED
                if is_paused and response.stop.resume not in _APPENDING_PAUSES:
                    pause = _Pause(last_response, pause.superseded)
                if pause.is_fetched and (
                    pause.superseded is None or len(pause.superseded.text) <= len(response.text)
                ):
                    pause.superseded = response
            elif (
                message is not None
                and message.role == "assistant"
                and (pause.is_fetched or not _is_nothing(message))
            ):
                if pause.is_fetched and (last_response is None or last_response is pause.response):
                    pause.is_written = True
                else:
                    pause = _Pause(
                        last_response if message.stop_reason is StopReason.PAUSED else None, None
                    )
        return pause

    def _strategy(self, last: Message | None, paused: ChatResponse | None) -> Strategy | None:
        """Return the strategy of the next call; None for an ordinary one.

        `last`: the turn's last message.
        """
        over = UsageError(
            f"the turn {self.turn_id!r} cannot be resumed: it has its answer, start another turn"
        )
        if self.outcome is not None and self.outcome not in RESUMABLE:
            raise over
        if paused is not None and paused.stop.resume not in RESUME_STRATEGIES:
            raise over
        if paused is not None and paused.stop.resume is not Resume.RESEND_UNCHANGED:
            return RESUME_STRATEGIES[paused.stop.resume]
        if last is None or last.role != "assistant":
            return None
        if last.stop_reason is StopReason.PAUSED:
            return Strategy.RESEND
        if last.stop_reason not in _UNFINISHED_REASONS:
            raise over
        return Strategy.PROMPT


@dataclass(slots=True)
class _Pause:
    """The pause in which a turn stopped.

    Attributes:
        response: the paused response; None if the turn is not paused.
        superseded: the longest version so far of a response that is fetched completely.
        is_written: it is the turn's last message.
    """

    response: ChatResponse | None
    superseded: ChatResponse | None
    is_written: bool = False

    @property
    def is_fetched(self) -> bool:
        """True if the whole response is fetched again."""
        return self.response is not None and self.response.stop.resume is Resume.RETRIEVE_SAME_ID


def _final_stop(last: Message | None, paused: ChatResponse | None) -> Stop | None:
    """Return the stop of the last response if there is nothing more to request; else None."""
    if paused is not None:
        return paused.stop if paused.stop.resume not in RESUME_STRATEGIES else None
    if (
        last is None
        or last.role != "assistant"
        or last.stop_reason in _UNFINISHED_REASONS
        or last.stop_reason is StopReason.PAUSED
    ):
        return None
    return Stop(last.stop_reason or StopReason.UNKNOWN, last.finish_reason)


def _truncated_response(last: Message | None, paused: ChatResponse | None) -> ChatResponse:
    """Return the turn's last answer, its segments merged, as the response to be continued."""
    if paused is not None:
        return (
            paused
            if last is None
            else paused.but(text=last.text, tool_calls=last.tool_calls, blocks=last.blocks)
        )
    assert last is not None
    assert last.stop_reason is not None
    resume = Resume.RESEND_UNCHANGED if last.stop_reason is StopReason.PAUSED else Resume.PROMPT
    stop = Stop(last.stop_reason, last.finish_reason, resume=resume)
    return ChatResponse(text=last.text, stop=stop, blocks=last.blocks)


def _is_nothing(answer: Message | ChatResponse) -> bool:
    """Return whether a message or a response is the empty remainder of a lost call."""
    return (
        answer.stop_reason is StopReason.MISSING
        and not answer.text.strip()
        and not answer.tool_calls
    )


def _split_nudges(
    messages: tuple[Message, ...],
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Split messages into those before the trailing nudges, and these nudges."""
    size = len(messages)
    while size and messages[size - 1].synthetic:
        size -= 1
    return messages[:size], messages[size:]


def _text(messages: Iterable[Message]) -> str:
    return "".join(message.text for message in messages if message.role == "assistant")


def _with_missing_results(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with an error result for each call that has no result."""
    completed_messages: list[Message] = []
    pending_ids: list[str | None] = []
    for message in (*messages, None):
        if message is not None and message.role == "tool":
            pending_ids = [id_ for id_ in pending_ids if id_ != message.tool_call_id]
        else:
            results = (
                Message(role="tool", content=NOT_RECORDED, tool_call_id=id_, is_error=True)
                for id_ in pending_ids
            )
            completed_messages.extend(results)
            pending_ids = [] if message is None else [call.id for call in message.tool_calls]
        if message is not None:
            completed_messages.append(message)
    return completed_messages


def recover(path: str | Path, turn_id: str | None = None) -> list[Recovered]:
    """Return the turns of a transcript, in the order of their starts. It may still be written to.

    An incomplete last line is skipped. Any other line that cannot be read is skipped too, and
    logged by its number as a warning of the logger `endturn`; its turn is `damaged`.

    Args:
        turn_id: the turns of this id only (the host's own ids may repeat).

    Raises:
        UsageError: the file cannot be read.
    """
    turns: list[list[_Line]] = []
    continued: set[int] = set()
    latest: dict[str, list[_Line]] = {}
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    line = _Line.model_validate(json.loads(raw))
                    if line.began is not None:
                        if (earlier := latest.get(line.began.continues or "")) is not None:
                            continued.add(id(earlier))
                        latest[line.turn] = []
                        turns.append(latest[line.turn])
                    latest[line.turn].append(line)
                except (ValueError, KeyError, RecursionError):
                    if raw.strip() and raw.endswith(b"\n"):
                        log.warning(
                            "[transcript] line %d of %r is skipped: it, or an earlier line of its "
                            "turn, is damaged",
                            number, str(path),
                        )  # fmt: skip
    except OSError as error:
        raise UsageError(
            f"the transcript {str(path)!r} cannot be read: {_cause_of(error)}"
        ) from None
    return [
        _recover_turn(lines, continued=id(lines) in continued)
        for lines in turns
        if turn_id in (None, lines[0].turn)
    ]


def _recover_turn(lines: Sequence[_Line], *, continued: bool) -> Recovered:
    """Return a turn from its lines. After a missing line only the outcome is used."""
    began, outcome, damaged = lines[0].began, None, False
    assert began is not None
    entries: list[TranscriptEntry] = []
    last: ChatResponse | None = None
    for number, line in enumerate(lines[1:], 1):
        damaged = damaged or line.n != number or (line.message == AS_IT_CAME and last is None)
        outcome = line.ended.outcome if line.ended is not None else outcome
        if line.ended is None and not damaged:
            entries.append(line.entry(last))
            last = line.response or last
    return Recovered(
        turn_id=lines[0].turn, began=began, entries=tuple(entries), outcome=outcome,
        damaged=damaged, continued=continued,
    )  # fmt: skip


def played(turn: Recovered) -> Callable[[Request], ChatResponse]:
    """Return a provider function that replays a turn's recorded responses and errors in order.

    A controller with the same policy, tools and clock then produces from `turn.request` the same
    result and the same records. An error of a type that is not ours becomes a ProviderError. Not
    reproduced are interrupted and resumed turns, and the division of a stream into deltas.
    """
    answers = iter(turn.answers)

    def provider(request: Request) -> ChatResponse:
        answer = next(answers, None)
        if answer is None:
            raise UsageError(
                f"the turn {turn.turn_id!r} made no further call: use its request, policy and tools"
            )
        if isinstance(answer, Exception):
            raise answer
        return answer

    began = turn.began
    provider.__dict__.update(
        format=began.format, provider=began.provider, dialect=began.dialect,
        retrieves=began.retrieves, follows_tokens=began.follows_tokens,
    )  # fmt: skip
    return provider

"""Accumulates a response from the parts that a format's reader yields.

These rules apply to all formats. Of two stop reasons, one that means "incomplete" wins, in either
order, else the first. A reason that means a finished answer does not count if text follows it. The
last call of a truncated answer is incomplete, even if a server closed it, and so is any call whose
arguments do not parse. An error before the end breaks the answer; one after it is a detail.
Telemetry uses the summary and keeps no content; clients use the response.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, assert_never

from endturn.calls import RequestedCall, ResponseFacts
from endturn.formats import parts
from endturn.formats.call_arguments import arguments
from endturn.formats.errors import error_stop, label_of, quota
from endturn.formats.partial import PartialCall, PartialChoice, merge_pieces
from endturn.formats.parts import Part, ResponseFormat
from endturn.formats.summaries import MAX_UNPARSED_BYTES, TAIL, Context, Event, ResponseSummary
from endturn.vocabulary import (
    NO_GENERATION,
    Blocks,
    CallFragment,
    ChatResponse,
    Delta,
    Json,
    PieceJoiner,
    Resume,
    Row,
    Stop,
    StopReason,
    Usage,
    find_row,
    find_stop,
    fix_json_surrogates,
    fix_surrogates,
    rank_of,
    raw_text,
)

_NO_USAGE: Final = Usage()


class Reader(Protocol):
    """Converts the events of one response, or one whole body, into parts.

    It accepts any parsed JSON, and never raises.
    """

    def __call__(self, event: Any, /) -> Iterator[Part]: ...


class ResponseAccumulator:
    """Reads the events of one response, or its body.

    `close` and `response` return the result so far, at any time.

    Args:
        keep_content: keep texts, arguments and blocks too, for `response`.

    Attributes:
        read: the format's reader of this response.
        token: the provider's token for continuing the response, if it gave one.
        running_status: the server's status of a response that it still generates.
    """

    def __init__(self, ctx: Context, format: ResponseFormat, *, keep_content: bool) -> None:
        self.keep_content = keep_content
        self.read: Reader = format.reader(ctx, keep_content)
        self._set_format(format, ctx)
        self.id: str | None = None
        self.model: str | None = None
        self.usage: Usage | None = None
        self.window = ctx.window
        self.token: str | None = None
        self._is_checkpoint = False
        self.running_status: str | None = None
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[Hashable, PartialCall] = {}
        # Calls without arguments, from `FinishedCalls` parts: each with the number of entries that
        # `calls` had before it, and with its choice.
        self._finished_calls: list[tuple[int, int, Sequence[RequestedCall]]] = []
        self._next_position = 0
        self.server_calls: set[Hashable] = set()
        self._approvals: dict[str, RequestedCall] = {}
        self.choices: dict[int, PartialChoice] = {}
        self._blocks: dict[Hashable, list[Json]] = {}
        self._joiner = PieceJoiner()
        self.tail, self.char_count = "", 0
        self.is_body = False
        self.has_ended = False
        self.error: Any = None
        self.is_broken = False
        self._is_unreadable = False
        self._is_contradicted = False

    def _set_format(self, format: ResponseFormat, ctx: Context) -> None:
        """Read the response as one of that format from here on."""
        self.format, self.ctx = format, ctx
        self._borrowed_rows = format.borrowed_rows(ctx)
        self.rows = self._with_borrowed_rows(format.rows(ctx))
        # Some servers split one answer over several choices, although the request asked for one.
        self._is_split = format.splits_answer and ctx.request.facts.choice_count == 1

    def feed(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises, whatever the provider sent."""
        for part in self.read(event.data if event.__class__ is Event else event):
            self.add(part)

    @property
    def is_over(self) -> bool:
        """True if the event that ends a stream has arrived."""
        return self.has_ended and not self.is_body

    def add(self, part: Part) -> Delta | None:
        """Take the next part."""
        match part:
            case parts.Text():
                return self._add_text(part)
            case parts.ToolCallPart():
                return self._add_call(part)
            case parts.Reason():
                self._add_reason(part)
            case parts.FinishedCalls():
                self._add_finished_calls(part)
            case parts.FinishedAnswers(answers):
                self._add_finished_answers(answers)
            case parts.Reasoning():
                return self._add_reasoning(part)
            case parts.Block(key, piece, begins):
                if not self.keep_content:
                    return None
                if begins:
                    self._blocks[key] = []
                self._blocks.setdefault(key, []).append(piece)
            case parts.Head(id_, model, replaces):
                id_, model = id_ and fix_surrogates(id_), model and fix_surrogates(model)
                self.id = id_ if replaces and id_ else self.id or id_
                self.model = model if replaces and model else self.model or model
            case parts.Tokens(usage, is_fallback):
                if not is_fallback or self.usage is None:
                    self.usage = usage
            case parts.End(is_body):
                self.has_ended = True
                self.is_body = self.is_body or is_body
            case parts.ContextWindow(tokens):
                self.window = tokens
            case parts.Vocabulary(rows):
                self.rows = self._with_borrowed_rows(rows)
            case parts.InFormat(format, ctx):
                self._set_format(format, ctx)
                self._is_unreadable = False
            case parts.Unreadable():
                self._is_unreadable = True
            case parts.Approval(id_, name):
                self._approvals[id_] = RequestedCall(id_, name)
            case parts.ServerCall(key):
                self.server_calls.add(key)
            case parts.Running(raw):
                self.running_status = raw
            case parts.Token(token, checkpoint):
                self.token, self._is_checkpoint = token, checkpoint
            case parts.Unfinished():
                self._is_contradicted = True
            case parts.Reopened():
                self.has_ended, self.token = False, None
                for choice in self.choices.values():
                    choice.raw = choice.native = choice.detail = None
            case parts.ErrorPart(error):
                self._add_error(error)
            case _:
                assert_never(part)
        return None

    def _choice(self, index: int) -> PartialChoice:
        """Return the choice of that index; create it if it is new."""
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = PartialChoice()
        return choice

    def _add_reason(self, part: parts.Reason) -> None:
        raw, index, detail, native = part
        choice, word = self.choices.get(index) or self._choice(index), raw_text(raw)
        if word is None:
            return
        word = fix_surrogates(word)
        if choice.raw is None or self._outranks(word, choice):
            choice.raw = word
            choice.detail = detail and fix_surrogates(detail)
            choice.native = word if native is raw or not native else fix_surrogates(native)

    def _add_text(self, part: parts.Text) -> Delta | None:
        text, index, refusal = part
        text = self._joiner.take(text, index)
        if refusal:  # even without text
            self._choice(index).is_refused = True
        if not text:
            return None
        choice = self.choices.get(index)
        if choice is None or choice.raw is not None:
            choice = self._writable_choice(index)
        if choice is None:
            return None
        choice.has_content = True
        if index and not self._is_split:
            return None
        self.tail = (self.tail + text)[-TAIL:]
        self.char_count += len(text)
        if not self.keep_content:
            return None
        self.text.append(text)
        return Delta(text=text)

    def _add_reasoning(self, part: parts.Reasoning) -> Delta | None:
        text = self._joiner.take(part.text, ("reasoning", part.choice))
        if (
            not text
            or self._writable_choice(part.choice) is None
            or not self._is_in_answer(part.choice)
            or not self.keep_content
        ):
            return None
        self.reasoning.append(text)
        return Delta(reasoning=text)

    def _writable_choice(self, index: int) -> PartialChoice | None:
        """Return the choice for more content; None if it was truncated before.

        Resets a stop reason that arrived before the content and means a finished answer.
        """
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = PartialChoice()
        elif choice.raw is not None and not self.format.has_end:
            if self._is_truncated(choice):
                return None
            choice.raw = choice.native = choice.detail = None
            choice.has_resumed = True
        return choice

    def _add_call(self, part: parts.ToolCallPart) -> Delta | None:
        call, argument_piece = self.calls.get(part.key), part.arguments
        if isinstance(argument_piece, str) and not part.replaces:
            argument_piece = self._joiner.take(argument_piece, ("call", part.key))
        is_new = call is None
        has_content = is_new or argument_piece or part.name
        choice = (
            self._writable_choice(part.choice) if has_content else self.choices.get(part.choice)
        )
        if choice is None:
            return None
        if call is None:
            position = self._next_position
            self._next_position += self._is_in_answer(part.choice) and not part.builtin
            call = self.calls[part.key] = PartialCall(
                fix_surrogates(part.id),
                part.name,
                part.choice,
                position,
                builtin=part.builtin,
            )
            choice.has_content = True
        choice.last_call = call
        call.name = fix_surrogates(call.name or part.name)
        call.free_text = call.free_text or part.free_text
        if part.closed is not None:
            call.closed = part.closed
        had_arguments = call.has_arguments
        if isinstance(argument_piece, str):
            if part.replaces and argument_piece:
                call.pieces.clear()
                call.size = 0
            self._keep_arguments(call, argument_piece)
        # an object: it has all arguments, and may repeat earlier pieces
        elif argument_piece is not None:
            call.pieces.clear()
            call.has_arguments = True
            if self.keep_content:
                call.arguments_object = argument_piece = fix_json_surrogates(argument_piece)
        # The part repeats arguments that were returned before, or has none.
        is_repetition = (had_arguments and (part.replaces or isinstance(argument_piece, dict))) or (
            part.replaces and not argument_piece
        )
        has_no_delta = not is_new and (argument_piece is None or is_repetition)
        if (
            has_no_delta
            or call.builtin
            or not self.keep_content
            or not self._is_in_answer(part.choice)
        ):
            return None
        id_, name = (call.id, call.name or None) if is_new else (None, None)
        # an empty object of an open call is a placeholder for later pieces
        if isinstance(argument_piece, dict):
            argument_piece = (
                json.dumps(argument_piece, ensure_ascii=False)
                if argument_piece or part.closed is not False
                else ""
            )
        return Delta(call=CallFragment(call.position, id_, name, argument_piece or ""))

    def _add_finished_calls(self, part: parts.FinishedCalls) -> None:
        choice = self._writable_choice(part.choice) if part.calls else None
        if choice is not None:
            choice.has_content = True
            self._finished_calls.append((len(self.calls), part.choice, part.calls))

    def _add_finished_answers(self, answers: Sequence[tuple[int, str, str]]) -> None:
        texts = []
        for index, text, raw in answers:
            self.choices[index] = PartialChoice(raw, raw, has_content=text != "")
            if text and (index == 0 or self._is_split):
                texts.append(text)
        self.char_count += sum(map(len, texts))
        self.tail = (self.tail + "".join(texts[-TAIL:]))[-TAIL:]

    def _keep_arguments(self, call: PartialCall, piece: str) -> None:
        """Keep a piece of a call's arguments.

        Without content, only while they can still be checked.
        """
        call.size += len(piece)
        call.has_arguments = call.has_arguments or piece != ""
        if not self.keep_content and call.size > MAX_UNPARSED_BYTES:
            call.pieces.clear()
        elif piece or not call.pieces:
            call.pieces.append(piece)

    def _add_error(self, error: Any) -> None:
        """Add an error: before the end it breaks the answer, unless that is truncated already."""
        if self.error is not None:
            return
        self.error = error
        choices = [choice for choice in self._answer_choices() if choice.raw is not None]
        has_ended = self.has_ended if self.format.has_end else bool(choices)
        self.is_broken = not has_ended and not any(map(self._is_truncated, choices))

    @property
    def blocks(self) -> dict[Hashable, Json]:
        """The blocks, each assembled from its pieces, by their keys in the order of their start."""
        return {key: merge_pieces(pieces) for key, pieces in self._blocks.items()}

    def _is_in_answer(self, index: int) -> bool:
        """Return whether a choice is part of the answer."""
        return index == 0 or self._is_split

    def _answer_choices(self) -> list[PartialChoice]:
        """List the choices that are part of the answer, in order."""
        if self._is_split:
            return [choice for _, choice in sorted(self.choices.items())]
        return [self.choices[0]] if 0 in self.choices else []

    def _client_calls(self) -> list[PartialCall]:
        if not self.calls:
            return []
        calls = [call for key, call in self.calls.items() if key not in self.server_calls]
        return calls if self._is_split else [call for call in calls if call.choice == 0]

    def _row(self, choice: PartialChoice) -> Row | None:
        return None if choice.raw is None else find_row(choice.raw, self.rows)

    def _rank(self, choice: PartialChoice) -> int:
        """Return the rank of a choice's stop reason in a split answer; the lowest rank decides.

        0: a reason without a row; 1: a truncation; 2: a tool call; 3: any other reason.
        """
        row = self._row(choice)
        if row is None:
            return 0
        return 1 if row.incomplete else 2 if row.reason == "tool_call" else 3

    def _with_borrowed_rows(self, rows: Mapping[str, Row]) -> Mapping[str, Row]:
        """Return the rows, and borrowed ones for reasons without a row; in the order of `rows`."""
        return {**rows, **self._borrowed_rows, **rows} if self._borrowed_rows else rows

    def _outranks(self, raw: str, choice: PartialChoice) -> bool:
        """Return whether a reason replaces the one that a choice has.

        It does if content followed the earlier reason, or if it means less complete output.
        """
        if choice.has_resumed and not self._is_truncated(choice):
            return True
        return raw != choice.raw and rank_of(find_row(raw, self.rows)) < rank_of(self._row(choice))

    def _is_truncated(self, choice: PartialChoice) -> bool:
        row = self._row(choice)
        return row is not None and row.incomplete

    def stop(self, *, abandoned: bool = False) -> Stop:
        """Return the Stop of the response.

        Args:
            abandoned: the consumer stopped reading the stream, so its last event may be missing: a
                stop reason is enough for a finished response.
        """
        if self.is_broken:
            return error_stop(self.error)
        if self._is_unreadable and not abandoned:
            return Stop(StopReason.UNKNOWN, detail="unreadable")
        # By raw reason: the first choice that has it.
        choices_by_reason: dict[str, PartialChoice] = {}
        lacks_reason = is_refused = False
        detail = None
        for choice in self._answer_choices():
            if choice.raw:
                choices_by_reason.setdefault(choice.raw, choice)
            elif choice.has_content:
                lacks_reason = True
            is_refused = is_refused or choice.is_refused
            detail = detail or choice.detail
        if self.error is not None:
            detail = label_of(self.error)
        decisive = (
            min(choices_by_reason.values(), key=self._rank)
            if len(choices_by_reason) > 1
            else next(iter(choices_by_reason.values()), None)
        )
        if self.format.has_end:
            # An error that did not break the answer came after its end, or after a reason.
            has_ended = (
                self.has_ended or self.error is not None or (abandoned and decisive is not None)
            )
        else:
            # A part of a split answer with content and without a reason is truncated, whatever the
            # reasons of the others.
            has_ended = self.is_body or (decisive is not None and not lacks_reason)
        calls, is_closed = self._client_calls(), True
        if calls:
            self._close_calls(calls, decisive, has_ended)
            is_closed = all(call.closed for call in calls)
        finished_count = (
            sum(len(calls) for _, index, calls in self._finished_calls if self._is_in_answer(index))
            if self._finished_calls
            else 0
        )
        usage = self.usage or _NO_USAGE
        return find_stop(
            self.running_status if decisive is None else decisive.raw,
            self.rows,
            terminal_seen=has_ended or (decisive is None and self.running_status is not None),
            calls=len(calls) + finished_count,
            calls_closed=is_closed,
            contradicted=self._is_contradicted,
            output_tokens=usage.output_tokens,
            prompt_tokens=usage.input_tokens,
            maximum=self.ctx.request.facts.max_tokens,
            window=self.window,
            refused=is_refused,
            detail=detail,
        )

    def _close_calls(
        self, calls: Sequence[PartialCall], decisive: PartialChoice | None, has_ended: bool
    ) -> None:
        """Decide which calls are complete, by the format and the reason, then by the arguments.

        Some servers and proxies close a call that the limit truncated, and complete its JSON.
        Others do not report the limit: then the arguments show it.
        """
        self._close_by_reason(calls, decisive, has_ended)
        row = None if decisive is None else self._row(decisive)
        generated_nothing = row is not None and row.detail == NO_GENERATION
        for call in calls:
            if call.closed and (generated_nothing or not call.is_complete()):
                call.closed = False

    def _close_by_reason(
        self, calls: Sequence[PartialCall], decisive: PartialChoice | None, has_ended: bool
    ) -> None:
        row = self.rows.get("") if decisive is None else self._row(decisive)
        if self.format.reports_call_ends:
            # A reason without a row may be a truncation, and a running answer is incomplete.
            is_unknown = decisive is not None or self.running_status is not None
            if has_ended and (is_unknown if row is None else row.incomplete):
                calls[-1].closed = False
            return
        for call in calls:
            choice = self.choices[call.choice]
            if call is not choice.last_call:
                call.closed = True
            elif decisive is None:
                # Only the arguments show whether the last call is complete.
                call.closed = self.is_body and arguments("".join(call.pieces)) is not None
            else:
                choice_row = row if choice.raw is None else self._row(choice)
                call.closed = has_ended and choice_row is not None and not choice_row.incomplete

    def close(self, *, abandoned: bool = False) -> ResponseSummary:
        """Summarize the response so far, for telemetry; more may follow.

        Args:
            abandoned: as in `stop`.
        """
        reasons = tuple(
            [self.choices[index].native or self.running_status for index in sorted(self.choices)]
        ) or (self.running_status,)
        replacement = self._trailing_replacement()
        tail, chars = self.tail + replacement, self.char_count + len(replacement)
        stop, calls = self.stop(abandoned=abandoned), self.requested_calls()
        truncated = 0 if abandoned else self._truncated_choices()
        facts = ResponseFacts(
            stop=stop,
            id=self.id,
            model=self.model,
            usage=self.usage,
            reasons=reasons,
            truncated_choices=truncated,
            output_chars=chars,
        )
        return ResponseSummary(facts, tail, calls)

    def _truncated_choices(self) -> int:
        """Count the choices after the first that were truncated or reported no end."""
        if self.is_broken or self._is_split:
            return 0
        reasons = Counter(choice.raw for index, choice in self.choices.items() if index)
        return sum(
            choices for raw, choices in reasons.items() if find_stop(raw, self.rows).truncated
        )

    def _trailing_replacement(self) -> str:
        """Return U+FFFD if the visible text ends within a surrogate pair; else ""."""
        if self._joiner.are_complete:
            return ""
        return next(
            (
                replacement
                for index in self.choices
                if self._is_in_answer(index) and (replacement := self._joiner.replacement(index))
            ),
            "",
        )

    @property
    def size(self) -> int:
        """The number of tool calls and choices so far."""
        return (
            len(self.calls)
            + len(self.choices)
            + sum(len(calls) for _, _, calls in self._finished_calls)
        )

    @property
    def has_reason(self) -> bool:
        """True if a choice has a stop reason."""
        return any(choice.raw is not None for choice in self.choices.values())

    def requested_calls(self) -> tuple[RequestedCall, ...]:
        """List the client tool calls of all choices, and the pending approvals."""
        if not (self.calls or self._finished_calls):
            return tuple(self._approvals.values())
        # The calls of another choice are marked, unless that choice is truncated.
        other_choices = {
            index
            for index, choice in self.choices.items()
            if not self._is_in_answer(index) and not find_stop(choice.raw, self.rows).truncated
        }
        calls: list[RequestedCall] = []
        open_calls, start = [*self.calls.items()], 0
        for end, index, finished in (*self._finished_calls, (len(open_calls), 0, ())):
            calls += [
                RequestedCall(call.id, call.name, call.choice in other_choices)
                for key, call in open_calls[start:end]
                if key not in self.server_calls
            ]
            calls += (
                [call._replace(is_other_choice=True) for call in finished]
                if index in other_choices
                else finished
            )
            start = end
        return (*calls, *self._approvals.values())

    def response(self, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """Return the response so far, with its content."""
        stop = self.stop()
        blocks = self.format.blocks
        content = tuple(self.blocks.values()) if blocks is None else (*blocks(self),)
        return ChatResponse(
            text="".join(self.text) + self._trailing_replacement(),
            tool_calls=tuple(
                call.tool_call(self._joiner.replacement(("call", key)))
                for key, call in self.calls.items()
                if self._is_in_answer(call.choice)
                and key not in self.server_calls
                and not call.builtin
            ),
            usage=self.usage,
            reasoning="".join(self.reasoning) + self._joiner.replacement(("reasoning", 0)) or None,
            stop=stop,
            id=self.id,
            model=self.model,
            blocks=Blocks(self.format.name, content) if content else None,
            token=self.token if self._is_checkpoint or stop.resume is Resume.NATIVE_TOKEN else None,
            quota=quota(headers),
        )

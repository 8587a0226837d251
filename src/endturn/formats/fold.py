"""One response while it arrives: a format's reader says what is in it, the fold puts it together.

What is true of every format stands here, once: the first terminal wins; a clean reason that text follows was none; the
last call of a cut answer is open, whatever a server closed; an error before the end breaks the answer; one that comes
after it is a detail. Telemetry takes the summary and keeps no content; clients take the response.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall, Usage
from endturn.formats import parts
from endturn.formats.errors import broken, label_of, quota
from endturn.formats.parts import Part
from endturn.formats.reading import arguments
from endturn.formats.summaries import TAIL, Context, ResponseSummary
from endturn.stop import Resume, Row, Stop, StopReason, find_row, find_stop, raw_text

if TYPE_CHECKING:
    from endturn.formats.format import Format


class Reader(Protocol):
    """Turns the events of one response, or one whole body, into parts. It sees parsed JSON, and never raises."""

    def __call__(self, event: Any, /) -> Iterator[Part]: ...


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    choice: int
    position: int
    pieces: list[str] = field(default_factory=list)
    given: Json | None = None
    closed: bool = False
    builtin: bool = False


@dataclass(slots=True)
class _Choice:
    """One of several answers: why it stopped, and what it holds."""

    raw: str | None = None
    own: str | None = None
    detail: str | None = None
    early: bool = False  # it stopped, and went on
    spoke: bool = False
    refused: bool = False
    last: _Call | None = None


class Fold:
    """Takes parts, gives deltas; `summary` and `response` say what it all came to, at any time.

    Args:
        keep: hold the content too, for `response`.
    """

    def __init__(self, ctx: Context, format: Format, *, keep: bool) -> None:
        self.ctx, self.format, self.keep = ctx, format, keep
        self.rows = format.rows(ctx)
        self.id: str | None = None
        self.model: str | None = None
        self.usage: Usage | None = None
        self.window = ctx.window
        self.token: str | None = None
        self._checkpoint = False
        self.running: str | None = None
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[Hashable, _Call] = {}
        self.server_calls: set[Hashable] = set()
        self.choices: dict[int, _Choice] = {}
        self._blocks: dict[Hashable, list[Json]] = {}
        self._halves: dict[Hashable, str] = {}
        self.tail, self.chars = "", 0
        self.whole = False
        self.ended = False
        self.error: Any = None
        self.broken = False
        self._unreadable = False

    def add(self, part: Part) -> Delta | None:
        """Take the next part."""
        match part:
            case parts.Text():
                return self._text(part)
            case parts.Reasoning(text, at):
                text = self._whole_characters(text, ("reasoning", at))
                if text and self._speaks(at) is not None and self._counts(at) and self.keep:
                    self.reasoning.append(text)
                    return Delta(reasoning=text)
            case parts.Call():
                return self._call(part)
            case parts.Block(key, piece, begins):
                if begins:
                    self._blocks[key] = []
                self._blocks.setdefault(key, []).append(piece)
            case parts.Head(id_, model, replaces):
                self.id = id_ if replaces and id_ else self.id or id_
                self.model = model if replaces and model else self.model or model
            case parts.Tokens(usage, beside):
                if not beside or self.usage is None:
                    self.usage = usage
            case parts.Window(tokens):
                self.window = tokens
            case parts.Vocabulary(rows):
                self.rows = rows
            case parts.InFormat(format, ctx):
                self.format, self.ctx, self.rows = format, ctx, format.rows(ctx)
                self._unreadable = False
            case parts.Unreadable():
                self._unreadable = True
            case parts.ServerCall(key):
                self.server_calls.add(key)
            case parts.Running(raw):
                self.running = raw
            case parts.Token(token, checkpoint):
                self.token, self._checkpoint = token, checkpoint
            case parts.Reason(raw, at, detail, own):
                choice = self.choices.setdefault(at, _Choice())
                word = raw_text(raw)
                if word is not None and (choice.raw is None or (choice.early and not self._is_cut(choice))):
                    choice.raw, choice.detail, choice.own = word, detail, own or word
            case parts.Reopened():
                self.ended, self.token = False, None
                for choice in self.choices.values():
                    choice.raw = choice.own = choice.detail = None
            case parts.End(whole):
                self.ended = True
                self.whole = self.whole or whole
            case parts.Fault(error):
                self._fault(error)
            case _:
                assert_never(part)
        return None

    def _text(self, part: parts.Text) -> Delta | None:
        text, at, refusal = part
        text = self._whole_characters(text, at)
        if refusal:  # Whatever it says, and if it says nothing.
            self.choices.setdefault(at, _Choice()).refused = True
        choice = self._speaks(at) if text else None
        if choice is None:
            return None
        choice.spoke = True
        if at and not self._counts(at):
            return None
        self.tail = (self.tail + text)[-TAIL:]
        self.chars += len(text)
        if not self.keep:
            return None
        self.text.append(text)
        return Delta(text=text)

    def _whole_characters(self, piece: str, of: Hashable) -> str:
        """A piece without half a character at its end, which servers cut in UTF-16: the next brings the other half."""
        if not self._halves and piece[-1:] < "\ud800":
            return piece
        whole = paired(self._halves.pop(of, "") + piece)
        if "\ud800" <= whole[-1:] <= "\udbff":
            whole, self._halves[of] = whole[:-1], whole[-1]
        return whole

    def _speaks(self, at: int) -> _Choice | None:
        """The choice that says something more. A clean reason before that was none; after a cut nothing counts."""
        choice = self.choices.get(at)
        if choice is None:
            choice = self.choices[at] = _Choice()
        elif choice.raw is not None and not self.format.has_end:
            if self._is_cut(choice):
                return None
            choice.raw = choice.own = choice.detail = None
            choice.early = True
        return choice

    def _call(self, part: parts.Call) -> Delta | None:
        call, says = self.calls.get(part.key), part.arguments
        if isinstance(says, str) and not part.replaces:
            says = self._whole_characters(says, ("call", part.key))
        started = call is None
        speaks = started or says or part.name
        choice = self._speaks(part.choice) if speaks else self.choices.get(part.choice)
        if choice is None:
            return None
        if call is None:
            position = sum(self._counts(each.choice) and not each.builtin for each in self.calls.values())
            call = self.calls[part.key] = _Call(part.id, part.name, part.choice, position, builtin=part.builtin)
            choice.spoke = True
        choice.last = call
        call.name = call.name or part.name
        if part.closed is not None:
            call.closed = part.closed
        told = any(call.pieces) or call.given is not None
        if isinstance(says, str):
            if part.replaces and says:
                call.pieces.clear()
            call.pieces.append(says)
        elif says is not None:  # the whole of what pieces may have said before
            call.pieces.clear()
            call.given = says
        repeats = (told and (part.replaces or isinstance(says, dict))) or (part.replaces and not says)
        silent = not started and (says is None or repeats)
        if silent or call.builtin or not self.keep or not self._counts(part.choice):
            return None
        id_, name = (call.id, call.name or None) if started else (None, None)
        if isinstance(says, dict):  # an empty one of a call that is open holds the place of what is to come
            says = json.dumps(says, ensure_ascii=False) if says or part.closed is not False else ""
        return Delta(call=CallFragment(call.position, id_, name, says or ""))

    def _fault(self, error: Any) -> None:
        """An error: before the end it breaks the answer, unless that was cut anyway."""
        if self.error is not None:
            return
        self.error = error
        reasons = [choice for choice in self._counting() if choice.raw is not None]
        over = self.ended if self.format.has_end else bool(reasons)
        self.broken = not over and not any(map(self._is_cut, reasons))

    @property
    def blocks(self) -> dict[Hashable, Json]:
        """The blocks that were kept, each whole, by their keys in the order in which they began."""
        return {key: joined(pieces) for key, pieces in self._blocks.items()}

    def _counts(self, at: int) -> bool:
        """Whether a choice is part of the answer: of several where one was asked for, all may be."""
        return at == 0 or (self.format.splits and self.ctx.asked.choices == 1)

    def _counting(self) -> list[_Choice]:
        return [choice for at, choice in sorted(self.choices.items()) if self._counts(at)]

    def _client_calls(self) -> list[_Call]:
        calls = self.calls.items()
        return [call for key, call in calls if self._counts(call.choice) and key not in self.server_calls]

    def _row(self, choice: _Choice) -> Row | None:
        return None if choice.raw is None else find_row(choice.raw, self.rows)

    def _is_cut(self, choice: _Choice) -> bool:
        row = self._row(choice)
        return row is not None and row.incomplete

    def stop(self, *, left: bool = False) -> Stop:
        """Why it stopped.

        Args:
            left: whoever read the stream stopped: a reason that had come counts without the event that ends it.
        """
        if self.broken:
            return broken(self.error)
        if self._unreadable and not left:
            return Stop(StopReason.UNKNOWN, detail="unreadable")
        choices = self._counting()
        said = min((each for each in choices if each.raw), key=lambda each: _rank(self._row(each)), default=None)
        if self.format.has_end:
            # An error that broke nothing came after the end, or after a reason that it does not change.
            ended = self.ended or self.error is not None or (left and said is not None)
        else:
            # A part of a split answer that spoke and never said why it stopped is cut, whatever another part says.
            cut = not self.whole and any(each.spoke and not each.raw for each in choices)
            ended = self.whole if said is None else not cut
        self._close_calls(said, ended)
        calls = self._client_calls()
        usage = self.usage or Usage()
        detail = next((each.detail for each in choices if each.detail), None)
        return find_stop(
            self.running if said is None else said.raw,
            self.rows,
            terminal_seen=ended or (said is None and self.running is not None),
            calls=len(calls),
            calls_closed=all(call.closed for call in calls),
            output_tokens=usage.output_tokens,
            prompt_tokens=usage.input_tokens,
            maximum=self.ctx.asked.maximum,
            window=self.window,
            refused=any(each.refused for each in choices),
            detail=detail if self.error is None else label_of(self.error),
        )

    def _close_calls(self, said: _Choice | None, ended: bool) -> None:
        """Which calls are whole: servers and proxies close the call that a limit cut, and fill it up to valid JSON."""
        row = self.rows.get("") if said is None else self._row(said)
        if self.format.closes_calls:
            # A reason that has no row may be a cut, and so is an answer that is still made.
            unknown = said is not None or self.running is not None
            if ended and (unknown if row is None else row.incomplete) and (calls := self._client_calls()):
                calls[-1].closed = False
            return
        for call in self.calls.values():
            choice = self.choices[call.choice]
            if not self._counts(call.choice):
                continue
            if call is not choice.last:
                call.closed = True
            elif said is None:
                # Nothing says that the last call is whole but the call itself.
                call.closed = self.whole and arguments("".join(call.pieces)) is not None
            else:
                own = row if choice.raw is None else self._row(choice)
                call.closed = ended and own is not None and not own.incomplete

    def summary(self, *, left: bool = False) -> ResponseSummary:
        """What telemetry needs of it."""
        reasons = tuple(self.choices[at].own or self.running for at in sorted(self.choices)) or (self.running,)
        return ResponseSummary(self.stop(left=left), self.usage, self.id, self.model, self.tail, self.chars, reasons)

    def response(self, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """All of it."""
        stop = self.stop()
        blocks = self.format.blocks
        content = tuple(self.blocks.values()) if blocks is None else (*blocks(self),)
        return ChatResponse(
            text="".join(self.text),
            tool_calls=tuple(_tool_call(call) for call in self._client_calls() if not call.builtin),
            usage=self.usage,
            reasoning="".join(self.reasoning) or None,
            stop=stop,
            id=self.id,
            model=self.model,
            blocks=Blocks(self.format.name, content) if content else None,
            token=self.token if self._checkpoint or stop.resume is Resume.NATIVE_TOKEN else None,
            quota=quota(headers),
        )


def _rank(row: Row | None) -> int:
    """Which part of a split answer speaks for all, lowest first: an unknown end, a cut, a call of tools."""
    if row is None:
        return 0
    return 1 if row.incomplete else 2 if row.reason == "tool_call" else 3


def _tool_call(call: _Call) -> ToolCall:
    raw = "".join(call.pieces)
    return ToolCall(
        id=call.id,
        name=call.name,
        arguments_raw=raw or ("" if call.pieces and call.given is None else None),
        arguments=arguments(raw) if raw else call.given,
        closed=call.closed,
    )


def paired(text: str) -> str:
    """Text whose characters are whole, of one that may hold the two halves of one apart."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


_AS_THEY_ARE: Final = ("type", "id", "name", "format")
"""Members whose text comes whole, in each piece."""


def joined(pieces: Sequence[Mapping[str, Any]]) -> Json:
    """The pieces of one object together: texts and lists one after the other, objects joined, of all else the last."""
    whole: Json = {}
    for name in dict.fromkeys(name for piece in pieces for name in piece):
        values = [piece[name] for piece in pieces if piece.get(name) is not None] or [None]
        if len(values) > 1 and all(isinstance(value, str) for value in values) and name not in _AS_THEY_ARE:
            whole[name] = paired("".join(values))
        elif len(values) > 1 and all(isinstance(value, list) for value in values):
            whole[name] = [*chain.from_iterable(values)]
        elif len(values) > 1 and all(isinstance(value, Mapping) for value in values):
            whole[name] = joined(values)
        else:
            whole[name] = values[-1]
    return whole

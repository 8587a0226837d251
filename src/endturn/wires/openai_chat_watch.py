"""What a response of the chat format says of its stop, read in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from endturn.chat import Usage
from endturn.stop import Row, Stop, StopReason, find_row, find_stop, raw_text
from endturn.stop_reasons import rows_of
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.openai_chat_calls import Call, find, repeated
from endturn.wires.openai_chat_objects import unwrapped, written
from endturn.wires.openai_chat_words import THINKING, error_in, usage_of, words_of
from endturn.wires.reading import (
    PLAIN,
    Nesting,
    Tail,
    arguments,
    count,
    items,
    member,
    minted,
    text,
    text_or_none,
)

_WORDS: Final = frozenset({"role", "content", *THINKING})
"""The members of a delta that say nothing of the stop."""
_SAYING: Final = frozenset({"content"})
"""What is set of an SDK's delta that does nothing but speak."""
_CALLING: Final = _WORDS | {"tool_calls"}
_NOWHERE: Final = object()
"""The index of no call."""
_NO_ID: Final = "null"
"""What Mistral's API once sent, and its SDK says, for a call without an id."""
NO_REASON: Final = frozenset({"null", "None"})
"""What some servers write for a reason that has not come: the word, as text."""


class Keeper(Protocol):
    """Who is given what the answer holds, while a watch reads what it says of the stop."""

    def part(self, part: Any, *, streamed: bool, again: bool) -> None:
        """Take a delta, or a whole message; `again` where the message ends a stream, and repeats it."""

    def text(self, visible: str, heard: str, declined: str) -> None:
        """Take visible text: written, spoken (a transcript), and of a refusal."""

    def thinking(self, piece: str, *, again: bool) -> None:
        """Take thinking; `again` where a message repeats a stream's."""

    def call(self, call: Call, started: bool, piece: str, fragment: Any) -> None:
        """Take a piece of a call."""


class _Choice:
    """One choice while it arrives."""

    __slots__ = ("calls", "detail", "early", "last", "native", "raw", "refused", "spoke")

    def __init__(self) -> None:
        self.raw: Any = None
        self.native: Any = None
        self.detail: str | None = None
        self.calls: list[Call] = []
        self.last: Call | None = None
        self.refused = False
        self.spoke = False
        # A reason came, and more of the answer after it: what this server says before the end means nothing.
        self.early = False

    def reason(self, rows: Mapping[str, Row]) -> str | None:
        """The raw value that counts."""
        return _chosen(raw_text(self.raw), raw_text(self.native), rows)

    def row(self, rows: Mapping[str, Row]) -> Row | None:
        """What it means."""
        raw = self.reason(rows)
        return None if raw is None else find_row(raw, rows)


class Watch:
    """Reads what a response of the chat format says of its stop, in place: mappings or the SDK's objects.

    `see` is on the path of every chunk. One of nothing but words, or further arguments of the call that came last,
    takes the short way through it, with usage as without.
    """

    over = False  # the format has no last event that is JSON

    __slots__ = (
        "_at",
        "_begun",
        "_choices",
        "_ctx",
        "_error",
        "_keep",
        "_say",
        "_seed",
        "_spoke",
        "_streamed",
        "_tail",
        "_usage",
        "_whole",
        "_window",
        "id",
        "model",
    )

    def __init__(self, ctx: Context, keep: Keeper | None = None) -> None:
        self._ctx = ctx
        self._keep = keep
        self._tail = Tail()
        self._say = self._tail.add
        self._choices: dict[int, _Choice] = {}
        self._usage: Any = None
        self._window = ctx.window
        self._error: Any = None
        self._at: Any = _NOWHERE
        self._begun = False
        self._spoke = False
        self._streamed = False
        self._whole = False
        self.id: str | None = None
        self.model: str | None = None
        self._seed: object = None

    def see(self, event: Any) -> None:
        """Read one chunk, or one whole body. Never raises over what a provider sent."""
        if event.__class__ is Event:
            event = event.data
        if self._begun:
            try:
                if event.__class__ is dict:
                    if self._is_quiet_json(event):
                        return
                else:
                    # A model with a `__getattr__` answers slowly; its members stand in `__dict__`.
                    known = event.__dict__
                    (found,) = known["choices"]
                    choice = found.__dict__
                    part = choice["delta"]
                    if (
                        part.__pydantic_fields_set__ == _SAYING
                        and choice["finish_reason"] is None
                        and known["usage"] is None
                        and choice["index"] == 0
                    ):
                        content = part.__dict__["content"]
                        if content and self._spoke and content.__class__ is str:
                            self._say(content)
                            return
                    if self._is_quiet(event, known, choice, part):
                        return
            except (AttributeError, KeyError, TypeError, ValueError):
                pass  # Not a plain chunk; the long way reads anything.
        self._read(event)

    def _is_quiet_json(self, event: dict[str, Any]) -> bool:
        """Whether a chunk says nothing of the stop; what it does say is taken."""
        (choice,) = event["choices"]
        delta = choice["delta"]
        quiet = "error" not in event and "x_groq" not in event and choice.get("finish_reason") is None
        quiet = quiet and (delta.keys() <= _WORDS or (delta.keys() <= _CALLING and self._goes_on(delta["tool_calls"])))
        return quiet and choice["index"] == 0 and self._takes(delta.get("content"), event.get("usage"))

    def _is_quiet(self, event: Any, known: dict[str, Any], choice: dict[str, Any], part: Any) -> bool:
        """The same of an SDK's chunk, whose members these are."""
        delta = part.__dict__
        content = delta["content"]
        quiet = (
            choice["finish_reason"] is None
            and delta["refusal"] is None
            and delta["function_call"] is None
            and (delta["tool_calls"] is None or self._goes_on(delta["tool_calls"]))
        )
        if quiet and not content:
            quiet = known.get("x_groq") is None and "x_groq" not in (event.__pydantic_extra__ or ())
            quiet = quiet and delta.get("audio") is None and "audio" not in (part.__pydantic_extra__ or ())
        return quiet and choice["index"] == 0 and self._takes(content, known["usage"])

    def _takes(self, content: Any, usage: Any) -> bool:
        """Take what a quiet chunk says: words, or thinking, arguments or nothing. False: it is none."""
        if content:
            if not (content.__class__ is str and self._spoke):
                return False
            self._say(content)
        if usage:
            self._usage = usage
        return True

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before a terminal the stop is `missing`, or `error` where the stream said so.

        Args:
            left: whoever read the stream stopped. The reason is the terminal here: one that had come counts anyway.
        """
        usage = usage_of(self._usage)
        stop = self._judge(usage)
        return Seen(
            stop,
            usage,
            self.id,
            self.model,
            self._tail.last,
            self._tail.chars,
            tuple(raw_text(self._choices[index].raw) for index in sorted(self._choices)),
        )

    @property
    def broken(self) -> bool:
        """An error came before any finish reason."""
        return self._error is not None and all(choice.raw is None for choice in self._counting())

    @property
    def calls(self) -> list[Call]:
        """The calls of the answer that counts, in order; `closed` is right after `close`."""
        return [call for choice in self._counting() for call in choice.calls]

    def _read(self, event: Any) -> None:
        event = unwrapped(event, choices=self._ctx.asked.choices)
        if self.id is None:
            self.id = text_or_none(member(event, "id"))
        if self.model is None:
            self.model = text_or_none(member(event, "model"))
        self._seed = self._seed or self.id or member(event, "created")
        usage = member(event, "usage") or member(member(event, "x_groq"), "usage")
        if usage is not None:
            self._usage = usage
        for position, choice in enumerate(items(member(event, "choices"))):
            index = count(member(choice, "index"))
            self._read_choice(position if index is None else index, choice)
        # LM Studio's own API: what stopped its engine, and the window that the model was loaded with.
        native = member(member(event, "stats"), "stop_reason")
        if native is not None and 0 in self._choices:
            self._choices[0].native = native
        self._window = count(member(member(event, "model_info"), "context_length")) or self._window
        error = error_in(event)
        if error and self._error is None:
            self._error = error
        # The short way is for a first choice that has not stopped. A keeper wants every piece.
        first = self._choices.get(0)
        self._begun = self._keep is None and first is not None and first.raw is None
        self._spoke = first is not None and first.spoke
        self._at = _NOWHERE
        if first is not None and first.calls and self._begun and not self._whole:
            last = first.calls[-1]
            # Of a call without an id the arguments are read, to tell it from the next.
            plain = last is first.last and last.shape == "tool_calls" and last.nesting is None
            self._at = last.index if plain and last.index is not None else _NOWHERE

    def _goes_on(self, fragments: Any) -> bool:
        """Whether a chunk's calls are no more than further arguments of the call that came last."""
        if not fragments:
            return True
        (fragment,) = fragments
        if fragment.__class__ is dict:
            function = fragment["function"]
        else:
            fragment = fragment.__dict__
            function = fragment["function"].__dict__
        return fragment["index"] == self._at and not fragment.get("id") and not function.get("name")

    def _read_choice(self, index: int, choice: Any) -> None:
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice()
        counts = index == 0 or self._ctx.asked.choices == 1
        part = member(choice, "delta")
        streamed = part is not None
        self._streamed = self._streamed or streamed
        if not streamed:
            part = member(choice, "message")
            # A `message` in the midst of a stream makes nothing whole.
            self._whole = self._whole or not (self._streamed or part is None or isinstance(part, PLAIN))
        held = None if state.raw is None else state.row(rows_of("openai_chat", self._ctx.dialect))
        # Translating proxies say `stop` with every chunk: what follows takes it back. A reason for which the answer is
        # cut stands, and nothing counts after it.
        stands = held is not None and held.incomplete
        if not stands and self._read_part(state, part, counts, streamed) and state.raw is not None:
            state.raw = state.native = state.detail = None
            state.early = True
        usage = member(choice, "usage")  # Moonshot streams it here.
        if usage is not None and self._usage is None:
            self._usage = usage
        raw = member(choice, "finish_reason")
        if raw.__class__ is str and raw in NO_REASON:
            raw = None
        if (state.raw is None or (state.early and not stands)) and raw_text(raw) is not None:
            state.raw = raw
            state.native = member(choice, "native_finish_reason") or member(
                member(choice, "provider_specific_fields"), "native_finish_reason"
            )
            # vLLM, SGLang: the stop string that matched. A number is a token's, and says nothing to a reader.
            matched = member(choice, "stop_reason") or member(choice, "matched_stop") or member(raw, "matched")
            state.detail = text_or_none(matched) or text_or_none(member(raw, "message"))
        error = member(choice, "error")
        if error and self._error is None:
            self._error = error

    def _read_part(self, state: _Choice, part: Any, counts: bool, streamed: bool) -> bool:
        """Read a delta or a message; whether it says anything new. MiniMax ends a stream with the whole message."""
        keep = self._keep if counts else None
        again = self._streamed and not streamed
        if keep is not None:
            keep.part(part, streamed=streamed, again=again)
        visible, thinking, declined, heard = words_of(part)
        if again and state.spoke:
            visible, heard, declined = self._unsaid(visible, heard, declined)
        if thinking and keep is not None:
            keep.thinking(thinking, again=again)
        if declined:
            state.refused = True
        says = (thinking != "" and not again) or visible + heard + declined != ""
        if visible or heard or declined:
            state.spoke = True
            if counts:
                self._tail.add(visible + heard + declined)
                if keep is not None:
                    keep.text(visible, heard, declined)
        for position, fragment in enumerate(items(member(part, "tool_calls"))):
            says = self._read_call(state, fragment, keep, "tool_calls", streamed, position) or says
        legacy = member(part, "function_call")
        if legacy is not None:
            says = self._read_call(state, legacy, keep, "function_call", streamed) or says
        return says

    def _unsaid(self, visible: str, heard: str, declined: str) -> tuple[str, str, str]:
        """What a message adds to what a stream said: what follows it, or nothing where it says something else."""
        said, last, chars = visible + heard + declined, self._tail.last, self._tail.chars
        start = chars if said.startswith(last, chars - len(last)) else len(said)
        rest = max(0, start - len(visible))
        return visible[start:], heard[rest:], declined[max(0, rest - len(heard)) :]

    def _read_call(
        self, state: _Choice, fragment: Any, keep: Keeper | None, shape: str, streamed: bool, position: int = 0
    ) -> bool:
        """Read a call or a piece of one; whether it says anything new."""
        body = fragment if shape == "function_call" else member(fragment, "function") or member(fragment, "custom")
        index, id_, name = member(fragment, "index"), text(member(fragment, "id")), text(member(body, "name"))
        id_ = "" if id_ == _NO_ID else id_
        piece = written(member(body, "arguments")) or text(member(body, "input"))
        if not streamed and self._streamed:
            call = repeated(state.calls, position, id_, name, shape)
            if call is not None:
                said = "".join(call.pieces)
                if keep is not None and len(piece) > len(said) and piece.startswith(said):
                    call.pieces.append(piece[len(said) :])
                    keep.call(call, False, call.pieces[-1], fragment)
                return False
        call = find(state.calls, state.last, index, id_, name, shape, piece) if streamed else None
        started = call is None
        if call is None:
            state.spoke = True
            call = Call(sum(len(choice.calls) for choice in self._choices.values()), index, shape)
            call.id = id_ or minted(self._seed, call.position)
            if streamed and not id_:
                call.nesting = Nesting()
                # A second call of one name may have been named by a chunk of its own.
                call.name = name or next((each.name for each in state.calls if each.again and each.index == index), "")
            state.calls.append(call)
        state.last = call
        call.name = call.name or name
        if call.nesting is not None:
            call.again = call.again or (name != "" and call.nesting.over)
            call.nesting.add(piece)
        if keep is not None or self._whole:
            call.pieces.append(piece)
            if keep is not None:
                keep.call(call, started, piece, fragment)
        return started or piece != ""

    def _counting(self) -> list[_Choice]:
        """The choices that are the answer: all of them where one was asked for (a split answer), else the first."""
        if self._ctx.asked.choices == 1:
            return [self._choices[index] for index in sorted(self._choices)]
        return [self._choices[0]] if 0 in self._choices else []

    def _judge(self, usage: Usage | None) -> Stop:
        rows = rows_of("openai_chat", self._ctx.dialect)
        only = self._choices.get(0) if len(self._choices) == 1 and self._error is None else None
        if only is not None and only.raw is not None and not only.calls:
            return self._normal(only.reason(rows), rows, usage, refused=only.refused, detail=only.detail)
        counting = self._counting()
        worst = min(
            (choice for choice in counting if choice.raw is not None),
            key=lambda choice: _rank(choice.row(rows)),
            default=None,
        )
        # In a stream, a part that spoke and never said why it stopped is cut, whatever another part says.
        cut = not self._whole and any(choice.spoke and choice.raw is None for choice in counting)
        if self.broken:
            return broken(self._error)
        finished = worst is not None and not cut
        calls = 0
        for choice in counting:
            row = (worst if choice.raw is None else choice).row(rows) if finished and worst is not None else None
            for call in choice.calls:
                call.closed = call is not choice.last or (row is not None and not row.incomplete)
                if worst is None and self._whole and call is choice.last:
                    # Nothing says that the last call is whole but the call itself.
                    call.closed = arguments("".join(call.pieces)) is not None
                calls += 1
        detail = next((choice.detail for choice in counting if choice.detail), None)
        if self._error is not None:
            detail = label_of(self._error)
        return self._normal(
            None if worst is None else worst.reason(rows),
            rows,
            usage,
            terminal_seen=self._whole if worst is None else finished,
            calls=calls,
            calls_closed=all(call.closed for choice in counting for call in choice.calls),
            refused=any(choice.refused for choice in counting),
            detail=detail,
        )

    def _normal(self, raw: str | None, rows: Mapping[str, Row], usage: Usage | None, **known: Any) -> Stop:
        return find_stop(
            raw,
            rows,
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._window,
            **known,
        )


def _chosen(raw: str | None, native: str | None, rows: Mapping[str, Row]) -> str | None:
    """The raw value that counts: a gateway's upstream's where it has a row, unless it hides that the answer is cut."""
    if raw is None or native is None:
        return raw
    above, below = find_row(raw, rows), find_row(native, rows)
    hides = above is not None and above.incomplete and below is not None and not below.incomplete
    return raw if below is None or hides else native


def _rank(row: Row | None) -> int:
    """Which part of a split answer speaks for all, lowest first: an unknown end, a cut, a call of tools."""
    if row is None:
        return 0
    return 1 if row.incomplete else 2 if row.reason is StopReason.TOOL_CALL else 3

"""What a response of the chat format says of its stop, read in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from endturn.chat import Json, Usage
from endturn.stop import Row, Stop, find_row, normalize, raw_text
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.openai_chat_reasons import chosen, rank, rows_of
from endturn.wires.reading import (
    PIECES,
    PLAIN,
    Tail,
    arguments,
    count,
    items,
    member,
    members,
    minted,
    text,
    text_or_none,
)

# DeepSeek, vLLM, Moonshot, Qwen write the first; OpenRouter, Groq, newer vLLM the second. Of both, the first counts.
THINKING: Final = ("reasoning_content", "reasoning")

_WORDS: Final = frozenset({"role", "content", *THINKING})
"""The members of a delta that say nothing of the stop."""
_BODY: Final = frozenset({"index", "message", "finish_reason", "logprobs"})
"""The members of a whole body's choice as OpenAI itself has them."""


class Keeper(Protocol):
    """Who is given what the answer holds, while a watch reads what it says of the stop."""

    def part(self, part: Any) -> None: ...

    def text(self, visible: str, declined: str) -> None: ...

    def thinking(self, piece: str) -> None: ...

    def call(self, call: Call, started: bool, piece: str, fragment: Any) -> None: ...


class Call:
    """One call while it arrives."""

    __slots__ = ("closed", "extra", "id", "index", "name", "pieces", "position", "shape")

    def __init__(self, position: int, index: Any, shape: str) -> None:
        self.position = position
        self.index = index
        self.shape = shape
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.closed = False
        self.extra: Json = {}


class _Choice:
    """One choice while it arrives."""

    __slots__ = ("calls", "detail", "last", "native", "raw", "refused", "spoke")

    def __init__(self) -> None:
        self.raw: Any = None
        self.native: Any = None
        self.detail: str | None = None
        self.calls: list[Call] = []
        self.last: Call | None = None
        self.refused = False
        self.spoke = False

    def reason(self, rows: Mapping[str, Row]) -> str | None:
        """The raw value that counts."""
        return chosen(raw_text(self.raw), raw_text(self.native), rows)

    def row(self, rows: Mapping[str, Row]) -> Row | None:
        """What it means."""
        raw = self.reason(rows)
        return None if raw is None else find_row(raw, rows)


class Watch:
    """Reads what a response of the chat format says of its stop, in place: mappings or the SDK's objects.

    `see` is on the path of every chunk. A chunk of nothing but words takes the short way through it.
    """

    __slots__ = (
        "_begun",
        "_choices",
        "_ctx",
        "_error",
        "_keep",
        "_pieces",
        "_put",
        "_seed",
        "_spoke",
        "_streamed",
        "_tail",
        "_usage",
        "_whole",
        "id",
        "model",
    )

    def __init__(self, ctx: Context, keep: Keeper | None = None) -> None:
        self._ctx = ctx
        self._keep = keep
        self._tail = Tail()
        # The tail's own list, and its append: what a plain chunk costs is these two names.
        self._pieces = self._tail.pieces
        self._put = self._tail.pieces.append
        self._choices: dict[int, _Choice] = {}
        self._usage: Any = None
        self._error: Any = None
        self._begun = False
        self._spoke = False
        self._streamed = False
        self._whole = False
        self.id: str | None = None
        self.model: str | None = None
        self._seed: object = None

    def see(self, event: Any) -> None:
        """Read one chunk, or one whole body. Never raises over what a provider sent."""
        if self._begun:
            try:
                if event.__class__ is dict:
                    (choice,) = event["choices"]
                    delta = choice["delta"]
                    content = delta.get("content")
                    quiet = event.get("usage") is None and "error" not in event and delta.keys() <= _WORDS
                    quiet = quiet and choice.get("finish_reason") is None
                else:
                    (found,) = event.choices
                    # A model with a `__getattr__` answers slowly; its members stand in `__dict__`.
                    choice = found.__dict__
                    delta = choice["delta"].__dict__
                    content = delta["content"]
                    quiet = (
                        choice["finish_reason"] is None
                        and event.usage is None
                        and delta["tool_calls"] is None
                        and delta["refusal"] is None
                        and delta["function_call"] is None
                    )
                if quiet and choice["index"] == 0:
                    if not content:
                        return  # Thinking, or nothing.
                    if content.__class__ is str and self._spoke:
                        self._put(content)
                        if len(self._pieces) > PIECES:
                            self._tail.settle()
                        return
            except (AttributeError, KeyError, TypeError, ValueError):
                pass  # Not a plain chunk; the long way reads anything.
        elif self._keep is None and not self._choices and self._is_plain(event):
            return
        self._read(event)

    def close(self) -> Seen:
        """What was seen. Before a terminal the stop is `missing`, or `error` where the stream said so."""
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

    def _is_plain(self, event: Any) -> bool:
        """Read a whole body whose one choice only speaks, the short way; False for anything else."""
        body = members(event)
        found = None if body is None else body.get("choices")
        if body is None or found.__class__ is not list or len(found) != 1 or body.get("error"):
            return False
        choice = members(found[0])
        part = None if choice is None else members(choice.get("message"))
        if choice is None or part is None or not choice.keys() <= _BODY or choice.get("index"):
            return False
        content, raw = part.get("content"), choice.get("finish_reason")
        if content.__class__ is not str or not content or raw.__class__ is not str or not raw:
            return False
        if part.get("tool_calls") or part.get("function_call") or part.get("refusal"):
            return False
        self.id, self.model = text_or_none(body.get("id")), text_or_none(body.get("model"))
        self._usage = body.get("usage")
        if self._usage is None and "x_groq" in body:
            return False
        state = self._choices[0] = _Choice()
        state.raw = raw
        self._whole = state.spoke = True
        self._put(content)
        return True

    def _read(self, event: Any) -> None:
        if isinstance(event, Event):
            event = event.data
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
        error = member(event, "error")
        if error and self._error is None:
            self._error = error
        # The short way is for a first choice that has not stopped. A keeper wants every piece.
        first = self._choices.get(0)
        self._begun = self._keep is None and first is not None and first.raw is None
        self._spoke = first is not None and first.spoke

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
        if state.raw is None:
            self._read_part(state, part, counts, streamed)
        usage = member(choice, "usage")  # Moonshot streams it here.
        if usage is not None and self._usage is None:
            self._usage = usage
        raw = member(choice, "finish_reason")
        if state.raw is None and raw_text(raw) is not None:
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

    def _read_part(self, state: _Choice, part: Any, counts: bool, streamed: bool) -> None:
        keep = self._keep if counts else None
        if keep is not None:
            keep.part(part)
        visible, thinking, declined = _words(part)
        if thinking and keep is not None:
            keep.thinking(thinking)
        if declined:
            state.refused = True
        if visible or declined:
            state.spoke = True
            if counts:
                self._tail.add(visible + declined)
                if keep is not None:
                    keep.text(visible, declined)
        for fragment in items(member(part, "tool_calls")):
            self._read_call(state, fragment, keep, "tool_calls", streamed)
        legacy = member(part, "function_call")
        if legacy is not None:
            self._read_call(state, legacy, keep, "function_call", streamed)

    def _read_call(self, state: _Choice, fragment: Any, keep: Keeper | None, shape: str, streamed: bool) -> None:
        body = fragment if shape == "function_call" else member(fragment, "function") or member(fragment, "custom")
        index, id_, name = member(fragment, "index"), text(member(fragment, "id")), text(member(body, "name"))
        call = _find(state, index, id_, name, shape) if streamed else None
        started = call is None
        if call is None:
            state.spoke = True
            call = Call(sum(len(choice.calls) for choice in self._choices.values()), index, shape)
            call.id = id_ or minted(self._seed, call.position)
            state.calls.append(call)
        state.last = call
        call.name = call.name or name
        if keep is not None or self._whole:
            piece = text(member(body, "arguments")) or text(member(body, "input"))
            call.pieces.append(piece)
            if keep is not None:
                keep.call(call, started, piece, fragment)

    def _counting(self) -> list[_Choice]:
        """The choices that are the answer: all of them where one was asked for (a split answer), else the first."""
        if self._ctx.asked.choices == 1:
            return [self._choices[index] for index in sorted(self._choices)]
        return [self._choices[0]] if 0 in self._choices else []

    def _judge(self, usage: Usage | None) -> Stop:
        rows = rows_of(self._ctx.dialect)
        only = self._choices.get(0) if len(self._choices) == 1 and self._error is None else None
        if only is not None and only.raw is not None and not only.calls:
            return self._normal(only.reason(rows), rows, usage, refused=only.refused, detail=only.detail)
        counting = self._counting()
        worst = min(
            (choice for choice in counting if choice.raw is not None),
            key=lambda choice: rank(choice.row(rows)),
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
        return normalize(
            raw,
            rows,
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            **known,
        )


def _find(state: _Choice, index: Any, id_: str, name: str, shape: str) -> Call | None:
    """The call that a fragment of a stream goes on with; None where it begins one.

    Gemini's and other servers' chat endpoints give every parallel call the same index, or none: there a new id with a
    name begins a new call. A new id alone does not: some servers mint one for every chunk.
    """
    if shape == "function_call" or index is None:
        last = state.last
        if last is None or last.shape != shape or (shape == "tool_calls" and name and id_ != last.id):
            return None
        return last
    same = [call for call in state.calls if call.index == index and call.shape == shape]
    if not same:
        return None
    if id_ and name and all(call.id != id_ for call in same):
        return None
    return next((call for call in same if call.id == id_), same[-1])


def _words(part: Any) -> tuple[str, str, str]:
    """The visible text, the thinking and the refusal of a message or delta."""
    content = member(part, "content")
    visible, declined = text(content), text(member(part, "refusal"))
    thinking = next((found for name in THINKING if (found := text(member(part, name)))), "")
    for piece in items(content):  # Mistral answers, and everyone is asked, in parts.
        kind = member(piece, "type")
        if kind == "text":
            visible += text(member(piece, "text"))
        elif kind == "refusal":
            declined += text(member(piece, "refusal"))
        elif kind == "thinking":
            inner = member(piece, "thinking")
            thinking += text(inner) or "".join(text(member(each, "text")) for each in items(inner))
    return visible, thinking, declined


def usage_of(usage: Any) -> Usage | None:
    """Tokens as the chat format counts them: cached ones are part of the prompt's, reasoning of the completion's."""
    if usage is None:
        return None
    output, prompt = member(usage, "completion_tokens_details"), member(usage, "prompt_tokens_details")
    cached = None if prompt is None else count(member(prompt, "cached_tokens"))
    found = Usage(
        count(member(usage, "prompt_tokens")),
        count(member(usage, "completion_tokens")),
        None if output is None else count(member(output, "reasoning_tokens")),
        count(member(usage, "prompt_cache_hit_tokens")) if cached is None else cached,  # DeepSeek's own member.
        None if prompt is None else count(member(prompt, "cache_write_tokens")),
    )
    return None if found == _NOTHING else found


_NOTHING: Final = Usage()

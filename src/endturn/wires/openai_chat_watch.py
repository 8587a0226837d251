"""What a response of the chat format says of its stop, read in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from endturn.chat import Json, Usage
from endturn.stop import Row, Stop, find_row, normalize, raw_text
from endturn.wires import TAIL, Context, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.openai_chat_objects import unwrapped, written
from endturn.wires.openai_chat_reasons import chosen, rank, rows_of
from endturn.wires.reading import (
    PIECES,
    PLAIN,
    Nesting,
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
_NO_ID: Final = "null"
"""What Mistral's API once sent, and its SDK says, for a call without an id."""


def whole(ctx: Context, body: Any) -> Seen:
    """What a whole body says of its stop. One whose only choice does nothing but speak is read the short way."""
    seen = _plain(ctx, body)
    if seen is None:
        watch = Watch(ctx)
        watch.see(body)
        seen = watch.close()
    return seen


def _plain(ctx: Context, event: Any) -> Seen | None:
    """What `Watch` would have seen, without building one; None for whatever is not plain."""
    body = members(event)
    if body is None:
        return None
    found = body.get("choices")
    if found.__class__ is not list or len(found) != 1 or body.get("error"):
        return None
    if "stats" in body or "model_info" in body:
        return None
    choice = members(found[0])
    if choice is None or not choice.keys() <= _BODY or choice.get("index"):
        return None
    part = members(choice.get("message"))
    raw = choice.get("finish_reason")
    if part is None or raw.__class__ is not str or not raw.strip():
        return None  # SGLang's objects say more than the reason.
    content, said = part.get("content"), body.get("usage")
    if content.__class__ is not str or not content:
        return None
    if "x_groq" in body and (said is None or error_in(body)):
        return None
    if part.get("tool_calls") or part.get("function_call") or part.get("refusal"):
        return None
    usage = usage_of(said)
    stop = normalize(
        raw,
        rows_of(ctx.dialect),
        output_tokens=usage.output_tokens if usage else None,
        prompt_tokens=usage.input_tokens if usage else None,
        maximum=ctx.asked.maximum,
        window=ctx.window,
    )
    id_, model = text_or_none(body.get("id")), text_or_none(body.get("model"))
    return Seen(stop, usage, id_, model, content[-TAIL:], len(content), (raw,))


class Keeper(Protocol):
    """Who is given what the answer holds, while a watch reads what it says of the stop."""

    def part(self, part: Any) -> None: ...

    def text(self, visible: str, declined: str) -> None: ...

    def thinking(self, piece: str) -> None: ...

    def call(self, call: Call, started: bool, piece: str, fragment: Any) -> None: ...


class Call:
    """One call while it arrives."""

    __slots__ = ("again", "closed", "extra", "id", "index", "name", "nesting", "pieces", "position", "shape")

    def __init__(self, position: int, index: Any, shape: str) -> None:
        self.position = position
        self.index = index
        self.shape = shape
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.closed = False
        self.extra: Json = {}
        # Of a call that came without an id, what tells it from the next: where its arguments stand, and whether it was
        # named again after they were whole.
        self.nesting: Nesting | None = None
        self.again = False


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

    `see_all` is on the path of every chunk. A chunk of nothing but words takes the short way through it.
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
        "_window",
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
        self._window = ctx.window
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
        self.see_all((event,))

    def see_all(self, events: Iterable[Any]) -> None:
        """Read many, as `see` would read each: most of what a plain chunk costs is calling somebody to look at it."""
        put = self._put
        for event in events:
            if self._begun:
                try:
                    if event.__class__ is dict:
                        (choice,) = event["choices"]
                        delta = choice["delta"]
                        content = delta.get("content")
                        quiet = event.get("usage") is None and "error" not in event and delta.keys() <= _WORDS
                        quiet = quiet and "x_groq" not in event
                        quiet = quiet and choice.get("finish_reason") is None
                    else:
                        # A model with a `__getattr__` answers slowly; its members stand in `__dict__`.
                        known = event.__dict__
                        (found,) = known["choices"]
                        choice = found.__dict__
                        delta = choice["delta"].__dict__
                        content = delta["content"]
                        quiet = (
                            choice["finish_reason"] is None
                            and known["usage"] is None
                            and delta["tool_calls"] is None
                            and delta["refusal"] is None
                            and delta["function_call"] is None
                        )
                    if quiet and choice["index"] == 0:
                        if not content and member(event, "x_groq") is None:
                            continue  # Thinking, or nothing.
                        if content.__class__ is str and self._spoke:
                            put(content)
                            continue
                except (AttributeError, KeyError, TypeError, ValueError):
                    pass  # Not a plain chunk; the long way reads anything.
            self._read(event)
        if len(self._pieces) > PIECES:
            self._tail.settle()

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
        id_ = "" if id_ == _NO_ID else id_
        piece = written(member(body, "arguments")) or text(member(body, "input"))
        call = _find(state, index, id_, name, shape, piece) if streamed else None
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
            window=self._window,
            **known,
        )


def _find(state: _Choice, index: Any, id_: str, name: str, shape: str, piece: str) -> Call | None:
    """The call that a fragment of a stream goes on with; None where it begins one.

    Gemini's and other servers' chat endpoints give every parallel call the same index, or none: there a new id with a
    name begins a new call. A new id alone does not: some servers mint one for every chunk. Without any id, another name
    begins one. The same name does only with a second object of arguments: some servers name the call in every chunk.
    """
    if shape == "function_call" or index is None:
        last = state.last
        if last is None or last.shape != shape or (shape == "tool_calls" and name and not _same(last, id_, name)):
            return None
        return last
    same = [call for call in state.calls if call.index == index and call.shape == shape]
    if not same:
        return None
    if id_ and name and all(call.id != id_ for call in same):
        return None
    found = next((call for call in same if call.id == id_), same[-1])
    return None if not id_ and _anew(found, name, piece) else found


def _same(last: Call, id_: str, name: str) -> bool:
    """Whether a named fragment without an index goes on with the last call: by its id, or in the midst of an object."""
    nesting = last.nesting
    midst = nesting is not None and nesting.begun and not nesting.over
    return id_ == last.id or (not id_ and name == last.name and midst)


def _anew(call: Call, name: str, piece: str) -> bool:
    """Whether a fragment without an id begins another call although it stands where this one does."""
    if name and call.name and name != call.name:
        return True
    whole = call.nesting is not None and call.nesting.over
    return whole and (name != "" or call.again) and piece.lstrip().startswith("{")


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


def error_in(chunk: Any) -> Any:
    """The error that a chunk reports, if it does: an object, or Groq's word for it."""
    return member(chunk, "error") or member(member(chunk, "x_groq"), "error")


def usage_of(usage: Any) -> Usage | None:
    """Tokens as the chat format counts them: cached ones are part of the prompt's, reasoning of the completion's.

    xAI, and some gateways before Gemini, count reasoning beside the completion: the total tells
    (https://docs.x.ai/docs/key-information/consumption-and-rate-limits).
    """
    if usage is None:
        return None
    # One look for all members: a model's stand in its `__dict__`, where it has none that its class does not declare.
    known = members(usage)
    get = partial(member, usage) if known is None else known.get
    output, prompt = get("completion_tokens_details"), get("prompt_tokens_details")
    cached = None if prompt is None else count(member(prompt, "cached_tokens"))
    if cached is None:
        cached = count(get("prompt_cache_hit_tokens"))  # DeepSeek's own member.
    asked, answered = count(get("prompt_tokens")), count(get("completion_tokens"))
    reasoned = None if output is None else count(member(output, "reasoning_tokens"))
    written = None if prompt is None else count(member(prompt, "cache_write_tokens"))
    if answered is not None and reasoned and count(get("total_tokens")) == (asked or 0) + answered + reasoned:
        answered += reasoned
    if asked is None and answered is None and reasoned is None and cached is None and written is None:
        return None
    return Usage(asked, answered, reasoned, cached, written)

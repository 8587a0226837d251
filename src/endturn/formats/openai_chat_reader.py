"""What the chat completions format answers, as parts: OpenAI's, and everybody's who imitates it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.chat import Json
from endturn.formats.errors import shortened
from endturn.formats.fold import Fold, Reply
from endturn.formats.framing import DONE
from endturn.formats.openai_chat_calls import Call as Pieces, find, repeated
from endturn.formats.openai_chat_message import Kept
from endturn.formats.openai_chat_words import error_in, usage_of, words_of
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens, Window
from endturn.formats.reading import PLAIN, Nesting, Tail, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import Row, find_row, raw_text
from endturn.stop_reasons import rows_of

NAME: Final = "openai_chat"

_SAYING: Final = frozenset({"role", "content"})
"""The members of a delta that does nothing but speak."""
_NO_ID: Final = "null"
"""What Mistral's API once sent, and its SDK says, for a call without an id."""
_NO_REASON: Final = frozenset({"null", "None"})
"""What some servers write for a reason that has not come: the word, as text."""


def _written(arguments: Any) -> str:
    """A call's arguments as text. Older servers of Hugging Face's give an object."""
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else text(arguments)


class _Choice:
    """One choice while it arrives: its calls, what it said, and whether it stopped for a reason that is a cut."""

    __slots__ = ("begun", "calls", "last", "spoke", "stands")

    def __init__(self) -> None:
        self.calls: list[Pieces] = []
        self.last: Pieces | None = None
        self.begun = self.spoke = self.stands = False


class Reader:
    """Reads chunks, or one body. Translating proxies say `stop` with every chunk: what follows it takes it back."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._ctx, self._rows = ctx, rows_of(NAME, ctx.dialect)
        self._kept = Kept() if keep else None
        self._choices: dict[int, _Choice] = {}
        self._calls = 0
        self._id: str | None = None
        self._model: str | None = None
        self._seed: object = None
        self._streamed = False
        # What was said, for a message that repeats a stream.
        self._tail = Tail()
        self._counted = False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of a chunk or a body."""
        if not isinstance(event, Mapping):
            return
        get = event.get
        if self._id is None or self._model is None:
            self._id = self._id or text_or_none(member(event, "id"))
            self._model = self._model or text_or_none(member(event, "model"))
            self._seed = self._seed or self._id or member(event, "created")
            yield Head(self._id, self._model)
            if self._kept is not None:
                yield Block("message", {"kept": self._kept}, begins=True)
        for position, choice in enumerate(items(get("choices"))):
            index = count(member(choice, "index"))
            index = position if index is None else index
            state = self._choices.get(index)
            if state is None:
                state = self._choices[index] = _Choice()
            part = member(choice, "delta")
            if part.__class__ is dict and part.keys() <= _SAYING and self._kept is None and not state.stands:
                said = part.get("content")
                if said.__class__ is str and said:
                    self._streamed = state.spoke = True
                    if index == 0 or self._ctx.asked.choices == 1:
                        self._tail.add(said)
                    yield Text(said, index)
                elif said:
                    yield from self._part(state, index, part, streamed=True)
                else:
                    self._streamed = True
            else:
                yield from self._whole_or_piece(state, index, choice, part)
            if not state.begun or member(choice, "finish_reason") is not None:
                yield self._reason(state, index, choice, event)
            if error := member(choice, "error"):
                yield Fault(error)
            if not self._counted and (own := member(choice, "usage")) and (usage := usage_of(own)):  # Moonshot
                self._counted = True
                yield Tokens(usage)
        if get("usage") or get("error") or get("x_groq") or get("model_info"):
            yield from self._beside(event)

    def _beside(self, event: Any) -> Iterator[Part]:
        """What stands beside the choices."""
        groq = member(event, "x_groq")
        usage = member(event, "usage") or (groq is not None and member(groq, "usage"))
        if usage and (found := usage_of(usage)) is not None:
            self._counted = True
            yield Tokens(found)
        info = member(event, "model_info")  # LM Studio: the window that the model was loaded with
        if info is not None and (window := count(member(info, "context_length"))):
            yield Window(window)
        if error := error_in(event):
            yield Fault(error)

    def _whole_or_piece(self, state: _Choice, index: int, choice: Any, part: Any) -> Iterator[Part]:
        streamed = part is not None
        self._streamed = self._streamed or streamed
        if not streamed:
            part = member(choice, "message")
            # A `message` in the midst of a stream makes nothing whole.
            if not (self._streamed or part is None or isinstance(part, PLAIN)):
                yield End(whole=True)
        if not state.stands:
            yield from self._part(state, index, part, streamed=streamed)

    def _part(self, state: _Choice, index: int, part: Any, *, streamed: bool) -> Iterator[Part]:
        """A delta, or a message. MiniMax ends a stream with the whole message."""
        counts = index == 0 or self._ctx.asked.choices == 1
        kept = self._kept if counts else None
        again = self._streamed and not streamed
        if kept is not None:
            kept.part(part, streamed=streamed, again=again)
        visible, thinking, declined, heard = words_of(part)
        if again and state.spoke:
            visible, heard, declined = self._unsaid(visible, heard, declined)
        if thinking and (kept is None or (thinking := kept.unthought(thinking, again=again))):
            yield Reasoning("" if again and kept is None else thinking, index)
        if visible or heard or declined:
            state.spoke = True
            if counts:
                self._tail.add(visible + heard + declined)
            if kept is not None:
                kept.text(visible, heard, declined)
            yield Text(visible + heard + declined, index, refusal=declined != "")
        for position, fragment in enumerate(items(member(part, "tool_calls"))):
            yield from self._call(state, index, fragment, "tool_calls", streamed, position)
        legacy = member(part, "function_call")
        if legacy is not None:
            yield from self._call(state, index, legacy, "function_call", streamed)

    def _unsaid(self, visible: str, heard: str, declined: str) -> tuple[str, str, str]:
        """What a message adds to what a stream said: what follows it, or nothing where it says something else."""
        said, last, chars = visible + heard + declined, self._tail.last, self._tail.chars
        start = chars if said.startswith(last, chars - len(last)) else len(said)
        rest = max(0, start - len(visible))
        return visible[start:], heard[rest:], declined[max(0, rest - len(heard)) :]

    def _call(
        self, state: _Choice, index: int, fragment: Any, shape: str, streamed: bool, position: int = 0
    ) -> Iterator[Part]:
        """A call, or a piece of one."""
        body = fragment if shape == "function_call" else member(fragment, "function") or member(fragment, "custom")
        at, id_, name = member(fragment, "index"), text(member(fragment, "id")), text(member(body, "name"))
        id_ = "" if id_ == _NO_ID else id_
        piece = _written(member(body, "arguments")) or text(member(body, "input"))
        counts = index == 0 or self._ctx.asked.choices == 1
        kept = self._kept if counts else None
        if not streamed and self._streamed:
            call = repeated(state.calls, position, id_, name, shape)
            if call is not None:
                said = "".join(call.pieces)
                if kept is not None and len(piece) > len(said) and piece.startswith(said):
                    call.pieces.append(piece[len(said) :])
                    kept.call(call, fragment)
                    yield Call(call.position, arguments=call.pieces[-1], choice=index)
                return
        call = find(state.calls, state.last, at, id_, name, shape, piece) if streamed else None
        if call is None:
            state.spoke = True
            call = Pieces(self._calls, at, shape)
            self._calls += 1
            call.id = id_ or minted(self._seed, call.position)
            if streamed and not id_:
                call.nesting = Nesting()
                # A second call of one name may have been named by a chunk of its own.
                call.name = name or next((each.name for each in state.calls if each.again and each.index == at), "")
            state.calls.append(call)
        state.last = call
        told, call.name = call.name, call.name or name
        if call.nesting is not None:
            call.again = call.again or (name != "" and call.nesting.over)
            call.nesting.add(piece)
        if self._kept is not None:
            call.pieces.append(piece)
        if kept is not None:
            kept.call(call, fragment)
        yield Call(call.position, call.id, "" if told and call.begun else call.name, piece, index)
        call.begun = True

    def _reason(self, state: _Choice, index: int, choice: Any, event: Any) -> Reason:
        state.begun = True
        raw = member(choice, "finish_reason")
        if raw.__class__ is str and raw in _NO_REASON:
            raw = None
        native = member(choice, "native_finish_reason") or member(
            member(choice, "provider_specific_fields"), "native_finish_reason"
        )
        if index == 0:  # LM Studio's own API: what stopped its engine
            native = member(member(event, "stats"), "stop_reason") or native
        own = raw_text(raw)
        counts = _chosen(own, raw_text(native), self._rows)
        row = None if counts is None else find_row(counts, self._rows)
        state.stands = state.stands or (row is not None and row.incomplete)
        # vLLM, SGLang: the stop string that matched. A number is a token's, and says nothing to a reader.
        matched = member(choice, "stop_reason") or member(choice, "matched_stop") or member(raw, "matched")
        detail = text_or_none(matched) or text_or_none(member(raw, "message"))
        return Reason(counts, index, detail, own)


def _chosen(raw: str | None, native: str | None, rows: Mapping[str, Row]) -> str | None:
    """The raw value that counts: a gateway's upstream's where it has a row, unless it hides that the answer is cut."""
    if raw is None or native is None:
        return raw
    above, below = find_row(raw, rows), find_row(native, rows)
    hides = above is not None and above.incomplete and below is not None and not below.incomplete
    return raw if below is None or hides else native


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, as the server would have it back."""
    for block in fold.blocks.values():
        yield from block["kept"].message("".join(fold.text), "".join(fold.reasoning))


def _faulty(data: Any, whole: bool) -> str | None:
    """What cannot be read must not look like an answer that says nothing."""
    if data == DONE and not whole:
        return None
    if not isinstance(data, Mapping):
        thing = "a chat completion" if whole else "a chunk of a chat stream"
        return f"{thing} is an object, not {shortened(repr(data), 80)}"
    choices = data.get("choices")
    if whole and "choices" not in data:
        return f"a chat completion has `choices`; this has {sorted(map(str, data))[:8]}"
    if not isinstance(choices, list | None):
        return "`choices` is not a list"
    for choice in choices or ():
        if not isinstance(choice, Mapping) or not all(
            isinstance(choice.get(name) or {}, Mapping) for name in ("delta", "message")
        ):
            return "a choice is not an object"
    return None


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    return data if isinstance(data, Mapping) and data.get("error") and not data.get("choices") else None


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=lambda ctx: rows_of(NAME, ctx.dialect),
    faulty=_faulty,
    failed=_failed,
    blocks=_blocks,
    closes_calls=False,
    splits=True,
)

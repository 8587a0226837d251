"""What the chat completions format answers, as parts: OpenAI's, and everybody's who imitates it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.fold import Fold, Reply
from endturn.formats.format import an_object
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens, Window
from endturn.formats.reading import arguments, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import Row, find_row, raw_text
from endturn.stop_reasons import rows_of

NAME: Final = "openai_chat"

_SAYING: Final = frozenset({"role", "content"})
"""The members of a delta that does nothing but speak."""
# DeepSeek, vLLM, Moonshot, Qwen write the first; OpenRouter, Groq, newer vLLM the second. Of both, the first counts.
_THINKING: Final = ("reasoning_content", "reasoning")
_CALL: Final = frozenset({"index", "id", "function", "custom"})
"""The members of a call that are read; what stands beside them goes back as it is: Gemini's thought signatures."""
_LEGACY: Final = "function_call"
"""The one call of a message, as OpenAI had it before tools; it has no id."""
_NATIVE: Final = "native_finish_reason"
"""What the model behind a gateway said."""
_NO_ID: Final = "null"
"""What Mistral's API once sent, and its SDK says, for a call without an id."""
_NO_REASON: Final = frozenset({"null", "None"})
"""What some servers write for a reason that has not come: the word, as text."""


class _Call:
    """One call while it arrives. `pieces` are its arguments, where no id tells it from the next call."""

    __slots__ = ("id", "index", "kind", "name", "number", "pieces")

    def __init__(self, number: int, index: Any, kind: str, id_: str, name: str) -> None:
        self.number, self.index, self.kind, self.id, self.name = number, index, kind, id_, name
        self.pieces: list[str] = []


class _Choice:
    """One choice while it arrives. `said` are the members of its deltas: a message at the end has them once more."""

    __slots__ = ("calls", "said")

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.said: set[str] = set()


_BESIDE: Final = ("usage", "error", "x_groq", "model_info", "base_resp", "errors")
"""What is read of a chunk beside its choices."""
_MINIMAX: Final = {
    1002: "rate_limit_error",
    1004: "authentication_error",
    1008: "insufficient_quota",
    1026: "content_filter",
    1027: "content_filter",
    1039: "rate_limit_error",
    2013: "invalid_request_error",
    2049: "authentication_error",
}
"""What MiniMax' numbers mean, which come under HTTP 200 (its API reference, "Error codes")."""


class Reader:
    """Reads chunks, or one body."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._ctx, self._keep, self._rows = ctx, keep, rows_of(NAME, ctx.dialect)
        self._choices: dict[int, _Choice] = {}
        self._calls = 0
        self._named = False
        self._seed: object = None
        self._streamed = False
        self._in_parts = False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of a chunk or a body."""
        if event.__class__ is not dict and not isinstance(event, Mapping):
            return
        get = event.get
        if not self._named:
            id_, model = text_or_none(get("id")), text_or_none(get("model"))
            self._named = id_ is not None and model is not None
            self._seed = self._seed or id_ or get("created")
            yield Head(id_, model)
        for position, choice in enumerate(items(get("choices"))):
            if choice.__class__ is not dict and not isinstance(choice, Mapping):
                continue
            at = choice.get
            index = count(at("index"))
            index = position if index is None else index
            state = self._choices.get(index)
            begins = state is None
            if state is None:
                state = self._choices[index] = _Choice()
            delta = at("delta")
            said = delta.get("content") if delta.__class__ is dict and delta.keys() <= _SAYING else None
            if said.__class__ is str and said and not self._in_parts:
                self._streamed = True
                state.said.add("content")
                yield Text(said, index)
            elif isinstance(delta, Mapping):
                self._streamed = True
                state.said.update(name for name, value in delta.items() if value)
                yield from self._part(state, index, delta, streamed=True)
            elif isinstance(message := at("message"), Mapping):
                if not self._streamed:
                    yield End(whole=True)
                # MiniMax ends a stream with the whole message.
                rest = {name: value for name, value in message.items() if name not in state.said}
                yield from self._part(state, index, rest, streamed=False)
            if begins or at("finish_reason") is not None:
                yield self._reason(index, choice, event)
            if error := at("error"):
                yield Fault(error)
            if (own := at("usage")) and (usage := usage_of(own)):  # Moonshot
                yield Tokens(usage)
        if any(map(get, _BESIDE)):
            yield from _beside(event)

    def _part(self, state: _Choice, index: int, part: Mapping[str, Any], *, streamed: bool) -> Iterator[Part]:
        """A delta, or a message."""
        visible, thinking, declined = _words(part)
        if thinking:
            yield Reasoning(thinking, index)
        if visible or declined:
            yield Text(visible + declined, index, refusal=declined != "")
        if self._counts(index):
            yield from self._members(part, streamed)
        for fragment in items(part.get("tool_calls")):
            if isinstance(fragment, Mapping):
                yield from self._call(state, index, fragment, "tool_calls", streamed)
        if (legacy := part.get(_LEGACY)) is not None:
            yield from self._call(state, index, {_LEGACY: legacy}, _LEGACY, streamed)

    def _counts(self, index: int) -> bool:
        """Whether the content of a choice is kept: of several where one was asked for, all are parts of the answer."""
        return self._keep and (index == 0 or self._ctx.asked.choices == 1)

    def _members(self, part: Mapping[str, Any], streamed: bool) -> Iterator[Block]:
        """The members of a message that a replay sends, each a block of its own."""
        for name, value in part.items():
            if value is None or value == "" or name in ("role", "tool_calls", _LEGACY):
                continue
            kept = value
            if name == "content" and isinstance(value, str) and streamed:
                if not self._in_parts:
                    continue
                kept = [{"type": "text", "text": value}]
            elif name == "content" and isinstance(value, list):
                self._in_parts = True
            elif name == "audio" and isinstance(value, Mapping) and streamed:
                # Without the sound: each chunk's is encoded for itself, and no API wants it back.
                kept = {key: each for key, each in value.items() if each is not None and key != "data"}
            yield Block(name, {name: kept})

    def _call(
        self, state: _Choice, index: int, fragment: Mapping[str, Any], kind: str, streamed: bool
    ) -> Iterator[Part]:
        """A call, or a piece of one."""
        body = fragment.get(_LEGACY) or fragment.get("function") or fragment.get("custom")
        at, id_, name = fragment.get("index"), text(fragment.get("id")), text(member(body, "name"))
        id_ = "" if id_ == _NO_ID else id_
        said = member(body, "arguments")
        # Older servers of Hugging Face's give an object.
        piece = json.dumps(said, ensure_ascii=False) if isinstance(said, dict) else text(said or member(body, "input"))
        call = _found(state.calls, at, kind, id_, name, piece) if streamed else None
        if call is None:
            # Arguments that begin anew without a name are of another call of the same tool.
            echo = next((each.name for each in reversed(state.calls) if streamed and each.index == at), "")
            call = _Call(self._calls, at, kind, id_, name or ("" if id_ else echo))
            state.calls.append(call)
            self._calls += 1
        call.name = call.name or name
        if not call.id:
            call.pieces.append(piece)
        yield Call(call.number, call.id or minted(self._seed, call.number), call.name, piece, index)
        if self._counts(index):
            beside = {name: value for name, value in fragment.items() if name not in _CALL and value is not None}
            yield Block(call.number, {"type": _LEGACY} if kind == _LEGACY else beside)

    def _reason(self, index: int, choice: Mapping[str, Any], event: Mapping[str, Any]) -> Reason:
        raw = choice.get("finish_reason")
        own = None if raw.__class__ is str and raw in _NO_REASON else raw_text(raw)
        # OpenRouter's, LiteLLM's; and what stopped the engine of LM Studio, in its own API.
        native = choice.get(_NATIVE) or member(choice.get("provider_specific_fields"), _NATIVE)
        if index == 0:
            native = member(event.get("stats"), "stop_reason") or native
        # vLLM, SGLang: the stop string that matched. A number is a token's, and says nothing to a reader.
        matched = choice.get("stop_reason") or choice.get("matched_stop") or member(raw, "matched")
        detail = text_or_none(matched) or text_or_none(member(raw, "message"))
        return Reason(_chosen(own, raw_text(native), self._rows), index, detail, own)


def _words(part: Mapping[str, Any]) -> tuple[str, str, str]:
    """The visible text, the thinking and the refusal of a message or delta.

    The transcript of a spoken answer is visible text: it is what the user hears. Beside text it is the same once more.
    """
    content = part.get("content")
    visible, declined = text(content), text(part.get("refusal"))
    thinking = next((said for name in _THINKING if (said := text(part.get(name)))), "")
    for piece in items(content):  # Mistral answers, and everyone is asked, in parts.
        match member(piece, "type"):
            case "text":
                visible += text(member(piece, "text"))
            case "refusal":
                declined += text(member(piece, "refusal"))
            case "thinking":
                inner = member(piece, "thinking")
                thinking += text(inner) or "".join(text(member(each, "text")) for each in items(inner))
    return visible or text(member(part.get("audio"), "transcript")), thinking, declined


def _found(calls: list[_Call], index: Any, kind: str, id_: str, name: str, piece: str) -> _Call | None:
    """The call that a fragment of a stream goes on with; None where it begins one.

    Gemini's and other servers' chat endpoints give every parallel call the same index, or none: there a new id with a
    name begins a new call. A new id alone does not: some servers mint one for every chunk. Without any id, another name
    begins one, or arguments that begin anew when an object of them is whole: some servers name the call in every chunk.
    """
    same = calls[-1:] if index is None or kind == _LEGACY else [call for call in calls if call.index == index]
    if not same or same[-1].kind != kind:
        return None
    found = next((call for call in same if id_ and call.id == id_), None)
    if found is not None:
        return found
    found = same[-1]
    if name and (id_ or (found.name and name != found.name)):
        return None
    anew = piece.lstrip().startswith("{") and arguments("".join(found.pieces)) is not None
    return None if anew else found


def _chosen(raw: str | None, native: str | None, rows: Mapping[str, Row]) -> str | None:
    """The raw value that counts: a gateway's upstream's where it has a row, unless it hides that the answer is cut."""
    if raw is None or native is None:
        return raw
    above, below = find_row(raw, rows), find_row(native, rows)
    hides = above is not None and above.incomplete and below is not None and not below.incomplete
    return raw if below is None or hides else native


def _beside(event: Mapping[str, Any]) -> Iterator[Part]:
    """What stands beside the choices."""
    groq = event.get("x_groq")
    usage = usage_of(event.get("usage") or member(groq, "usage"))
    if usage is not None:
        yield Tokens(usage)
    # LM Studio: the window that the model was loaded with.
    if window := count(member(event.get("model_info"), "context_length")):
        yield Window(window)
    if error := _error_in(event):
        yield Fault(error)


def _error_in(event: Mapping[str, Any]) -> Any:
    """The error that a body or a chunk reports: OpenAI's, Groq's beside it, the first of watsonx', MiniMax' status."""
    errors, base = items(event.get("errors")), event.get("base_resp")
    if error := event.get("error") or member(event.get("x_groq"), "error") or next(iter(errors), None):
        return error
    code = count(member(base, "status_code"))
    return {"code": _MINIMAX.get(code, str(code)), "message": text(member(base, "status_msg"))} if code else None


def _failed(data: Any) -> Any:
    """The error that stands where an answer should; flat ones too: Cerebras', Mistral's, older vLLM's."""
    if not isinstance(data, Mapping) or data.get("choices"):
        return None
    if data.get("error") or data.get("errors"):
        return data
    is_flat = isinstance(data.get("message"), str) and ("code" in data or "type" in data)
    return data if is_flat else {"error": _error_in(data)} if data.get("base_resp") and _error_in(data) else None


def usage_of(usage: Any) -> Usage | None:
    """Tokens as the chat format counts them: cached ones are part of the prompt's, reasoning of the completion's.

    xAI, and some gateways before Gemini, count reasoning beside the completion: the total tells
    (https://docs.x.ai/docs/key-information/consumption-and-rate-limits).
    """
    if not usage:
        return None
    prompt, completion = member(usage, "prompt_tokens_details"), member(usage, "completion_tokens_details")
    asked, answered = count(member(usage, "prompt_tokens")), count(member(usage, "completion_tokens"))
    reasoned, written = count(member(completion, "reasoning_tokens")), count(member(prompt, "cache_write_tokens"))
    # OpenAI's, DeepSeek's, Moonshot's.
    places = ((prompt, "cached_tokens"), (usage, "prompt_cache_hit_tokens"), (usage, "cached_tokens"))
    cached = next((tokens for at, name in places if (tokens := count(member(at, name))) is not None), None)
    if answered is not None and reasoned and count(member(usage, "total_tokens")) == (asked or 0) + answered + reasoned:
        answered += reasoned
    found = Usage(asked, answered, reasoned, cached, written)
    return None if found == Usage() else found


def shows(message: Any) -> bool:
    """Whether a message holds an answer that is not words: sound (OpenAI), pictures (OpenRouter)."""
    return bool(member(message, "audio") or member(message, "images"))


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, as the server would have it back."""
    kept = fold.blocks
    message: Json = {"role": "assistant", "content": None}
    for name, block in kept.items():
        if isinstance(name, str):
            message |= block
    if all(name in message for name in _THINKING):
        del message[_THINKING[1]]
    if not fold.whole:
        for name in ("content", "reasoning_details"):
            if isinstance(message.get(name), list):
                message[name] = _joined(message[name])
    if message["content"] is None:
        # What was streamed as text, but for what stands in members of its own.
        apart = (text(message.get("refusal")), text(member(message.get("audio"), "transcript")))
        message["content"] = "".join(fold.text).removesuffix(apart[0]).removesuffix(apart[1]) or None
    for key, call in fold.calls.items():
        if key not in kept:  # of a choice that does not count
            continue
        beside, said = kept[key], "".join(call.pieces)
        if beside.get("type") == _LEGACY:
            message[_LEGACY] = {"name": call.name, "arguments": said}
            continue
        kind, member_ = ("custom", "input") if beside.get("type") == "custom" else ("function", "arguments")
        written = {"id": call.id, "type": kind, kind: {"name": call.name, member_: said}, **beside}
        message.setdefault("tool_calls", []).append(written)
    if fold.text or fold.reasoning or "tool_calls" in message or _LEGACY in message or shows(message):
        yield message


_WORDS: Final = ("text", "thinking", "refusal", "summary", "data")
"""The members of a part or an entry that arrive in pieces."""


def _joined(pieces: Iterable[Any]) -> list[Any]:
    """The entries of a list that a stream sends in pieces: the parts of a content, OpenRouter's reasoning details."""
    groups: list[list[Any]] = []
    for piece in pieces:
        if groups and _goes_on(groups[-1][-1], piece):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [group[0] if len(group) == 1 else _one(group) for group in groups]


def _goes_on(last: Any, piece: Any) -> bool:
    """Whether a piece belongs to the entry before it. A signature ends one: a provider refuses it beside other text."""
    kind, ids = text(member(piece, "type")), {member(last, "id"), member(piece, "id")} - {None}
    has_words = kind in _WORDS or kind.startswith("reasoning.")
    alike = all(member(last, name) == member(piece, name) for name in ("type", "index")) and len(ids) < 2
    # Encrypted data says nothing of what it belongs to but its index.
    alone = member(last, "signature") or (member(piece, "data") and member(piece, "index") is None)
    return has_words and alike and not alone


def _one(pieces: list[Mapping[str, Any]]) -> Json:
    """The pieces of one entry as the whole of it: what it says is joined, of all else the last word counts."""
    entry: Json = {name: value for piece in pieces for name, value in piece.items() if value is not None}
    for name in _WORDS:
        said = [piece[name] for piece in pieces if piece.get(name)]
        if said and all(isinstance(each, str) for each in said):
            entry[name] = "".join(said)
        elif said and all(isinstance(each, list) for each in said):
            entry[name] = _joined(chain.from_iterable(said))
    return entry


def _faulty(data: Mapping[str, Any], whole: bool) -> str | None:
    """What cannot be read must not look like an answer that says nothing."""
    if whole and "choices" not in data:
        return f"a chat completion has `choices`; this has {sorted(map(str, data))[:8]}"
    choices = data.get("choices")
    if not isinstance(choices, list | None):
        return "`choices` is not a list"
    for choice in choices or ():
        said = isinstance(choice, Mapping) and (choice.get("delta") or choice.get("message") or {})
        if not isinstance(said, Mapping):
            return "a choice is not an object"
    return None


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=lambda ctx: rows_of(NAME, ctx.dialect),
    faulty=an_object("a chat completion", "a chunk of a chat stream", _faulty),
    failed=_failed,
    blocks=_blocks,
    closes_calls=False,
    splits=True,
)

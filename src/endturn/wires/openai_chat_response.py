"""Responses of the chat format, whole or streamed, as ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError
from endturn.wires import Context, Event
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.framing import DONE
from endturn.wires.openai_chat_calls import Call
from endturn.wires.openai_chat_objects import unwrapped
from endturn.wires.openai_chat_watch import Watch
from endturn.wires.openai_chat_words import THINKING, error_in, shows
from endturn.wires.reading import arguments, plain

NAME: Final = "openai_chat"

_HEAD: Final = ("type", "index", "id", "format", "signature")
"""The members by which the entries of reasoning details are told apart."""
_OWN: Final = frozenset({"role", "content", "refusal", "tool_calls", "function_call", *THINKING})


class Kept:
    """Keeps what a response holds, beside the watch that reads it."""

    __slots__ = (
        "_declined",
        "_details",
        "_extra",
        "_listed",
        "_pieces",
        "_said",
        "_thought",
        "_thought_in",
        "_told",
        "_transcript",
        "deltas",
    )

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        # All that is visible, in order; and the parts of it that a message keeps in members of their own.
        self._told: list[str] = []
        self._said: list[str] = []
        self._declined: list[str] = []
        self._transcript: list[str] = []
        self._thought: list[str] = []
        self._thought_in = THINKING[0]
        self._extra: Json = {}
        # Fragments of a stream's reasoning details.
        self._details: list[Any] = []
        # Content in parts, where it came so: Mistral's thinking stands there, and is wanted back there.
        self._pieces: list[Any] = []
        self._listed = False

    def part(self, part: Any, *, streamed: bool, again: bool) -> None:
        """Take the members that are not ours to understand: `reasoning_details`, `annotations`, `audio`, `images`.

        A message that repeats a stream has them whole: its own count.
        """
        self._listed = False
        if not isinstance(part, Mapping):
            return
        for name in THINKING:
            if part.get(name):
                self._thought_in = name
                break
        content = part.get("content")
        if isinstance(content, list):
            self._listed = True
            if again:
                self._pieces = []
            elif self._said and not self._pieces:
                self._pieces.append({"type": "text", "text": "".join(self._said)})
            self._pieces += content
        for name, value in part.items():
            if name in _OWN or value is None or (again and not value):
                continue
            held = self._extra.get(name)
            if streamed and name == "reasoning_details" and isinstance(value, list):
                self._details += value
            elif streamed and name == "audio" and isinstance(value, Mapping):
                # Without the sound: each chunk's is encoded for itself, and no API wants it back.
                known = {key: each for key, each in value.items() if each is not None and key != "data"}
                self._extra[name] = {**held, **known} if isinstance(held, dict) else known
            elif streamed and isinstance(held, list) and isinstance(value, list):
                held += value
            else:
                self._extra[name] = list(value) if isinstance(value, list) else value

    def text(self, visible: str, heard: str, declined: str) -> None:
        """Take visible text. A refusal is visible, as what the user reads; a transcript, as what the user hears."""
        if visible:
            self._said.append(visible)
            if self._pieces and not self._listed:
                self._pieces.append({"type": "text", "text": visible})
        if heard:
            self._transcript.append(heard)
        if declined:
            self._declined.append(declined)
        self._told.append(visible + heard + declined)
        self.deltas.append(Delta(text=self._told[-1]))

    def thinking(self, piece: str, *, again: bool) -> None:
        """Take visible thinking; of a message that repeats a stream, what the stream had not."""
        if again and self._thought:
            said = "".join(self._thought)
            piece = piece[len(said) :] if piece.startswith(said) else ""
        if piece:
            self._thought.append(piece)
            self.deltas.append(Delta(reasoning=piece))

    def call(self, call: Call, started: bool, piece: str, fragment: Any) -> None:
        """Take a piece of a call. Members beside ours are kept for a replay: Gemini's thought signatures are there."""
        if call.shape == "tool_calls" and isinstance(fragment, Mapping):
            known = ("index", "id", "function", "custom")
            call.extra.update(
                {name: value for name, value in fragment.items() if name not in known and value is not None}
            )
        first = CallFragment(call.position, call.id, call.name or None, piece)
        self.deltas.append(Delta(call=first if started else CallFragment(call.position, arguments=piece)))

    def response(self, watch: Watch, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """All that was kept, with what the watch made of it."""
        seen = watch.close()
        calls = tuple(_tool_call(call) for call in watch.calls)
        said, declined, thought = "".join(self._said), "".join(self._declined), "".join(self._thought)
        told, spoken = "".join(self._told), "".join(self._transcript)
        parts = _merged(self._pieces)
        kinds = {part.get("type") for part in parts if isinstance(part.get("type"), str)}
        message: Json = {"role": "assistant", "content": parts or said or None, **self._extra}
        if self._details and "reasoning_details" not in message:
            message["reasoning_details"] = _details(self._details)
        if spoken and isinstance(message.get("audio"), dict):
            message["audio"] = {**message["audio"], "transcript": spoken}
        if declined and "refusal" not in kinds:
            message["refusal"] = declined
        if thought and "thinking" not in kinds:
            message[self._thought_in] = thought
        for call in watch.calls:
            written = {"name": call.name, "arguments": "".join(call.pieces)}
            if call.shape == "function_call":
                message["function_call"] = written
                continue
            kind = "custom" if call.extra.get("type") == "custom" else "function"
            inner = {"name": call.name, "input": written["arguments"]} if kind == "custom" else written
            message.setdefault("tool_calls", []).append({"id": call.id, "type": kind, kind: inner, **call.extra})
        return ChatResponse(
            text=told,
            tool_calls=calls,
            usage=seen.usage,
            reasoning=thought or None,
            stop=seen.stop,
            id=seen.id,
            model=seen.model,
            blocks=Blocks(NAME, (message,)) if told or thought or calls or shows(message) else None,
            quota=quota(headers),
        )


def _merged(pieces: Iterable[Any]) -> list[Json]:
    """The parts of a content. A stream's pieces of one text, thought or refusal are one part; a signature ends it."""
    groups: list[list[Mapping[str, Any]]] = []
    for piece in pieces:
        if not isinstance(piece, Mapping):
            continue
        kind, last = piece.get("type"), groups[-1][-1] if groups else {}
        if kind in ("text", "thinking", "refusal") and kind == last.get("type") and not last.get("signature"):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [dict(group[0]) if len(group) == 1 else _one(group) for group in groups]


def _one(pieces: list[Mapping[str, Any]]) -> Json:
    """Pieces of one part as the whole of it: what it says is joined, of all else the last word counts."""
    part: Json = {name: value for piece in pieces for name, value in piece.items() if value is not None}
    kind = part["type"]
    said = [piece[kind] for piece in pieces if piece.get(kind)]
    if said and all(isinstance(each, str) for each in said):
        part[kind] = "".join(said)
    elif said and all(isinstance(each, list) for each in said):
        part[kind] = _merged(chain.from_iterable(said))
    return part


def _details(fragments: Iterable[Any]) -> list[Any]:
    """The reasoning details of a stream, which OpenRouter sends in fragments: an entry for each index, type, id, form.

    Text, summary and data are joined; the signature, which comes last and alone, ends an entry. A provider refuses a
    signature that does not stand beside what it signs.
    """
    heads: list[Json] = []
    groups: list[list[Any]] = []
    for fragment in fragments:
        known = fragment if isinstance(fragment, Mapping) else {}
        # Without an index, only what follows directly may belong together; encrypted data says nothing of it.
        first = 0 if known.get("index") is not None else len(heads) - 1 if known.get("data") is None else len(heads)
        at = next((at for at in range(len(heads) - 1, max(first, 0) - 1, -1) if _goes_on(heads[at], known)), len(heads))
        if at == len(heads):
            heads.append({})
            groups.append([])
        heads[at] |= {name: known[name] for name in _HEAD if known.get(name) is not None}
        groups[at].append(fragment)
    return [group[0] if len(group) == 1 else _joined(group) for group in groups]


def _goes_on(head: Json, fragment: Mapping[str, Any]) -> bool:
    """Whether a fragment belongs to the entry of reasoning details that begins so."""
    if fragment.get("type") is None or any(head.get(name) != fragment.get(name) for name in ("type", "index")):
        return False
    if head.get("signature") and fragment.get("text"):
        return False
    said = [(head.get(name), fragment.get(name)) for name in ("id", "format")]
    return all(before is None or now is None or before == now for before, now in said)


def _joined(group: list[Mapping[str, Any]]) -> Json:
    entry: Json = {name: value for fragment in group for name, value in fragment.items() if value is not None}
    for name in ("text", "summary", "data"):
        said = [fragment[name] for fragment in group if isinstance(fragment.get(name), str)]
        if said:
            entry[name] = "".join(said)
    return entry


def _tool_call(call: Call) -> ToolCall:
    raw = "".join(call.pieces)
    return ToolCall(id=call.id, name=call.name, arguments_raw=raw, arguments=arguments(raw), closed=call.closed)


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_ctx", "_keep", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._keep = Kept()
        self._watch = Watch(ctx, self._keep)

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is not a chunk.
            ProviderError: the stream reports an error before any finish reason; `partial` holds what had arrived.
        """
        if event.data == DONE:
            return ()
        if not isinstance(event.data, Mapping):
            raise DecodeError(
                f"a chunk of a chat stream is an object, not {shortened(repr(event.data), 80)}",
                provider=self._ctx.provider,
            )
        _check(event.data, self._ctx)
        self._keep.deltas.clear()
        self._watch.see(event.data)
        error = error_in(event.data)
        if error and self._watch.broken:
            failure = error_of(200, {}, {**event.data, "error": error}, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return tuple(self._keep.deltas)

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self._keep.response(self._watch)


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response.

    Raises:
        DecodeError: it is not a chat completion.
        ProviderError: it is an error that came under a status of success, as gateways send them.
    """
    body = plain(unwrapped(body, choices=ctx.asked.choices))
    if not isinstance(body, Mapping):
        raise DecodeError(f"a chat completion is an object, not {shortened(repr(body), 80)}", provider=ctx.provider)
    if body.get("error") and not body.get("choices"):
        raise error_of(200, headers or {}, body, ctx=ctx)
    if "choices" not in body:
        raise DecodeError(
            f"a chat completion has `choices`; this has {sorted(map(str, body))[:8]}",
            provider=ctx.provider,
            body=shortened(repr(body)),
        )
    _check(body, ctx)
    keep = Kept()
    watch = Watch(ctx, keep)
    watch.see(body)
    return keep.response(watch, headers)


def _check(body: Mapping[str, Any], ctx: Context) -> None:
    """Raise where the shape is wrong: what cannot be read must not look like an answer that says nothing."""
    choices = body.get("choices")
    if choices is not None and not isinstance(choices, list):
        raise DecodeError("`choices` is not a list", provider=ctx.provider, body=shortened(repr(body)))
    for choice in choices or ():
        parts = (
            (choice, choice.get("delta") or {}, choice.get("message") or {}) if isinstance(choice, Mapping) else (None,)
        )
        if not all(isinstance(part, Mapping) for part in parts):
            raise DecodeError("a choice is not an object", provider=ctx.provider, body=shortened(repr(body)))

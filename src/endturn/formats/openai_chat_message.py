"""The assistant's message of a chat response while it arrives, in the format's own shape: what a replay sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from endturn.chat import Json
from endturn.formats.openai_chat_calls import Call
from endturn.formats.openai_chat_words import THINKING, shows

_HEAD: Final = ("type", "index", "id", "format", "signature")
"""The members by which the entries of reasoning details are told apart."""
_OWN: Final = frozenset({"role", "content", "refusal", "tool_calls", "function_call", *THINKING})


class Kept:
    """What a message holds, beside what the fold keeps of any response."""

    def __init__(self) -> None:
        # All that is visible, in order; and the parts of it that a message keeps in members of their own.
        self._said: list[str] = []
        self._declined: list[str] = []
        self._transcript: list[str] = []
        self._thought: list[str] = []
        self._thought_in = THINKING[0]
        self._extra: Json = {}
        self._calls: dict[int, Call] = {}
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

    def unthought(self, piece: str, *, again: bool) -> str:
        """Take visible thinking, and return it; of a message that repeats a stream, what the stream had not."""
        if again and self._thought:
            said = "".join(self._thought)
            piece = piece[len(said) :] if piece.startswith(said) else ""
        if piece:
            self._thought.append(piece)
        return piece

    def call(self, call: Call, fragment: Any) -> None:
        """Take a piece of a call. Members beside ours are kept for a replay: Gemini's thought signatures are there."""
        self._calls[call.position] = call
        if call.shape == "tool_calls" and isinstance(fragment, Mapping):
            known = ("index", "id", "function", "custom")
            call.extra.update(
                {name: value for name, value in fragment.items() if name not in known and value is not None}
            )

    def message(self, told: str, thought: str) -> Iterator[Json]:
        """The message, where it says anything."""
        said, declined = "".join(self._said), "".join(self._declined)
        spoken = "".join(self._transcript)
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
        for call in self._calls.values():
            written = {"name": call.name, "arguments": "".join(call.pieces)}
            if call.shape == "function_call":
                message["function_call"] = written
                continue
            kind = "custom" if call.extra.get("type") == "custom" else "function"
            inner = {"name": call.name, "input": written["arguments"]} if kind == "custom" else written
            message.setdefault("tool_calls", []).append({"id": call.id, "type": kind, kind: inner, **call.extra})
        if told or thought or self._calls or shows(message):
            yield message


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

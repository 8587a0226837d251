"""Responses of the Interactions API, whole or streamed, as ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError, ProviderError
from endturn.wires import Context, Event
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.framing import DONE
from endturn.wires.gemini_interactions_watch import CLIENT_CALL, Watch, current, stop_of
from endturn.wires.reading import arguments, items, member, minted, plain, text

NAME: Final = "gemini_interactions"

_SHOWN: Final = {"model_output": "content", "thought": "summary"}
"""Types of steps that hold text, and where."""


class _Part:
    """One step while it is built."""

    __slots__ = ("call", "content", "json", "said", "signature", "step")

    def __init__(self, step: Json) -> None:
        self.step = step
        self.content = list(items(step.get(_SHOWN.get(text(step.get("type")), ""))))
        self.said: list[str] = []
        self.json: list[str] = []
        self.signature: list[str] = []
        self.call: int | None = None

    def add(self, item: Any) -> str:
        """Take a piece of content; the text that it is, if it is text."""
        if member(item, "type") == "text" and not member(item, "annotations"):
            self.said.append(text(member(item, "text")))
            return self.said[-1]
        self.settle()
        self.content.append(item)
        return text(member(item, "text")) if member(item, "type") == "text" else ""

    def annotate(self, annotations: Any) -> None:
        """Annotations of the text so far: their places are counted from where it begins."""
        self.settle()
        if self.content and isinstance(self.content[-1], Mapping):
            known = items(self.content[-1].get("annotations"))
            self.content[-1] = {**self.content[-1], "annotations": [*known, *items(annotations)]}

    def settle(self) -> None:
        """Join the pieces of text to the text that they go on."""
        said = "".join(self.said)
        self.said.clear()
        last = self.content[-1] if self.content else None
        if not said:
            return
        if isinstance(last, Mapping) and last.get("type") == "text":
            self.content[-1] = {**last, "text": text(last.get("text")) + said}
        else:
            self.content.append({"type": "text", "text": said})

    def finished(self) -> Json:
        """The step in the wire's own shape."""
        self.settle()
        changes: Json = {}
        shown = _SHOWN.get(text(self.step.get("type")))
        if shown is not None and self.content:
            changes[shown] = list(self.content)
        if self.signature:
            changes["signature"] = text(self.step.get("signature")) + "".join(self.signature)
        raw = "".join(self.json)
        if raw:
            parsed = arguments(raw)
            # Kept as text where it is not whole: nothing that was completed for it can be taken for the model's.
            changes["arguments"] = raw if parsed is None else parsed
        return self.step | changes


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_calls", "_ctx", "_parts", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._watch = Watch(ctx)
        self._parts: dict[int, _Part] = {}
        self._calls = 0

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is not one of this format.
            ProviderError: the stream reports an error before its end; `partial` holds what had arrived.
        """
        data = event.data
        if data == DONE:
            return ()
        if not isinstance(data, Mapping):
            raise DecodeError(
                f"an event of an interaction is an object, not {shortened(repr(data), 80)}",
                provider=self._ctx.provider,
            )
        self._watch.see(data)
        match data.get("event_type"):
            case "step.start":
                return self._start(self._watch.place(data), data.get("step"))
            case "step.delta":
                return self._delta(data)
            case "interaction.completed" if self._watch.late and not self._parts:
                steps = current(data.get("interaction"))
                return [delta for place, step in enumerate(steps) for delta in self._start(place, step)]
            case "error" if self._watch.broken:
                failure = refused(error_of(200, {}, data, ctx=self._ctx), data)
                failure.partial = self.close()
                raise failure
            case _:
                return ()

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return _response(self._watch, {place: self._parts[place] for place in sorted(self._parts)})

    def _start(self, place: int | None, step: Any) -> Iterable[Delta]:
        if not isinstance(step, Mapping):
            raise DecodeError("a step is not an object", provider=self._ctx.provider, body=shortened(repr(step)))
        place = len(self._parts) if place is None else place
        part = self._parts[place] = _Part(dict(step))
        if step.get("type") == CLIENT_CALL:
            _name_call(part.step, self._watch, place)
            part.call = self._calls
            self._calls += 1
            given = step.get("arguments")
            name = text(step.get("name")) or None
            return (Delta(call=CallFragment(part.call, part.step["id"], name, json.dumps(given) if given else "")),)
        said = _text_of(part.content)
        if not said:
            return ()
        return (Delta(text=said) if step.get("type") == "model_output" else Delta(reasoning=said),)

    def _delta(self, data: Mapping[str, Any]) -> Iterable[Delta]:
        delta, place = data.get("delta"), self._watch.place(data)
        if not isinstance(delta, Mapping):
            raise DecodeError("a delta is not an object", provider=self._ctx.provider, body=shortened(repr(data)))
        kind = delta.get("type")
        part = self._parts.get(max(self._parts, default=0) if place is None else place)
        if part is None:
            if kind != "text":
                return ()
            # Text without the start of its step is text all the same.
            part = self._parts[place or 0] = _Part({"type": "model_output"})
        match kind:
            case "arguments_delta":
                piece = text(delta.get("arguments"))
                part.json.append(piece)
                return () if part.call is None else (Delta(call=CallFragment(part.call, arguments=piece)),)
            case "thought_signature":
                part.signature.append(text(delta.get("signature")))
            case "thought_summary":
                piece = part.add(delta.get("content"))
                return (Delta(reasoning=piece),) if piece else ()
            case "text_annotation_delta":
                part.annotate(delta.get("annotations"))
            case "text" if part.step.get("type") == "model_output":
                piece = part.add({name: value for name, value in delta.items() if name != "annotations"})
                return (Delta(text=piece),) if piece else ()
            case "image" | "audio" | "video" | "document":
                part.add(dict(delta))
            case _:
                part.step |= {name: value for name, value in delta.items() if name != "type"}
        return ()


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response, of any revision.

    Raises:
        DecodeError: it is not an interaction.
        ProviderError: it is an error that came under a status of success.
    """
    body = plain(body)
    if not isinstance(body, Mapping):
        raise DecodeError(f"an interaction is an object, not {shortened(repr(body), 80)}", provider=ctx.provider)
    if body.get("error") and not {"status", "steps", "outputs"} & body.keys():
        raise refused(error_of(200, headers or {}, body, ctx=ctx), body)
    given = body.get("outputs") if body.get("steps") is None else body["steps"]
    if (
        not isinstance(given, list | None)
        or not all(isinstance(step, Mapping) for step in given or ())
        or body.get("event_type") is not None
        or (body.get("status") is None and given is None)
    ):
        raise DecodeError(
            "an interaction has a `status` and a list of `steps`", provider=ctx.provider, body=shortened(repr(body))
        )
    watch = Watch(ctx)
    watch.see(body)
    parts = {place: _Part(dict(step)) for place, step in enumerate(current(body))}
    for place, part in parts.items():
        if part.step.get("type") == CLIENT_CALL:
            _name_call(part.step, watch, place)
    return _response(watch, parts, headers)


def refused(failure: ProviderError, body: Any) -> ProviderError:
    """The exception with what the error's code says of the stop: the API has codes of its own for its filters."""
    failure.stop = stop_of(member(body, "error")) or failure.stop
    return failure


def _name_call(step: Json, watch: Watch, place: int) -> None:
    """An id for a call that has none, in the step too: the result that answers it must name the same."""
    if not text(step.get("id")):
        step["id"] = minted(watch.id, place)


def _text_of(content: Iterable[Any]) -> str:
    return "".join(text(member(item, "text")) for item in content if member(item, "type") == "text")


def _response(watch: Watch, parts: Mapping[int, _Part], headers: Mapping[str, str] | None = None) -> ChatResponse:
    seen = watch.close()
    steps = {place: part.finished() for place, part in parts.items()}
    shown = {
        kind: "".join(_text_of(items(step.get(where))) for step in steps.values() if step.get("type") == kind)
        for kind, where in _SHOWN.items()
    }
    return ChatResponse(
        text=shown["model_output"],
        tool_calls=tuple(
            _call(parts[place], step, watch.closed(place))
            for place, step in steps.items()
            if step.get("type") == CLIENT_CALL
        ),
        usage=seen.usage,
        reasoning=shown["thought"] or None,
        stop=seen.stop,
        id=seen.id,
        model=seen.model,
        blocks=Blocks(NAME, tuple(steps.values())) if steps else None,
        token=watch.token,
        quota=quota(headers),
    )


def _call(part: _Part, step: Json, closed: bool) -> ToolCall:
    given = step.get("arguments")
    raw = "".join(part.json) or (given if isinstance(given, str) else None)
    return ToolCall(
        id=text(step.get("id")),
        name=text(step.get("name")),
        arguments_raw=raw,
        arguments=given if isinstance(given, dict) else None,
        closed=closed,
    )

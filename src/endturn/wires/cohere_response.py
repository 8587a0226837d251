"""Responses of Cohere's chat API, whole or streamed, as ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError
from endturn.wires import Context, Event
from endturn.wires.cohere_watch import Watch, delta_of
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.framing import DONE
from endturn.wires.reading import arguments, items, member, minted, plain, text

NAME: Final = "cohere"

_KINDS: Final = ("text", "thinking")


class _Call:
    """One call while it is built."""

    __slots__ = ("given", "id", "name", "pieces")

    def __init__(self, id_: str, name: str) -> None:
        self.id = id_
        self.name = name
        self.pieces: list[str] = []
        # v1 gives an object.
        self.given: Any = None

    def finished(self, closed: bool) -> ToolCall:
        """The call as ours."""
        if self.given is not None:
            return ToolCall(
                id=self.id,
                name=self.name,
                arguments=self.given if isinstance(self.given, dict) else None,
                closed=closed,
            )
        raw = "".join(self.pieces)
        return ToolCall(id=self.id, name=self.name, arguments_raw=raw, arguments=arguments(raw), closed=closed)

    def written(self) -> Json:
        """The call as a message of v2 holds it."""
        raw = "".join(self.pieces) if self.given is None else json.dumps(self.given, ensure_ascii=False)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": raw}}


class _Built:
    """The assistant's message while it is built, in v2's shape whatever the version."""

    __slots__ = ("calls", "citations", "parts", "plan", "watch")

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.parts: dict[tuple[Any, str], tuple[Json, list[str]]] = {}
        self.plan: list[str] = []
        self.calls: list[_Call] = []
        self.citations: list[Any] = []

    @property
    def spoke(self) -> bool:
        """Whether there was visible text."""
        return any(any(pieces) for (_, kind), (_, pieces) in self.parts.items() if kind == "text")

    def part(self, index: Any, content: Any) -> list[Delta]:
        """Take a piece of content: its kind is the member that it has."""
        deltas = []
        for kind in _KINDS:
            piece = text(member(content, kind))
            if piece or member(content, "type") == kind:
                _, pieces = self.parts.setdefault((index, kind), ({"type": kind}, []))
                pieces.append(piece)
                if piece:
                    deltas.append(Delta(text=piece) if kind == "text" else Delta(reasoning=piece))
        kind = text(member(content, "type"))
        if kind and kind not in _KINDS and isinstance(content, Mapping):
            self.parts.setdefault((index, kind), (dict(content), []))
        return deltas

    def planned(self, piece: str) -> list[Delta]:
        """Take a piece of the plan that comes before calls: thinking that the provider shows."""
        self.plan.append(piece)
        return [Delta(reasoning=piece)] if piece else []

    def call(self, id_: str, name: str, piece: str = "", given: Any = None) -> list[Delta]:
        """Take a new call."""
        position = len(self.calls)
        call = _Call(id_ or minted(self.watch.id, position), name)
        call.pieces.append(piece)
        call.given = given
        self.calls.append(call)
        said = piece if given is None else json.dumps(given, ensure_ascii=False)
        return [Delta(call=CallFragment(position, call.id, name or None, said))]

    def more(self, position: int | None, piece: str) -> list[Delta]:
        """Take a piece of a call's arguments."""
        if position is None or not piece:
            return []
        self.calls[position].pieces.append(piece)
        return [Delta(call=CallFragment(position, arguments=piece))]

    def response(self, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """All that was built, with what the watch made of it."""
        seen = self.watch.close()
        content = [
            {**block, kind: "".join(pieces)} if kind in _KINDS else block
            for (_, kind), (block, pieces) in self.parts.items()
        ]
        thinking, plan = _joined(content, "thinking"), "".join(self.plan)
        message: Json = {"role": "assistant"}
        if content:
            message["content"] = content
        if plan:
            message["tool_plan"] = plan
        if self.calls:
            message["tool_calls"] = [call.written() for call in self.calls]
        if self.citations:
            message["citations"] = self.citations
        return ChatResponse(
            text=_joined(content, "text"),
            tool_calls=tuple(call.finished(self.watch.closed(position)) for position, call in enumerate(self.calls)),
            usage=seen.usage,
            reasoning=thinking + plan or None,
            stop=seen.stop,
            id=seen.id,
            blocks=Blocks(NAME, (message,)) if len(message) > 1 else None,
            quota=quota(headers),
        )


def _joined(content: Iterable[Json], kind: str) -> str:
    return "".join(text(part.get(kind)) for part in content if part.get("type") == kind)


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_built", "_ctx", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._watch = Watch(ctx)
        self._built = _Built(self._watch)

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
                f"an event of a chat stream is an object, not {shortened(repr(data), 80)}", provider=self._ctx.provider
            )
        failed = self._watch.broken
        self._watch.see(data)
        if self._watch.broken:
            if failed:
                return ()
            failure = error_of(200, {}, _fault(data), ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        kind = data.get("event_type")
        return self._v2(data) if kind is None else self._v1(kind, data)

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self._built.response()

    def _v2(self, data: Mapping[str, Any]) -> Iterable[Delta]:
        built, inner, index = self._built, delta_of(data), data.get("index")
        match data.get("type"):
            case "content-start" | "content-delta":
                return built.part(_key(index), member(inner, "content"))
            case "tool-plan-delta":
                return built.planned(text(member(inner, "tool_plan")))
            case "tool-call-start":
                call = _one(member(inner, "tool_calls"))
                function = member(call, "function")
                return built.call(
                    text(member(call, "id")), text(member(function, "name")), text(member(function, "arguments"))
                )
            case "tool-call-delta":
                function = member(_one(member(inner, "tool_calls")), "function")
                return built.more(self._watch.place(index), text(member(function, "arguments")))
            case "citation-start":
                citation = _one(member(inner, "citations"))
                if isinstance(citation, Mapping):
                    built.citations.append(citation)
        return ()

    def _v1(self, kind: Any, data: Mapping[str, Any]) -> Iterable[Delta]:
        built = self._built
        match kind:
            case "text-generation":
                return built.part(0, {"text": data.get("text")})
            case "tool-calls-chunk":
                delta = data.get("tool_call_delta")
                said = built.part(0, {"text": text(data.get("text")) or text(member(delta, "text"))})
                name = text(member(delta, "name"))
                begun = built.call("", name) if name else []
                position = self._watch.place(member(delta, "index"))
                return [*said, *begun, *built.more(position, text(member(delta, "parameters")))]
            case "tool-calls-generation":
                return self._whole_v1(data)
            case "stream-end":
                return self._whole_v1(data.get("response"))
        return ()

    def _whole_v1(self, whole: Any) -> list[Delta]:
        """The whole of what chunks began: the text, where none has come, and the calls that have not."""
        built = self._built
        deltas = [] if built.spoke else built.part(0, {"text": member(whole, "text")})
        for position, call in enumerate(items(member(whole, "tool_calls"))):
            name, given = text(member(call, "name")), member(call, "parameters")
            if position < len(built.calls):
                built.calls[position].given = given
            else:
                deltas += built.call("", name, given=given)
        return deltas


def _key(index: Any) -> Any:
    return index if isinstance(index, int) else None


def _one(value: Any) -> Any:
    """The one thing that an event holds; some servers write a list of it."""
    return next(iter(value), None) if isinstance(value, list) else value


def _fault(data: Mapping[str, Any]) -> Any:
    """The error of an event; `message-end` has it in its delta."""
    error = member(data.get("delta"), "error")
    return {"error": error} if error and not data.get("error") else data


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response.

    Raises:
        DecodeError: it is not a response of the chat API, in v2's shape or in v1's.
        ProviderError: it is an error that came under a status of success.
    """
    body = plain(body)
    if not isinstance(body, Mapping):
        raise DecodeError(f"a chat response is an object, not {shortened(repr(body), 80)}", provider=ctx.provider)
    watch = Watch(ctx)
    watch.see(body)
    if watch.broken:
        raise error_of(200, headers or {}, body, ctx=ctx)
    built = _Built(watch)
    message = body.get("message")
    if not _is_body(body):
        raise DecodeError(
            "a chat response has a `message` with a list of `content` (v1: a `text`), and a list of `tool_calls`",
            provider=ctx.provider,
            body=shortened(repr(body)),
        )
    if isinstance(message, Mapping):
        content = message.get("content")
        for index, part in enumerate(
            [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
        ):
            built.part(index, part)
        built.planned(text(message.get("tool_plan")))
        for call in message.get("tool_calls") or ():
            function = call.get("function")
            built.call(text(call.get("id")), text(member(function, "name")), text(member(function, "arguments")))
        built.citations = list(items(message.get("citations")))
    else:
        built.part(0, {"text": body.get("text")})
        for call in body.get("tool_calls") or ():
            given = call.get("parameters")
            built.call("", text(call.get("name")), given={} if given is None else given)
    return built.response(headers)


def _is_body(body: Mapping[str, Any]) -> bool:
    """Whether a body has the shape of either version: what cannot be read must not look like an answer of nothing."""
    message = body.get("message")
    holder = message if isinstance(message, Mapping) else body
    calls, content = holder.get("tool_calls"), holder.get("content")
    if not isinstance(calls, list | None) or not all(isinstance(call, Mapping) for call in calls or ()):
        return False
    if holder is body:
        return isinstance(body.get("text"), str | None) and bool(body.keys() & {"text", "tool_calls"})
    return isinstance(content, str | None) or (
        isinstance(content, list) and all(isinstance(part, Mapping) for part in content)
    )

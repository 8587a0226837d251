"""What is said in an SDK's call, gathered beside what is watched: only where somebody takes it.

A wire whose `watch` and `whole` also keep what passes stands for the wire itself, so whoever watches a response need
not know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from endturn.announce import swallow
from endturn.calls import Call
from endturn.chat import ChatResponse, Request
from endturn.errors import DecodeError, ProviderError
from endturn.records import Content
from endturn.wires import Context, Event, Seen, Watch, Wire
from endturn.wires.framing import parse
from endturn.wires.reading import plain

_CHOICES: Final = ("choices", "candidates")
"""Where a body or a chunk lists several answers."""
_DEPTH: Final = 12
"""How deep in a request an SDK's own objects are looked for."""


def keeping(call: Call, speaks: Wire, body: Mapping[str, Any] | Request, context: Context) -> Wire:
    """The wire of a call, such that what is said is known when the call ends. Never raises.

    Args:
        body: what is sent, read now: a host may change it before the answer has come; or it as ours.
    """
    kept = _Kept(speaks, context, _request(speaks, body, context))
    call.content = kept.content
    return cast(Wire, kept)


def _request(speaks: Wire, body: Mapping[str, Any] | Request, context: Context) -> Request | None:
    if isinstance(body, Request):
        return body
    asked = context.asked
    try:
        sent = {name: _plain(value, _DEPTH) for name, value in body.items() if value is not None}
        if isinstance(packed := sent.get("body"), str | bytes | bytearray):
            sent = parse(bytes(packed) if isinstance(packed, bytearray) else packed)  # boto3's `invoke_model`
        if speaks.NAME == "gemini":
            sent = _of_google(sent)
        if not isinstance(sent.get("model"), str):
            sent["model"] = asked.model
        return speaks.request(sent)
    except (DecodeError, ValueError, TypeError):  # pydantic's too: not in the wire's format, so it is not known
        return None
    except Exception:
        swallow("reading a request")
        return None


def _plain(value: Any, depth: int) -> Any:
    """What an SDK takes, its own objects among plain values, as plain JSON."""
    value = plain(value)
    if not depth:
        return value
    if isinstance(value, Mapping):
        return {name: _plain(inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth - 1) for inner in value]
    return value


def _of_google(sent: dict[str, Any]) -> dict[str, Any]:
    """The arguments of google-genai as the body that they become: its `config` holds what stands beside `contents`."""
    config = sent.get("config")
    if (
        not isinstance(config, Mapping)
        and isinstance(sent.get("contents"), list)
        and all(map(_has_parts, sent["contents"]))
    ):
        return sent
    body = {name: value for name, value in sent.items() if name != "config"}
    config = config if isinstance(config, Mapping) else {}
    given = sent.get("contents")
    body["contents"] = [_content(each) for each in (given if isinstance(given, list) else [given]) if each is not None]
    system = config.get("system_instruction", config.get("systemInstruction"))
    if system is not None:
        said = [_content(each) for each in (system if isinstance(system, list) else [system])]
        body["systemInstruction"] = {"parts": [part for each in said for part in each.get("parts") or ()]}
    if isinstance(config.get("tools"), list):
        body["tools"] = [tool for tool in config["tools"] if isinstance(tool, Mapping)]
    return body


def _has_parts(content: Any) -> bool:
    return isinstance(content, Mapping) and "parts" in content


def _content(given: Any) -> dict[str, Any]:
    """A text, a part or a content, as a content."""
    if _has_parts(given):
        return dict(given)
    if isinstance(given, list):
        return {"role": "user", "parts": [part for each in given for part in _content(each)["parts"]]}
    return {"role": "user", "parts": [{"text": given} if isinstance(given, str) else given]}


class _Kept:
    """A wire that keeps what passes through it; everything else is the wire's own."""

    def __init__(self, speaks: Wire, context: Context, request: Request | None) -> None:
        self._wire = speaks
        self._request = request
        self._beside = context.asked.system is not None
        self._answer: _Answer | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def watch(self, ctx: Context) -> Watch:
        answer = self._answer = _Answer(self._wire, ctx)
        return cast(Watch, _Beside(self._wire.watch(ctx), answer))

    def whole(self, ctx: Context, body: Any) -> Seen:
        answer = self._answer = _Answer(self._wire, ctx)
        answer.add(body)
        return self._wire.whole(ctx, body)

    def content(self) -> Content:
        answered = () if self._answer is None else self._answer.responses()
        return Content(request=self._request, beside=self._beside, responses=answered)


class _Beside:
    """A watch that has what it sees kept as well."""

    def __init__(self, watch: Watch, answer: _Answer) -> None:
        self._watch = watch
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)

    def see(self, item: Any) -> None:
        self._answer.add(item)
        self._watch.see(item)

    def close(self, *, left: bool = False) -> Seen:
        return self._watch.close(left=left)


class _Answer:
    """One answer while it arrives: a whole body, or events."""

    __slots__ = ("_choices", "_context", "_decoders", "_first", "_is_over", "_streamed", "_wire")

    def __init__(self, speaks: Wire, context: Context) -> None:
        self._wire = speaks
        self._choices = context.asked.choices
        # Each answer is read as if it were the only one.
        self._context = context if self._choices == 1 else replace(context, asked=replace(context.asked, choices=1))
        self._decoders: dict[int, Any] = {}
        self._first: Any = None
        self._streamed = context.asked.stream
        self._is_over = False

    def add(self, item: Any) -> None:
        """Take the next event, or the body. Never raises."""
        if self._is_over or (isinstance(item, Mapping) and hasattr(item.get("body"), "read")):
            return  # boto3's envelope of a body that is the host's to read
        try:
            if isinstance(item, Event):
                self._feed(item)
            elif self._streamed:
                self._feed(Event(None, plain(item)))
            elif self._first is None:
                self._first = plain(item)  # The body; or the first of several, where nobody said that they are chunks.
            else:
                self._streamed = True
                self._feed(Event(None, self._first))
                self._feed(Event(None, plain(item)))
                self._first = None
        except (DecodeError, ProviderError):
            self._is_over = (
                True  # The provider's error, or no answer of this format: what came before it is the answer.
            )
        except Exception:
            self._is_over = True
            swallow("keeping what was said")

    def _feed(self, event: Event) -> None:
        for index, each in _answers(event.data, self._choices):
            decoder = self._decoders.get(index)
            if decoder is None:
                decoder = self._decoders[index] = self._wire.decoder(self._context)
            # Some decoders are generators: nothing happens until they are asked.
            for _ in decoder.feed(Event(event.name, each)):
                pass

    def responses(self) -> tuple[ChatResponse, ...]:
        """What came, an item for each choice."""
        if self._decoders:
            return tuple(self._decoders[index].close() for index in sorted(self._decoders))
        if self._first is None:
            return ()
        try:
            return tuple(self._wire.decode(body, ctx=self._context) for _, body in _answers(self._first, self._choices))
        except (DecodeError, ProviderError):
            return ()


def _answers(data: Any, choices: int) -> list[tuple[int, Any]]:
    """A body or chunk, for each of several answers as if that were the only one."""
    if choices == 1 or not isinstance(data, Mapping):
        return [(0, data)]
    name = next((name for name in _CHOICES if isinstance(data.get(name), list)), None)
    if name is None or not data[name]:
        return [(0, data)]
    return [
        (index if isinstance(index, int) else place, {**data, name: [{**each, "index": 0}]})
        for place, each in enumerate(data[name])
        if isinstance(each, Mapping)
        for index in (each.get("index"),)
    ]

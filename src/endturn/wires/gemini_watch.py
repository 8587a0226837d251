"""What a response of generateContent says of its stop, read in place; and what its words mean."""

from __future__ import annotations

from typing import Any, Final, Protocol

from endturn.chat import Usage
from endturn.stop import Stop, find_row, find_stop, raw_text
from endturn.stop_reasons import tables
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import PLAIN, Tail, count, items, member, minted, text, text_or_none

REASONS: Final = tables("gemini")

PROMPT: Final = "prompt"
"""The detail of a stop that the prompt caused: there is no answer at all."""

# The members of a chunk, and of its one candidate, that say nothing of the stop.
_CHUNK: Final = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "createTime", "modelStatus"})
_CANDIDATE: Final = frozenset({"content", "index", "safetyRatings", "groundingMetadata", "avgLogprobs", "tokenCount"})


def either(thing: Any, name: str, snake: str) -> Any:
    """The member of that name: JSON has it in camelCase, the SDK's objects in snake_case (and JSON may, too)."""
    value = member(thing, name)
    return member(thing, snake) if value is None else value


class Call:
    """One client call while it arrives.

    Attributes:
        sent: the id is the wire's own, not minted.
        open: the wire said that more of it follows.
    """

    __slots__ = ("id", "name", "open", "position", "sent")

    def __init__(self, position: int, id_: str, name: str, *, sent: bool) -> None:
        self.position = position
        self.id = id_
        self.name = name
        self.sent = sent
        self.open = False


class Keeper(Protocol):
    """Who is given what the answer holds, while a watch reads what it says of the stop."""

    def part(self, part: Any, call: Call | None, *, first: bool, started: bool) -> None:
        """Take a part of choice 0; `first` of its chunk, `started` where the call's first piece is in it."""


class Watch:
    """Reads what a response says of its stop, in place: mappings or the SDK's objects. A body is a stream of one chunk.

    The finish reason is the terminal: no event follows it. `see` is on the path of every chunk; one with nothing but a
    piece of text, or of thinking, takes the short way through it.
    """

    over = False  # the format has no last event that is JSON

    __slots__ = (
        "_begun",
        "_blocked",
        "_ctx",
        "_cut",
        "_error",
        "_keep",
        "_reasons",
        "_say",
        "_tail",
        "_usage",
        "broken",
        "calls",
        "id",
        "model",
        "token",
    )

    def __init__(self, ctx: Context, keep: Keeper | None = None) -> None:
        self._ctx = ctx
        self._keep = keep
        self._tail = Tail()
        self._say = self._tail.add
        self._begun = False
        self._reasons: dict[int, str | None] = {}
        self._blocked: str | None = None
        self._usage: Any = None
        self._error: Any = None
        self._cut: Call | None = None
        self.calls: list[Call] = []
        # An error came before any reason.
        self.broken = False
        self.token: str | None = None
        self.id: str | None = None
        self.model: str | None = None

    def see(self, event: Any) -> None:
        """Read one chunk, or one whole body. Never raises over what a provider sent."""
        if event.__class__ is Event:
            event = event.data
        if self._begun:
            try:
                if event.__class__ is dict:
                    (candidate,) = event["candidates"]
                    (part,) = candidate["content"]["parts"]
                    piece = part["text"]
                    usage = event.get("usageMetadata")
                    thought = len(part) == 2 and part["thought"] is True
                    quiet = (
                        (thought or len(part) == 1)
                        and event.keys() <= _CHUNK
                        and candidate.keys() <= _CANDIDATE
                        and (usage is None or usage["promptTokenCount"] >= 0)
                        and not candidate.get("index")
                    )
                else:
                    # A model's members stand in its `__dict__`: all that its class declares.
                    known = event.__dict__
                    (found,) = known["candidates"]
                    candidate = found.__dict__
                    (inner,) = candidate["content"].__dict__["parts"]
                    part = inner.__dict__
                    piece = part["text"]
                    usage = known["usage_metadata"]
                    thought = part["thought"] is True
                    quiet = (
                        candidate["finish_reason"] is None
                        and part["function_call"] is None
                        and known["prompt_feedback"] is None
                        and (usage is None or usage.__dict__["prompt_token_count"] is not None)
                        and not candidate["index"]
                    )
                if quiet and piece.__class__ is str:
                    if usage is not None:
                        self._usage = usage
                    if not thought:
                        self._say(piece)
                    return
            except (AttributeError, KeyError, TypeError, ValueError):
                pass  # Not a plain piece of text or of thinking; the long way reads anything.
        # Asked for without `alt=sse`, a stream is one array of chunks; so is an error's answer.
        for chunk in event if isinstance(event, list) else (event,):
            self._read(chunk)
        # A keeper wants every part; a reason may be taken back by text after it.
        named = self.id is not None and self.model is not None
        self._begun = named and self._keep is None and self._reasons.get(0) is None

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before a finish reason the stop is `missing`, or `error` where the stream said so.

        Args:
            left: whoever read the stream stopped. The reason is the terminal here: one that had come counts anyway.
        """
        usage = usage_of(self._usage)
        stop = self._judge(usage)
        reasons = tuple(self._reasons[index] for index in sorted(self._reasons)) or (self._blocked,)
        return Seen(stop, usage, self.id, self.model, self._tail.last, self._tail.chars, reasons)

    def closed(self, call: Call) -> bool:
        """Whether a call is whole; right after `close`."""
        return not call.open and call is not self._cut

    def _read(self, chunk: Any) -> None:
        if self.id is None:
            self.id = text_or_none(either(chunk, "responseId", "response_id"))
        if self.model is None:
            self.model = text_or_none(either(chunk, "modelVersion", "model_version"))
        usage = either(chunk, "usageMetadata", "usage_metadata")
        # Cumulative: the last counts. Vertex AI's chunks before the last may name nothing but the traffic's type.
        if usage is not None and usage_of(usage) is not None:
            self._usage = usage
        if self._blocked is None:
            feedback = either(chunk, "promptFeedback", "prompt_feedback")
            self._blocked = _word(either(feedback, "blockReason", "block_reason"), "BlockedReason.")
        for position, candidate in enumerate(items(member(chunk, "candidates"))):
            index = count(member(candidate, "index"))
            self._read_candidate(position if index is None else index, candidate)
        error = member(chunk, "error")
        if error and self._error is None:
            self._error = error
            self.broken = self._reasons.get(0) is None and self._blocked is None

    def _read_candidate(self, index: int, candidate: Any) -> None:
        says = False
        if index == 0:
            for place, part in enumerate(items(member(member(candidate, "content"), "parts"))):
                says = self._read_part(part, first=place == 0) or says
            token = either(candidate, "continuationToken", "continuation_token")
            self.token = text_or_none(token) or self.token
        reason = _word(either(candidate, "finishReason", "finish_reason"), "FinishReason.")
        held = self._reasons.get(index)
        if held is None:
            self._reasons[index] = reason
        elif reason is not None or says:
            # Gemini 1.0 says STOP with every chunk, translating proxies with those before the text: what follows it
            # takes it back. A reason for which the answer is cut stands.
            row = find_row(held, REASONS[""])
            if row is not None and not row.incomplete:
                self._reasons[index] = reason

    def _read_part(self, part: Any, *, first: bool) -> bool:
        """Read one part; whether it says anything. Parts of tools that the server runs are no calls of the client's."""
        call, started = None, False
        fragment = either(part, "functionCall", "function_call")
        if fragment is not None and not isinstance(fragment, PLAIN):
            call, started = self._read_call(fragment)
        said = text(member(part, "text"))
        if said and member(part, "thought") is not True:
            self._tail.add(said)
        if self._keep is not None:
            self._keep.part(part, call, first=first, started=started)
        return said != "" or call is not None

    def _read_call(self, fragment: Any) -> tuple[Call | None, bool]:
        """The call that a part belongs to, and whether it begins there; none where it only marks an end."""
        id_, name = text(member(fragment, "id")), text(member(fragment, "name"))
        call = self.calls[-1] if self.calls else None
        started = not (
            call is not None and call.open and name in ("", call.name) and (id_ in ("", call.id) or not call.sent)
        )
        if started:
            # Vertex AI ends a streamed call with an empty one, also after the piece that was its last.
            if not (id_ or name or member(fragment, "args") or either(fragment, "partialArgs", "partial_args")):
                return None, False
            position = len(self.calls)
            call = Call(position, id_ or minted(self.id, position, name), name, sent=bool(id_))
            self.calls.append(call)
        assert call is not None
        call.open = either(fragment, "willContinue", "will_continue") is True
        return call, started

    def _judge(self, usage: Usage | None) -> Stop:
        self._cut = None
        if self.broken:
            return broken(self._error)
        raw, rows, detail = self._reasons.get(0), REASONS[""], None
        if raw is None and self._blocked is not None:
            raw, rows, detail = self._blocked, REASONS["promptFeedback"], PROMPT
        if self.calls and raw is not None:
            row = find_row(raw, rows)
            if row is None or row.incomplete:
                self._cut = self.calls[-1]
        # `finishMessage` is no detail: it quotes what the model wrote.
        return find_stop(
            raw,
            rows,
            calls=len(self.calls),
            # Without a reason nothing tells a body from the first chunk of a stream: no call is whole.
            calls_closed=raw is not None and all(self.closed(call) for call in self.calls),
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=detail if self._error is None else label_of(self._error),
        )


def _word(value: Any, kind: str) -> str | None:
    """A reason by its value: members of the SDK's enumerations, or (LangChain) their Python spelling as text."""
    word = raw_text(value)
    return None if word is None else word.removeprefix(kind)


def usage_of(usage: Any) -> Usage | None:
    """Tokens as Google counts them: cached ones are part of the prompt's, a server tool's results are input too."""
    prompt = count(either(usage, "promptTokenCount", "prompt_token_count"))
    tools = count(either(usage, "toolUsePromptTokenCount", "tool_use_prompt_token_count"))
    said = count(either(usage, "candidatesTokenCount", "candidates_token_count"))
    thought = count(either(usage, "thoughtsTokenCount", "thoughts_token_count"))
    cached = count(either(usage, "cachedContentTokenCount", "cached_content_token_count"))
    asked = None if prompt is None and tools is None else (prompt or 0) + (tools or 0)
    output = None if said is None and thought is None else (said or 0) + (thought or 0)
    if asked is None and output is None and cached is None:
        return None
    # "The sum of" all four; where it is that of the others alone, the candidates' figure has the thoughts in it.
    if (
        thought
        and asked is not None
        and asked + (said or 0) == count(either(usage, "totalTokenCount", "total_token_count"))
    ):
        output = said
    return Usage(asked, output, thought, cached)

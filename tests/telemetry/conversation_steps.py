"""Steps of a conversation with a model, with what is expected of each; `conversations.py` is written in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from endturn.calls.outcomes import RequestedCall, Strategy
from endturn.formats import RequestSummary, format_of
from tests.support.summaries import summarized

Message = dict[str, Any]

# --- Messages of the chat API --------------------------------------------------------------------------------------


def system(text: str) -> Message:
    """Return a system prompt."""
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str, *tool_calls: Message) -> Message:
    """Return a response of the model, as a host sends it back: its text, and its tool calls."""
    return {"role": "assistant", "content": text} | ({"tool_calls": [*tool_calls]} if tool_calls else {})


def tool_call(call_id: str, name: str = "search", arguments: str = "{}") -> Message:
    """Return a tool call, for an assistant's message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_calls(*calls: Message) -> Message:
    """Return a response of the model that is nothing but tool calls, as a host sends it back."""
    return {"role": "assistant", "content": None, "tool_calls": [*calls]}


def searches(*call_ids: str) -> Message:
    """Return a response that is nothing but calls of the tool `search`."""
    return tool_calls(*(tool_call(call_id) for call_id in call_ids))


def result(call_id: str, content: str) -> Message:
    """Return the result of a tool call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


# --- Responses -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Response:
    """A response of the model.

    Attributes:
        text: its text; tool_calls: the tool calls that it asks for.
        stop: its stop reason.
        response_id: its id.
        status: of an error: the HTTP status. 200 where the response reports it, and nothing is raised.
    """

    text: str = "the sun."
    stop: str = "end_turn"
    tool_calls: tuple[RequestedCall, ...] = ()
    response_id: str | None = None
    status: int = 503


def complete(text: str = "the sun.", *, response_id: str | None = None) -> Response:
    """Return a complete response."""
    return Response(text, response_id=response_id)


def truncated(text: str, *tool_calls: RequestedCall, response_id: str | None = None) -> Response:
    """Return a response that hit the limit of tokens, perhaps with these tool calls."""
    return Response(text, "max_tokens", tool_calls, response_id)


def stopped(reason: str, text: str = "the sun.", *, response_id: str | None = None) -> Response:
    """Return a response that stopped for another reason."""
    return Response(text, reason, response_id=response_id)


def failed(status: int = 503, text: str = "the sun.") -> Response:
    """Return an error of this status."""
    return Response(text, "error", status=status)


def requested(
    *calls: RequestedCall, text: str = "the sun.", stop: str = "tool_call", response_id: str | None = None
) -> Response:
    """Return a response that asks for these tool calls."""
    return Response(text, stop, calls, response_id)


def search(call_id: str, *, beside: bool = False) -> RequestedCall:
    """Return a request for the tool `search`; `beside`: in a choice beside the first."""
    return RequestedCall(call_id, "search", beside)


# --- Steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """How a call continues a truncated one: `of` is the number of that call in the conversation, from 0."""

    strategy: Strategy
    index: int
    of: int


def prefill(index: int, *, of: int) -> Link:
    """The call continues call `of` by a prefill, as the turn's continuation `index`."""
    return Link(Strategy.PREFILL, index, of)


def prompt(index: int, *, of: int) -> Link:
    """The call continues call `of` by a prompt."""
    return Link(Strategy.PROMPT, index, of)


def repair(index: int, *, of: int) -> Link:
    """The call asks for the tool calls of call `of` again."""
    return Link(Strategy.REPAIR, index, of)


def resend(index: int, *, of: int) -> Link:
    """The call sends the request of call `of` again, with a larger limit or its text."""
    return Link(Strategy.RESEND, index, of)


def retry(index: int, *, of: int) -> Link:
    """The call sends the request of call `of` again, as that failed."""
    return Link(Strategy.RETRY, index, of)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step, and what follows from it.

    Attributes:
        ends: how turns end with it: outcomes, with "unfinished" where a turn is reported as such; one that was not
            continued always is. None: "completed" if it is a call that comes to a plain end, else no turn ends.
        open_turns: how many turns wait afterwards; None: any number.
    """

    ends: list[str] | None = None
    open_turns: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelCall(Step):
    """A call.

    Attributes:
        request: as its format reads it.
        response: what the model answers.
        after: seconds before the call.
        in_turn: the name of the declared turn that it is made in; the first call of a name begins the turn.
        continues: the call that it continues, whose turn it then belongs to. None: it begins a turn of its own, or
            belongs to the declared one.
        joins: the number of the call whose turn it goes on with, if it continues nothing.
    """

    request: RequestSummary
    response: Response
    after: float = 0.0
    in_turn: str | None = None
    continues: Link | None = None
    joins: int | None = None


@dataclass(frozen=True, kw_only=True)
class WithdrawnCall(Step):
    """A request that turns out to be no call; `is_attempt`: it was announced as a continuation."""

    request: RequestSummary
    is_attempt: bool = True


@dataclass(frozen=True, kw_only=True)
class Wait(Step):
    """Seconds in which nothing is called."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Close(Step):
    """The end of the inference, as at the end of a process."""


@dataclass(frozen=True, kw_only=True)
class EndOfTurn(Step):
    """The end of a declared turn."""

    name: str


def call(
    *history: Message,
    response: Response | None = None,
    after: float = 0.0,
    in_turn: str | None = None,
    continues: Link | None = None,
    joins: int | None = None,
    ends: list[str] | None = None,
    open_turns: int | None = None,
    **settings: Any,
) -> ModelCall:
    """Return a call with these messages and settings, as `RequestSummary` and `RequestFacts` name them."""
    return ModelCall(
        request=summarized(list(history), **{"model": "m", **settings}),
        response=response or complete(),
        after=after,
        in_turn=in_turn,
        continues=continues,
        joins=joins,
        ends=ends,
        open_turns=open_turns,
    )


def call_of(
    format_name: str,
    body: dict[str, Any],
    *,
    response: Response | None = None,
    in_turn: str | None = None,
    continues: Link | None = None,
    ends: list[str] | None = None,
    open_turns: int | None = None,
) -> ModelCall:
    """Return a call with this body of a format."""
    return ModelCall(
        request=format_of(format_name).request_summary({"model": "m", **body}),
        response=response or complete(),
        in_turn=in_turn,
        continues=continues,
        ends=ends,
        open_turns=open_turns,
    )


def withdrawn(*history: Message, is_attempt: bool = True) -> WithdrawnCall:
    """Return a request with these messages that turns out to be no call."""
    return WithdrawnCall(request=summarized(list(history), model="m"), is_attempt=is_attempt)


def wait(seconds: float, ends: list[str] | None = None, open_turns: int | None = None) -> Wait:
    """Return so many seconds in which nothing is called."""
    return Wait(seconds=seconds, ends=ends, open_turns=open_turns)


def close(*ends: str) -> Close:
    """Return the end of the inference, with which turns end so."""
    return Close(ends=[*ends])


def end_of(name: str, *ends: str) -> EndOfTurn:
    """Return the end of a declared turn."""
    return EndOfTurn(name=name, ends=[*ends])

"""Decorators for code that no instrumentation knows.

A function that calls a provider, a function that is a turn.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import Context as Variables, copy_context
from dataclasses import replace
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any, TypeVar, overload
from weakref import WeakSet

from endturn.calls import (
    Call,
    EndpointFacts,
    Layer,
    RequestFacts,
    ResponseFacts,
    Turn,
    TurnKind,
    TurnOutcome,
    TurnScope,
    listeners,
    log_exception,
    log_internal_error,
    open_call,
    start_turn,
)
from endturn.errors import DecodeError, ProviderError, UsageError
from endturn.formats import (
    MAX_UNPARSED_BYTES,
    TAIL,
    Context,
    RequestSummary,
    ResponseSummary,
    dumped,
    format_of,
    items,
    member,
    requested_calls,
    text,
)
from endturn.instrumentation.body import (
    ABANDONED,
    UNREAD,
    CapturedEvents,
    end_call,
    keep_content,
    or_else,
    says_nothing,
    why_cut,
)
from endturn.instrumentation.wrapping import Begin, Run, wrap
from endturn.telemetry import cleanup
from endturn.vocabulary import ChatResponse, Delta, Request, Stop, StopReason

if TYPE_CHECKING:
    from endturn.formats import Fold, Format


F = TypeVar("F", bound=Callable[..., Any])


@overload
def observe_provider_call(function: F, /) -> F: ...
@overload
def observe_provider_call(
    *, provider: str = ..., format: str | None = ..., model: str = ..., dialect: str = ...
) -> Callable[[F], F]: ...
def observe_provider_call(
    function: F | None = None,
    /,
    *,
    provider: str = "",
    format: str | None = None,
    model: str = "",
    dialect: str = "",
) -> F | Callable[[F], F]:
    """Announce each run of a function as one call to a provider.

    A call that something below announces is not announced again.

    The function may be plain, a coroutine function, a generator or an async generator; it may
    return a ChatResponse, a provider's own body or SDK object, a stream of chunks or Deltas. What
    it does is not changed.

    What is asked is read from its arguments, given by name or by position: a Request; else those
    that are named as the SDK names them (`messages`, `model`, `max_tokens`). The one list of
    messages is the history, whatever its name.

    Args:
        provider: as in `gen_ai.provider.name`.
        format: the format of what it returns ("openai_chat", "anthropic"); None: told from what
            comes.
        model: as requested; "": read from the arguments, else from the response.
        dialect: whose words the stop reasons are, where a format is spoken by many.

    Raises:
        UsageError: no format has that name, or what is decorated is no function.
    """
    speaks = format_of(format) if format is not None else None
    endpoint = EndpointFacts(provider=provider)

    def begins(observed: F) -> Begin:
        named = _names(observed)

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run | None:
            given = named(args, kwargs)
            asked = _asked(speaks, given)
            context = Context(dialect, provider, asked)
            facts = replace(asked.facts, model=model) if model else asked.facts
            call = open_call(Layer.WRAPPER, facts, endpoint, asked=asked)
            return None if call is None else _CallRun(call, speaks, context, given)

        return begin

    return _decorate(function, begins, "observe_provider_call", "provider")


def _decorate(
    function: F | None, begins: Callable[[F], Begin], decorator: str, keyword: str
) -> F | Callable[[F], F]:
    """Decorate a function, or what a decorator with settings is given later.

    Args:
        begins: gives what begins to follow a run of that function, while somebody listens.
        keyword: the setting that is given without its keyword, as a rule, where what is decorated
            is no function.
    """

    def decorate(observed: F) -> F:
        if not callable(observed) and not hasattr(observed, "__get__"):  # a classmethod has that
            given = type(observed).__name__
            raise UsageError(
                f"@{decorator} takes its settings by keyword, not as a {given}: "
                f"@{decorator}({keyword}='…')"
            )
        begin = begins(observed)

        def followed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run | None:
            cleanup.run()
            return begin(args, kwargs) if listeners.listening() else None

        done: F = wrap(observed, followed)
        return done

    return decorate if function is None else decorate(function)


class _CallRun:
    """One run of a function that calls a provider."""

    def __init__(
        self, call: Call, speaks: Format | None, context: Context, given: Mapping[str, Any]
    ) -> None:
        self._call = call
        self._format = speaks
        self._context = context
        self._given = given
        self._request = _request(given)
        # The end is announced where the call began, whichever task or thread sees it: its turn and
        # its span are there.
        self._variables: Variables = copy_context()
        self._summarizer: Fold | None = None
        # Where somebody takes what is said: what came of a provider's own, and what came as text.
        self._said: CapturedEvents | None = None
        self._pieces: list[str] | None = [] if listeners.takes_content() else None
        self._tail, self._chars = "", 0
        self._deltas = False
        _open.add(self)

    def step(self) -> AbstractContextManager[object]:
        return self._call.step()

    def yielded(self, item: Any) -> None:
        if self._call.covered or self._call.ended:
            return
        if self._call.first_chunk_s is None:
            self._call.request = replace(self._call.request, stream=True)
            self._context.request.facts = replace(self._context.request.facts, stream=True)
        self._call.chunk()
        if isinstance(item, ChatResponse):
            self._answered(item)
        elif isinstance(item, Delta | str):
            self._deltas |= isinstance(item, Delta)
            piece = item if isinstance(item, str) else item.text
            self._tail, self._chars = (self._tail + piece)[-TAIL:], self._chars + len(piece)
            if self._pieces is not None and self._chars <= MAX_UNPARSED_BYTES:
                self._pieces.append(piece)
        else:
            self._read(item)

    def returned(self, result: Any) -> None:
        if self._call.covered or self._call.ended:
            self._call.ended = True
        elif isinstance(result, ChatResponse):
            self._answered(result)
        elif self._deltas:
            # A stream of Deltas ends with its ChatResponse; without one, the rest is missing.
            self._finish(Stop(StopReason.MISSING, terminal_seen=False, incomplete=True))
        else:
            if not isinstance(result, str | None):
                self._read(result)
            # Of text, or something of the host's own, it cannot be told why the model stopped.
            self._finish(UNREAD.stop)

    def raised(self, error: BaseException) -> None:
        if isinstance(error, ProviderError) and error.partial is not None:
            self._answered(error.partial, error)
            return
        completion = getattr(error, "completion", None)  # openai's `parse` of a cut answer
        if completion is not None:
            self._read(completion)
        stop = error.stop if isinstance(error, ProviderError) else None
        reason = StopReason.ERROR if isinstance(error, Exception) else StopReason.CANCELLED
        self._finish(stop or Stop(reason, incomplete=True), error)

    def closed(self, over_s: float | None = None, detail: str | None = None) -> None:
        if not self._call.ended and not self._call.covered:
            self._finish(Stop(StopReason.CANCELLED, detail=detail, incomplete=True), over_s=over_s)

    def _read(self, item: Any) -> None:
        """Take a chunk, or a whole body, of a provider's or an SDK's."""
        item = dumped(item, choices=self._context.request.facts.choice_count)
        if self._summarizer is None:
            # Anthropic's bodies and events say what they are; what has choices is of the chat
            # format.
            kind = "anthropic" if isinstance(member(item, "type"), str) else "openai_chat"
            speaks = self._format or format_of(kind)
            self._summarizer = speaks.summarizer(self._context)
            if self._pieces is not None:
                self._said = keep_content(
                    self._call, speaks, self._request or self._given, self._context
                )
        if self._said is not None:
            self._said.append(item)
        try:
            self._summarizer.feed(item)
        except DecodeError:
            log_exception(
                logging.DEBUG, "endturn: a response of %s could not be read", self._context.provider
            )
            self._end(UNREAD)

    def _answered(self, response: ChatResponse, error: BaseException | None = None) -> None:
        if self._pieces is not None:
            self._call.said(self._request, response)
        stop, text = response.stop, response.text
        facts = ResponseFacts(
            stop=stop,
            id=response.id,
            model=response.model,
            usage=response.usage,
            reasons=(stop.raw,),
            output_chars=len(text),
        )
        self._end(ResponseSummary(facts, text[-TAIL:], requested_calls(response.tool_calls)), error)

    def _finish(
        self, stop: Stop, error: BaseException | None = None, over_s: float | None = None
    ) -> None:
        """End the call as what came says; so where that says nothing."""
        is_left = stop.reason is StopReason.CANCELLED
        seen = None if self._summarizer is None else self._summarizer.close(abandoned=is_left)
        if seen is None or (error is None and not is_left and says_nothing(seen)):
            seen = ResponseSummary(ResponseFacts(stop=stop, output_chars=self._chars), self._tail)
            if self._pieces is not None:
                said = "".join(self._pieces)
                self._call.said(self._request, ChatResponse(text=said, stop=stop) if said else None)
        elif error is not None:
            seen = or_else(seen, *why_cut(error))
        elif is_left:
            seen = or_else(seen, stop.reason, None, stop.detail)
        self._end(seen, error, over_s)

    def _end(
        self, seen: ResponseSummary, error: BaseException | None = None, over_s: float | None = None
    ) -> None:
        if not self._call.request.model and seen.facts.model:
            self._call.request = replace(self._call.request, model=seen.facts.model)
        self._variables.copy().run(end_call, self._call, seen, error, over_s)


_open: WeakSet[_CallRun] = WeakSet()


def close_all() -> None:
    """End every call whose generator is still being read.

    The process, or its instrumentation, ends.
    """
    for run in list(_open):
        run.closed(detail=ABANDONED)


cleanup.at_the_end(close_all)


def _names(function: Any) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """What gives a call's arguments by name.

    Those given by position as the signature names them, and the defaults.

    A call that does not fit the signature is not refused: the function itself will.
    """
    before: tuple[Any, ...] = ()
    known: dict[str, Any] = {}
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    if isinstance(function, partial):
        before, known, function = function.args, function.keywords, function.func
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some that are written in C have none
        parameters = ()
    names = [
        each.name
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    known = {
        each.name: each.default for each in parameters if each.default is not each.empty
    } | known

    def named(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        # What `*args` takes has no name: it gets its number.
        return {
            **known,
            **dict(zip(chain(names, map(str, count())), (*before, *args), strict=False)),
            **kwargs,
        }

    return named


def _request(given: Mapping[str, Any]) -> Request | None:
    """The Request among the arguments."""
    return next((value for value in given.values() if isinstance(value, Request)), None)


def _asked(speaks: Format | None, given: dict[str, Any]) -> RequestSummary:
    """What a call asks for.

    From the Request among the arguments, else from arguments as the SDK's are named.

    A history of another name is found, and is named in `given` as the SDK's is.
    """
    request = _request(given)
    if request is not None:
        return RequestSummary(
            facts=RequestFacts.of(request),
            history=request.messages,
            length=len(request.messages),
        )
    asked = (speaks or format_of("openai_chat")).request_summary(given)
    if not asked.history:
        histories = [value for value in given.values() if _is_history(value)]
        if len(histories) == 1:
            given["messages"] = asked.history = histories[0]
            asked.length = len(asked.history)
    return asked


def _is_history(value: Any) -> bool:
    """Whether this is a list of messages: each has a role."""
    return bool(messages := items(value)) and all(
        text(member(message, "role")) for message in messages
    )


@overload
def observe_turn(function: F, /) -> F: ...
@overload
def observe_turn(
    *, agent: str | None = ..., conversation_id: str | Callable[..., str | None] | None = ...
) -> Callable[[F], F]: ...
def observe_turn(
    function: F | None = None,
    /,
    *,
    agent: str | None = None,
    conversation_id: str | Callable[..., str | None] | None = None,
) -> F | Callable[[F], F]:
    """Announce each run of a function as one turn: from the user's input to the answer handed back.

    The calls that are made within, by whatever means, belong to it; those that finish an answer
    that was cut off are recognised. The outcome is `completed`, or `not_continued` where a
    truncated response stands unfinished, `cancelled` where the run was, `provider_error` where it
    raised for another reason.

    Args:
        agent: the agent's name.
        conversation_id: the host's id of the conversation, or what finds it in the function's
            arguments.

    Raises:
        UsageError: what is decorated is no function.
    """

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run | None:
        try:
            conversation = (
                conversation_id(*args, **kwargs) if callable(conversation_id) else conversation_id
            )
        except Exception:
            log_internal_error("finding the id of a conversation")
            conversation = None
        return _TurnRun(
            start_turn(Turn(kind=TurnKind.OBSERVED, agent=agent, conversation=conversation))
        )

    return _decorate(function, lambda observed: begin, "observe_turn", "agent")


class _TurnRun:
    """One run of a function that is a turn."""

    def __init__(self, scope: TurnScope) -> None:
        self._scope = scope

    def step(self) -> AbstractContextManager[object]:
        return self._scope.step()

    def yielded(self, item: Any) -> None:
        """What a turn's generator gives is its host's."""

    def returned(self, result: Any) -> None:
        self._scope.end(TurnOutcome.COMPLETED)

    def raised(self, error: BaseException) -> None:
        failed = (
            TurnOutcome.NOT_CONTINUED if self._scope.turn.unfinished else TurnOutcome.PROVIDER_ERROR
        )
        self._scope.end(
            failed if isinstance(error, Exception) else TurnOutcome.CANCELLED, error=error
        )

    def closed(self, over_s: float) -> None:
        self._scope.end(TurnOutcome.CANCELLED, over_s=over_s)

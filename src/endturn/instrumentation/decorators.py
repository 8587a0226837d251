"""Decorators for functions that call a provider, and for functions that are a turn."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import Context as Variables, copy_context
from dataclasses import replace
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload
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
    as_json,
    check_any_dialect,
    checked_dialect,
    format_of,
    items,
    member,
    requested_calls,
    text,
)
from endturn.instrumentation.body import (
    ABANDONED,
    UNPARSED,
    CapturedEvents,
    capture_content,
    end_call,
    is_empty,
    reason_of_read_error,
    with_fallback_reason,
)
from endturn.instrumentation.wrapping import Begin, RunObserver, wrap
from endturn.settings import keywords_checked
from endturn.telemetry import cleanup
from endturn.vocabulary import ChatResponse, Delta, Request, Stop, StopReason

if TYPE_CHECKING:
    from endturn.formats import Format, ResponseAccumulator


F = TypeVar("F", bound=Callable[..., Any])


@overload
def observe_provider_call(function: F, /) -> F: ...
@overload
def observe_provider_call(
    *, provider: str = ..., format: str | None = ..., model: str = ..., dialect: str = ...
) -> Callable[[F], F]: ...
@keywords_checked()
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

    A call that a layer below announces is not announced again.

    The function may be plain, a coroutine function, a generator or an async generator; it may
    return a ChatResponse, a provider's own body or SDK object, a stream of chunks or Deltas. Its
    behaviour does not change.

    The request is read from its arguments, by name or by position: a Request; else those with the
    SDK's names (`messages`, `model`, `max_tokens`). A single list of messages is the history,
    whatever its name.

    Args:
        provider: as in `gen_ai.provider.name`.
        format: the format of its responses ("openai_chat", "anthropic"); None: detected from them.
        model: as requested; "": read from the arguments, else from the response.
        dialect: the dialect of the stop reasons, for a format that several providers use.

    Raises:
        UsageError: no format has that name or dialect, or the decorated object is no function.
    """
    format_ = format_of(format) if format is not None else None
    if format_ is not None:
        checked_dialect(format_, dialect)
    else:
        check_any_dialect(dialect)
    endpoint = EndpointFacts(provider=provider)

    def make_begin(observed: F) -> Begin:
        name_arguments = _argument_namer(observed)

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunObserver | None:
            arguments = name_arguments(args, kwargs)
            request_summary = _summarize_request(format_, arguments)
            context = Context(dialect, provider, request_summary)
            facts = replace(request_summary.facts, model=model) if model else request_summary.facts
            call = open_call(Layer.WRAPPER, facts, endpoint, summary=request_summary)
            return None if call is None else _CallRun(call, format_, context, arguments)

        return begin

    return _decorate(function, make_begin, "observe_provider_call", "provider")


def _decorate(
    function: F | None, make_begin: Callable[[F], Begin], decorator: str, keyword: str
) -> F | Callable[[F], F]:
    """Decorate a function, or return a decorator with these settings.

    Args:
        make_begin: returns the function that begins to follow a run, while there are listeners.
        keyword: the setting that is usually passed without its keyword if the decorated object is
            no function.
    """

    def decorate(observed: F) -> F:
        if not callable(observed) and not hasattr(observed, "__get__"):  # a classmethod has that
            type_name = type(observed).__name__
            raise UsageError(
                f"@{decorator} takes its settings by keyword, not as a {type_name}: "
                f"@{decorator}({keyword}='…')"
            )
        begin = make_begin(observed)

        def begin_if_observed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunObserver | None:
            cleanup.run()
            return begin(args, kwargs) if listeners.listening() else None

        wrapped: F = wrap(observed, begin_if_observed)
        return wrapped

    return _Decorator(decorate, decorator) if function is None else decorate(function)


class _Decorator(Generic[F]):
    """A decorator with its settings. Raises a clear error if it is used in a `with` statement."""

    def __init__(self, decorate: Callable[[F], F], name: str) -> None:
        self._decorate = decorate
        self._name = name

    def __call__(self, function: F) -> F:
        return self._decorate(function)

    def __enter__(self) -> NoReturn:
        raise UsageError(
            f"{self._name}() is a decorator, not a context manager: put the block into a function, "
            f"and write @endturn.{self._name}(…) before it"
        )

    def __exit__(self, *raised: object) -> None: ...

    async def __aenter__(self) -> NoReturn:
        self.__enter__()

    async def __aexit__(self, *raised: object) -> None: ...


class _CallRun:
    """One run of a function that calls a provider."""

    def __init__(
        self, call: Call, format_: Format | None, context: Context, arguments: Mapping[str, Any]
    ) -> None:
        self._call = call
        self._format = format_
        self._context = context
        self._arguments = arguments
        self._request = _request_in(arguments)
        # The end is announced in the context in which the call began, with its turn and its span,
        # whatever the task or thread.
        self._variables: Variables = copy_context()
        self._summarizer: ResponseAccumulator | None = None
        # If a listener takes content: the provider's own items, and the pieces of text.
        self._captured: CapturedEvents | None = None
        self._pieces: list[str] | None = [] if listeners.takes_content() else None
        self._tail, self._chars = "", 0
        self._has_deltas = False
        _open.add(self)

    def step(self) -> AbstractContextManager[object]:
        return self._call.step()

    def on_yield(self, item: Any) -> None:
        if self._call.is_reported_below or self._call.has_ended:
            return
        if self._call.first_chunk_s is None:
            self._call.request = replace(self._call.request, stream=True)
            self._context.request.facts = replace(self._context.request.facts, stream=True)
        self._call.record_chunk()
        if isinstance(item, ChatResponse):
            self._end_with_response(item)
        elif isinstance(item, Delta | str):
            self._has_deltas |= isinstance(item, Delta)
            piece = item if isinstance(item, str) else item.text
            self._tail, self._chars = (self._tail + piece)[-TAIL:], self._chars + len(piece)
            if self._pieces is not None and self._chars <= MAX_UNPARSED_BYTES:
                self._pieces.append(piece)
        else:
            self._read_item(item)

    def on_return(self, result: Any) -> None:
        if self._call.is_reported_below or self._call.has_ended:
            self._call.has_ended = True
        elif isinstance(result, ChatResponse):
            self._end_with_response(result)
        elif self._has_deltas:
            # A stream of Deltas ends with its ChatResponse; without one, the rest is missing.
            self._finish(Stop(StopReason.MISSING, terminal_seen=False, incomplete=True))
        else:
            if not isinstance(result, str | None):
                self._read_item(result)
            # A text, or an object of the host, has no stop reason.
            self._finish(UNPARSED.stop)

    def on_raise(self, error: BaseException) -> None:
        if isinstance(error, ProviderError) and error.partial is not None:
            self._end_with_response(error.partial, error)
            return
        completion = getattr(error, "completion", None)  # openai's `parse` of a cut answer
        if completion is not None:
            self._read_item(completion)
        stop = error.stop if isinstance(error, ProviderError) else None
        reason = StopReason.ERROR if isinstance(error, Exception) else StopReason.CANCELLED
        self._finish(stop or Stop(reason, incomplete=True), error)

    def on_close(self, ended_s: float | None = None, detail: str | None = None) -> None:
        if not self._call.has_ended and not self._call.is_reported_below:
            self._finish(
                Stop(StopReason.CANCELLED, detail=detail, incomplete=True), ended_s=ended_s
            )

    def _read_item(self, item: Any) -> None:
        """Take a chunk, or a complete body, of a provider or an SDK."""
        item = as_json(item, choices=self._context.request.facts.choice_count)
        if self._summarizer is None:
            # Anthropic's bodies and events have a `type`; those with choices are in the chat
            # format.
            format_name = "anthropic" if isinstance(member(item, "type"), str) else "openai_chat"
            format_ = self._format or format_of(format_name)
            self._summarizer = format_.summarizer(self._context)
            if self._pieces is not None:
                self._captured = capture_content(
                    self._call, format_, self._request or self._arguments, self._context
                )
        if self._captured is not None:
            self._captured.append(item)
        try:
            self._summarizer.feed(item)
        except DecodeError:
            log_exception(
                logging.DEBUG, "endturn: a response of %s could not be read", self._context.provider
            )
            self._end(UNPARSED)

    def _end_with_response(
        self, response: ChatResponse, error: BaseException | None = None
    ) -> None:
        if self._pieces is not None:
            self._call.attach_content(self._request, response)
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
        self, stop: Stop, error: BaseException | None = None, ended_s: float | None = None
    ) -> None:
        """End the call with the summary of its items; with `stop` if that is empty."""
        is_cancelled = stop.reason is StopReason.CANCELLED
        summary = (
            None if self._summarizer is None else self._summarizer.close(abandoned=is_cancelled)
        )
        if summary is None or (error is None and not is_cancelled and is_empty(summary)):
            summary = ResponseSummary(
                ResponseFacts(stop=stop, output_chars=self._chars), self._tail
            )
            if self._pieces is not None:
                content = "".join(self._pieces)
                self._call.attach_content(
                    self._request, ChatResponse(text=content, stop=stop) if content else None
                )
        elif error is not None:
            summary = with_fallback_reason(summary, *reason_of_read_error(error))
        elif is_cancelled:
            summary = with_fallback_reason(summary, stop.reason, None, stop.detail)
        self._end(summary, error, ended_s)

    def _end(
        self,
        summary: ResponseSummary,
        error: BaseException | None = None,
        ended_s: float | None = None,
    ) -> None:
        if not self._call.request.model and summary.facts.model:
            self._call.request = replace(self._call.request, model=summary.facts.model)
        self._variables.copy().run(end_call, self._call, summary, error, ended_s)


_open: WeakSet[_CallRun] = WeakSet()


def close_all() -> None:
    """End every call whose generator is still being read: the process or endturn ends."""
    for run in list(_open):
        run.on_close(detail=ABANDONED)


cleanup.register_shutdown(close_all)


def _argument_namer(
    function: Any,
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """Return a function that names a call's arguments.

    Positional arguments get the names of the signature; defaults are added. A call that does not
    fit the signature is not refused: the function itself refuses it.
    """
    bound_args: tuple[Any, ...] = ()
    defaults: dict[str, Any] = {}
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    if isinstance(function, partial):
        bound_args, defaults, function = function.args, function.keywords, function.func
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some that are written in C have none
        parameters = ()
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    defaults = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty
    } | defaults

    def name_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        # The arguments in `*args` have no name: each gets its number.
        return {
            **defaults,
            **dict(zip(chain(names, map(str, count())), (*bound_args, *args), strict=False)),
            **kwargs,
        }

    return name_arguments


def _request_in(arguments: Mapping[str, Any]) -> Request | None:
    """Return the Request among the arguments; None if there is none."""
    return next((value for value in arguments.values() if isinstance(value, Request)), None)


def _summarize_request(format_: Format | None, arguments: dict[str, Any]) -> RequestSummary:
    """Return the summary of a call's request.

    From the Request among the arguments, else from those with the SDK's names. A history of another
    name gets the SDK's name in `arguments`.
    """
    request = _request_in(arguments)
    if request is not None:
        return RequestSummary(
            facts=RequestFacts.of(request),
            history=request.messages,
            length=len(request.messages),
        )
    summary = (format_ or format_of("openai_chat")).request_summary(arguments)
    if not summary.history:
        histories = [value for value in arguments.values() if _is_history(value)]
        if len(histories) == 1:
            arguments["messages"] = summary.history = histories[0]
            summary.length = len(summary.history)
    return summary


def _is_history(value: Any) -> bool:
    """Return whether this is a list of messages: each has a role."""
    return bool(messages := items(value)) and all(
        text(member(message, "role")) for message in messages
    )


@overload
def observe_turn(function: F, /) -> F: ...
@overload
def observe_turn(
    *, agent: str | None = ..., conversation_id: str | Callable[..., str | None] | None = ...
) -> Callable[[F], F]: ...
@keywords_checked()
def observe_turn(
    function: F | None = None,
    /,
    *,
    agent: str | None = None,
    conversation_id: str | Callable[..., str | None] | None = None,
) -> F | Callable[[F], F]:
    """Announce each run of a function as one turn: from the user's input to the answer.

    The calls that are made within, by whatever means, belong to it; those that finish a truncated
    answer are recognised. The outcome is `completed`, or `not_continued` if a truncated response is
    unfinished, `cancelled` if the run was, `provider_error` if it raised for another reason.

    Args:
        agent: the agent's name.
        conversation_id: the host's id of the conversation, or a function that returns it for the
            arguments.

    Raises:
        UsageError: the decorated object is no function.
    """

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunObserver | None:
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

    def on_yield(self, item: Any) -> None:
        """Ignore the items of a turn's generator."""

    def on_return(self, result: Any) -> None:
        self._scope.end(TurnOutcome.COMPLETED)

    def on_raise(self, error: BaseException) -> None:
        outcome = (
            TurnOutcome.NOT_CONTINUED if self._scope.turn.unfinished else TurnOutcome.PROVIDER_ERROR
        )
        self._scope.end(
            outcome if isinstance(error, Exception) else TurnOutcome.CANCELLED, error=error
        )

    def on_close(self, ended_s: float) -> None:
        self._scope.end(TurnOutcome.CANCELLED, ended_s=ended_s)

"""An SDK's client as a provider function.

The controller asks through it, as its host has configured it.

    controller = ContinuationController(openai.OpenAI(timeout=30))                  # whole answers
    controller = ContinuationController(provider(anthropic.Anthropic(), stream=True))

The body becomes the arguments of the SDK's own method, and the format reads what that gives: keys,
time limits, retries and instrumentation stay the client's. Nothing is announced here: where the SDK
is instrumented its call is, and where not, the controller's. No SDK is imported for being known; a
client is told by the modules of its classes.

What an SDK raises becomes a ProviderError with the original as its cause, if it speaks of the
provider's answer or of the connection; anything else passes. What a lost connection means is said
in `endturn.providers.http_client`. A stream that is left early is closed with the SDK's; of google-
genai's async one, the connection when Python collects the SDK's generators.
"""

from __future__ import annotations

import base64
import inspect
import json
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from typing import Any, Final
from urllib.parse import urlsplit

from endturn.errors import DecodeError, ProviderError, UsageError
from endturn.formats import (
    Context,
    Event,
    count,
    dialect_in,
    dumped,
    error_of,
    format_of,
    member,
    shortened,
)
from endturn.providers import call as provider_calls
from endturn.providers.call import cut_by, unreachable
from endturn.providers.http_client import AsyncClient, Client
from endturn.providers.sdk_errors import ErrorAnswer, answer_in, is_of, lost
from endturn.vocabulary import ChatResponse, Delta, Json, Request, provider_at, shipped

__all__ = ["SdkProvider", "provider"]

# --- Which SDK, and how it is asked ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Methods:
    """A client's methods for one format, with their arguments and results (data/sdks.toml)."""

    asks: str = ""
    streams: str = ""
    fetches: str = ""
    arguments: str = "keywords"
    events: str = ""
    follows_tokens: bool = False


@dataclass(frozen=True, slots=True)
class _Sdk:
    """An SDK's clients, and how they are asked in each format, as in data/sdks.toml."""

    module: str
    classes: tuple[str, ...]
    formats: Mapping[str, Mapping[str, Any]]
    provider: str = ""


_SDKS: Final = tuple(
    _Sdk(**row) for row in tomllib.loads(shipped().joinpath("sdks.toml").read_text("utf-8"))["sdks"]
)


def _keywords(
    method: Callable[..., Any], request: Request, body: Json, options: Mapping[str, Any]
) -> Json:
    """Return the body's members and the options as arguments of an SDK's method.

    Members that the method of an SDK made by Stainless has no argument for are in `extra_body`.
    """
    given = {**options, **body}
    known = _named(_function(method))
    if "extra_body" not in known:
        return given
    further = {name: value for name, value in given.items() if name not in known}
    given = {name: value for name, value in given.items() if name in known}
    return (
        {**given, "extra_body": {**(given.get("extra_body") or {}), **further}}
        if further
        else given
    )


def _generate(
    method: Callable[..., Any], request: Request, body: Json, options: Mapping[str, Any]
) -> Json:
    """Return the body as google-genai's contents and config.

    What its config has no name for goes into `extra_body`.

    It is read as JSON, where bytes (signatures, tokens, images) are base64. The SDK is told neither
    to follow continuation tokens, so that the policy's limits hold for each, nor to run functions.
    """
    types: Any = import_module("google.genai.types")
    known = types.GenerateContentConfig.model_fields
    by_alias = {known[name].alias or name: name for name in known}
    rest = {name: value for name, value in body.items() if name != "contents"}
    settings = rest.pop("generationConfig", {})
    ours = {name: value for name, value in {**settings, **rest}.items() if name in by_alias}
    read = types.GenerateContentConfig.model_validate_json(json.dumps(ours))
    config: Json = {
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
    }
    config = {name: value for name, value in config.items() if name in known}
    config |= {**options, **{by_alias[name]: getattr(read, by_alias[name]) for name in ours}}
    further = {name: value for name, value in rest.items() if name not in ours}
    deeper = {name: value for name, value in settings.items() if name not in ours}
    if deeper:
        further["generationConfig"] = deeper
    if further:
        given = types.HttpOptions.model_validate(config.get("http_options") or {})
        config["http_options"] = given.model_copy(
            update={"extra_body": {**(given.extra_body or {}), **further}}
        )
    contents = [
        types.Content.model_validate_json(json.dumps(content)) for content in body["contents"]
    ]
    return {"model": request.model, "contents": contents, "config": config}


def _converse(
    method: Callable[..., Any], request: Request, body: Json, options: Mapping[str, Any]
) -> Json:
    """Return the body's members, blobs as the bytes that boto3 wants."""
    meta = member(member(method, "__self__"), "meta")
    shape = None
    if meta is not None:
        operation = meta.method_to_api_mapping[method.__name__]
        shape = meta.service_model.operation_model(operation).input_shape
    written: Json = _with_blobs(body, shape)
    return {**options, "modelId": request.model, **written}


def _with_blobs(value: Any, shape: Any) -> Any:
    """Return a JSON value with bytes instead of base64 wherever the service's model has a blob."""
    kind = getattr(shape, "type_name", None)
    if kind == "blob" and isinstance(value, str):
        return base64.b64decode(value)
    if kind == "list" and isinstance(value, list):
        return [_with_blobs(each, shape.member) for each in value]
    if kind == "structure" and isinstance(value, Mapping):
        return {name: _with_blobs(each, shape.members.get(name)) for name, each in value.items()}
    return value


_ARGUMENTS: Final = {"keywords": _keywords, "generate": _generate, "converse": _converse}

_KINDS: Final = (
    ("Azure", "azure.ai.openai"),
    ("Bedrock", "aws.bedrock"),
    ("Vertex", "gcp.vertex_ai"),
)
"""What the classes of an SDK's clients for a cloud's service are called → whose service it is."""


@lru_cache(maxsize=64)
def _named(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a function's arguments; none if that cannot be told, or any will do."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return frozenset()
    return frozenset(each.name for each in parameters)


def _function(method: Any) -> Any:
    return getattr(method, "__func__", method)


def provider(
    client: Any,
    *,
    stream: bool = False,
    format: str | None = None,
    dialect: str | None = None,
    **options: Any,
) -> Callable[[Request], Any]:
    """Return a provider function that asks through a client.

    Args:
        client: of openai, anthropic (with those for Bedrock, Vertex and Foundry), google-genai (and
            its `aio`), boto3's "bedrock-runtime", groq, together, mistralai, cohere (v2) or ollama;
            our Client or AsyncClient; or, with `format`, a function that takes the members of a
            body as its keyword arguments and gives its answer, such as `litellm.completion`. A
            provider function is given back as it is.
        stream: ask for streams, and give their deltas.
        format: the format; by default the SDK's first. OpenAI's SDK also speaks `openai_responses`
            and `completions`, Google's `gemini_interactions`.
        dialect: whose variant of it; by default as the client's address says.
        options: further arguments of every call, in the SDK's own words (`timeout=30`,
            `extra_headers={…}`); of google-genai, members of the config.

    Returns:
        A function; sync for a sync client, for an async one the coroutine or async iterator that an
        AsyncContinuationController takes. Its attributes are those of SdkProvider.

    Raises:
        UsageError: nothing is known of such a client, it is not asked in that format, or it is a
            client's method without `format`.
    """
    if format is None:
        refuse_method(client)
    is_ours = isinstance(client, Client | AsyncClient)
    if is_ours or (callable(client) and format is None):
        if format or dialect or options or (stream and not is_ours):
            raise UsageError(
                f"{_a(client)} is a provider function, and is called unchanged, so it takes no "
                "options: configure it yourself, or pass format if it takes the members of a "
                "request body"
            )
        return client.stream if stream else client  # type: ignore[no-any-return]
    if callable(client):
        methods, speaks, name = _Methods(), format_of(format or ""), ""
    else:
        sdk = _sdk_of(client)
        named = format or next(iter(sdk.formats))
        if named not in sdk.formats:
            raise UsageError(
                f"{_a(client)} does not support the format {named!r}; supported: "
                f"{', '.join(sdk.formats)}"
            )
        methods, speaks, name = (
            _Methods(**sdk.formats[named]),
            format_of(named),
            _provider_of(client) or sdk.provider,
        )
    return SdkProvider(
        format=speaks.name,
        provider=name or speaks.provider,
        dialect=dialect_in(speaks, name) if dialect is None else dialect,
        retrieves=bool(methods.fetches),
        follows_tokens=methods.follows_tokens or options.get("automatic_continuation") is True,
        client=client,
        methods=methods,
        options=options,
        stream=stream,
        endpoint=_endpoint_of(client),
    )


def refuse_method(function: object) -> None:
    """Refuse a method of an SDK's client as a provider function: it takes no Request.

    Raises:
        UsageError: it is one. The error says what to give instead.
    """
    module = getattr(_function(function), "__module__", None) if callable(function) else None
    if any(f"{module}.".startswith(f"{sdk.module}.") for sdk in _SDKS):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise UsageError(
            f"{name} is the SDK's own, and takes no Request: hand over the SDK's client itself, or "
            "adapters.provider(method, format='openai_chat'), with the format that the method "
            "speaks"
        )


def _a(thing: object) -> str:
    return f"a value of type {type(thing).__name__}"


def _sdk_of(client: object) -> _Sdk:
    for sdk in _SDKS:
        if any(
            is_of(kind, sdk.module, name) for kind in type(client).__mro__ for name in sdk.classes
        ):
            return sdk
    raise UsageError(
        f"provider is a function of a Request, like Client('openai'), or an SDK's client, not "
        f"{_a(client)}; known are the clients of "
        f"{', '.join(dict.fromkeys(sdk.module for sdk in _SDKS))} (botocore's of 'bedrock-runtime')"
    )


def _is_async(client: Any) -> bool:
    if callable(client):
        function = inspect.unwrap(client)
        return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
    return any(kind.__name__.startswith("Async") for kind in type(client).__mro__)


def _provider_of(client: Any) -> str:
    """Who answers a client, by its class and its address; "" where neither says."""
    if getattr(client, "vertexai", False) is True:
        return "gcp.vertex_ai"
    kinds = " ".join(kind.__name__ for kind in type(client).__mro__)
    url = urlsplit(str(getattr(client, "base_url", None) or ""))
    return next(
        (name for kind, name in _KINDS if kind in kinds), provider_at(url.hostname or "", url.port)
    )


def _endpoint_of(client: Any) -> str:
    """Return the host, port and path of a client's base URL, without what may be secret in it.

    "" if it has none.
    """
    url = urlsplit(str(getattr(client, "base_url", None) or ""))
    return f"{url.hostname or ''}{f':{url.port}' if url.port else ''}{url.path}"


# --- One call -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SdkProvider:
    """A provider function that asks through an SDK; made by `provider`.

    Its attributes are read by the controller.

    Attributes:
        format: the name of the format in which it is asked.
        provider: as in `gen_ai.provider.name`.
        dialect: whose variant of the format.
        retrieves: it fetches a response by its id.
        follows_tokens: the SDK takes continuation tokens up by itself.
        endpoint: host and path that the client asks, where it says so.
    """

    format: str
    provider: str
    dialect: str
    retrieves: bool
    follows_tokens: bool
    client: Any = field(repr=False)
    methods: _Methods = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    stream: bool = False
    endpoint: str = ""

    def __call__(self, request: Request) -> Any:
        """Return the response, its coroutine, or the iterator of a stream.

        The result is sync or async as the client is.
        """
        call = _SdkCall(self, request)
        if _is_async(self.client):
            return provider_calls.astream(call) if self.stream else provider_calls.acomplete(call)
        return provider_calls.stream(call) if self.stream else provider_calls.complete(call)

    def method(self, path: str) -> Callable[..., Any]:
        """Return a method of the client.

        Looked up for each call: it may have been instrumented since the last.
        """
        return attrgetter(path)(self.client) if path else self.client  # type: ignore[no-any-return]


class _SdkCall:
    """One call to an SDK, whether its answer is waited for or awaited."""

    def __init__(self, provider: SdkProvider, request: Request) -> None:
        self._provider = provider
        self._request = request
        self._format = format_of(provider.format)
        self._body = self._format.encode(request, stream=provider.stream, dialect=provider.dialect)
        fetched = {"background": True} if request.retrieve is not None else {}
        said = {"model": request.model, "stream": provider.stream, **fetched, **self._body}
        self._context = Context(
            provider.dialect, provider.provider, self._format.request_summary(said)
        )
        self._decoder = self._format.decoder(self._context)
        self._begun = False
        self._lost: str | None = None

    def send(self) -> Any:
        """Call the SDK's method. What it gives may have to be awaited."""
        methods, options, stream = (
            self._provider.methods,
            self._provider.options,
            self._provider.stream,
        )
        if self._request.retrieve is not None and methods.fetches:
            method = self._provider.method(methods.fetches)
            known = _named(_function(method))
            given = {
                name: value
                for name, value in {**options, **self._request.extra}.items()
                if name in known
            }
            return method(self._request.retrieve, **given, **({"stream": True} if stream else {}))
        body = {
            name: value
            for name, value in self._body.items()
            if name != "stream" or not methods.streams
        }
        method = self._provider.method((stream and methods.streams) or methods.asks)
        return method(**_ARGUMENTS[methods.arguments](method, self._request, body, options))

    @contextmanager
    def io(self) -> Iterator[None]:
        """Around the SDK's work: what it raises becomes ours.

        A connection that is lost in a stream ends that.

        Raises:
            ProviderError: the provider's answer is an error, there is none, or it is not in the
                format.
        """
        try:
            yield
        except Exception as error:
            answer, failure, name = answer_in(error), lost(error), self._provider.provider
            if answer is not None and self._begun:
                self._fail_within(answer, error)
            elif answer is not None:
                raise self._rejection(answer) from error
            elif failure and self._begun:
                self._lost = failure
            elif failure:
                raise unreachable(failure, name, name, error) from error
            else:
                raise

    def _rejection(self, answer: ErrorAnswer) -> ProviderError:
        if not answer.is_unread:
            return error_of(answer.status, answer.headers, answer.content, ctx=self._context)
        name, readable = (
            self._provider.provider,
            shortened(answer.content.decode("utf-8", "replace")),
        )
        what = f"{name} answered {answer.status} with what its SDK cannot read"
        return DecodeError(what, provider=name, status=answer.status, body=readable)

    def _fail_within(self, answer: ErrorAnswer, error: Exception) -> None:
        """Pass the decoder an error that the SDK raised within a stream, as the original event."""
        if not answer.is_unread:
            try:
                deque(self._decoder.feed(Event(None, answer.event)))
            except ProviderError as failure:
                raise failure from error
        came = self._decoder.close()
        if not came.stop.terminal_seen:  # else the error came too late to matter
            rejection = self._rejection(answer)
            rejection.partial = came
            raise rejection from error

    def opened(self, answer: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the stream in what the SDK returned."""
        name = self._provider.methods.events
        events = answer[name] if name else answer
        return events, (events,)

    def feed(self, event: Any) -> Iterator[Delta]:
        """Return the deltas of one of the SDK's events.

        Raises:
            ProviderError: it is an error, or not in the format; `partial` is what came before.
        """
        self._begun = True
        try:
            yield from self._decoder.feed(
                Event(None, dumped(event, choices=self._context.request.facts.choice_count))
            )
        except DecodeError as error:
            error.partial = error.partial or self._decoder.close()
            raise

    def whole(self, answer: Any) -> ChatResponse:
        """Read a whole response.

        Raises:
            ProviderError: it is an error, or not in the format.
        """
        about = member(answer, "ResponseMetadata")
        if about is not None and isinstance(answer, Mapping) and len(answer) == 1:
            # boto3 reads half a body, and none, as an empty answer.
            name, status = self._provider.provider, count(member(about, "HTTPStatusCode"))
            what = (
                f"{name} answered {status} with a body that is empty, or was cut on its way: its "
                f"SDK read nothing"
            )
            raise DecodeError(what, provider=name, status=status)
        return self._format.decode(
            dumped(answer), ctx=self._context, headers=member(about, "HTTPHeaders")
        )

    def finish(self) -> Iterator[ChatResponse]:
        """Return what a stream came to."""
        yield cut_by(self._lost, self._decoder.close())

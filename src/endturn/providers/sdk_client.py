"""An SDK's client as a provider function, for a controller.

    controller = ContinuationController(openai.OpenAI(timeout=30))                  # whole answers
    controller = ContinuationController(provider(anthropic.Anthropic(), stream=True))

The body becomes the arguments of the SDK's own method, and the format reads the result: keys, time
limits, retries and instrumentation stay the client's. No call is announced here: the SDK's
instrumentation announces it, else the controller. SDKs are not imported; a client is recognised by
the modules of its classes.

An SDK's exception becomes a ProviderError with the original as its cause, if it is about the
provider's response or the connection; others pass. See `endturn.providers.http_client` for lost
connections. A stream that the host stops reading is closed with the SDK's; of google-genai's async
one, the connection closes when Python collects the SDK's generators.
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
    as_json,
    count,
    dialect_in,
    error_of,
    format_of,
    member,
    safe_excerpt,
)
from endturn.providers import call as provider_calls
from endturn.providers.call import connection_error, with_connection_failure
from endturn.providers.http_client import AsyncClient, Client
from endturn.providers.sdk_errors import ErrorAnswer, answer_in, connection_failure, is_class
from endturn.vocabulary import ChatResponse, Delta, Json, Request, package_data, provider_at

__all__ = ["SdkProvider", "provider"]

# --- SDKs and their methods -----------------------------------------------------------------------


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
    """An SDK's clients, and their methods in each format, as in data/sdks.toml."""

    module: str
    classes: tuple[str, ...]
    formats: Mapping[str, Mapping[str, Any]]
    provider: str = ""


_SDKS: Final = tuple(
    _Sdk(**row)
    for row in tomllib.loads(package_data().joinpath("sdks.toml").read_text("utf-8"))["sdks"]
)


def _keywords(
    method: Callable[..., Any], request: Request, body: Json, options: Mapping[str, Any]
) -> Json:
    """Return the body's members and the options as arguments of an SDK's method.

    SDKs made by Stainless take members without an argument of their own in `extra_body`.
    """
    arguments = {**options, **body}
    parameters = _parameter_names(_function(method))
    if "extra_body" not in parameters:
        return arguments
    extra = {name: value for name, value in arguments.items() if name not in parameters}
    arguments = {name: value for name, value in arguments.items() if name in parameters}
    return (
        {**arguments, "extra_body": {**(arguments.get("extra_body") or {}), **extra}}
        if extra
        else arguments
    )


def _generate(
    method: Callable[..., Any], request: Request, body: Json, options: Mapping[str, Any]
) -> Json:
    """Return the body as google-genai's contents and config.

    Members that its config lacks go into `extra_body`.

    The config is parsed from JSON, where bytes (signatures, tokens, images) are base64. The SDK
    must not follow continuation tokens, so that the policy's limits apply to each call, nor run
    functions.
    """
    types: Any = import_module("google.genai.types")
    config_fields = types.GenerateContentConfig.model_fields
    by_alias = {config_fields[name].alias or name: name for name in config_fields}
    rest = {name: value for name, value in body.items() if name != "contents"}
    settings = rest.pop("generationConfig", {})
    config_members = {
        name: value for name, value in {**settings, **rest}.items() if name in by_alias
    }
    config_values = types.GenerateContentConfig.model_validate_json(json.dumps(config_members))
    config: Json = {
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
    }
    config = {name: value for name, value in config.items() if name in config_fields}
    config |= {
        **options,
        **{by_alias[name]: getattr(config_values, by_alias[name]) for name in config_members},
    }
    extra = {name: value for name, value in rest.items() if name not in config_members}
    extra_settings = {name: value for name, value in settings.items() if name not in config_members}
    if extra_settings:
        extra["generationConfig"] = extra_settings
    if extra:
        http_options = types.HttpOptions.model_validate(config.get("http_options") or {})
        config["http_options"] = http_options.model_copy(
            update={"extra_body": {**(http_options.extra_body or {}), **extra}}
        )
    contents = [
        types.Content.model_validate_json(json.dumps(content)) for content in body["contents"]
    ]
    return {"model": request.model, "contents": contents, "config": config}


def _converse(
    method: Callable[..., Any], request: Request, body: Json, options: Mapping[str, Any]
) -> Json:
    """Return the body's members, with blobs as bytes, which boto3 takes."""
    meta = member(member(method, "__self__"), "meta")
    shape = None
    if meta is not None:
        operation = meta.method_to_api_mapping[method.__name__]
        shape = meta.service_model.operation_model(operation).input_shape
    arguments: Json = _with_blobs(body, shape)
    return {**options, "modelId": request.model, **arguments}


def _with_blobs(value: Any, shape: Any) -> Any:
    """Return a JSON value with bytes instead of base64 wherever the service's model has a blob."""
    kind = getattr(shape, "type_name", None)
    if kind == "blob" and isinstance(value, str):
        return base64.b64decode(value)
    if kind == "list" and isinstance(value, list):
        return [_with_blobs(entry, shape.member) for entry in value]
    if kind == "structure" and isinstance(value, Mapping):
        return {name: _with_blobs(entry, shape.members.get(name)) for name, entry in value.items()}
    return value


_ARGUMENTS: Final = {"keywords": _keywords, "generate": _generate, "converse": _converse}

_CLOUD_CLIENTS: Final = (
    ("Azure", "azure.ai.openai"),
    ("Bedrock", "aws.bedrock"),
    ("Vertex", "gcp.vertex_ai"),
)
"""A part of the class names of an SDK's clients for a cloud's service → the provider."""


@lru_cache(maxsize=64)
def _parameter_names(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a function's parameters; none if they are unknown, or it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return frozenset()
    return frozenset(parameter.name for parameter in parameters)


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
    """Return a provider function that calls a model through a client.

    Args:
        client: of openai, anthropic (with those for Bedrock, Vertex and Foundry), google-genai (and
            its `aio`), boto3's "bedrock-runtime", groq, together, mistralai, cohere (v2) or ollama;
            our Client or AsyncClient; or, with `format`, a function that takes the members of a
            body as its keyword arguments and returns its response, such as `litellm.completion`. A
            provider function is returned unchanged.
        stream: request streams, and yield their deltas.
        format: the format; by default the SDK's first. OpenAI's SDK also supports
            `openai_responses` and `completions`, Google's `gemini_interactions`.
        dialect: the provider's variant of it; by default from the client's address.
        options: further arguments of every call, in the SDK's own words (`timeout=30`,
            `extra_headers={…}`); of google-genai, members of the config.

    Returns:
        A function; sync for a sync client, for an async one it returns the coroutine or async
        iterator that an AsyncContinuationController takes. Its attributes are those of SdkProvider.

    Raises:
        UsageError: the client is unknown, has no method for that format, or is a client's method
            without `format`.
    """
    if format is None:
        refuse_method(client)
    is_ours = isinstance(client, Client | AsyncClient)
    if is_ours or (callable(client) and format is None):
        if format or dialect or options or (stream and not is_ours):
            raise UsageError(
                f"{_type_phrase(client)} is a provider function, and is called unchanged, so it "
                "takes no options: configure it yourself, or pass format if it takes the members "
                "of a request body"
            )
        return client.stream if stream else client  # type: ignore[no-any-return]
    if callable(client):
        methods, client_format, name = _Methods(), format_of(format or ""), ""
    else:
        sdk = _sdk_of(client)
        format_name = format or next(iter(sdk.formats))
        if format_name not in sdk.formats:
            raise UsageError(
                f"{_type_phrase(client)} does not support the format {format_name!r}; supported: "
                f"{', '.join(sdk.formats)}"
            )
        methods, client_format, name = (
            _Methods(**sdk.formats[format_name]),
            format_of(format_name),
            _provider_of(client) or sdk.provider,
        )
    return SdkProvider(
        format=client_format.name,
        provider=name or client_format.provider,
        dialect=dialect_in(client_format, name) if dialect is None else dialect,
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
        UsageError: the function is such a method. The message names the alternatives.
    """
    module = getattr(_function(function), "__module__", None) if callable(function) else None
    if any(f"{module}.".startswith(f"{sdk.module}.") for sdk in _SDKS):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise UsageError(
            f"{name} is the SDK's own, and takes no Request: pass the SDK's client itself, or "
            "adapters.provider(method, format='openai_chat'), with the method's format"
        )


def _type_phrase(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _sdk_of(client: object) -> _Sdk:
    for sdk in _SDKS:
        if any(
            is_class(kind, sdk.module, name)
            for kind in type(client).__mro__
            for name in sdk.classes
        ):
            return sdk
    raise UsageError(
        f"provider is a function of a Request, like Client('openai'), or an SDK's client, not "
        f"{_type_phrase(client)}; supported are the clients of "
        f"{', '.join(dict.fromkeys(sdk.module for sdk in _SDKS))} (botocore's of 'bedrock-runtime')"
    )


def _is_async(client: Any) -> bool:
    if callable(client):
        function = inspect.unwrap(client)
        return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
    return any(kind.__name__.startswith("Async") for kind in type(client).__mro__)


def _provider_of(client: Any) -> str:
    """Return a client's provider, by its class and its address; "" if both are unknown."""
    if getattr(client, "vertexai", False) is True:
        return "gcp.vertex_ai"
    kinds = " ".join(kind.__name__ for kind in type(client).__mro__)
    url = urlsplit(str(getattr(client, "base_url", None) or ""))
    return next(
        (name for kind, name in _CLOUD_CLIENTS if kind in kinds),
        provider_at(url.hostname or "", url.port),
    )


def _endpoint_of(client: Any) -> str:
    """Return the host, port and path of a client's base URL, which hold no secrets.

    "" if it has none.
    """
    url = urlsplit(str(getattr(client, "base_url", None) or ""))
    return f"{url.hostname or ''}{f':{url.port}' if url.port else ''}{url.path}"


# --- One call -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SdkProvider:
    """A provider function that calls a model through an SDK; made by `provider`.

    The controller reads its attributes.

    Attributes:
        format: the name of the requests' format.
        provider: as in `gen_ai.provider.name`.
        dialect: the provider's variant of the format.
        retrieves: it can fetch a response by its id.
        follows_tokens: the SDK follows continuation tokens by itself.
        endpoint: host and path of the client's requests, if known.
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

        It is looked up for each call, since it may have been instrumented after the last one.
        """
        return attrgetter(path)(self.client) if path else self.client  # type: ignore[no-any-return]


class _SdkCall:
    """One call to an SDK, sync or async."""

    def __init__(self, provider: SdkProvider, request: Request) -> None:
        self._provider = provider
        self._request = request
        self._format = format_of(provider.format)
        self._body = self._format.encode(request, stream=provider.stream, dialect=provider.dialect)
        background = {"background": True} if request.retrieve is not None else {}
        arguments = {"model": request.model, "stream": provider.stream, **background, **self._body}
        self._context = Context(
            provider.dialect, provider.provider, self._format.request_summary(arguments)
        )
        self._decoder = self._format.decoder(self._context)
        self._is_started = False
        self._connection_failure: str | None = None

    def send(self) -> Any:
        """Call the SDK's method. The result may be an awaitable."""
        methods, options, stream = (
            self._provider.methods,
            self._provider.options,
            self._provider.stream,
        )
        if self._request.retrieve is not None and methods.fetches:
            method = self._provider.method(methods.fetches)
            names = _parameter_names(_function(method))
            arguments = {
                name: value
                for name, value in {**options, **self._request.extra}.items()
                if name in names
            }
            return method(
                self._request.retrieve, **arguments, **({"stream": True} if stream else {})
            )
        body = {
            name: value
            for name, value in self._body.items()
            if name != "stream" or not methods.streams
        }
        method = self._provider.method((stream and methods.streams) or methods.asks)
        return method(**_ARGUMENTS[methods.arguments](method, self._request, body, options))

    @contextmanager
    def io(self) -> Iterator[None]:
        """Return a context for the SDK's work, which maps its exceptions to ours.

        A lost connection in a stream ends the stream.

        Raises:
            ProviderError: the provider's response is an error, missing, or not in the format.
        """
        try:
            yield
        except Exception as error:
            answer, failure, name = (
                answer_in(error),
                connection_failure(error),
                self._provider.provider,
            )
            if answer is not None and self._is_started:
                self._fail_within(answer, error)
            elif answer is not None:
                raise self._rejection(answer) from error
            elif failure and self._is_started:
                self._connection_failure = failure
            elif failure:
                raise connection_error(failure, name, name, error) from error
            else:
                raise

    def _rejection(self, answer: ErrorAnswer) -> ProviderError:
        if not answer.is_unread:
            return error_of(answer.status, answer.headers, answer.content, ctx=self._context)
        name, readable = (
            self._provider.provider,
            safe_excerpt(answer.content.decode("utf-8", "replace")),
        )
        message = f"{name} answered {answer.status} with what its SDK cannot read"
        return DecodeError(message, provider=name, status=answer.status, body=readable)

    def _fail_within(self, answer: ErrorAnswer, error: Exception) -> None:
        """Pass the decoder an error that the SDK raised within a stream, as the original event."""
        if not answer.is_unread:
            try:
                deque(self._decoder.feed(Event(None, answer.event)))
            except ProviderError as failure:
                raise failure from error
        partial = self._decoder.close()
        if not partial.stop.terminal_seen:  # otherwise the error came after the end
            rejection = self._rejection(answer)
            rejection.partial = partial
            raise rejection from error

    def open_stream(self, answer: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the stream in the SDK's result."""
        name = self._provider.methods.events
        events = answer[name] if name else answer
        return events, (events,)

    def feed(self, event: Any) -> Iterator[Delta]:
        """Return the deltas of one of the SDK's events.

        Raises:
            ProviderError: the event is an error, or not in the format; `partial` is the response
                before it.
        """
        self._is_started = True
        try:
            yield from self._decoder.feed(
                Event(None, as_json(event, choices=self._context.request.facts.choice_count))
            )
        except DecodeError as error:
            error.partial = error.partial or self._decoder.close()
            raise

    def read_response(self, answer: Any) -> ChatResponse:
        """Read a whole response.

        Raises:
            ProviderError: the response is an error, or not in the format.
        """
        metadata = member(answer, "ResponseMetadata")
        if metadata is not None and isinstance(answer, Mapping) and len(answer) == 1:
            # boto3 parses half a body, and an empty one, as an empty response.
            name, status = self._provider.provider, count(member(metadata, "HTTPStatusCode"))
            message = (
                f"{name} answered {status} with a body that is empty, or was cut on its way: its "
                f"SDK read nothing"
            )
            raise DecodeError(message, provider=name, status=status)
        return self._format.decode(
            as_json(answer), ctx=self._context, headers=member(metadata, "HTTPHeaders")
        )

    def finish(self) -> Iterator[ChatResponse]:
        """Return the response of a finished stream."""
        yield with_connection_failure(self._connection_failure, self._decoder.close())

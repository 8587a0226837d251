"""A provider that plays a script.

As a provider function, as an HTTP transport, or as a real server on loopback.

    provider = ScriptedProvider([truncate("The first half", after=2), say(" half.")])
    with provider.serve() as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")

It speaks every format, streamed and not; the URL's path selects it. It returns one choice, checks
no key, and has no other endpoint. The script alone determines the replies: apart from `fit` and
`essay`, no limit of the request changes one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, Final

from endturn.calls import log_exception
from endturn.errors import DecodeError, UsageError
from endturn.formats import FORMATS, checked_dialect, format_of as _format_of, request_of
from endturn.testing.scripted.loopback import LoopbackReply, ReceivedRequest, Server, Transport
from endturn.testing.scripted.rendering import Received as Received, Rendering, refusal
from endturn.testing.scripted.script import (
    Ending as Ending,
    Exhausted,
    Failure as Failure,
    Prompter,
    Reply as Reply,
    Script,
    block as block,
    break_off as break_off,
    by_conversation as by_conversation,
    call as call,
    cut as cut,
    empty as empty,
    essay as essay,
    fail as fail,
    hang_up as hang_up,
    partial_call as partial_call,
    pause as pause,
    reason as reason,
    refuse as refuse,
    say as say,
    think as think,
    tokens as tokens,
    truncate as truncate,
)
from endturn.vocabulary import ChatResponse, Delta, Request

_SECRET_HEADERS: Final = frozenset(
    {"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "cookie"}
)


class ScriptedProvider:
    """Replies to requests from a script.

    Args:
        script: replies in order, or the only one; or a function of the request (`essay(text)` is
            one); or any of them by model.
        key: requests with an equal key share a position in the script, by default all (of one
            model, if the script is by model); `by_conversation` plays it to each conversation from
            the start.
        exhausted: after the last reply follows an "error" (a UsageError; over HTTP a 400 with its
            message), the "last" reply again, or the "cycle" from the start.
        format: the format that the provider function imitates; over HTTP the path decides.
        dialect: the variant of that format: "mistral", whose SDK needs complete tool calls; of text
            completions "tgi".

    Raises:
        UsageError: there is no such format or dialect, or the script is invalid.

    Attributes:
        received: the requests that arrived, in order; `requests` has them parsed only.
        format, provider, dialect: the attributes of a provider function that a controller reads.
    """

    def __init__(
        self,
        script: Script,
        *,
        key: Callable[[Request], str] = lambda request: "",
        exhausted: Exhausted = "error",
        format: str = "openai_chat",
        dialect: str = "",
    ) -> None:
        self.received: list[Received] = []
        self.format = _format_of(format).name
        self.dialect = checked_dialect(_format_of(format), dialect)
        self._prompter = Prompter(script, key=key, exhausted=exhausted)
        self._numbers = count(1)

    @property
    def requests(self) -> list[Request]:
        """The requests, in order."""
        return [received.request for received in self.received]

    @property
    def provider(self) -> str:
        """The name of the provider that the format belongs to."""
        return _format_of(self.format).provider

    def complete(self, request: Request) -> ChatResponse:
        """Play the next reply, as a provider function.

        Raises:
            UsageError: the script is exhausted.
            ProviderError: the reply is a failure, or does not arrive; as a client would raise it.
        """
        rendering = self._perform(request, stream=False)
        time.sleep(rendering.reply.delay_s)
        return rendering.response()

    __call__ = complete

    def stream(self, request: Request) -> Generator[Delta | ChatResponse]:
        """Play the next reply as deltas; the response is the last item.

        Raises as `complete` does.
        """
        for item in self._perform(request, stream=True).items():
            if isinstance(item, float):
                time.sleep(item)
            else:
                yield item

    async def acomplete(self, request: Request) -> ChatResponse:
        """`complete` as a coroutine."""
        rendering = self._perform(request, stream=False)
        await asyncio.sleep(rendering.reply.delay_s)
        return rendering.response()

    async def astream(self, request: Request) -> AsyncGenerator[Delta | ChatResponse]:
        """`stream` as an async iterator."""
        for item in self._perform(request, stream=True).items():
            if isinstance(item, float):
                await asyncio.sleep(item)
            else:
                yield item

    def transport(self) -> Any:
        """Return a transport for `Client` or `AsyncClient` of httpx or httpx2.

        No sockets, no threads.
        """
        return Transport(self._respond)

    def serve(self) -> AbstractContextManager[str]:
        """Run an HTTP server on a free port of 127.0.0.1, as a `with` block that yields its URL.

        The URL has no path.

        The OpenAI SDK's base URL is `f"{url}/v1"`, the Anthropic SDK's is `url`.
        """
        return Server(self._respond).running()

    def _perform(self, request: Request, *, stream: bool) -> Rendering:
        body = _format_of(self.format).encode(request, stream=stream, dialect=self.dialect)
        return self._play(Received(request=request, format=self.format, stream=stream, body=body))

    def _play(self, received: Received) -> Rendering:
        self.received.append(received)
        reply = self._prompter.next(received.request)
        dialect = self.dialect if received.format == self.format else ""
        return Rendering(reply, received, next(self._numbers), dialect=dialect)

    def _respond(self, http_request: ReceivedRequest) -> LoopbackReply:
        routes = (
            (name, _format_of(name).match_path(http_request.method, http_request.path))
            for name in FORMATS
        )
        name, route = next(
            ((name, route) for name, route in routes if route is not None), (self.format, None)
        )
        if route is None:
            path = http_request.path.partition("?")[0]
            return refusal(
                name,
                Failure(
                    404, "unknown_url", message=f"there is no {http_request.method} {path} here"
                ),
            )
        try:
            body = {} if route.retrieve is not None else json.loads(http_request.body)
            path_fields = {"model": route.model, "stream": route.stream}
            body |= {key: value for key, value in path_fields.items() if value is not None}
            if route.retrieve is not None:
                request = Request(model="", messages=(), retrieve=route.retrieve)
            else:
                request = request_of(_format_of(name), body)
        except (ValueError, TypeError, AttributeError, DecodeError) as error:
            return refusal(
                name, Failure(400, message=f"the request is not in the provider's format: {error}")
            )
        headers = {
            header: value
            for header, value in http_request.headers.items()
            if header not in _SECRET_HEADERS
        }
        stream = bool(_format_of(name).request_summary(body).facts.stream)
        received = Received(request=request, format=name, stream=stream, body=body, headers=headers)
        try:
            return self._play(received).answer()
        except UsageError as error:
            code = "script_exhausted" if "exhausted" in str(error) else "script_unusable"
            return refusal(name, Failure(400, code, str(error)))
        # a function of the script: across a socket the exception would get lost
        except Exception as error:
            log_exception(logging.ERROR, "endturn: a function of the script failed")
            return refusal(
                name, Failure(400, "script_failed", f"a function of the script failed: {error!r}")
            )

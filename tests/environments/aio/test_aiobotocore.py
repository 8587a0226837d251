"""aiobotocore in every situation of the HTTP clients' matrix, and what it has of its own."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiobotocore.eventstream import AioEventStream
from aiobotocore.response import StreamingBody

from endturn.testing.scripted import say, truncate
from tests.instrumentation.clients import CLIENTS, CONVERSE, INVOKED
from tests.instrumentation.test_exchanges import *  # noqa: F403
from tests.instrumentation.test_exchanges import asking
from tests.support.announced import Records


async def by_buffer(body: Any) -> bytes:
    whole, buffer = b"", bytearray(9)
    while size := await body.readinto(buffer):
        whole += buffer[:size]
    return whole


async def by_entering(body: Any) -> Any:
    async with body as entered:
        return await entered.read()


async def by_iterating(body: Any) -> bytes:
    return b"".join([chunk async for chunk in body])


@pytest.mark.parametrize("way", [by_iterating, by_buffer, by_entering])
def test_a_body(seen: Records, way: Callable[[Any], Awaitable[bytes]]) -> None:
    """The SDK's own body comes back; it is one record when its host has read it, however it does."""
    with asking(CLIENTS["AsyncInvoke"], truncate("One two three", after=2)) as client:
        body = client.run(client.made.invoke_model(**INVOKED))["body"]
        assert type(body) is StreamingBody
        assert not seen.ended
        assert json.loads(client.run(way(body)))["content"][0]["text"] == "One two"
    assert seen.reasons() == ["max_tokens"]


def test_a_stream_of_events(seen: Records) -> None:
    """The SDK's own comes back."""
    with asking(CLIENTS["AsyncConverse"], say("One")) as client:
        answer = client.run(client.made.converse_stream(**CONVERSE))
        assert (type(answer), type(answer["stream"])) == (dict, AioEventStream)

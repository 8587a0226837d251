"""Text completions through the real OpenAI SDK, and its words beside our tables."""

from __future__ import annotations

from importlib import import_module
from typing import get_args

import openai
import pytest
from openai.types import CompletionChoice

from endturn.chat import ChatResponse, Message, Request
from endturn.clients import Client
from endturn.formats import Context, summarize
from endturn.formats.completions import FORMAT as completions
from endturn.scripted import ScriptedProvider, block, cut, fail, reason, say, truncate
from endturn.stop import StopReason

CTX = Context("", "openai", completions.request_summary({"model": "m", "prompt": "Once upon"}))
CASES = {
    "say": (say("All of it. 👋🏽"), "All of it. 👋🏽", "stop"),
    "truncate": (truncate("One two three", after=2), "One two", "length"),
    "block": (block("So"), "So", "content_filter"),
    "unknown": (reason("tired", "Hm"), "Hm", "tired"),
}


@pytest.mark.parametrize("name", CASES)
def test_replies_reach_the_sdk(name: str) -> None:
    """Streamed and not: the text, the reason, the usage."""
    reply, text, raw = CASES[name]
    provider = ScriptedProvider([reply, reply])
    with provider.serve() as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = client.completions.create(model="m", prompt="Once upon", max_tokens=50)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == (text, raw)
        assert answer.usage is not None
        seen = summarize(completions, CTX, answer)
        summarizer = completions.summarizer(CTX)
        said, why = "", None
        with client.completions.create(
            model="m",
            prompt="Once upon",
            max_tokens=50,
            stream=True,
            stream_options={"include_usage": True},
        ) as chunks:
            for chunk in chunks:
                summarizer.feed(chunk)
                for choice in chunk.choices:
                    said += choice.text
                    why = choice.finish_reason or why
    assert (said, why) == (text, raw)
    assert summarizer.close().stop == seen.stop
    assert (seen.stop.raw, seen.usage) == (raw, summarizer.close().usage)
    assert [(each.messages[0].text, each.max_tokens) for each in provider.requests] == [("Once upon", 50)] * 2
    assert [received.format for received in provider.received] == ["completions"] * 2


async def test_replies_reach_the_async_sdk() -> None:
    """The same through the asynchronous client."""
    provider = ScriptedProvider([truncate("One two three", after=2)] * 2)
    with provider.serve() as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            answer = await client.completions.create(model="m", prompt="Once upon")
            assert summarize(completions, CTX, answer).stop.reason is StopReason.MAX_TOKENS
            summarizer = completions.summarizer(CTX)
            async with await client.completions.create(model="m", prompt="Once upon", stream=True) as chunks:
                async for chunk in chunks:
                    summarizer.feed(chunk)
    seen = summarizer.close()
    assert (seen.stop.reason, seen.tail, seen.usage) == (StopReason.MAX_TOKENS, "One two", None)


def test_a_cut_stream_and_an_error_reach_the_sdk() -> None:
    """A stream that a proxy cut has no reason; an error answer is the SDK's own exception."""
    provider = ScriptedProvider([cut("One two", after=1, tidy=True), fail(400, "context_length_exceeded")])
    with provider.serve() as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        summarizer = completions.summarizer(CTX)
        with client.completions.create(model="m", prompt="Once upon", stream=True) as chunks:
            for chunk in chunks:
                summarizer.feed(chunk)
        assert summarizer.close().stop.reason is StopReason.MISSING
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            client.completions.create(model="m", prompt="Once upon")


def test_our_client_asks_the_same_way() -> None:
    """Our own client, streamed and not."""
    provider = ScriptedProvider([truncate("One two three", after=2)] * 2)
    asked = Request(model="m", messages=(Message(role="user", content="Once upon"),), max_tokens=50)
    with (
        provider.serve() as url,
        Client("openai", api_key="none", base_url=f"{url}/v1", format="completions") as client,
    ):
        *_, last = client.stream(asked)
        assert isinstance(last, ChatResponse)
        for response in (client.complete(asked), last):
            assert (response.text, response.stop_reason) == ("One two", StopReason.MAX_TOKENS)
            assert response.usage is not None


def test_the_sdks_words_are_in_the_tables() -> None:
    """What the installed SDK declares has a row."""
    declared = set(get_args(CompletionChoice.model_fields["finish_reason"].annotation))
    missing = declared - completions.reasons[""].keys()
    assert declared
    assert not missing, f"openai {openai.__version__} declares reasons of completions without a row: {missing}"


def test_huggingfaces_words_are_in_the_tables() -> None:
    """TGI's, as its client library declares them."""
    hub = pytest.importorskip("huggingface_hub")  # comes with other SDKs
    types = import_module("huggingface_hub.inference._generated.types.text_generation")
    declared = set(get_args(types.TextGenerationOutputFinishReason))
    missing = declared - completions.reasons["tgi"].keys()
    assert declared
    assert not missing, f"huggingface_hub {hub.__version__} declares reasons of TGI without a row: {missing}"

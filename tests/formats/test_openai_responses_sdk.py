"""The real OpenAI SDK and the Responses API: scripted replies over HTTP, and the words that the SDK declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseStatus
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_error import ResponseError
from pydantic import BaseModel

from endturn.formats import Context, summarize
from endturn.formats.openai_responses import FORMAT as responses
from endturn.scripted import (
    Reply,
    ScriptedProvider,
    call,
    cut,
    fail,
    partial_call,
    pause,
    reason,
    refuse,
    say,
    think,
    truncate,
)
from endturn.sdk_objects import dumped
from endturn.stop import StopReason

CTX = Context()
ASKED: Any = {"model": "gpt-5.6-mini", "input": "hi", "max_output_tokens": 1000}


@contextmanager
def sdk(*replies: Reply) -> Iterator[tuple[OpenAI, ScriptedProvider]]:
    """The SDK, connected to a server that plays these replies."""
    provider = ScriptedProvider(list(replies))
    with provider.serve() as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client, provider


CASES = {
    "say": (say("Grüezi 👋🏽, all of it."), "end_turn", "completed"),
    "truncate": (truncate("One two three", after=2), "max_tokens", "incomplete:max_output_tokens"),
    "reasoning alone": (think("Let me see"), "max_tokens", "incomplete:max_output_tokens"),
    "reasoning": (think("Let me see", text="Yes"), "end_turn", "completed"),
    "calls": (call("read", {"path": "a b"}, text="Reading.").also("list"), "tool_call", "completed"),
    "cut call": (partial_call("write", {"path": "a.txt"}, after=2), "max_tokens", "incomplete:max_output_tokens"),
    "refusal": (refuse("No."), "refused", "completed"),
    "job": (pause("So"), "paused", "in_progress"),
    "error": (reason(StopReason.ERROR, "So"), "error", "failed:server_error"),
    "cancelled": (reason(StopReason.CANCELLED, "So"), "cancelled", "cancelled"),
    "new": (reason("some_new_value", "Hm"), "unknown", "some_new_value"),
    "cut": (cut("One two three", after=2, tidy=True), "missing", "in_progress"),
}


@pytest.mark.parametrize("name", CASES)
def test_scripted_replies_over_http(name: str) -> None:
    """What the SDK hands out, streamed and not, says what the script says; the events are read as the SDK's objects."""
    reply, expected, raw = CASES[name]
    with sdk(reply, reply) as (client, provider):
        summarizer = responses.summarizer(CTX)
        with client.responses.create(**ASKED, stream=True) as events:
            for event in events:
                summarizer.feed(dumped(event))
        seen = summarizer.close()
        assert (seen.stop.reason, seen.stop.raw, seen.output_chars) == (expected, raw, len(reply.text))
        if name != "cut":
            got = client.responses.create(**ASKED)
            whole = summarize(responses, CTX, dumped(got))
            assert (whole.stop, whole.tail, got.output_text) == (
                seen.stop,
                seen.tail,
                "" if name == "refusal" else reply.text,
            )
            assert [item.name for item in got.output if item.type == "function_call"] == [c.name for c in reply.calls]
        assert {each.format for each in provider.received} == {"openai_responses"}


@pytest.mark.parametrize("name", ["say", "calls", "refusal", "truncate"])
async def test_asynchronous(name: str) -> None:
    """The asynchronous SDK gives the same."""
    reply, expected, raw = CASES[name]
    with ScriptedProvider([reply, reply]).serve() as url:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            stop = summarize(responses, CTX, dumped(await client.responses.create(**ASKED))).stop
            assert (stop.reason, stop.raw) == (expected, raw)
            summarizer = responses.summarizer(CTX)
            async with await client.responses.create(**ASKED, stream=True) as events:
                async for event in events:
                    summarizer.feed(dumped(event))
            assert summarizer.close().stop == stop


class Answer(BaseModel):
    """A structured answer."""

    n: int


def test_helpers() -> None:
    """The SDK's parsing and raw helpers work on scripted answers."""
    with sdk(say('{"n": 3}'), say('{"n": 4}'), say("raw")) as (client, provider):
        parsed = client.responses.parse(**ASKED, text_format=Answer)
        assert parsed.output_parsed == Answer(n=3)
        assert summarize(responses, CTX, dumped(parsed)).stop.reason is StopReason.END_TURN
        with client.responses.stream(**ASKED, text_format=Answer) as stream:
            final = stream.get_final_response()
        assert final.output_parsed == Answer(n=4)
        assert final.usage is not None
        assert final.usage.output_tokens_details.reasoning_tokens == 0
        raw = client.responses.with_raw_response.create(**ASKED)
        assert raw.headers["x-request-id"]
        assert raw.parse().output_text == "raw"
        assert provider.received[0].request.format is not None


def test_a_job_is_fetched_by_its_id() -> None:
    """`retrieve` reaches the script as a request to fetch, streamed and not."""
    with sdk(pause(), say("Done."), say("Done.")) as (client, provider):
        made = client.responses.create(**ASKED, background=True)
        assert summarize(responses, CTX, dumped(made)).stop.reason is StopReason.PAUSED
        assert client.responses.retrieve(made.id).output_text == "Done."
        with client.responses.retrieve(made.id, stream=True, starting_after=3) as events:
            assert [event.type for event in events][-1] == "response.completed"
        assert [each.request.retrieve for each in provider.received] == [None, made.id, made.id]
        assert [each.stream for each in provider.received] == [False, False, True]


def test_failures() -> None:
    """An error answer raises the SDK's own class with its code; inside a stream it is an event that is read."""
    with sdk(fail(429), fail(500, "server_error", text="So far")) as (client, _):
        with pytest.raises(openai.RateLimitError) as caught:
            client.responses.create(**ASKED)
        assert caught.value.code == "rate_limit_exceeded"
        summarizer = responses.summarizer(CTX)
        with client.responses.create(**ASKED, stream=True) as events:
            for event in events:
                summarizer.feed(dumped(event))
    seen = summarizer.close()
    assert (seen.stop.reason, seen.stop.raw, seen.tail) == (StopReason.ERROR, "server_error", "So far")


# The words that the SDK declares


ERRORS = {
    *("invalid_prompt", "data_residency_mismatch", "vector_store_timeout", "invalid_image", "invalid_image_format"),
    *("invalid_base64_image", "invalid_image_url", "image_too_large", "image_too_small", "image_parse_error"),
    *("invalid_image_mode", "image_file_too_large", "unsupported_image_media_type", "empty_image_file"),
    *("failed_to_download_image", "image_file_not_found"),
}
"""The codes of a failed response that mean no more than `failed`."""


def _declared() -> set[str]:
    """Every raw value that the SDK's types allow, as our table spells them."""
    (reasons,) = [hint for hint in get_args(IncompleteDetails.model_fields["reason"].annotation) if get_args(hint)]
    codes = get_args(ResponseError.model_fields["code"].annotation)
    simple = {status for status in get_args(ResponseStatus) if status not in ("incomplete", "queued", "in_progress")}
    return (
        simple
        | {f"{status}(background)" for status in ("queued", "in_progress")}
        | {f"incomplete:{word}" for word in get_args(reasons)}
        | {f"failed:{code}" for code in set(codes) - ERRORS}
    )


def test_the_sdk_declares_no_word_without_a_row() -> None:
    """Where the SDK's types have grown, the table has to: what is new is named here."""
    missing = sorted(_declared() - responses.reasons[""].keys())
    assert missing == [], f"no row in stop_reasons.tsv for: {', '.join(missing)}"


def test_the_sdk_still_declares_our_words() -> None:
    """What has a row is declared, but for what the API says without declaring it, and what stands beside a status."""
    undeclared = {"failed:context_length_exceeded", "in_progress(foreground EOF)", "content part type=refusal"}
    assert responses.reasons[""].keys() - _declared() == undeclared

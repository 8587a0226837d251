"""What the designs ask for on cut calls, over the vendors' own SDKs and a server on loopback."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import anthropic
import openai
import pytest
from google import genai

from endturn import ContinuationController, ContinuationPolicy, ScriptedProvider, TurnResult, adapters
from endturn.scripted import Reply, call, say
from tests.support.scripted_turns import DEPLOY, SEARCH, ask, calls_in, last_call_cut, not_arrived, whole_and_streamed

boto3: Any = import_module("boto3")  # neither typed nor with stubs

# Where aiohttp is installed, Google's SDK asks through a class of its own that aiohttp warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


def _bedrock(url: str) -> Any:
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret"}
    return boto3.session.Session().client("bedrock-runtime", endpoint_url=url, region_name="eu-west-1", **keys)


Make = Callable[[str], Any]
CLIENTS: dict[str, tuple[Make, str | None]] = {
    "openai": (lambda url: openai.OpenAI(api_key="none", base_url=f"{url}/v1"), None),
    "openai responses": (lambda url: openai.OpenAI(api_key="none", base_url=f"{url}/v1"), "openai_responses"),
    "anthropic": (lambda url: anthropic.Anthropic(api_key="none", base_url=url), None),
    "google": (lambda url: genai.Client(api_key="none", http_options={"base_url": url}), None),
    "boto3": (_bedrock, None),
}
every_client = pytest.mark.parametrize("client", CLIENTS)


def play(client: str, script: list[Reply], *, stream: bool, **policy: Any) -> tuple[TurnResult, list[str]]:
    """A turn over an SDK's client; with the names of the tools that ran."""
    make, format_name = CLIENTS[client]
    ran: list[str] = []
    tools = [(tool, lambda asked: ran.append(asked.name)) for tool in (SEARCH, DEPLOY)]
    with ScriptedProvider(script).serve() as url:
        sdk = make(url)
        try:
            provider = adapters.provider(sdk, stream=stream, format=format_name)
            result = ContinuationController(provider, tools=tools, policy=ContinuationPolicy(**policy)).run(ask())
        finally:
            sdk.close()
    return result, ran


@every_client
@pytest.mark.parametrize("preset", ["forgeflare", "wave"])
@whole_and_streamed
def test_a_call_that_never_arrived_is_not_run_over_an_sdk(client: str, preset: str, stream: bool) -> None:
    """Whatever the SDK makes of a call without arguments."""
    script = [not_arrived(text="I will deploy now, "), say("or rather not.")]
    result, ran = play(client, script, stream=stream, preset=preset)
    assert (ran, result.text) == ([], "I will deploy now, or rather not.")
    assert calls_in(result.messages) == []


@every_client
@whole_and_streamed
def test_a_cut_call_is_told_as_one_over_an_sdk(client: str, stream: bool) -> None:
    """Where nothing is asked again, the turn ends with the call that was cut off."""
    result, ran = play(client, [last_call_cut()], stream=stream, preset="botnexus")
    assert (ran, result.outcome, result.text) == ([], "tool_call_cut", "Let me see. ")


@every_client
@whole_and_streamed
def test_a_cut_batch_is_asked_for_again_whole_over_an_sdk(client: str, stream: bool) -> None:
    """None of its calls is lost."""
    script = [last_call_cut(), call("search", {"q": "x"}).also("deploy", {"now": True}), say("Done.")]
    result, ran = play(client, script, stream=stream)
    assert (ran, result.outcome, result.answer) == (["search", "deploy"], "completed", "Done.")

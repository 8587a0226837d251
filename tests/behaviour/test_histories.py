"""Every history that a turn makes is one that its API takes: requests, results, transcripts, recoveries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import anthropic
import pytest
import yaml

from endturn.continuation.controller import ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.transcript import recover
from endturn.errors import UsageError
from endturn.formats import FORMATS
from endturn.providers.http_client import Client
from endturn.testing.scripted import call, partial_call, say, truncate
from endturn.vocabulary.messages import ChatResponse, Message, Request, ToolCall
from tests.support.api_bodies import BODIES, response
from tests.support.histories import Api, StrictProvider
from tests.support.turns import SEARCH, Played, ask
from tests.turns.record import files, of_case

PRESETS: Final = ("default", "anthropic", "botnexus", "forgeflare", "wave", "zeroclaw")
WHOLE: Final = {"q": "x"}
LONG: Final = "I will now look into the file and"
SCENARIOS: Final[dict[str, Sequence[tuple[str, Sequence[tuple[Any, ...]]]]]] = {
    "a call": [("call", [("think", "1"), ("text", "I look. "), ("call", "c1", WHOLE)])],
    "a call after thinking alone": [("call", [("think", "1"), ("call", "c1", WHOLE)])],
    "two calls in parallel": [("call", [("think", "1"), ("call", "c1", WHOLE), ("call", "c2", {"q": "y"})])],
    "a cut call is repaired": [
        ("cut", [("think", "1"), ("text", "I call "), ("call", "c1", '{"q": "')]),
        ("call", [("think", "2"), ("call", "c2", WHOLE)]),
    ],
    "a cut call without text is repaired": [
        ("cut", [("think", "1"), ("call", "c1", '{"q": "')]),
        ("call", [("think", "2"), ("call", "c2", WHOLE)]),
    ],
    "a whole call and a cut one": [
        ("cut", [("think", "1"), ("text", "Both."), ("call", "c1", WHOLE), ("call", "c9", '{"q": "')]),
        ("call", [("think", "2"), ("call", "c2", WHOLE), ("call", "c3", {"q": "y"})]),
    ],
    "a cut text, then a call": [
        ("cut", [("think", "1"), ("text", "I will ")]),
        ("call", [("think", "2"), ("text", "look."), ("call", "c2", WHOLE)]),
    ],
    "an overlap, then a call": [
        ("cut", [("think", "1"), ("text", LONG)]),
        ("call", [("think", "2"), ("text", "look into the file and call."), ("call", "c2", WHOLE)]),
    ],
    "nothing but an overlap, then a call": [
        ("cut", [("think", "1"), ("text", LONG)]),
        ("call", [("think", "2"), ("text", "now look into the file and"), ("call", "c2", WHOLE)]),
    ],
    "an overlap, then the end": [
        ("cut", [("think", "1"), ("text", LONG)]),
        ("end", [("think", "2"), ("text", "look into the file and tell.")]),
    ],
    "nothing but an overlap": [
        ("cut", [("think", "1"), ("text", LONG)]),
        ("cut", [("think", "2"), ("text", "now look into the file and")]),
    ],
    "cut three times, then a call": [
        ("cut", [("think", "1"), ("text", "One, ")]),
        ("cut", [("think", "2"), ("text", "two, ")]),
        ("cut", [("think", "3"), ("text", "three, ")]),
        ("call", [("think", "4"), ("text", "four."), ("call", "c4", WHOLE)]),
    ],
    "no thinking, cut, then a call": [
        ("cut", [("text", "I will ")]),
        ("call", [("text", "look."), ("call", "c2", WHOLE)]),
    ],
    "thinking, cut, then a call without any": [
        ("cut", [("think", "1"), ("text", LONG)]),
        ("call", [("text", " call."), ("call", "c2", WHOLE)]),
    ],
    "half a character, then a call": [
        ("cut", [("think", "1"), ("text", "I see \ufffd")]),
        ("call", [("think", "2"), ("text", "\ufffdit."), ("call", "c2", WHOLE)]),
    ],
    "truncated thinking": [("cut", [("think", "")])],
    "text, then truncated thinking": [
        ("cut", [("think", "1"), ("text", "I see. "), ("think", "")]),
        ("call", [("think", "2"), ("text", "So."), ("call", "c2", WHOLE)]),
    ],
    "thinking that nothing follows": [("end", [("think", "1")])],
    "a pause that a token takes up": [
        ("pause", [("think", "1"), ("text", "I search. ")]),
        ("end", [("text", "Done.")]),
    ],
    "a pause after text that ends in a blank": [
        ("pause", [("think", "1"), ("text", "I search. ")]),
        ("end", [("think", "2"), ("text", "Done.")]),
    ],
    "a pause within a server's tool": [
        ("pause", [("think", "1"), ("text", "I search. "), ("server", "srv_1")]),
        ("call", [("served", "srv_1"), ("think", "2"), ("call", "c2", WHOLE)]),
    ],
    "a server's tool that was cut": [
        ("cut", [("think", "1"), ("text", "I search. "), ("server", "srv_1")]),
        ("call", [("think", "2"), ("call", "c2", WHOLE)]),
    ],
}
CLAUDE: Final = ("anthropic", "bedrock_invoke")
ONLY: Final = {
    "a pause that a token takes up": ("gemini",),
    "a pause after text that ends in a blank": CLAUDE,
    "a pause within a server's tool": CLAUDE,
    "a server's tool that was cut": CLAUDE,
}
"""The APIs in which a scenario can happen, where that is not in all."""
PROVIDERS_OF: Final = {format: provider for format, _, provider, _ in BODIES.values()} | {"openai_chat": "openai"}
MODELS: Final = {"bedrock_invoke": "anthropic.claude-opus-4-6-v1", "mistral, not thinking": "mistral-small"}
ONE_PER_SCENARIO: Final = [(api, scenario) for scenario in SCENARIOS for api in ONLY.get(scenario, BODIES)]


def request_to(api: str, scenario: str) -> Request:
    """A question with a tool; where the API says in the request whether it thinks, and it does, that too."""
    thinks = all(parts[0][0] in ("think", "served") for _, parts in SCENARIOS[scenario])
    extra = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinks and api == "anthropic" else {}
    return ask(tools=(SEARCH,), max_tokens=4_000, model=MODELS.get(api, "m"), extra=extra)


def responses(api: str, scenario: str) -> list[ChatResponse]:
    """What the API answers, and an end."""
    said = [response(api, reason, *parts) for reason, parts in SCENARIOS[scenario]]
    return [*said, *(response(api, "end", ("text", "Done.")) for _ in range(3))]


def goes_on(request: Request, messages: Sequence[Message], calls: Sequence[ToolCall]) -> Request:
    """What a host sends next: results of the calls that it was handed, else the user's next question."""
    results = [Message(role="tool", content="found", tool_call_id=call.id) for call in calls]
    return request.but(messages=(*messages, *(results or [Message(role="user", content="And?")])))


def check_result(api: Api, request: Request, result: TurnResult) -> None:
    """What a result hands to the host is sent back, and taken up, without a fault."""
    assert api.faults_of(goes_on(request, result.messages, result.calls)) == []
    if result.resumption is not None:
        assert api.faults_of(result.resumption.next) == []


def check_transcript(api: Api, request: Request, path: Path) -> None:
    """The same of what is recovered from a transcript that ends after any of its lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    for size in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:size]))
        (turn,) = recover(path)
        assert api.faults_of(goes_on(request, turn.messages, ())) == [], size
        try:
            resumption = turn.resume()
        except UsageError:
            continue
        if resumption.over is None:  # else nothing is asked
            assert api.faults_of(resumption.next) == [], size


@pytest.mark.behaviour(23, 24, 25, 28, 38)
@pytest.mark.parametrize(("api", "scenario"), ONE_PER_SCENARIO)
def test_an_api_takes_every_history_of_a_turn(api: str, scenario: str, tmp_path: Path) -> None:
    """APIs × what is cut × designs × who runs the tools: no request, result or recovery is refused."""
    format, dialect, provider_name, _ = BODIES[api]
    strict, request, script = Api(format, dialect), request_to(api, scenario), responses(api, scenario)
    for each in script:
        strict.issued(each)
    for number, (preset, runs) in enumerate(product(PRESETS, ("controller", "host"))):
        path = tmp_path / f"{number}.jsonl"
        provider = Played(*script, format=format, dialect=dialect, provider=provider_name)
        tools = {"search": lambda call: "found"} if runs == "controller" else None
        controller = ContinuationController(provider, tools=tools, policy=policy_of(preset, path))
        try:
            result = controller.run(request)
            for sent in provider.requests:
                assert strict.faults_of(sent) == []
            check_result(strict, request, result)
            if preset in ("default", "forgeflare"):  # those that go on, and run part of a batch
                check_transcript(strict, request, path)
        except Exception as error:
            error.add_note(f"preset {preset}, the {runs} runs the tools")
            raise


def policy_of(preset: str, path: Path) -> ContinuationPolicy:
    """A design's policy, with a transcript."""
    if preset == "default":
        return ContinuationPolicy(transcript=path)
    return ContinuationPolicy.preset(preset, transcript=path)


async def no_fault_in(api: Api, case: dict[str, Any]) -> None:
    """Play a recorded turn; what it sends and hands over is taken by the API that it speaks to."""

    def check(requests: Sequence[Request], base: Request, result: TurnResult | None) -> None:
        for sent in requests:
            assert api.faults_of(sent) == []
        if result is not None:
            check_result(api, base, result)

    await of_case(case, watch=check)


@pytest.mark.behaviour(23, 24, 25)
@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
async def test_an_api_takes_every_history_of_a_recorded_turn(path: Path) -> None:
    """Every turn on file."""
    for case in json.loads(path.read_text()):
        format = case.get("format") or case.get("says", {}).get("format") or "openai_chat"
        try:
            api = Api(format, case.get("dialect", ""))
            for said in case["script"]:
                if (blocks := said.get("blocks")) and blocks["format"] == format:
                    api.answers.append(tuple(blocks["items"]))
            await no_fault_in(api, case)
        except Exception as error:
            error.add_note(case["name"])
            raise


@pytest.mark.behaviour(24, 38)
@pytest.mark.parametrize("format", [name for name in FORMATS if name != "completions"])
def test_a_server_that_checks_histories_takes_every_request(format: str) -> None:
    """Over real HTTP: a cut call, its repair, its result; a cut text, its rest."""
    script = [
        partial_call("search", WHOLE, after=2, text="I look. "),
        call("search", WHOLE),
        truncate("I found it, and ", after=4),
        say("so it ends."),
    ]
    provider = StrictProvider(script, format=format)
    model = "anthropic.claude-opus-4-6-v1" if format.startswith("bedrock") else "m"
    with provider.serve() as url, Client(PROVIDERS_OF[format], format=format, api_key="none", base_url=url) as client:
        controller = ContinuationController(client, tools={"search": lambda call: "found"}, policy=ContinuationPolicy())
        result = controller.run(ask(tools=(SEARCH,), model=model, max_tokens=4_000))
    assert (provider.refused, result.outcome, result.requests) == ([], "completed", 4)
    assert Api(format).faults_of(goes_on(ask(tools=(SEARCH,)), result.messages, ())) == []


def test_a_server_that_checks_histories_refuses_a_broken_one() -> None:
    """The SDK raises what it would raise over the API's own 400."""
    broken: Any = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}]}]  # fmt: skip
    with StrictProvider([say("never said")]).serve() as url:
        client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        with pytest.raises(anthropic.BadRequestError, match="have no results"):
            client.messages.create(model="claude-opus-4-6", max_tokens=100, messages=broken)


BROKEN: Final = yaml.safe_load(Path(__file__).parents[1].joinpath("data", "broken_histories.yaml").read_text())


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: f"{case['format']}: {case['fault']}")
def test_the_checker_refuses_what_the_api_refuses(case: dict[str, Any]) -> None:
    """One broken history for each rule; without what is broken it is taken."""
    api = Api(case["format"], case.get("dialect", ""))
    api.answers += [tuple(answer) for answer in case.get("issued", ())]
    assert any(case["fault"] in fault for fault in api.faults(case["body"])), api.faults(case["body"])

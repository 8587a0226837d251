"""One turn as a host runs it: a scripted provider in a real format, a controller, tools that record their calls.

Public names only: these tests say what a host can rely on, whatever is behind it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from endturn import (
    ContinuationController,
    ContinuationPolicy,
    Delta,
    Message,
    Request,
    ScriptedProvider,
    StopReason,
    Tool,
    ToolCall,
    TurnResult,
    Usage,
    adapters,
    instrument,
    uninstrument,
)
from endturn.scripted import Reply, reason
from tests.support import turns
from tests.telemetry.stage import METRICS, Stage
from tests.test_adapters import SDKS, whole_and_streamed as whole_and_streamed

FORMATS = ("openai_chat", "anthropic", "bedrock_converse", "openai_responses")
every_format = pytest.mark.parametrize("format_name", FORMATS)
NO_WORD = {
    ("openai_chat", StopReason.PAUSED),
    ("anthropic", StopReason.SAFETY_BLOCKED),
    ("bedrock_converse", StopReason.REFUSED),
    ("bedrock_converse", StopReason.PAUSED),
    ("openai_responses", StopReason.TOOL_CALL),
}
"""The reasons that a format has no word for, of a reply without calls."""
PREFILLED = {
    "claude-haiku-4-5": ("anthropic", "", "claude-haiku-4-5"),
    "claude-sonnet-4-5": ("anthropic", "", "claude-sonnet-4-5"),
    "claude on Bedrock": ("bedrock_converse", "", "eu.anthropic.claude-haiku-4-5-v1:0"),
    "Mistral": ("openai_chat", "mistral", "mistral-large-latest"),
    "vLLM": ("openai_chat", "vllm", "qwen3-8b"),
}
"""Models that go on with a last message of their own: format, dialect, model."""
CLIENTS = {name: SDKS[name] for name in ("openai", "openai responses", "anthropic", "google", "boto3")}
"""The vendors' own SDKs, over a server on loopback."""
ask = partial(turns.ask, "Why?")
SEARCH = turns.SEARCH
DEPLOY = Tool(name="deploy", parameters={"type": "object", "properties": {"now": {"type": "boolean"}}})


def cut(text: str, tokens: int | None = None) -> Reply:
    """A reply that the token limit ended after this text; `tokens`: what its usage says."""
    reply = reason(StopReason.MAX_TOKENS, text)
    return reply if tokens is None else reply.but(usage=Usage(5, tokens))


@dataclass(frozen=True, kw_only=True)
class Played:
    """What became of a turn.

    Attributes:
        requests: what the provider was asked, in order.
        ran: each tool that ran, with its arguments.
    """

    provider: ScriptedProvider
    result: TurnResult
    ran: list[tuple[str, Any]]

    @property
    def requests(self) -> list[Request]:
        return self.provider.requests

    @property
    def prompts(self) -> list[str]:
        """The controller's own messages that were sent, in order."""
        sent = [request.messages[-1] for request in self.requests[1:]]
        return [message.text for message in sent if message.role == "user"]


def play(
    script: Sequence[Any],
    *,
    format_name: str = "openai_chat",
    dialect: str = "",
    stream: bool = False,
    preset: str | None = None,
    request: Request | None = None,
    exhausted: Any = "error",
    client: str = "",
    **policy: Any,
) -> Played:
    """Run one turn over a script, or over a client of it; `policy` are its keys."""
    provider = ScriptedProvider(script, format=format_name, dialect=dialect, exhausted=exhausted)
    ran: list[tuple[str, Any]] = []

    def run(asked: ToolCall) -> str:
        ran.append((asked.name, asked.arguments))
        return f"the result of {asked.name}"

    with ExitStack() as stack:
        answers: Any = provider.stream if stream else provider
        if client:
            known = CLIENTS[client]
            sdk = stack.enter_context(closing(known.make(stack.enter_context(provider.serve()), 30, 1)))
            answers = adapters.provider(sdk, stream=stream, format=known.format)
        chosen = ContinuationPolicy(**policy) if preset is None else ContinuationPolicy.preset(preset, **policy)
        controller = ContinuationController(answers, tools=[(SEARCH, run), (DEPLOY, run)], policy=chosen)
        *deltas, result = controller.stream(request or ask())
    assert isinstance(result, TurnResult)
    assert "".join(delta.text for delta in deltas if isinstance(delta, Delta)) == result.text
    return Played(provider=provider, result=result, ran=ran)


def calls_in(messages: Sequence[Message]) -> list[str]:
    """The names of the calls that a history holds, in either mirror of a message."""
    names = [asked.name for message in messages for asked in message.tool_calls]
    blocks = json.dumps([message.blocks.items for message in messages if message.blocks is not None])
    return names + [name for name in ("search", "deploy") if f'"{name}"' in blocks and name not in names]


# --- What a host's telemetry has of it ----------------------------------------------------------------------------


@dataclass
class Telemetry:
    """What a host that instrumented with endturn exports."""

    stage: Stage = field(default_factory=Stage)

    def turn(self) -> dict[str, Any]:
        """The attributes of the one turn's span."""
        (found,) = [span["attributes"] for span in self.stage.finished() if span["name"].startswith("invoke_agent")]
        assert isinstance(found, dict)
        return found

    def events(self, name: str) -> list[dict[str, Any]]:
        """Each event of this name."""
        return [event for event in self.stage.events() if event["name"] == f"endturn.{name}"]

    def total(self, name: str, **attributes: object) -> float:
        """A metric's sum over the points with these attributes (dots as underscores)."""
        keys = [attribute.key.replace(".", "_") for attribute in METRICS[name].attributes]
        points = self.stage.points().get(name, {}).items()
        found = [value for key, value in points if attributes.items() <= dict(zip(keys, key, strict=True)).items()]
        return float(sum(value[1] if isinstance(value, tuple) else value for value in found))


@contextmanager
def observed() -> Iterator[Telemetry]:
    """Instrument with exporters in memory."""
    telemetry = Telemetry()
    instrument(**telemetry.stage.providers())
    try:
        yield telemetry
    finally:
        uninstrument()


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[str]:
    """What the logger `endturn` has said, from a level on."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.partition(".")[0] == "endturn" and record.levelno >= level
    ]

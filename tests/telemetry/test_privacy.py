"""Nothing that was said, and no key, is in any exported byte, however a call is made and however it ends."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from endturn.calls import listeners
from endturn.continuation.controller import ContinuationController
from endturn.errors import ProviderError
from endturn.instrumentation._instrument import uninstrument
from endturn.instrumentation.decorators import observe_provider_call, observe_turn
from endturn.providers.http_client import Client
from endturn.telemetry import attributes
from endturn.testing.scripted import ScriptedProvider, break_off, call, fail, partial_call, reason, say, think, truncate
from endturn.vocabulary.messages import Message, Request, Tool, ToolCall
from tests.support.announced import settle
from tests.telemetry.stage import Recording

PIECE = 8
"""How much of a secret is one."""


class Secrets:
    """A secret for each place that is asked for, unlike any other text of a test: 24 letters and digits."""

    def __init__(self) -> None:
        self.planted: dict[str, str] = {}

    def __getattr__(self, place: str) -> str:
        if place.startswith("_"):
            raise AttributeError(place)
        digest = hashlib.sha256(place.encode()).digest()
        return self.planted.setdefault(place, base64.b32encode(digest).decode()[:24])

    def found(self, exported: bytes) -> set[str]:
        """Where the secrets were planted of which anything is in there."""
        return {place for place, secret in self.planted.items() if any(form in exported for form in _forms(secret))}


def _forms(secret: str) -> Iterator[bytes]:
    """Pieces of a secret: as it is (JSON and percent-encoding leave letters and digits), in hex, in base64."""
    raw = secret.encode()
    encoded = [(base64.b64encode(raw[shift:])[:-4], 12) for shift in range(3)]
    for text, size in [(raw, PIECE), (raw.hex().encode(), 2 * PIECE), *encoded]:
        yield from (text[start : start + size] for start in range(len(text) - size + 1))


Way = tuple[Callable[[], Any], Callable[[], Any]]
"""How a model is asked: a whole answer, and a stream of one."""


def _planted(value: Any, s: Secrets) -> Any:
    """The value with a secret for each `$place`."""
    if isinstance(value, str):
        image = base64.b64encode(s.image_bytes.encode()).decode()  # as a data URL holds it
        return re.sub(r"\$([a-z_]+)", lambda place: image if place[1] == "image" else getattr(s, place[1]), value)
    if isinstance(value, dict):
        return {name: _planted(each, s) for name, each in value.items()}
    return [_planted(each, s) for each in value] if isinstance(value, list) else value


REQUESTS = json.loads(Path(__file__).with_name("secret_requests.json").read_text())
"""Of each format where it is asked, where a stream is if not there, and a request with places for secrets."""


def _sent(name: str, url: str, s: Secrets) -> Way:
    """A plain HTTP client, asking what looks like the provider's own host, with secrets in the address and headers."""

    class To(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=httpx.URL(url).port)
            return super().handle_request(request)

    where, streams, body = REQUESTS[name].values()
    headers = {"authorization": f"Bearer {s.key}", "x-own": s.header}
    client = httpx.Client(transport=To(), params={"key": s.query}, headers=headers)
    asked = _planted(body, s)

    def address(path: str) -> httpx.URL:
        return httpx.URL(f"https://{path}").copy_with(username=s.user, password=s.password)

    def stream() -> Iterator[bytes]:
        more = {} if streams else {"stream": True}
        with client.stream("POST", address(streams or where), json=asked | more) as answer:
            yield from answer.iter_bytes()

    return lambda: client.post(address(where), json=asked), stream


def _messages(s: Secrets) -> tuple[Message, ...]:
    return Message(role="system", content=s.system), Message(role="user", content=s.prompt)


def _ours(url: str, s: Secrets) -> Way:
    address = url.replace("://", f"://{s.user}:{s.password}@") + f"/{s.path}"
    client = Client("openai", api_key=s.key, base_url=f"{address}/v1?key={s.query}")
    tools, extra = (Tool(name=s.tool, description=s.description),), {"user": s.user_id, "stop": [s.stop]}
    request = Request(model="m", messages=_messages(s), tools=tools, extra=extra)
    return lambda: client.complete(request), lambda: client.stream(request)


def _decorated(url: str, s: Secrets) -> Way:
    """A function of the host's own, that no SDK's patch sees."""
    client = ScriptedProvider(_replies(s))
    request = Request(model="m", messages=(Message(role="user", content=s.prompt),))

    observe: Any = observe_provider_call(provider="own")
    ask = observe(lambda request, *, token: client.complete(request))
    stream = observe(lambda request, *, token: client.stream(request))
    return lambda: ask(request, token=s.key), lambda: stream(request, token=s.key)


WAYS: dict[str, Callable[[str, Secrets], Way]] = {
    **{name: partial(_sent, name) for name in REQUESTS},
    "our client": _ours,
    "observe_provider_call": _decorated,
}


def _replies(s: Secrets) -> list[Any]:
    """What the provider says, a reply for each of the questions that `_asked` asks."""
    quoting = f"Incorrect API key provided: {s.key}. You asked: {s.prompt}"
    hostile = f"stop: the user said {s.prompt} and the model {s.answer} " + "x" * 10_000
    return [
        call("f", {"a": s.called}, text=s.answer),
        think(s.reasoning, text=s.answer),
        truncate(f"{s.answer} and {s.answer}", after=2),
        reason(hostile, s.answer),
        fail(400, s.code, message=quoting),
        fail(500, message=quoting),
        think(s.reasoning, text=s.answer),
        call("f", {"a": s.called}, text=s.answer),
        reason(hostile, s.answer),
        break_off(f"{s.answer} and {s.answer}", after=2),
        fail(401, s.code, message=quoting),
        say(f"{s.answer} and {s.answer}"),
    ]


WHOLE, STREAMED = 6, 5


def _asked(way: Way) -> None:
    """Everything that the replies answer: whole answers, streams read to the end, and one that is left."""
    whole, stream = way
    for ask in [whole] * WHOLE + [lambda: list(stream())] * STREAMED + [lambda: next(iter(stream()))]:
        with suppress(Exception):
            ask()
    settle()


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    """Secrets, of which one is already in the environment."""
    planted = Secrets()
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "CO_API_KEY"):
        monkeypatch.setenv(variable, planted.environment)
    monkeypatch.setattr(listeners, "_logged_labels", set())
    return planted


ASKED_FOR = {
    *("prompt", "system", "argument", "result", "tool", "description", "answer", "reasoning", "called", "stop"),
    "image_path",
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # clients that a test leaves open
@pytest.mark.parametrize("content", [None, "SPAN_AND_EVENT"])
@pytest.mark.parametrize("name", WAYS)
def test_nothing_that_was_said_is_exported(
    name: str, content: str | None, secrets: Secrets, recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """Whole, streamed, cut, failed, left, with a prompt for a stop reason: calls are recorded, their text is not.

    Asked for, prompts and answers are on spans and events; keys, addresses and image data never are. What a provider
    quotes of a key is in its error's text, which is recorded nowhere.
    """
    s = secrets
    caplog.set_level(logging.DEBUG, "endturn")
    stage = recording(events="both", content=content)
    with ScriptedProvider(_replies(s)).serve() as url:
        _asked(WAYS[name](url, s))
    uninstrument()
    calls = [span for span in stage.spans.get_finished_spans() if "gen_ai.request.model" in (span.attributes or {})]
    assert len(calls) == WHOLE + STREAMED + 1
    exported = stage.exported()
    said = {"prompt", "answer", *(() if name == "observe_provider_call" else ["system"])} if content else set()
    assert [word for word in (b"endturn.stop_reason_observed", b"endturn.responses") if word not in exported] == []
    assert [place for place in said if s.planted[place].encode() not in exported] == []
    assert s.found(exported) <= (ASKED_FOR if content else set())
    assert s.found(caplog.text.encode()) == set()


def test_a_controllers_turns_hold_nothing_that_was_said(
    secrets: Secrets, recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """Continuations, repaired and blocked tool calls, tools that raise: events tell of them, not what was in them."""
    s = secrets
    caplog.set_level(logging.DEBUG, "endturn")
    stage = recording(events="both")

    def run(call: ToolCall) -> str:
        if call.arguments == {"text": s.called}:
            raise ValueError(f"no {s.result}")
        return s.result

    texts = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    parameters = texts | {"additionalProperties": False}
    tool = Tool(name="write", description=s.description, parameters=parameters)
    replies = [
        truncate(f"{s.answer} and then {s.answer}", after=2),
        say(" the rest."),
        partial_call("write", {"text": f"{s.called} {s.argument}"}, after=3),
        call("write", {"text": s.argument}),
        call("write", {"text": s.called}),
        call("write", {"wrong": s.argument}),
        call(s.unknown_tool, {"text": s.argument}),
        *[say(s.answer)] * 3,
    ]
    question = Request(model="m", messages=_messages(s), max_tokens=999)
    with ScriptedProvider(replies).serve() as url, Client("openai", api_key=s.key, base_url=f"{url}/v1") as client:
        turn = observe_turn(agent="agent")(ContinuationController(client, tools=[(tool, run)]).run)
        for _ in range(3):
            with suppress(ProviderError):
                turn(question)
    uninstrument()
    told = ("continuation_attempt", "continuation_terminated", "tool_payload_repair", "tool_dispatch_blocked")
    exported = stage.exported()
    for name in (*(f"endturn.{event}" for event in told), "execute_tool write"):
        assert name.encode() in exported
    assert secrets.found(exported + caplog.text.encode()) == set()


def test_secrets_are_found_however_they_are_encoded() -> None:
    """The search finds a piece of a secret as it is, and all of it in JSON, in a URL, in hex and in base64."""
    planted = Secrets()
    secret = planted.any
    for hidden in (
        secret[3:11],
        json.dumps(f"é {secret}"),
        quote(f"é {secret}"),
        secret.encode().hex(),
        *(base64.b64encode(f"{'x' * shift}{secret} etc.".encode()).decode() for shift in range(3)),
    ):
        assert planted.found(f"… {hidden} …".encode()), hidden
    assert not planted.found(b"nothing of the kind" + secret[:7].encode())


def test_an_exception_of_our_own_is_logged_without_its_words(
    secrets: Secrets, recording: Recording, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails within telemetry, the log says where and what kind, never what was being handled."""
    caplog.set_level(logging.DEBUG, "endturn")
    recording()

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"cannot handle {secrets.prompt} with {secrets.key}")

    monkeypatch.setattr(attributes, "of_response", failing)
    client = Client("openai", api_key="none", base_url="http://x/v1", http=ScriptedProvider([say("x")]).transport())
    client.complete(Request(model="m", messages=(Message(role="user", content="q"),)))
    uninstrument()
    try:
        failing()
    except ValueError:
        listeners.log_internal_error("a test")
        listeners.log_internal_error("a test")
    assert "builtins.ValueError" in caplog.text
    assert "test_privacy.py" in caplog.text
    assert secrets.found(caplog.text.encode()) == set()

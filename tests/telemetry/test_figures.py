"""Figures that cannot be: whatever a server or a host says, the host's own signals leave the process."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given, settings, strategies as st
from opentelemetry.sdk.metrics import Histogram

from endturn import hooks
from endturn.chat import Request, Usage
from endturn.continuation.policy import ContinuationPolicy
from endturn.controller import ContinuationController
from endturn.events import plausible
from endturn.telemetry.instruments import LOST
from tests.formats.replies import chat_body
from tests.support.turns import Played, cut, said
from tests.telemetry.mocked import ASK
from tests.telemetry.secrets import everything
from tests.telemetry.stage import Recording, Stage

HOSTILE = [
    2**31, 2**53, 2**63 - 1, 2**63, 10**309, 10**400, -1, -(2**63), -(2**63) - 1, -(10**309),
    math.nan, math.inf, -math.inf, 1e308, -1e308, 1.5, True, "12", [1],
]  # fmt: skip
ANY = st.sampled_from(HOSTILE) | st.integers() | st.integers(0, 4_096) | st.floats() | st.none()


def exported(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Encode all three signals as an exporter does: nothing raises, and nothing of them is dropped."""
    assert everything(stage)
    stage.spans.clear()
    stage.logs.clear()
    assert not [entry for entry in caplog.records if entry.levelname == "ERROR"]


def client_of(bodies: list[dict[str, Any]]) -> openai.OpenAI:
    """A client that gets the last of these bodies, numbers and all, as a server wrote it."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        content = json.dumps(bodies[-1])
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=content)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="none", base_url="http://h/v1", max_retries=0, http_client=http)


@pytest.mark.hypothesis
def test_no_figure_of_a_reply_or_a_request_fails_an_export(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans, events and metrics of calls with hostile numbers pass OTLP's encoder, and so do those that come after."""
    stage = recording()
    bodies: list[dict[str, Any]] = []
    client = client_of(bodies)

    @settings(database=None)
    @given(
        usage=st.fixed_dictionaries({
            "prompt_tokens": ANY, "completion_tokens": ANY,
            "prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": ANY}),
            "completion_tokens_details": st.fixed_dictionaries({"reasoning_tokens": ANY}),
        }),
        asked=st.dictionaries(st.sampled_from(["seed", "max_tokens", "top_p", "n", "temperature"]), ANY),
    )  # fmt: skip
    def law(usage: dict[str, Any], asked: dict[str, Any]) -> None:
        bodies.append({**chat_body({"content": "x"}), "usage": usage})
        with_sendable = {key: value for key, value in asked.items() if _is_json(value)}
        client.chat.completions.create(**ASK, **with_sendable)
        exported(stage, caplog)

    law()


def _is_json(value: object) -> bool:
    """Whether the SDK would send it: it refuses what is no JSON itself."""
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.hypothesis
def test_figures_of_a_host_s_own_are_not_believed_either(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a provider function of the host's says how much was used, the turn's sums hold only what can be."""
    stage = recording()

    @settings(database=None)
    @given(ANY, ANY, ANY)
    def law(asked: Any, answered: Any, seed: Any) -> None:
        usage = Usage(asked, answered, answered, asked)
        script = (cut("one two ").but(usage=usage), said("three").but(usage=usage))
        controller = ContinuationController(Played(*script), policy=ContinuationPolicy(prices={"m": (0.1, 0.2)}))
        request = Request(model="m", messages=[{"role": "user", "content": "q"}]).but(seed=seed, temperature=seed)
        assert controller.run(request).text
        exported(stage, caplog)

    law()


@pytest.mark.parametrize("figure", [2**31, 10**309, -1, math.nan, math.inf])
def test_a_figure_that_cannot_be_is_unknown(figure: float) -> None:
    """It is taken for one that the server did not give; those beside it stand."""
    assert plausible(Usage(3, figure)) == Usage(3, None)  # type: ignore[arg-type]  # a host gives what it likes


def test_a_request_s_wild_numbers_are_left_out(recording: Recording, caplog: pytest.LogCaptureFixture) -> None:
    """The span of a call has the numbers that can be, and the host's log no traceback of the others."""
    stage = recording()
    client = client_of([chat_body({"content": "x"})])
    client.chat.completions.create(**ASK, seed=2**63 - 1, max_tokens=10**30, temperature=0.5)
    (span,) = stage.finished()
    found = {key: value for key, value in span["attributes"].items() if key.startswith("gen_ai.request.")}
    assert found == {
        "gen_ai.request.model": ASK["model"],
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": 2**63 - 1,
    }
    exported(stage, caplog)


def test_what_an_sdk_refuses_costs_no_other_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other measurements are recorded; each that is lost is counted."""
    monkeypatch.setattr(hooks, "_failed", {})
    stage = Stage()
    record = Histogram.record

    def refusing(self: Any, amount: float, attributes: Any = None, context: Any = None) -> None:
        if amount in (7, 8):
            raise OverflowError
        record(self, amount, attributes, context)

    monkeypatch.setattr(Histogram, "record", refusing)
    for amount in (5, 7, 8, 9):
        stage.call(stage.turn(), usage=Usage(None, amount), asked={"model": f"m{amount}"})
    found = stage.points()
    assert sorted(total for _, total in found["gen_ai.client.token.usage"].values()) == [5, 9]
    assert sum(found["endturn.responses"].values()) == 4
    assert hooks.listener_failures() == {LOST: 2}


def test_many_choices_are_told_in_part(recording: Recording) -> None:
    """A reply of five thousand choices puts 128 reasons on its span."""
    stage = recording()
    choice = chat_body({"content": "x"}, "length")["choices"][0]
    many = {**chat_body({"content": "x"}), "choices": [{**choice, "index": index} for index in range(5_000)]}
    client_of([many]).chat.completions.create(**ASK)
    assert stage.finished()[0]["attributes"]["gen_ai.response.finish_reasons"] == ("length",) * 128

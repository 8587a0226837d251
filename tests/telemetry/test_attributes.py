"""What is said of a request and an answer is bounded: no figure, whoever gives it, costs the host's signals."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from opentelemetry.sdk.metrics import Histogram

from endturn.calls import listeners
from endturn.calls.bounds import MAX_NAME_LENGTH, MAX_STOP_SEQUENCES
from endturn.continuation.controller import ContinuationController
from endturn.continuation.policy import ContinuationPolicy
from endturn.telemetry.instruments import LOSS_LABEL
from endturn.vocabulary.messages import Usage
from tests.formats.replies import chat_body
from tests.support.turns import Played, ask, cut, said
from tests.telemetry.mocked import ASK, body, chat
from tests.telemetry.stage import Recording, Stage

HOSTILE = [
    2**31, 2**53, 2**63 - 1, 2**63, 10**309, 10**400, -1, -(2**63), -(2**63) - 1, -(10**309),
    math.nan, math.inf, -math.inf, 1e308, -1e308, 1.5, True, "12", [1],
]  # fmt: skip
ANY = st.sampled_from(HOSTILE) | st.integers() | st.integers(0, 4_096) | st.floats() | st.none()
JSON = ANY.filter(lambda value: not isinstance(value, float) or math.isfinite(value))
"""What the SDK would send: it refuses what is no JSON itself."""


def exported(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Encode all three signals as an exporter does: nothing raises, and nothing of them is dropped."""
    assert stage.exported()
    stage.spans.clear()
    stage.logs.clear()
    assert not [entry for entry in caplog.records if entry.levelname == "ERROR"]


@pytest.mark.hypothesis
def test_no_figure_fails_an_export(recording: Recording, caplog: pytest.LogCaptureFixture) -> None:
    """Spans, events and metrics of calls with hostile numbers pass OTLP's encoder, and so do those that come after:
    of a reply, of a request, and where a provider function of the host's says how much was used."""
    stage = recording()

    @settings(database=None)
    @given(
        usage=st.fixed_dictionaries({
            "prompt_tokens": ANY, "completion_tokens": ANY,
            "prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": ANY}),
            "completion_tokens_details": st.fixed_dictionaries({"reasoning_tokens": ANY}),
        }),
        asked=st.dictionaries(st.sampled_from(["seed", "max_tokens", "top_p", "n", "temperature"]), JSON),
    )  # fmt: skip
    def of_a_server(usage: dict[str, Any], asked: dict[str, Any]) -> None:
        chat(body(chat_body({"content": "x"}, usage=usage))).chat.completions.create(**ASK, **asked)
        exported(stage, caplog)

    @settings(database=None)
    @given(ANY, ANY, ANY)
    def of_a_function(asked: Any, answered: Any, seed: Any) -> None:
        usage = Usage(asked, answered, answered, asked)
        script = (cut("one two ").but(usage=usage), said("three").but(usage=usage))
        controller = ContinuationController(Played(*script), policy=ContinuationPolicy(prices={"m": (0.1, 0.2)}))
        assert controller.run(ask().but(max_tokens=None, seed=seed, temperature=seed)).text
        exported(stage, caplog)

    of_a_server()
    of_a_function()


def test_what_is_told_is_bounded(recording: Recording, caplog: pytest.LogCaptureFixture) -> None:
    """A span has what can be, and the host's log no traceback of the rest. Wrong types are left out, long texts and
    lists are cut; of a reply of five thousand choices there are 128 reasons. Stop sequences are redacted."""
    stage = recording(content="SPAN_ONLY", redact=lambda text: text.replace("END", "***"))
    choice = chat_body({"content": "x"}, "length")["choices"][0]
    many = {**chat_body({}), "choices": [{**choice, "index": index} for index in range(5_000)]}
    asked: dict[str, Any] = {"seed": 2**63 - 1, "max_tokens": 10**30, "temperature": 0.5, "reasoning_effort": "y" * 999}
    asked |= {"stop": ["END" * 400, 3] * 20, "response_format": {"type": ["json"]}, "extra_body": {"top_k": "many"}}
    chat(body(many)).chat.completions.create(**ASK, **asked)
    (span,) = stage.finished()
    names = ("gen_ai.request.", "gen_ai.output.type", "gen_ai.response.finish")
    assert {key: value for key, value in span["attributes"].items() if key.startswith(names)} == {
        "gen_ai.request.model": ASK["model"],
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": 2**63 - 1,
        "gen_ai.request.stop_sequences": ("*" * 1_200,) * MAX_STOP_SEQUENCES,
        "gen_ai.request.reasoning.level": "y" * MAX_NAME_LENGTH,
        "gen_ai.response.finish_reasons": ("length",) * 128,
    }
    exported(stage, caplog)


def test_what_an_sdk_refuses_costs_no_other_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other measurements are recorded; each that is lost is counted."""
    monkeypatch.setattr(listeners, "_failure_counts", {})
    stage = Stage()
    record = Histogram.record

    def refusing(self: Any, amount: float, attributes: Any = None, context: Any = None) -> None:
        if amount in (7, 8):
            raise OverflowError
        record(self, amount, attributes, context)

    monkeypatch.setattr(Histogram, "record", refusing)
    for amount in (5, 7, 8, 9):
        stage.call(stage.turn(), usage=Usage(None, amount), model=f"m{amount}")
    found = stage.points()
    assert sorted(total for _, total in found["gen_ai.client.token.usage"].values()) == [5, 9]
    assert sum(found["endturn.responses"].values()) == 4
    assert listeners.listener_failures() == {LOSS_LABEL: 2}

"""What a turn has used is one figure: in its result, in its tally (the span's), and in the sum of what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.calls.records import CallEnded, TurnEnded, UsageEstimated
from endturn.continuation.controller import ContinuationController
from endturn.continuation.policy import ContinuationPolicy
from endturn.errors import ProviderError, ProviderUnavailable
from endturn.providers.http_client import Client
from endturn.testing.scripted import ScriptedProvider, fail, say, truncate
from endturn.vocabulary.messages import ChatResponse, Request, Usage
from tests.support.turns import ask, heard

COUNTED: Any = "counted"


@pytest.mark.behaviour(17)
@pytest.mark.parametrize("ends", ["whole", "failed"])
@pytest.mark.parametrize("function", [None, Usage(5, 20), Usage(None, 20), Usage(5, None)], ids=repr)
@pytest.mark.parametrize("server", [None, COUNTED, Usage(7, None), Usage(7, 30), Usage(-1, 10**15)], ids=repr)
def test_the_figures_of_a_turn_agree(server: Any, function: Usage | None, ends: str) -> None:
    """Whoever counts: the server, a provider function around the client, both, each a part, or nobody."""
    first = truncate("The first half of it, ", after=4).but(usage=server)
    last = say("and the rest.").but(usage=server) if ends == "whole" else fail(500)
    provider = ScriptedProvider([first, last])

    def counting(request: Request) -> ChatResponse:
        try:
            return client(request).but(usage=function)
        except ProviderError:
            partial = ChatResponse(text="", stop="missing", usage=function)
            raise ProviderUnavailable("no", partial=partial) from None

    counting.__dict__.update(format="openai_chat")
    with (
        provider.serve() as url,
        Client("openai", api_key="none", base_url=f"{url}/v1") as client,
        heard((CallEnded, TurnEnded, UsageEstimated)) as records,
    ):
        result = ContinuationController(counting, policy=ContinuationPolicy()).run(ask())
    turn = next(record for record in records if isinstance(record, TurnEnded)).turn
    assert (turn.input_tokens, turn.output_tokens) == (result.usage.input_tokens or 0, result.usage.output_tokens or 0)
    recorded = [record.usage for record in records if not isinstance(record, TurnEnded) and record.usage]
    assert sum(usage.input_tokens or 0 for usage in recorded) == turn.input_tokens
    assert sum(usage.output_tokens or 0 for usage in recorded) == turn.output_tokens
    assert turn.estimated == result.usage.estimated

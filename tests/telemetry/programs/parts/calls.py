"""One recorded model call."""

from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.vocabulary.messages import Usage
from endturn.vocabulary.stop import Stop, StopReason


def call(reason: StopReason = StopReason.MAX_TOKENS) -> None:
    """Record a call of one step, which stops for this reason."""
    made = open_call(Layer.CLIENT, RequestFacts(model="gpt-5"), EndpointFacts(provider="openai"))
    assert made is not None
    with made.step():
        pass
    made.end(ResponseFacts(stop=Stop(reason, "length"), usage=Usage(input_tokens=3, output_tokens=5)))

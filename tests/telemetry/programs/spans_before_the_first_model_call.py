"""An agent's span that begins before the first model call."""

from opentelemetry import trace

from tests.apps import bare

tracer = trace.get_tracer("framework")


@tracer.start_as_current_span("of a decorated function")
def decorated() -> bool:
    return trace.get_current_span().is_recording()


def agent() -> None:
    with tracer.start_as_current_span("request"):  # noqa: SIM117 - nested as the spans are
        with tracer.start_as_current_span("invoke_agent A", attributes={"gen_ai.operation.name": "invoke_agent"}):
            decorated()
            bare.ask("cut", "Why?")


if __name__ == "__main__":
    with tracer.start_as_current_span("over before"):
        pass
    agent()
    print(type(trace.get_tracer_provider()).__name__, decorated())

"""All of these instrumentations can be imported beside endturn."""

from importlib.metadata import version

import endturn


def test_the_environment_holds_what_it_names() -> None:
    """The versions under test are those that are pinned."""
    assert endturn.__version__
    assert version("opentelemetry-instrumentation-genai-openai") == "1.3b0"

"""The public names: sorted, complete, light to import."""

import subprocess
import sys

import pytest

import endturn


def test_the_list_is_sorted_and_every_name_resolves() -> None:
    """A misspelt public name says which one."""
    assert endturn.__all__ == sorted(endturn.__all__)
    assert all(getattr(endturn, name) is not None for name in endturn.__all__)
    with pytest.raises(AttributeError, match="'instrumnet'"):
        getattr(endturn, "instrumnet")  # noqa: B009 - a type checker knows better


ALL_NAMES = """
import sys, inspect
sys.modules["opentelemetry.sdk"] = None
from endturn import *
import endturn
assert set(endturn.__all__) <= {name for name, _ in inspect.getmembers(endturn)}
assert not isinstance(1, AdoptingSpanProcessor)
try:
    AdoptingSpanProcessor(counted=True)
except UsageError as error:
    print(error)
"""
VERSION = "from endturn.cli._main import main\ntry: main(['--version'])\nexcept SystemExit: pass"
INSTRUMENTED = (
    "pydantic pydantic_core httpx jsonschema tomllib difflib pkgutil "
    "endturn.providers.http_client endturn.continuation.controller endturn.vocabulary.messages "
    "endturn.vocabulary.providers endturn.formats.format endturn.instrumentation.exchange opentelemetry.sdk"
)
PARSED = (
    "pydantic httpx opentelemetry tomllib importlib.metadata endturn.formats endturn.frameworks.lookup "
    "endturn.cli.demo endturn.cli.run endturn.grafana.install endturn.ui endturn.generate.files yaml jinja2"
)
HTTP = "httpx httpx2 openai anthropic google.genai botocore opentelemetry jsonschema"


@pytest.mark.parametrize(
    ("code", "heavy", "said"),
    [
        ("import endturn", "httpx httpx2 pydantic jsonschema openai anthropic opentelemetry.sdk", ""),
        # An agent that makes no call has paid for no client, ours or another.
        ("import endturn; endturn.instrument()", INSTRUMENTED, ""),
        # httpx, httpx2 and the SDKs are imported when they are first used, not before.
        ("import endturn.providers.http_client", HTTP, ""),
        ("import endturn.testing.scripted", HTTP, ""),
        ("import endturn.providers.sdk_client, endturn.continuation.controller", HTTP, ""),
        # The parser alone.
        (VERSION, PARSED, f"endturn {endturn.__version__}\n"),
        # By a star and one by one; who uses what needs the SDK is told what to install.
        (ALL_NAMES, "", "AdoptingSpanProcessor needs the OpenTelemetry SDK: pip install 'endturn[otlp]'\n"),
    ],
)
def test_what_is_heavy_is_imported_when_it_is_used(code: str, heavy: str, said: str) -> None:
    """The package alone costs next to nothing."""
    code += f"\nimport sys\nprint({set(heavy.split())!r} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{said}set()\n"


def test_reading_a_call_builds_no_model_of_pydantic() -> None:
    """The first call of a process would wait for it, and nothing that reads one makes a request or a response of ours.

    It builds them when it is to validate one, and they are the same then.
    """
    code = """
import endturn.instrumentation.exchange
from endturn.vocabulary.messages import ChatResponse, Message, Request, Tool, ToolCall
print([model.__name__ for model in (ChatResponse, Message, Request, Tool, ToolCall) if model.__pydantic_complete__])
print(Request(model="m", messages=[{"role": "user", "content": "Why?"}]).messages[0].content)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nWhy?\n"

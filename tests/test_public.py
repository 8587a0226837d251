"""The public names: sorted, complete, light to import."""

import subprocess
import sys

import pytest

import endturn


def test_the_list_is_sorted_and_every_name_resolves() -> None:
    """`__all__` is in order, and each of its names can be had."""
    assert endturn.__all__ == sorted(endturn.__all__)
    for name in endturn.__all__:
        assert getattr(endturn, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt public name says which one."""
    with pytest.raises(AttributeError, match="'instrumnet'"):
        getattr(endturn, "instrumnet")  # noqa: B009 - a type checker knows better


def test_importing_endturn_imports_no_sdk_no_http_and_no_pydantic() -> None:
    """The package alone costs next to nothing: everything heavy is imported when first used."""
    heavy = "httpx httpx2 pydantic jsonschema openai anthropic opentelemetry.sdk"
    code = f"import sys, endturn; print([m for m in {heavy.split()!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_all_names_can_be_had_without_the_sdk() -> None:
    """By a star and one by one; who uses what needs the SDK is told what to install."""
    code = """
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "AdoptingSpanProcessor needs the OpenTelemetry SDK: pip install 'endturn[otlp]'\n"


def test_instrumenting_loads_nothing_that_takes_long() -> None:
    """Neither pydantic nor an HTTP client, ours or another: an agent that makes no call has paid for none."""
    code = """
import sys, endturn
endturn.instrument()
print(*{"pydantic", "httpx", "jsonschema", "endturn.clients", "endturn.controller"} & sys.modules.keys())
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_the_version_is_said_at_once() -> None:
    """`endturn --version` loads the parser alone."""
    code = """
import sys
from endturn.cli import main
try:
    main(["--version"])
except SystemExit:
    print(*sorted({"pydantic", "httpx", "opentelemetry", "endturn.formats", "endturn.demo"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"endturn {endturn.__version__}\n\n"


@pytest.mark.parametrize("module", ["endturn.clients", "endturn.scripted", "endturn.adapters, endturn.controller"])
def test_importing_loads_no_http_library(module: str) -> None:
    """httpx, httpx2 and the SDKs are imported when they are first used, not before."""
    heavy = {"httpx", "httpx2", "openai", "anthropic", "google.genai", "botocore", "opentelemetry", "jsonschema"}
    code = f"import sys, {module}; print({heavy!r} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"

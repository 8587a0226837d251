"""The service name of a program that gives itself none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from endturn.instrumentation.service_name import is_named, service_name_of_command

COMMANDS = [
    ("python agent.py", "agent"),
    ("python /srv/agents/support-bot.py --port 80", "support-bot"),
    ("python support.v2.py", "support.v2"),
    ("python /srv/venv/bin/gunicorn app:app", "gunicorn"),
    ("python -m agents.support --verbose", "agents.support"),
    ("python -magents", "agents"),
    ("python -um agents", "agents"),
    ("python -m agents.__main__", "agents"),
    ("python agents/__main__.py", "agents"),
    ("python agents", "agents"),
    ("python -u -W error -X dev -Wignore -Xutf8 agent.py -m other", "agent"),
    ("python -uW error agent.py", "agent"),
    ("python --check-hash-based-pycs never -B agent.py", "agent"),
    ("python -c pass", None),
    ("python -uc pass", None),
    ("python -", None),
    ("python -i", None),
    ("python", None),
    ("python -m", None),
]


@pytest.mark.parametrize(("line", "name"), COMMANDS)
def test_the_name_is_the_script_or_the_module(line: str, name: str | None) -> None:
    assert service_name_of_command(line.split()) == name


@pytest.mark.parametrize("options", [["-u"], ["-X", "dev"], ["-W", "ignore"], ["-uWignore"], ["-I", "-Xutf8"]])
def test_the_interpreter_reads_its_options_alike(options: list[str], tmp_path: Path) -> None:
    """Checked against `sys.orig_argv` of a real interpreter, whose `sys.argv` has the script alone."""
    script = tmp_path / "night-agent.py"
    script.write_text("import sys\nprint(sys.argv[0])\nprint(*sys.orig_argv, sep='\\n')\n")
    command = [sys.executable, *options, str(script), "-m", "x"]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    path, *orig_argv = output.stdout.splitlines()
    assert path == str(script)
    assert service_name_of_command(orig_argv) == "night-agent"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "support"}, True),
        ({"OTEL_SERVICE_NAME": ""}, False),
        ({"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=prod"}, False),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name = support "}, True),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name="}, False),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.namespace=x,,service.name=a%20b"}, True),
    ],
)
def test_the_variables_name_the_service_as_the_sdk_reads_them(variables: dict[str, str], named: bool) -> None:
    assert is_named(variables) == named
    code = "from opentelemetry.sdk.resources import Resource; print(Resource.create().attributes['service.name'])"
    others = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    output = subprocess.run(
        [sys.executable, "-c", code], env=others | variables, capture_output=True, text=True, check=True
    )
    assert output.stdout.startswith("unknown_service") != named

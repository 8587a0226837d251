"""The README and the guides: their code runs as it stands, and what they point to is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from endturn.scripted import ScriptedProvider, essay
from tests.support.processes import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
GUIDES = {"README.md": README} | {
    f"docs/{name}.md": (REPOSITORY / f"docs/{name}.md").read_text()
    for name in ("clients", "continuing", "decorators", "other-instrumentations")
}
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(code, id=f"{name} block {number}")
    for name, text in GUIDES.items()
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL), 1)
]
LONG = " ".join(["An answer stops early when the limit of tokens is reached before its end."] * 8)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ScriptedProvider(essay(LONG)).serve() as url:
        yield url


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_code_block_runs_as_it_stands(code: str, url: str) -> None:
    """Each block is a whole program: it runs by itself, with a provider at the address that the environment names."""
    environment = os.environ | {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "none",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "OTEL_SDK_DISABLED": "true",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_instrumented_agent_takes_fifteen_lines_at_most() -> None:
    """The first block is the fifteen lines that the README promises."""
    assert len([line for line in BLOCKS[0].splitlines() if line and not line.startswith("#")]) <= 15


@pytest.mark.parametrize("name", GUIDES)
def test_every_link_leads_somewhere(name: str) -> None:
    """A link into the repository names a file or folder that exists."""
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDES[name]) if "://" not in link]
    assert links
    assert [link for link in links if not (REPOSITORY / name).parent.joinpath(link).exists()] == []


def test_every_make_target_that_is_named_exists() -> None:
    """`make demo` and the others stand in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", README, re.MULTILINE))
    assert "demo" in named
    assert named <= targets

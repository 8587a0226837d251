"""The README and the documentation: their code runs as it stands, and what they point to is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from endturn.generate.alerts import alerts
from endturn.generate.config import RuleConfig
from endturn.scripted import ScriptedProvider, essay
from tests.support.processes import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
PAGES = {name: (REPOSITORY / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")} | {
    f"docs/{page.name}": page.read_text() for page in sorted((REPOSITORY / "docs").glob("*.md"))
}
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(code, id=f"{name} block {number}")
    for name, text in PAGES.items()
    for number, code in enumerate(CODE.findall(text), 1)
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
    """The README's only block is the fifteen lines that it promises."""
    (block,) = CODE.findall(README)
    assert len([line for line in block.splitlines() if line and not line.startswith("#")]) <= 15


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    """A link into the repository names a file or folder that exists."""
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGES[name]) if "://" not in link]
    assert [link for link in links if not (REPOSITORY / name).parent.joinpath(link).exists()] == []


def test_operations_has_a_row_for_each_alert_of_the_pipeline() -> None:
    """What to do first when it fires; an alert's dashboard is where its link leads."""
    rows = set(re.findall(r"^\| \[(Endturn\w+)\]", PAGES["docs/operations.md"], re.MULTILINE))
    assert rows == {alert.name for alert in alerts(RuleConfig()) if alert.dashboard == "endturn-pipeline"}


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Every page has its place, and every link and anchor on it leads somewhere: mkdocs is strict."""
    build = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'href="../design/"' in (tmp_path / "contributing" / "index.html").read_text()


def test_every_make_target_that_is_named_exists() -> None:
    """`make demo` and the others stand in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {name for text in PAGES.values() for name in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= targets

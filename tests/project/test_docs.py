"""The README and the documentation: their code runs, what they point to is there, and what there is stands on them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import endturn
from endturn.cli import _main
from endturn.continuation.policy import ContinuationPolicy
from endturn.generate.alerts import ALERTS
from endturn.instrumentation.sdk_providers import SIGNALS
from endturn.telemetry.otel_providers import OptionKwargs, Options
from endturn.testing.scripted import ScriptedProvider, essay
from tests.support.forked import forking
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
def run() -> Iterator[Callable[[str], None]]:
    """Runs a program, with a provider at the address that the environment names."""
    with forking() as run, ScriptedProvider(essay(LONG)).serve() as url:
        yield lambda code: run(code, environment(url))


def environment(url: str) -> dict[str, str]:
    addresses = dict.fromkeys(("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"), url)
    keys = dict.fromkeys((f"{who}_API_KEY" for who in ("OPENAI", "ANTHROPIC", "GEMINI")), "none")
    keys |= {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
    return {"OPENAI_BASE_URL": f"{url}/v1", **addresses, **keys, "OTEL_SDK_DISABLED": "true"}


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_code_block_runs_as_it_stands(code: str, run: Callable[[str], None]) -> None:
    """Each block is a whole program: it runs by itself."""
    run(code)


def test_the_instrumented_agent_takes_fifteen_lines_at_most() -> None:
    """The README's only block is the fifteen lines that it promises."""
    (block,) = CODE.findall(README)
    assert len([line for line in block.splitlines() if line and not line.startswith("#")]) <= 15


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    """A link into the repository names a file or folder that exists."""
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGES[name]) if "://" not in link]
    assert [link for link in links if not (REPOSITORY / name).parent.joinpath(link).exists()] == []


FILE_NAME = re.compile(r"`([\w./<>*-]+\.(?:py|toml|tsv|yaml|json|jsonl|md))`")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md", "tests/README.md"])
def test_every_file_that_a_maintainer_is_sent_to_exists(page: str) -> None:
    """Below the root, the package or the tests; `<name>` stands for any."""
    named = set(FILE_NAME.findall((REPOSITORY / page).read_text()))
    roots = (REPOSITORY, REPOSITORY / "src/endturn", REPOSITORY / "tests")
    assert named
    patterns = {name: re.sub(r"<[^>]+>", "*", name) for name in named}
    assert [name for name, each in patterns.items() if not any(any(root.glob(each)) for root in roots)] == []


PLACE_OF_EXAMPLE = re.compile(
    r'SUSPECTED_METRIC|INDICATORS\["suspected"\]|_events\("suspected"\)|limits\.suspected|"suspected": (?:Indicator|_)'
)
"""Code about the metric that the recipe has as its example, its indicator or its limit."""


def test_a_metric_with_its_panel_and_its_alert_takes_six_files() -> None:
    """One for each step of the recipe, which has its example there; the others are the exceptions that it lists."""
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    recipe = page.partition("## Recipe: a metric with its panel and its alert\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d\. \*\*\w.*?(?=^\d\. |\n\n)", recipe, re.MULTILINE | re.DOTALL)
    edited = [FILE_NAME.findall(step)[0] for step in steps]
    assert "suspected" in recipe
    assert 5 <= len(edited) <= 6, edited
    roots = (REPOSITORY, REPOSITORY / "src/endturn")
    files = [root / name for name in edited for root in roots if (root / name).is_file()]
    assert len(set(files)) == len(edited), edited
    assert [file.name for file in files if "suspected" not in file.read_text().lower()] == []
    exceptions = {*FILE_NAME.findall(recipe.partition("one file more")[2])}
    source = REPOSITORY / "src/endturn"
    places = {path for path in source.rglob("*.py") if PLACE_OF_EXAMPLE.search(path.read_text())}
    assert {path.relative_to(source).as_posix() for path in places - {*files}} <= exceptions


LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
"""A link to an anchor: the file, "" where it is the same, and the anchor."""


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives a page: one for each heading, with a number where one comes again."""
    anchors: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *#*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchors.append(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    numbered = [f"{anchor}-{anchors[:at].count(anchor)}" for at, anchor in enumerate(anchors) if anchor in anchors[:at]]
    return {*anchors, *numbered, *re.findall(r'<a (?:id|name)="([^"]+)"', text)}


LINKED = [page for pattern in ("*.md", "docs/**/*.md") for page in sorted(REPOSITORY.glob(pattern))]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_anchor_leads_somewhere(page: Path) -> None:
    """A link to an anchor of a page in the repository, the README's too, is a heading there."""
    missing = []
    for file, anchor in LINK.findall(page.read_text()):
        target = page.parent / file if file else page
        if "://" not in file and target.suffix == ".md" and anchor not in anchors_of(target.read_text()):
            missing.append(f"{file}#{anchor}")
    assert missing == []


def test_operations_has_a_row_for_each_alert_of_the_pipeline() -> None:
    """What to do first when it fires; an alert's dashboard is where its link leads."""
    rows = set(re.findall(r"^\| \[(Endturn\w+)\]", PAGES["docs/operations.md"], re.MULTILINE))
    assert rows == {alert.name for alert in ALERTS if alert.dashboard == "endturn-pipeline"}


def test_every_make_target_that_is_named_exists() -> None:
    """`make demo` and the others stand in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {name for text in PAGES.values() for name in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert named <= targets


COMMAND = re.compile(r"^(?:\w+=\S+ )*endturn ((?:[a-z]+ )?[a-z]+)\b(.*)$")


def commands() -> Iterator[tuple[str, str, set[str]]]:
    """Each `endturn` command of a page that a reader may copy: where, its name, and its options."""
    for name, text in PAGES.items():
        shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
        for line in [*re.findall(r"^ {4}(\S.*)$", text, re.M), *shell.splitlines()]:
            if match := COMMAND.match(line.split(" #")[0].strip()):
                command = match[1] if match[1].startswith(("dashboards ", "rules ")) else match[1].split()[0]
                if command != "run":  # what follows is another program's
                    yield f"{name}: {line.strip()}", command, set(re.findall(r"(?<=\s)--[a-z-]+", line.split(" #")[0]))


def test_every_command_that_is_shown_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """With its options: each is in the help of its command."""
    helps: dict[str, str] = {}
    unknown = []
    for place, command, options in commands():
        if command not in helps:
            with pytest.raises(SystemExit):
                _main.main([*command.split(), "--help"])
            helps[command] = capsys.readouterr().out
        unknown += [f"{place}: {option}" for option in options if option not in helps[command]]
    assert unknown == []
    assert {"ui", "report", "scan", "plan", "dashboards install", "rules check"} <= helps.keys()


# --- Configuration, and the controller's contract -----------------------------------------------------------------

CONFIGURATION = PAGES["docs/configuration.md"]
VARIABLE = re.compile(r"\b(?:OTEL|ENDTURN)_[A-Z_]*[A-Z]\b(?!_)")
OURS_ALONE = {"ENDTURN_RUN", "ENDTURN_FETCHED", "ENDTURN_REPORTED"}
"""What one process of `endturn run`, or of a command under uvx, tells the next."""


def test_every_variable_stands_on_its_page() -> None:
    """Those that the source names, and puts together for each signal; none of ours that it does not name."""
    source = REPOSITORY / "src" / "endturn"
    files = sorted(source.rglob("*.py"))
    # docs/collector.md has the Collector's own.
    of_collectors = ("generate/", "plan.py", "settings/environment.py")
    misspelt = "cli/doctor.py"  # has what nobody reads
    named = {
        variable
        for file in files
        if not file.relative_to(source).as_posix().startswith((*of_collectors, misspelt))
        for variable in VARIABLE.findall(file.read_text())
    }
    made = {f"OTEL_{signal.upper()}_EXPORTER" for signal in SIGNALS}
    made |= {f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL" for signal in SIGNALS}
    agents = {name for name in named | set(VARIABLE.findall(CONFIGURATION)) if name.startswith("ENDTURN_AGENT_")}
    told = set(VARIABLE.findall(CONFIGURATION))
    assert (named | made) - OURS_ALONE - agents - told == set()
    assert {name for name in told - agents if name.startswith("ENDTURN_")} <= named


def test_every_keyword_stands_on_its_page() -> None:
    """Of `configure()` and `instrument()`, whose options editors know too, and of the controller's policy."""
    options = {field.name for field in fields(Options)}
    assert OptionKwargs.__annotations__.keys() == options
    keywords = {*inspect.signature(endturn.configure).parameters, *inspect.signature(endturn.instrument).parameters}
    keywords |= options | set(ContinuationPolicy.model_fields)
    assert keywords - {"options"} - set(re.findall(r"`(\w+)(?:=\w+)?`", CONFIGURATION)) == set()


def test_every_behaviour_of_the_contract_is_tested() -> None:
    """The numbers in docs/controller.md are those of tests' marks, without a gap."""
    contract = [int(number) for number in re.findall(r"^(\d+)\. ", PAGES["docs/controller.md"], re.MULTILINE)]
    tests = REPOSITORY / "tests"
    marked = {
        int(number)
        for path in [*tests.rglob("test_*.py"), *tests.glob("turns/*.json")]
        for numbers in re.findall(r'(?:\.behaviour\(|"behaviours": \[)([\d, ]+)[)\]]', path.read_text(encoding="utf-8"))
        for number in numbers.split(",")
    }
    assert sorted(marked) == contract == list(range(1, 44))


def test_each_measured_agent_is_run_by_an_environment() -> None:
    """The figures of inferred turns in docs/concepts.md are those of agents that a test runs, and no others."""
    rows = re.findall(r"^\| (.+) \| \d+ \| \d+ \|$", PAGES["docs/concepts.md"], re.MULTILINE)
    named: list[str] = []
    for file in sorted(REPOSITORY.glob("tests/environments/*/test_agreement.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "figures_of":
                (agents,) = node.args
                assert isinstance(agents, ast.Dict)
                named += [ast.literal_eval(name) for name in agents.keys if name is not None]
    assert sorted(rows) == sorted(named)

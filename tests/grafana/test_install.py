"""`endturn dashboards`, against a stand-in that implements Grafana's documented API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from endturn.cli import _main
from endturn.generate.config import RuleConfig
from endturn.grafana import assets
from tests.support.grafana import DENIED, SOURCES, TOKEN, State, grafana as serving_grafana
from tests.support.processes import REPOSITORY

BOARDS = {board["uid"]: board for board in assets.dashboards(assets.folder())}
GROUP = json.loads((Path(__file__).parents[1] / "data" / "grafana_group.json").read_text())
"""A file's group of one rule."""


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with serving_grafana() as state:
        yield state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two small dashboards and a group of rules."""
    for name in ("overview", "stops"):
        (tmp_path / f"{name}.json").write_text(json.dumps(board(f"endturn-{name}", name)))
    (tmp_path / "grafana-alerts").mkdir()
    (tmp_path / "grafana-alerts" / "alerts.yaml").write_text(json.dumps({"apiVersion": 1, "groups": [GROUP]}))
    return tmp_path


def board(uid: str, title: str) -> dict[str, Any]:
    variables = [
        {"name": f"{kind}_datasource", "type": "datasource", "query": kind, "current": {"value": "default"}}
        for kind in ("prometheus", "loki")
    ]
    panel = {"id": 1, "datasource": {"type": "prometheus", "uid": "${prometheus_datasource}"}}
    fixed = {"id": 2, "datasource": {"type": "loki", "uid": "loki"}}
    built_in = {"datasource": {"type": "grafana", "uid": "-- Grafana --"}}
    return {
        "uid": uid,
        "title": f"endturn / {title}",
        "tags": ["endturn"],
        "templating": {"list": variables},
        "annotations": {"list": [built_in]},
        "panels": [panel, fixed],
    }


def run(grafana: State, *arguments: str | Path) -> int:
    return _main.main(["dashboards", "install", "--grafana", grafana.url, *map(str, arguments)])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[1:]]


# What is installed


def test_the_shipped_dashboards_are_installed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All dashboards and rules arrive unchanged, also below a path; the second time nothing is written.

    A dashboard has one version with our message. A rule queries the default Prometheus, and links to this Grafana.
    """
    monkeypatch.setenv("GRAFANA_TOKEN", f" {TOKEN}\r\n")  # read from a file, it ends in a newline
    with serving_grafana("/monitoring") as state:
        command = ["dashboards", "install", "--grafana", f"{state.url}/", "--alerts"]
        assert _main.main(command) == 0
        assert state.folders == {"endturn": "endturn"}
        stored = {uid: kept["model"] | {"id": None} for uid, kept in state.dashboards.items()}
        assert stored == {uid: board | {"id": None, "version": 1} for uid, board in BOARDS.items()}
        assert {kept["folder"] for kept in state.dashboards.values()} == {"endturn"}
        rules = [rule for group in state.groups.values() for rule in group["rules"]]
        those = [rule for group in assets.rule_groups(assets.folder()) for rule in group["rules"]]
        assert [rule["title"] for rule in rules] == [rule["title"] for rule in those]
        assert {query["datasourceUid"] for rule in rules for query in rule["data"]} == {"P1", "__expr__"}
        evaluations = [rule["missing_series_evals_to_resolve"] for rule in those]
        assert [rule["missingSeriesEvalsToResolve"] for rule in rules] == evaluations
        assert not {"keepFiringFor", "missing_series_evals_to_resolve"} & {key for rule in rules for key in rule}
        assert "$$" not in json.dumps([rule["labels"] for rule in rules])
        assert all(rule["annotations"]["dashboard_url"].startswith(f"{state.url}/d/endturn-") for rule in rules)
        assert RuleConfig().grafana == assets.GRAFANA
        assert assets.GRAFANA not in json.dumps(rules)
        for uid in [*BOARDS, *(rule["uid"] for rule in rules)]:
            assert re.fullmatch(r"endturn-[\w-]{1,32}", uid)
        before = len(state.writes)
        assert _main.main(command) == 0
        assert state.writes[before:] == []
    said = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    expected = [["missing", "source", "tempo:"], ["created", "folder", "endturn"]]
    assert said[1 : 3 + len(BOARDS)] == expected + [["created", "dashboard", f"{uid}:"] for uid in BOARDS]
    assert {each[0] for each in said[-1 - len(BOARDS) :]} == {"unchanged"}


def upgraded(state: State, folder: Path) -> None:
    (folder / "stops.json").unlink()
    (folder / "overview.json").write_text(json.dumps(board("endturn-overview", "Everything")))


def others_dashboards(state: State, folder: Path) -> None:
    """Add somebody's copy, a changed dashboard that is no longer shipped, and one in another folder."""
    state.folders["mine"] = "mine"
    state.save(board("my-copy", "copy"), "endturn", "")
    state.save(board("endturn-stops", "stops, better"), "endturn", "mended the title")
    state.save(board("endturn-elsewhere", "elsewhere"), "mine", "endturn dashboards install 0.0 abc")
    (folder / "stops.json").unlink()


def saved_over(state: State, folder: Path) -> None:
    state.save(board("endturn-stops", "mine"), "endturn", "")


def other_groups(state: State, folder: Path) -> None:
    """Add a group of ours that no longer exists, and a group of a team."""
    for group, uid in (("endturn-old", "endturn-gone"), ("team", "team-rule")):
        rule = {"uid": uid, "folderUID": "endturn", "ruleGroup": group}
        state.groups["endturn", group] = {"rules": [rule]}


FOREIGN: dict[str, Any] = {
    "uid": "team-rule", "title": "Ours", "for": "1m", "folderUID": "endturn", "ruleGroup": "endturn-alerts",
    "orgID": 1, "condition": "A", "data": [], "noDataState": "OK", "labels": {"team": "a"},
}  # fmt: skip
THEIRS = {"isPaused": True, "notification_settings": {"receiver": "night shift"}}


def in_our_group(state: State, folder: Path) -> None:
    """Pause our rule and change its notifications; add a team's rule and one that is no longer shipped."""
    rules = state.groups["endturn", "endturn-alerts"]["rules"]
    rules += [FOREIGN, rules[0] | {"uid": "endturn-old"}]
    rules[0] |= THEIRS


def mended(state: State, folder: Path) -> None:
    in_our_group(state, folder)
    state.groups["endturn", "endturn-alerts"]["rules"][0]["labels"] = {"severity": "info"}


def changed(member: str, value: Any) -> Callable[[State, Path], None]:
    return lambda state, folder: state.groups["endturn", "endturn-alerts"]["rules"][0].update({member: value})


ONCE = {"endturn-overview": 1, "endturn-stops": 1}
TEAMS = frozenset({"team-rule"})


class Again(NamedTuple):
    """A change after the first installation, the expected output, the versions of each dashboard, and further rules."""

    change: Callable[[State, Path], Any]
    said: list[str]
    versions: Mapping[str, int] = ONCE
    further: frozenset[str] = frozenset()


SAME = ["unchanged dashboard endturn-overview", "unchanged dashboard endturn-stops"]
RULES = "unchanged rules endturn-alerts: 1 rules"
DIFFERS = "updated rules endturn-alerts: 1 of 1 rules differ"
BY_HAND = "updated dashboard endturn-stops: a change made by hand is overwritten; its history keeps it"
KEPT = "kept dashboard endturn-stops: no longer ours, but somebody has changed it; delete it by hand"
UPGRADED = ["updated dashboard endturn-overview", "removed dashboard endturn-stops", RULES]
STAY, OLD = "1 stay paused, 1 of others stay", "removed rule endturn-old"
AGAIN = [
    Again(lambda state, folder: None, [*SAME, RULES]),
    Again(upgraded, UPGRADED, {"endturn-overview": 2}),
    Again(
        others_dashboards, [SAME[0], KEPT, RULES],
        {"endturn-overview": 1, "endturn-stops": 2, "endturn-elsewhere": 1, "my-copy": 1},
    ),
    Again(saved_over, [SAME[0], BY_HAND, RULES], {"endturn-overview": 1, "endturn-stops": 3}),
    Again(other_groups, [*SAME, RULES, "removed rule endturn-gone"], further=TEAMS),
    Again(in_our_group, [*SAME, f"{RULES}, {STAY}", OLD], further=TEAMS),
    Again(mended, [*SAME, f"{DIFFERS}, {STAY}", OLD], further=TEAMS),
    Again(changed("for", "1m"), [*SAME, DIFFERS]),
    Again(changed("annotations", {}), [*SAME, DIFFERS]),
    Again(changed("labels", {"severity": "warning", "service": "{{ $labels.job }}", "x": "y"}), [*SAME, DIFFERS]),
    Again(changed("data", []), [*SAME, DIFFERS]),
]  # fmt: skip


@pytest.mark.parametrize("case", AGAIN)
def test_a_second_installation_restores_our_objects(
    grafana: State, folder: Path, capsys: pytest.CaptureFixture[str], case: Again
) -> None:
    """Changed objects are restored, obsolete ones removed, foreign ones kept; a third installation writes nothing."""
    arguments = ("--from", folder, "--alerts")
    run(grafana, *arguments)
    first = dict(grafana.groups["endturn", "endturn-alerts"]["rules"][0])
    case.change(grafana, folder)
    capsys.readouterr()
    assert run(grafana, *arguments) == 0
    assert lines(capsys) == case.said
    assert {uid: len(kept["versions"]) for uid, kept in grafana.dashboards.items()} == case.versions
    ours, *others = grafana.groups["endturn", "endturn-alerts"]["rules"]
    assert ours.items() >= (first | (THEIRS if case.change in (in_our_group, mended) else {})).items()
    assert all(rule.items() >= FOREIGN.items() for rule in others)
    rules = [rule for group in grafana.groups.values() for rule in group["rules"]]
    assert {rule["uid"] for rule in rules} == {"endturn-unknown", *case.further}
    writes = len(grafana.writes)
    assert run(grafana, *arguments) == 0
    assert len(grafana.writes) == writes


def test_a_dry_run_only_reads(grafana: State, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--dry-run` prints the changes, including alerts. `--folder` creates that folder, and moves existing objects."""
    assert run(grafana, "--from", folder, "--alerts", "--dry-run") == 0
    assert grafana.writes == []
    assert [line.split()[:3] for line in lines(capsys)] == [["would", "be", "created"]] * 4
    run(grafana, "--from", folder)
    assert run(grafana, "--from", folder, "--folder", "llm") == 0
    assert grafana.folders == {"endturn": "endturn", "llm": "llm"}
    assert {kept["folder"] for kept in grafana.dashboards.values()} == {"llm"}


# Data sources and alert rules


def test_installed_dashboards_use_the_named_data_sources(grafana: State, folder: Path) -> None:
    """A name is looked up; the variable starts with its uid, fixed references and alerts follow it, and others stay.

    A file's group is converted to the API's form: seconds, renamed fields, plain dollars in labels. A token that may
    not list data sources can still name a uid.
    """
    sources = ("--datasource", "prometheus=Old Prometheus", "--datasource", "loki=L1")
    assert run(grafana, "--from", folder, "--alerts", *sources) == 0
    model = grafana.dashboards["endturn-overview"]["model"]
    assert [variable["current"]["value"] for variable in model["templating"]["list"]] == ["P2", "L1"]
    assert [panel["datasource"]["uid"] for panel in model["panels"]] == ["${prometheus_datasource}", "L1"]
    assert model["annotations"]["list"][0]["datasource"]["uid"] == "-- Grafana --"
    [((where, name), group)] = grafana.groups.items()
    assert (where, name, group["interval"], group["folderUid"]) == ("endturn", "endturn-alerts", 60, "endturn")
    [rule] = group["rules"]
    assert rule.items() >= {
        "folderUID": "endturn",
        "ruleGroup": "endturn-alerts",
        "orgID": 1,
        "for": "5m",
        "keep_firing_for": "1h",
        "labels": {"severity": "warning", "service": "{{ $labels.job }}"},
    }.items()  # fmt: skip
    assert [query["datasourceUid"] for query in rule["data"]] == ["P2", "__expr__"]
    [put] = [asked for asked in grafana.writes if asked.path.endswith("/rule-groups/endturn-alerts")]
    assert put.headers["X-Disable-Provenance"]
    grafana.answers["GET /api/datasources"] = DENIED
    assert run(grafana, "--from", folder, "--datasource", "prometheus=P9") == 0
    variables = grafana.dashboards["endturn-overview"]["model"]["templating"]["list"]
    assert [variable["current"]["value"] for variable in variables] == ["P9", "default"]


# What goes wrong


UNDECIDED = [source | {"isDefault": False} for source in SOURCES]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("does not know the token (401)", {"token": "wrong"}),
    ("it needs folders:read", {"answers": {"POST /api/dashboards/db": DENIED}}),
    ("not found (404)", {"path": "/nowhere"}),
    ("a proxy before Grafana answered 502", {"answers": {"GET /api/folders/endturn": (502, None)}}),
    ("no token", {"token": ""}),
    ("copy it again", {"token": "glsa_sec ret"}),
    ("a folder's uid must have at most 40 letters", {"options": ["--folder", "../admin"]}),
    ("there are: Mimir (P1), Old Prometheus (P2)", {"options": ["--datasource", "prometheus=Loki"]}),
    ("pass --datasource prometheus=NAME", {"sources": UNDECIDED, "options": ["--alerts"]}),
    ("contains dashboards that are not endturn's: other", {"stranger": "other"}),
]


@pytest.mark.parametrize(("words", "spoil"), [pytest.param(*row, id=row[0]) for row in WRONG])
def test_errors_say_what_to_do(
    grafana: State,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    spoil: dict[str, Any],
) -> None:
    """Each failure exits with 2 and one line that names the remedy; no dashboard is written, no token shown."""
    monkeypatch.setenv("GRAFANA_TOKEN", spoil.get("token", TOKEN))
    grafana.answers |= spoil.get("answers", {})
    grafana.sources = spoil.get("sources", grafana.sources)
    if "stranger" in spoil:
        (folder / "other.json").write_text(json.dumps(board(spoil["stranger"], "other")))
    url = grafana.url + spoil.get("path", "")
    command = ["dashboards", "install", "--grafana", url, "--from", str(folder), *spoil.get("options", ())]
    assert _main.main(command) == 2
    err = capsys.readouterr().err
    assert words in err
    assert not [each for each in (TOKEN, "glsa_", "Traceback") if each in err]
    assert grafana.dashboards == {}


def test_a_rejected_object_does_not_stop_the_others(
    grafana: State, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A provisioned dashboard and one with a used title are rejected by name, the others are installed; exit 1.

    The same applies to a group of rules for which Grafana returns 409.
    """
    rules = "PUT /api/v1/provisioning/folder/endturn/rule-groups/endturn-alerts"
    grafana.answers[rules] = (409, {"message": "conflict"})
    (folder / "turns.json").write_text(json.dumps(board("endturn-turns", "turns")))
    grafana.folders["endturn"] = "endturn"
    grafana.save(board("endturn-overview", "overview"), "endturn", "")
    grafana.provisioned.add("endturn-overview")
    grafana.save(board("somebodys", "stops"), "endturn", "")
    assert run(grafana, "--from", folder, "--alerts") == 1
    said = lines(capsys)
    assert said[3] == "refused rules endturn-alerts: conflict"
    assert said[0].startswith("refused dashboard endturn-overview: it is provisioned from a file")
    assert said[1].startswith("refused dashboard endturn-stops: it collides with another (")
    assert said[2].startswith("created dashboard endturn-turns")
    assert grafana.dashboards["somebodys"]["model"]["title"] == "endturn / stops"


# What is shipped


def test_export_overwrites_nothing_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second export into the same folder succeeds; if a file differs, none is written without --force."""
    out = tmp_path / "out"

    def export(folder: Path, *options: str) -> tuple[int, str]:
        capsys.readouterr()
        return _main.main(["dashboards", "export", str(folder), *options]), capsys.readouterr().err

    assert (export(out), export(out)) == ((0, ""), (0, ""))
    changed, gone = out / "overview.json", out / "turns.json"
    changed.write_text("mine")
    gone.unlink()
    status, said = export(out)
    assert (status, f"not overwritten without --force: {changed}; nothing was written" in said) == (2, True)
    assert (changed.read_text(), gone.exists()) == ("mine", False)
    assert export(out, "--force")[0] == 0
    assert changed.read_bytes() == (assets.folder() / "overview.json").read_bytes()
    assert gone.exists()
    for target in (changed, changed / "below"):
        status, said = export(target)
        assert (status, said.startswith(f"endturn: cannot write into {str(target)!r}")) == (2, True)
        assert "Traceback" not in said


def test_the_wheel_contains_the_dashboards(tmp_path: Path) -> None:
    """Dashboards, rules and provisioning files of the checkout are in the wheel, byte for byte, and are found there.

    So are the tables of stop reasons. The wheel is built and unpacked; a Python with only these files reads them.
    """
    built = tmp_path / "built"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    ui = REPOSITORY / "src" / "endturn" / "ui"
    pages = [file for file in ui.rglob("*.[!p]*") if file.parent.name != "__pycache__"]
    assert pages
    assert all((tmp_path / "site" / file.relative_to(REPOSITORY / "src")).exists() for file in pages)
    # -S and -P: neither the checkout's editable install nor the current folder is on the path.
    script = (
        "import sys; from pathlib import Path; import endturn.grafana.assets as s\n"
        "from endturn.vocabulary.stop_reason_tables import rows_of\n"
        "assert rows_of('openai_chat', '')['length'].incomplete\n"
        "print(s.folder()); s.export(Path(sys.argv[1]))"
    )
    out = tmp_path / "out"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    said = subprocess.run(
        [sys.executable, "-S", "-P", "-c", script, str(out)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == str(tmp_path / "site" / "endturn" / "dashboards")
    kept = {".json", ".yaml"}
    exported, here = (
        {file.relative_to(root): file.read_bytes() for file in root.rglob("*") if file.suffix in kept}
        for root in (out, REPOSITORY / "dashboards")
    )
    assert exported == here


def test_the_guides_commands_and_files_exist() -> None:
    """Its commands and files. Each endpoint of its ServiceMonitor honours the labels that applications give, and the
    Collector's job is the one that rules ask for.
    """
    guide = (REPOSITORY / "docs" / "install.md").read_text()
    commands = re.findall(r"(?m)^ +endturn (dashboards install[^#\n]*)", guide)
    assert commands
    for command in commands:
        assert _main.parser().parse_args(command.split()).command == "dashboards install"
    named = re.findall(
        r"(?<![\w/])(?:(?:stack|dashboards|collector)/[\w./-]+\.(?:ya?ml|json)|docker-compose[\w.]*\.yml)", guide
    )
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
    assert {"stack/scraped.yaml", "stack/prometheus-2.yml", "dashboards/kubernetes/prometheusrule.yaml"} <= set(named)
    [text] = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    spec = yaml.safe_load(text)["spec"]
    assert [endpoint["honorLabels"] for endpoint in spec["endpoints"]] == [True, True]
    assert re.fullmatch(RuleConfig().collector, spec["selector"]["matchLabels"][spec["jobLabel"]])

"""Checks rule files before they are loaded: with promtool where there is one, else by reading them.

Understood are rule files, PrometheusRule manifests and Grafana's provisioned alerts; the last two hold the same rules
in another wrapping, which is taken off.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml

from endturn.errors import UsageError

DEFAULT: Final = ("dashboards/rules/*.yaml", "dashboards/kubernetes/*.yaml", "dashboards/grafana-alerts/*.yaml")
"""What is checked where no file is named, below the current folder."""
DURATION: Final = re.compile(r"(\d+(ms|[smhdwy]))+|0")
RULE: Final = frozenset({"record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations"})
GROUP: Final = frozenset(
    {"name", "interval", "rules", "limit", "labels", "query_offset", "partial_response_strategy", "source_tenants"}
)


@dataclass(frozen=True, slots=True)
class Result:
    """What was found in one file.

    Attributes:
        how: what looked at it.
        parsed: somebody looked at the expressions too.
    """

    file: str
    rules: int
    how: str
    problems: tuple[str, ...] = ()
    parsed: bool = True

    def __str__(self) -> str:
        verdict = "not ok" if self.problems else "ok" if self.parsed else "EXPRESSIONS NOT CHECKED"
        head = f"{self.file}: {self.rules} rules, {self.how}: {verdict}"
        return "\n  ".join((head, *self.problems))


def check(files: Sequence[Path], *, promtool: str | None = None) -> list[Result]:
    """Check each file.

    Args:
        promtool: the program; by default the one on the PATH, if there is one.

    Raises:
        UsageError: no file is named and none found, or one that was named cannot be read, or is no rule file.
    """
    chosen = list(files) or [found for pattern in DEFAULT for found in sorted(Path().glob(pattern))]
    if not chosen:
        raise UsageError(f"no rule file below {str(Path().resolve())!r}: name the files")
    if promtool is not None and not shutil.which(promtool):
        raise UsageError(f"no program {promtool!r}: give the path of Prometheus' promtool")
    tool = shutil.which(promtool or "promtool")
    return [_check(file, tool) for file in chosen]


def _check(file: Path, promtool: str | None) -> Result:
    groups = groups_of(file)
    count = sum(len(group.get("rules") or []) for group in groups if isinstance(group, dict))
    problems = [problem for group in groups for problem in _group(group)]
    if problems:
        return Result(str(file), count, "read", tuple(problems))
    if promtool:
        return Result(str(file), count, _version(promtool), tuple(_promtool(promtool, groups)))
    if find_spec("promql_parser"):
        return Result(str(file), count, "read, expressions parsed", tuple(_parsed(groups)))
    return Result(str(file), count, "read (no promtool, no promql-parser)", parsed=False)


def groups_of(file: Path) -> list[Any]:
    """A file's rule groups, as Prometheus has them; raises UsageError where it holds none."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{str(file)!r} cannot be read as YAML: {error}") from error
    if isinstance(content, dict):
        if content.get("kind") == "PrometheusRule" and isinstance(content.get("spec"), dict):
            content = content["spec"]
        groups = content.get("groups")
        if isinstance(groups, list) and content.get("apiVersion") == 1:
            return [_of_grafana(group) for group in groups]
        if isinstance(groups, list):
            return groups
    raise UsageError(f"{str(file)!r} is no rule file: it has no list of groups")


def _of_grafana(group: Any) -> Any:
    """A group of Grafana's alerts, each with the expression that it sends to Prometheus."""
    if not isinstance(group, dict):
        return group
    rules = []
    for rule in group.get("rules") or []:
        queries = [node["model"] for node in rule.get("data") or [] if node.get("datasourceUid") != "__expr__"]
        made = {"alert": rule.get("title"), "expr": queries[0].get("expr") if len(queries) == 1 else None}
        made |= {key: rule[key] for key in ("for", "labels", "annotations") if key in rule}
        rules.append(made | ({"keep_firing_for": rule["keepFiringFor"]} if "keepFiringFor" in rule else {}))
    # $values is Grafana's; promtool would refuse the template for a variable that Prometheus lacks.
    for rule in rules:
        notes = rule.get("annotations") or {}
        rule["annotations"] = {key: re.sub(r"\$values\.\w+\.Value", "$value", text) for key, text in notes.items()}
    return {"name": group.get("name"), "interval": group.get("interval"), "rules": rules}


def _group(group: Any) -> list[str]:
    """What is wrong with a group's structure."""
    if not isinstance(group, dict) or not isinstance(group.get("rules"), list) or not group.get("name"):
        return ["a group has a name and a list of rules"]
    name = group["name"]
    found = [f"group {name!r} has no key {key!r}" for key in sorted(group.keys() - GROUP)]
    if "interval" in group and not DURATION.fullmatch(str(group["interval"])):
        found.append(f"group {name!r}: {group['interval']!r} is no interval")
    for number, rule in enumerate(group["rules"], 1):
        if not isinstance(rule, dict) or ("record" in rule) == ("alert" in rule):
            found.append(f"group {name!r}, rule {number}: a rule has either `record` or `alert`")
            continue
        title = f"{rule.get('record') or rule.get('alert')}"
        found += [f"{title}: there is no key {key!r}" for key in sorted(rule.keys() - RULE)]
        if not isinstance(rule.get("expr"), str) or not rule["expr"].strip():
            found.append(f"{title}: an expression is missing")
        found += [
            f"{title}: {rule[key]!r} is no duration for {key!r}"
            for key in ("for", "keep_firing_for")
            if key in rule and not DURATION.fullmatch(str(rule[key]))
        ]
    return found


def _parsed(groups: Sequence[Any]) -> list[str]:
    import promql_parser  # of the development tools; promtool says more

    found = []
    for rule in (rule for group in groups for rule in group["rules"]):
        try:
            promql_parser.parse(rule["expr"])
        except ValueError as error:
            found.append(f"{rule.get('record') or rule.get('alert')}: {error}")
    return found


def _promtool(program: str, groups: Sequence[Any]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rules.yaml"
        file.write_text(yaml.safe_dump({"groups": list(groups)}, sort_keys=False), encoding="utf-8")
        done = _run(program, "check", "rules", "--lint=all", "--lint-fatal", str(file))
        if done.returncode == 0:
            return []
        said = (done.stderr + done.stdout).replace(str(file), "").splitlines()
    return [line.strip() for line in said if line.strip() and not re.match(r"\s*(Checking|FAILED:?\s*$)", line)]


def _version(program: str) -> str:
    done = _run(program, "--version")
    found = re.search(r"version (\S+)", done.stdout + done.stderr)
    return f"promtool {found[1]}" if found else "promtool"


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)  # noqa: S603

"""Check rule files before they are loaded.

They are checked with promtool if it is installed, otherwise by parsing them. Supported are rule
files, PrometheusRule manifests and Grafana's provisioned alerts; the last two are unwrapped to rule
groups first.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import promql_parser
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from endturn.errors import UsageError

DEFAULT: Final = (
    "dashboards/rules/*.yaml",
    "dashboards/kubernetes/*.yaml",
    "dashboards/grafana-alerts/*.yaml",
)
"""Patterns of the files in the current folder that are checked by default."""

Duration = Annotated[str, Field(pattern=r"^((\d+(ms|[smhdwy]))+|0)$")]


class Rule(BaseModel):
    """A rule as Prometheus reads it: either `record` or `alert`."""

    model_config = ConfigDict(extra="forbid")

    record: str = ""
    alert: str = ""
    expr: Annotated[str, Field(min_length=1)]
    hold: Duration = Field("0", alias="for")
    keep_firing_for: Duration = "0"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Group(BaseModel):
    """A rule group of Prometheus, Mimir, Thanos or VictoriaMetrics."""

    model_config = ConfigDict(extra="forbid")

    name: str
    rules: list[Any]
    interval: Duration = "0"
    query_offset: Duration = "0"
    limit: int = 0
    labels: dict[str, str] = {}
    partial_response_strategy: str = ""
    source_tenants: list[str] = []


@dataclass(frozen=True, slots=True)
class Result:
    """Problems of one file; `how` names the tool that checked it."""

    file: str
    rules: int
    how: str
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.file}: {self.rules} rules, {self.how}: {'not ok' if self.problems else 'ok'}"
        return "\n  ".join((head, *self.problems))


def command(files: Sequence[Path], promtool: str | None) -> int:
    """Run `endturn rules check`: the status is 1 if a file has a problem."""
    results = check(files, promtool=promtool)
    print(*results, sep="\n")
    return 1 if any(result.problems for result in results) else 0


def check(files: Sequence[Path], *, promtool: str | None = None) -> list[Result]:
    """Check these files, or those of the checkout in the current folder.

    Args:
        promtool: the program to use; defaults to the one on the PATH, if there is one.

    Raises:
        UsageError: a file does not exist or has no rules, or `promtool` is not an executable.
    """
    chosen = [*files] or sorted(file for pattern in DEFAULT for file in Path().glob(pattern))
    if not chosen:
        raise UsageError("no rule files found: name some, or run this at the root of a checkout")
    if promtool and not shutil.which(promtool):
        raise UsageError(f"{promtool!r} is not an executable program: name promtool's path")
    tool = shutil.which(promtool or "promtool")
    return [_check(file, tool) for file in chosen]


def _check(file: Path, promtool: str | None) -> Result:
    groups = groups_of(file)
    every = [rule for group in groups for rule in group.get("rules") or []]
    problems = [problem for group in groups for problem in _group(group)]
    if problems or not promtool:
        return Result(str(file), len(every), "read, expressions parsed", tuple(problems))
    return Result(str(file), len(every), "promtool", tuple(_promtool(promtool, groups)))


def groups_of(file: Path) -> list[dict[str, Any]]:
    """Return a file's rule groups in Prometheus' form; raise UsageError if it has none."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{str(file)!r} cannot be read as YAML: {error}") from error
    if isinstance(content, dict):
        of_grafana = content.get("apiVersion") == 1
        content = content.get("spec", content)
        groups = content.get("groups")
        if isinstance(groups, list) and all(isinstance(group, dict) for group in groups):
            return [_of_grafana(group) for group in groups] if of_grafana else groups
    raise UsageError(f"{str(file)!r} is not a rule file: it has no list of groups")


def _of_grafana(group: dict[str, Any]) -> dict[str, Any]:
    """Convert a group of Grafana's alerts, each with the expression that it sends to Prometheus."""
    rules = []
    for rule in group.get("rules") or []:
        queries = [
            node["model"]
            for node in rule.get("data") or []
            if node.get("datasourceUid") != "__expr__"
        ]
        # Only Grafana has $values; promtool would reject templates with a variable that Prometheus
        # lacks.
        notes = {
            key: re.sub(r"\$values\.\w+\.Value", "$value", text)
            for key, text in rule["annotations"].items()
        }
        prometheus_rule = {
            "alert": rule.get("title"),
            "expr": queries[0].get("expr") if queries else "",
            "annotations": notes,
        }
        prometheus_rule |= {key: rule[key] for key in ("for", "labels") if key in rule}
        rules.append(
            prometheus_rule
            | ({"keep_firing_for": rule["keepFiringFor"]} if "keepFiringFor" in rule else {})
        )
    return {"name": group.get("name"), "interval": group.get("interval"), "rules": rules}


def _group(group: dict[str, Any]) -> list[str]:
    """Return the problems of a group's structure, of its rules and of their expressions."""
    try:
        rules = Group.model_validate(group).rules
    except ValidationError as error:
        return _problems(f"group {group.get('name')!r}", error)
    return [problem for rule in rules for problem in _rule(rule)]


def _rule(rule: Any) -> list[str]:
    name = str(rule.get("record") or rule.get("alert")) if isinstance(rule, dict) else repr(rule)
    try:
        parsed_rule = Rule.model_validate(rule)
        if bool(parsed_rule.record) == bool(parsed_rule.alert):
            return [f"{name}: a rule has either `record` or `alert`"]
        promql_parser.parse(parsed_rule.expr)
    except ValidationError as error:
        return _problems(name, error)
    except ValueError as error:
        return [f"{name}: {error}"]
    return []


def _problems(name: str, error: ValidationError) -> list[str]:
    return [
        f"{name}: {'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
    ]


def _promtool(program: str, groups: Sequence[dict[str, Any]]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rules.yaml"
        file.write_text(yaml.safe_dump({"groups": list(groups)}, sort_keys=False), encoding="utf-8")
        command = [program, "check", "rules", "--lint=all", "--lint-fatal", str(file)]
        # the user's promtool
        process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if process.returncode == 0:
        return []
    output = (process.stderr + process.stdout).replace(str(file), "").splitlines()
    return [
        line.strip()
        for line in output
        if line.strip()
        and not re.match(
            r"\s*(Checking"
            r"|FAILED:?\s*$)",
            line,
        )
    ]

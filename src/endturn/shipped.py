"""What the package carries for Grafana and Prometheus: generated dashboards, rules and provisioning files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from endturn.errors import UsageError

PREFIX: Final = "endturn-"
"""How the uids of our dashboards, rules and rule groups begin; nothing else is ever changed in a Grafana."""


def folder() -> Path:
    """The folder with the dashboards and rules: within the installed package, else that of the checkout.

    Raises:
        UsageError: there is neither.
    """
    here = Path(__file__).resolve()
    for found in (here.parent / "dashboards", here.parents[2] / "dashboards"):
        if any(found.glob("*.json")):
            return found
    raise UsageError("no dashboards were installed with this package; name a folder that holds them with --from")


def dashboards(root: Path) -> list[dict[str, Any]]:
    """The dashboards of a folder, by uid.

    Raises:
        UsageError: there are none, one cannot be read, or one is not ours.
    """
    try:
        found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(root.glob("*.json"))]
    except ValueError as error:
        raise UsageError(f"{str(root)!r} holds a file that is not JSON: {error}") from error
    if not found:
        raise UsageError(f"no dashboards (*.json) in {str(root)!r}")
    if strangers := [str(each.get("uid")) for each in found if not str(each.get("uid")).startswith(PREFIX)]:
        raise UsageError(f"{str(root)!r} holds dashboards that are not endturn's: {', '.join(strangers)}")
    return sorted(found, key=lambda each: str(each["uid"]))


def rule_groups(root: Path) -> list[dict[str, Any]]:
    """The Grafana-managed rule groups of a folder's files, in the form that Grafana reads from files.

    Raises:
        UsageError: there are none, or they cannot be read here.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UsageError("reading the alert rules needs PyYAML: pip install 'endturn[grafana]'") from error
    files = sorted(root.glob("grafana-alerts/*.yaml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]]
    if not groups:
        raise UsageError(f"no Grafana-managed alert rules (grafana-alerts/*.yaml) in {str(root)!r}")
    return groups


def export(target: Path) -> list[Path]:
    """Copy everything that is shipped (dashboards, rules, provisioning) into a folder, for those who mount files.

    Returns:
        The files that were written; what else lies in the folder stays.
    """
    source = folder()
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and file.suffix in {".json", ".yaml"}]
    written = []
    for file in files:
        to = target / file.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        written.append(Path(shutil.copyfile(file, to)))
    return written

"""The package's files for Grafana and Prometheus.

Generated dashboards, rules and provisioning files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from endturn.errors import UsageError

PREFIX: Final = "endturn-"
"""Prefix of the uids of our dashboards, rules and rule groups; objects without it are never
changed."""
GRAFANA: Final = "http://127.0.0.1:3000"
"""Base address of the links in shipped alert rules: the Grafana that `make up` starts."""

Uids = Mapping[str, str]
"""Data source type → the uid to use for it."""


def folder() -> Path:
    """Return the folder with the dashboards and rules, of the installed package or the checkout.

    Raises:
        UsageError: there is neither.
    """
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "dashboards", here.parents[3] / "dashboards"):
        if any(folder.glob("*.json")):
            return folder
    raise UsageError("this package contains no dashboards; name a folder that does with --from")


def dashboards(root: Path) -> list[dict[str, Any]]:
    """Read the dashboards of a folder, by uid.

    Raises:
        UsageError: there are none, one cannot be read, or one is not ours.
    """
    try:
        boards = [
            json.loads(file.read_text(encoding="utf-8")) for file in sorted(root.glob("*.json"))
        ]
    except OSError as error:
        raise UsageError(f"{str(root)!r} cannot be read: {error}") from error
    except ValueError as error:
        raise UsageError(f"{str(root)!r} contains a file that is not JSON: {error}") from error
    if not boards:
        raise UsageError(f"no dashboards (*.json) in {str(root)!r}")
    if strangers := [
        str(board.get("uid")) for board in boards if not str(board.get("uid")).startswith(PREFIX)
    ]:
        raise UsageError(
            f"{str(root)!r} contains dashboards that are not endturn's: {', '.join(strangers)}"
        )
    return sorted(boards, key=lambda board: str(board["uid"]))


def rule_groups(root: Path) -> list[dict[str, Any]]:
    """Read the Grafana-managed rule groups of a folder's files, in the form of provisioning files.

    Raises:
        UsageError: there are none.
        ModuleNotFoundError: PyYAML, which is in the extra `grafana`, is not installed.
    """
    import yaml

    files = sorted(root.glob("grafana-alerts/*.yaml"))
    groups = [
        group
        for file in files
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    ]
    if not groups:
        raise UsageError(f"no Grafana-managed alert rules (grafana-alerts/*.yaml) in {str(root)!r}")
    return groups


def command(target: Path, force: bool) -> int:
    """Run `endturn dashboards export`."""
    print(*export(target, force=force), sep="\n")
    return 0


def export(target: Path, *, force: bool = False) -> list[Path]:
    """Copy the shipped files (dashboards, rules, provisioning) into a folder.

    For installations that mount files.

    Args:
        force: overwrite files that are there and differ.

    Returns:
        The files that were written, or were already the same; other files in the folder stay.

    Raises:
        UsageError: the folder cannot be written, or a file in it differs and `force` is not set;
            then no file is written.
    """
    source = folder()
    files = [
        file
        for file in sorted(source.rglob("*"))
        if file.is_file() and file.suffix in {".json", ".yaml"}
    ]
    copies = [(file, target / file.relative_to(source)) for file in files]
    try:
        differing = [
            str(to) for file, to in copies if to.exists() and to.read_bytes() != file.read_bytes()
        ]
        if differing and not force:
            more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise UsageError(
                f"not overwritten without --force: {', '.join(differing[:3])}{more}; "
                f"nothing was written"
            )
        for file, to in copies:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
    except (OSError, shutil.Error) as error:
        raise UsageError(f"cannot write into {str(target)!r}: {error}") from error
    return [to for _, to in copies]


def with_data_sources(content: Any, uids: Uids) -> Any:
    """Return a copy with these data sources instead of our fixed uids (the types' names)."""
    match content:
        case {"type": str(kind), "uid": str(uid), **rest} if uid == kind in uids:
            return {"type": kind, "uid": uids[kind]} | with_data_sources(rest, uids)
        case dict():
            return {
                key: uids.get(value, value)
                if key == "datasourceUid"
                else with_data_sources(value, uids)
                for key, value in content.items()
            }
        case list():
            return [with_data_sources(item, uids) for item in content]
        case _:
            return content

"""What is generated from the schema and committed: dashboards, rules and their tests, reference documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from endturn.errors import UsageError

if TYPE_CHECKING:
    from endturn.generate.files import Change
    from endturn.generate.rules import RuleConfig

NEEDS = frozenset({"grafana_foundation_sdk", "yaml"})
"""What of the extra `grafana` is imported."""


def run(root: Path, check: bool, config: RuleConfig | None = None) -> list[Change]:
    """Write every generated file below the root of a checkout, or with `check` only say which are not current.

    Returns:
        What was changed, or would have to be; `str()` of one names the path, the reason and the head of a diff.

    Raises:
        UsageError: the root is no checkout, or what the extra `grafana` brings is not installed.
    """
    try:
        from endturn.generate import files
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDS:
            raise
        raise UsageError(f"{error.name!r} is not installed: pip install 'endturn[grafana]'") from error
    return files.run(root, check, config)

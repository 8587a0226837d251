"""What is generated from the schema and committed: dashboards, rules and their tests, reference documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from endturn.errors import UsageError

if TYPE_CHECKING:
    from endturn.generate.check import Result
    from endturn.generate.config import RuleConfig
    from endturn.generate.files import Change

NEEDS = frozenset({"promql_parser", "yaml"})
"""What of the extra `grafana` is imported."""


def run(root: Path, check: bool, config: RuleConfig | None = None, *, own: bool = True) -> list[Change]:
    """Write every generated file below the root of a checkout, or with `check` only say which are not current.

    Args:
        own: the root is a checkout of endturn. Elsewhere only what is put into use is written.

    Returns:
        What was changed, or would have to be; `str()` of one names the path, the reason and the head of a diff.

    Raises:
        UsageError: the root is no checkout, or what the extra `grafana` brings is not installed.
    """
    with _extra():
        from endturn.generate import files
    return files.run(root, check, config, own=own)


def read_config(file: Path) -> RuleConfig:
    """The rules' configuration that a TOML file describes; raises UsageError for what it does not allow."""
    with _extra():
        from endturn.generate import config
    return config.read(file)


def check_rules(files: Sequence[Path], *, promtool: str | None = None) -> list[Result]:
    """Check rule files; `str()` of a result says what was found. Raises UsageError for what is no rule file."""
    with _extra():
        from endturn.generate import check
    return check.check(files, promtool=promtool)


@contextmanager
def _extra() -> Iterator[None]:
    """Names the extra where something of it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDS:
            raise
        raise UsageError(
            f"{error.name!r} is not installed: pip install 'endturn[grafana]', for `generate` and `rules check`"
        ) from error

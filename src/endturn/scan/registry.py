"""The sources by name, and the recognition of a file's source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final

from endturn.errors import UsageError, did_you_mean
from endturn.scan.head import FileHead, FileShape
from endturn.scan.source import Source

SOURCES: Final = (
    "qwen_code", "claude_code", "codex", "opencode", "otlp", "pi", "openai_batch",
    "anthropic_batch", "gemini_batch", "litellm", "inspect_ai", "mini_swe_agent", "openhands",
    "hermes", "gemini_cli", "bedrock_log", "cline", "copilot", "har", "langsmith",
)  # fmt: skip
"""The names of the sources, which are those of their modules. The first that recognises a file
reads it, so a source that is strict stands before one that takes many files."""

_BESIDE_DATABASE: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\x18\xe2\x2d\x00")
"""The first bytes of SQLite's files next to a database in WAL mode: the log and its index."""


@cache
def source_named(name: str) -> Source:
    """Return a source.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in SOURCES:
        raise UsageError(f"unknown --format {name!r}; {did_you_mean(name, SOURCES)}")
    source: Source = import_module(f"endturn.scan.sources.{name}").SOURCE
    return source


def all_sources() -> Sequence[Source]:
    """Return every source, in the order in which they are tried."""
    return [source_named(name) for name in SOURCES]


def recognise(head: FileHead) -> Source | None:
    """Return the first source that recognises a file by its beginning."""
    shapes = {head.shape}
    if head.shape is FileShape.LINES and len(head.records) == 1:
        shapes.add(FileShape.VALUE)
    if head.is_list:  # only for files that would otherwise be read as lines
        shapes.add(FileShape.LINES)
    return next(
        (
            source
            for source in all_sources()
            if not shapes.isdisjoint(source.shapes) and source.recognises(head)
        ),
        None,
    )


def is_companion(head: FileHead) -> bool:
    """Return whether a file belongs to a source but holds no calls."""
    is_beside_database = head.text.startswith(_BESIDE_DATABASE)
    return is_beside_database or any(source.is_companion(head) for source in all_sources())

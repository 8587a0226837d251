"""How the templates of this package are read: as Jinja has it, each tag on a line of its own without a trace."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(folder: str) -> Environment:
    """What renders the templates of a folder; an unknown name is an error."""
    return Environment(
        loader=PackageLoader(__package__, folder),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - none is HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

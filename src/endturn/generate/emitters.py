"""Who else tells why a model stopped, from `emitters.yaml`: where the Collector looks, and the page about them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import yaml

from endturn.generate.templates import page


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An attribute of a span in which a stop reason stands, besides `gen_ai.response.finish_reasons`.

    Attributes:
        provider: whose reasons these are, where the attribute is one provider's alone.
        span: the only span that it is read from, where its name is too plain to be anybody's.
    """

    attribute: str
    provider: str = ""
    span: str = ""


DATA: Final[dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("emitters.yaml").read_text(encoding="utf-8"))
INFERENCE: Final[tuple[str, ...]] = tuple(DATA["inference"])
"""The operations, in any case, whose spans stand for one answer of a model."""
SOURCES: Final = tuple(Source(**row) for row in DATA["sources"])
"""Where a reason is looked for, in this order, after `gen_ai.response.finish_reasons`."""
[CLAUDE_CODE] = [source for source in SOURCES if source.span]
"""The one that is told by its span's name."""


def emitters_page() -> str:
    """The page about them, in Markdown."""
    return page("emitters", emitters=DATA["emitters"], evidence=DATA["evidence"], sources=SOURCES, operations=INFERENCE)

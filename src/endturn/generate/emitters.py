"""Other emitters of stop reasons: the attributes that the Collector reads, and the page on them.

The spans of calls and the attributes with reasons are in tables that the library reads too:
`data/span_kinds.tsv` and `data/reason_attributes.tsv`. Facts on each emitter are in
`emitters.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import yaml

from endturn.generate.templates import page
from endturn.telemetry import schema
from endturn.vocabulary import package_data, read_tsv


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeSource:
    """A span attribute with a stop reason, besides `gen_ai.response.finish_reasons`.

    Attributes:
        provider: the provider of these reasons, if only one writes the attribute.
        span: the only span that it is read from, if its name is too generic.
    """

    attribute: str
    provider: str = ""
    span: str = ""


DATA: Final[dict[str, Any]] = yaml.safe_load(
    files(__package__).joinpath("emitters.yaml").read_text(encoding="utf-8")
)
INFERENCE: Final = tuple(
    value
    for _, (attribute, kind, values, _) in read_tsv(package_data(), "span_kinds.tsv", range(4, 5))
    if attribute == schema.OPERATION.key and kind == "call"
    for value in values.split()
)
"""The operations, in any case, whose spans represent one answer of a model."""
SOURCES: Final = tuple(
    AttributeSource(attribute=attribute, provider=provider.strip("-"), span=span.strip("-"))
    for _, (attribute, provider, span, readers) in read_tsv(
        package_data(), "reason_attributes.tsv", range(4, 5)
    )
    if readers in ("both", "collector")
)
"""Sources of a reason, in the order of the search, after `gen_ai.response.finish_reasons`."""
[CLAUDE_CODE] = [source for source in SOURCES if source.span]
"""The only source that is recognised by its span's name."""


def emitters_page() -> str:
    """Return the page on the emitters, in Markdown."""
    return page(
        "emitters",
        emitters=DATA["emitters"],
        evidence=DATA["evidence"],
        sources=SOURCES,
        operations=INFERENCE,
    )

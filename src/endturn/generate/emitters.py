"""Who else tells why a model stopped, from `emitters.yaml`: where the Collector looks, and the page about them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import yaml

from endturn.generate.markdown import page, table


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
    columns = ("name", "where", "says", "trust", "fills", "evidence")
    rows = [[row.get(column, "") for column in columns] for row in DATA["emitters"]]
    return page(
        "What others tell",
        "Any agent, in any language, that sends spans to the Collector is counted by its stop reasons there "
        "([collector.md](collector.md)), if its instrumentation tells them. This page says which do.",
        "*Yes* and *partly* mean: the Stop reasons dashboard, the truncation rate, suspected truncations and the "
        "tickets about them are filled, *partly* because the emitter keeps some truncations to itself. Panels about "
        "**turns and continuations need endturn in the process**: no span of others says whether anybody asked for "
        "the rest.",
        table(("emitter", "where the reason stands", "in which words", "beware", "fills", "evidence"), rows),
        "Evidence: " + "; ".join(f"*{name}*: {says}" for name, says in DATA["evidence"].items())
        + ". As of November 2026.",
        "## Where the Collector looks",
        "First `endturn.stop.reason`: what has it is left as it is. Then "
        + ", ".join(
            ["`gen_ai.response.finish_reasons` (the first position)", *(f"`{each.attribute}`" for each in SOURCES)]
        )
        + ". Where a span names its operation (`gen_ai.operation.name`), it must be a model's answer: "
        + ", ".join(f"`{each}`" for each in INFERENCE)
        + " or one that is fetched again, in any case; spans of agents and workflows repeat the reasons of those below "
        "them. A failed call without any is `error`, unless the class of its error says more "
        "(`LengthFinishReasonError` is `max_tokens`). A call that was not failed and has no reason is not counted: "
        "its emitter tells none.",
        "## Two spans for one call",
        "Where two instrumentations see one call, each makes a span, and the Collector cannot tell that they are of "
        "one call. Switch one off (Anthropic's own: `ANTHROPIC_OPEN_TELEMETRY=false`), or name the instrumentation "
        "scopes that are not to be counted, as a regular expression: "
        "`ENDTURN_UNCOUNTED_SCOPES='^com[.]anthropic[.]sdk'` (a dot in brackets, no backslashes). Spans that endturn "
        "enriches are never counted twice.",
    )  # fmt: skip

"""The generated documents.

The telemetry reference, the states of the controllers, one runbook page for each alert, and others.
They are rendered from the Jinja templates `pages/*.md` and from the declarations in the code.
"""

from __future__ import annotations

from typing import Final

from endturn.continuation import machine
from endturn.formats import FORMATS, dialect_in, format_of
from endturn.frameworks import lookup
from endturn.generate import cardinality, plan, recorded_counts
from endturn.generate.alerts import ALERTS, turns
from endturn.generate.alerts.model import AlertSettings
from endturn.generate.config import AlertLimits, RuleConfig
from endturn.generate.emitters import emitters_page
from endturn.generate.queries import duration
from endturn.generate.rules import AlertRule, alert_rules
from endturn.generate.settings_page import settings_page
from endturn.generate.templates import page
from endturn.telemetry import INDICATORS, schema, series
from endturn.vocabulary import PROVIDERS, TRUNCATED, Auth, apis

SENT_AS: Final = {auth: f"`{auth.value}`" for auth in Auth} | {
    Auth.BEARER: "bearer token",
    Auth.SIGV4: "AWS signature, or a bearer token where there is a key",
}
"""Description of each way to send credentials."""


def files(config: RuleConfig) -> dict[str, str]:
    """Return the documents, by path from the root."""
    rules_of: dict[str, list[AlertRule]] = {}
    for rule in alert_rules(config):
        rules_of.setdefault(rule.alert.name, []).append(rule)
    pages = {
        "telemetry": page(
            "telemetry", schema=schema, rules=recorded_counts, indicators=INDICATORS.values()
        ),
        "cardinality": page("cardinality", schema=schema, labels=series, cardinality=cardinality),
        "plan": page("plan", plan=plan),
        "providers": providers(),
        "state-diagram": page("state-diagram", machine=machine),
        "stop-reasons": stop_reasons(),
        "runbooks/README": page("runbooks", alerts=[rules[0].alert for rules in rules_of.values()]),
        "alerts": alerts(),
        "alert-configuration": configuration(),
        "emitters": emitters_page(),
        "configuration": settings_page(),
    }
    pages |= {
        f"runbooks/{name}": page("runbook", alert=rules[0].alert, rules=rules)
        for name, rules in rules_of.items()
    }
    return {f"docs/{name}.md": text for name, text in pages.items()}


def alerts() -> str:
    """Return the page on the alerts, with the default limits."""
    others = [alert for alert in ALERTS if alert not in turns.ALERTS]
    return page("alerts", of_turns=turns.ALERTS, others=others, settings=AlertSettings())


def configuration() -> str:
    """Return the page on every key of the configuration file."""
    keys = [
        (f"{prefix}{name}", _default(name, field.default), field.description)
        for model, prefix in ((RuleConfig, ""), (AlertLimits, "alerts."))
        for name, field in model.model_fields.items()
        if field.description and name != "services"
    ]
    return page("alert-configuration", keys=keys)


def _default(name: str, value: object) -> str:
    if name == "period":
        return f'"{duration(int(str(value)))}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def providers() -> str:
    """Return the page of the providers."""
    rows = [
        (name, provider, dialect_in(format_of(provider.format), name))
        for name, provider in sorted(PROVIDERS.items())
    ]
    formats = [(name, format_of(name).framing, apis(name).values()) for name in FORMATS]
    return page("providers", providers=rows, sent_as=SENT_AS, formats=formats)


def stop_reasons() -> str:
    """Return the page on the stop reasons, and on every API's values for them."""
    return page("stop-reasons", reasons=lookup, truncated=TRUNCATED)

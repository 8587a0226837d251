"""PromQL as the tests look at it: parsed by an independent parser, its selectors and its labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser

from endturn.generate import losses, promql, rules, slo
from endturn.generate.rules import RuleConfig
from endturn.telemetry import indicators, schema

WINDOWS = {"$__rate_interval": "4m", "$__interval": "5m", "$__range": "6h", "$window": "1h"}
SUFFIXES = ("", "_bucket", "_sum", "_count")


def parse(expression: str) -> Any:
    """The expression, with a dashboard's variables replaced."""
    for name, value in WINDOWS.items():
        expression = expression.replace(name, value)
    return promql_parser.parse(re.sub(r"\$[a-z_]+", ".*", expression))


def children(node: Any) -> list[Any]:
    match node:
        case promql_parser.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            return [node.expr]
        case promql_parser.Call():
            return list(node.args)
        case promql_parser.MatrixSelector():
            return [node.vector_selector]
        case promql_parser.SubqueryExpr():
            return [node.expr]
        case _:
            return []


def walk(node: Any) -> Iterator[Any]:
    yield node
    for child in children(node):
        yield from walk(child)


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Every series that the expression reads, by name, with the labels that it asks about."""
    return [
        (str(node.name), {matcher.name for matcher in node.matchers.matchers})
        for node in walk(parse(expression))
        if isinstance(node, promql_parser.VectorSelector)
    ]


def labels(node: Any) -> set[str]:
    """The labels that a result has for certain."""
    match node:
        case promql_parser.AggregateExpr():
            return set(node.modifier.labels) if node.modifier else set()
        case promql_parser.BinaryExpr():
            left = labels(node.lhs)
            return left | labels(node.rhs) if "or" in str(node.op) else left or labels(node.rhs)
        case promql_parser.Call() if node.func.name == "label_replace":
            return labels(node.args[0]) | {node.args[1].val}
        case promql_parser.Call() if node.func.name == "clamp_min":
            return labels(node.args[0])
        case promql_parser.Call() if node.args:
            # What is asked of a histogram's buckets has no bucket any more.
            own = {promql.LE} if node.func.name == "histogram_quantile" else set()
            return labels(node.args[-1]) - own
        case promql_parser.ParenExpr():
            return labels(node.expr)
        case promql_parser.MatrixSelector():
            return labels(node.vector_selector)
        case promql_parser.VectorSelector():
            return set(known()[str(node.name)])
        case _:
            return set()


def known(config: RuleConfig | None = None) -> dict[str, frozenset[str]]:
    """Every series that may be read: of the schema, recorded, of others; with its labels."""
    config = config or RuleConfig()
    names = {name: frozenset({*own, promql.JOB, promql.INSTANCE}) for name, own in promql.FOREIGN.items()}
    for metric in schema.METRICS:
        carried = {promql.JOB, promql.INSTANCE, promql.LE, *(attribute.label for attribute in metric.attributes)}
        successors = [successor.name for successor in promql.SUCCESSORS.get(metric.prometheus, ())]
        for name in (metric.prometheus, *successors):
            names |= {name + suffix: frozenset(carried) for suffix in SUFFIXES}
    recorded = [rules.HEARTBEAT, *(rules.recorded(count, config) for count in indicators.COUNTS)]
    recorded += [*slo.recorded(config), losses.recorded("lost", config), losses.recorded("refused", config)]
    recorded += [*rules.remembered(), *losses.remembered()]
    return names | {each.name: each.labels for each in recorded}

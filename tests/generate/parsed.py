"""PromQL as the tests look at it: parsed by an independent parser, each series that it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser

WINDOWS = {"$__range_s": "21600", "$__rate_interval": "4m", "$__interval": "5m", "$__range": "6h", "$window": "1h"}


def filled(expression: str) -> str:
    """The expression, with a dashboard's variables replaced."""
    for name, value in WINDOWS.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z_]+", ".*", expression)


def parse(expression: str) -> Any:
    """The expression's tree."""
    return promql_parser.parse(filled(expression))


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


def selectors(expression: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every series that the expression reads, by name, with the labels that it asks about and their values."""
    return [
        (str(node.name or ""), [(matcher.name, matcher.value) for matcher in node.matchers.matchers])
        for node in walk(parse(expression))
        if isinstance(node, promql_parser.VectorSelector)
    ]

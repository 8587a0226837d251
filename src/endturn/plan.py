"""What a fleet needs: series, samples, Kafka, gateways and disks, computed by the formulas of data/plan.toml.

The formula that is shown is the one that is computed.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from endturn.errors import UsageError
from endturn.tables import shipped

Number = int | float
Values = Literal["compose", "kustomize"]

OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"ceil": math.ceil, "max": max}
COMPOSED: Final = 3
"""Gateways that docker-compose.fleet.yml starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What is known of a fleet; without a default it has to be said, and of `whole` things there is no part."""

    name: str
    says: str
    unit: str
    default: Number | None = None
    least: Number = 0
    most: Number = math.inf
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number that was measured, or is from elsewhere, as `source` says."""

    name: str
    value: Number
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """How a figure is computed, and what it comes to in one fleet."""

    name: str
    says: str
    unit: str
    formula: str
    value: Number = math.nan


_data: Final[dict[str, dict[str, Any]]] = tomllib.loads(shipped().joinpath("plan.toml").read_text("utf-8"))
INPUTS: Final = tuple(Input(name=name.replace("-", "_"), **row) for name, row in _data["inputs"].items())
CONSTANTS: Final = tuple(Constant(name=name, **row) for name, row in _data["constants"].items())
FORMULAS: Final = tuple(Figure(name=name, **row) for name, row in _data["figures"].items())


def figures(**known: Number) -> list[Figure]:
    """Every figure of a fleet, in the order of the file.

    Args:
        known: inputs by name; of the others the defaults.

    Raises:
        UsageError: an input is missing, unknown, or out of its bounds.
    """
    scope = _scope(known)
    found = []
    for each in FORMULAS:
        scope[each.name] = evaluate(each.formula, scope)
        found.append(replace(each, value=scope[each.name]))
    return found


def settings(found: Sequence[Figure], **known: Number) -> dict[str, str]:
    """The variables of the fleet's Compose profile and manifests, by name, for these figures of these inputs."""
    scope = _scope(known) | {each.name: each.value for each in found}
    made = {name: f"{evaluate(formula, scope):.10g}" for name, formula in _data["values"].items()}
    return {name: f"{value}s" if name.endswith("_WAIT") else value for name, value in made.items()}


def evaluate(formula: str, scope: Mapping[str, Number]) -> Number:
    """The value of a formula: numbers, names of the scope, + - * /, ceil and max.

    Raises:
        UsageError: it holds anything else.
    """

    def value(node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in scope:
                return scope[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))  # type: ignore[no-any-return]
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](*map(value, arguments))  # type: ignore[no-any-return]
        raise UsageError(f"{ast.unparse(node)!r} in {formula!r} is no number, operation or name that is known there")

    return value(ast.parse(formula, mode="eval").body)


def _scope(known: Mapping[str, Number]) -> dict[str, Number]:
    """Inputs and constants by name."""
    if unknown := known.keys() - {each.name for each in INPUTS}:
        raise UsageError(f"a plan has no input {min(unknown)!r}: use {', '.join(each.name for each in INPUTS)}")
    scope: dict[str, Number] = {each.name: each.value for each in CONSTANTS}
    for each in INPUTS:
        given = known.get(each.name, each.default)
        if given is None:
            raise UsageError(f"say how many {each.name} there are: {each.says}")
        if not (math.isfinite(given) and each.least <= given <= each.most):
            bounds = f"at least {each.least}" + (f", at most {each.most}" if each.most < math.inf else "")
            raise UsageError(f"{each.name}={given!r}: it is {bounds} ({each.says})")
        if each.whole and given != int(given):
            raise UsageError(f"{each.name}={given!r}: it is a whole number ({each.says})")
        scope[each.name] = given
    if (together := scope["truncated"] + scope["failed"]) > 1:
        raise UsageError(f"truncated and failed are shares of the same turns: together {together:g} is more than all")
    return scope


# --- As text ------------------------------------------------------------------------------------------------------


def shown(value: Number) -> str:
    """A number as people read it: three digits, thousands apart."""
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_table(found: Sequence[Figure]) -> str:
    """The figures, each with its formula."""
    rows = [(shown(each.value), each.unit, each.name, each.formula) for each in found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{value:>{widths[0]}} {unit:<{widths[1]}}  {name:<{widths[2]}} = {formula}"
        for value, unit, name, formula in rows
    )


def as_values(kind: Values, found: Sequence[Figure], **known: Number) -> str:
    """The settings as an `.env` of Compose, or as a component of an overlay over `kubernetes/`.

    Raises:
        UsageError: Compose would start fewer gateways than it takes.
    """
    made = settings(found, **known)
    [gateways] = [each.value for each in found if each.name == "gateways"]
    if kind == "compose":
        if gateways > COMPOSED:
            raise UsageError(f"it takes {gateways} gateways, docker-compose.fleet.yml starts {COMPOSED}: use kustomize")
        return "\n".join(f"{name}={value}" for name, value in made.items())
    # Kafka's own settings are not the Collectors'.
    literals = [f"      - {name}={value}" for name, value in made.items() if name.startswith("ENDTURN_")]
    head = ["apiVersion: kustomize.config.k8s.io/v1alpha1", "kind: Component", "configMapGenerator:"]
    head += ["  - name: endturn-fleet", "    behavior: merge", "    literals:"]
    scale = ["replicas:", "  - name: endturn-gateway", f"    count: {gateways}"]
    return "\n".join((*head, *literals, *scale))


def command(*, as_json: bool, values: Values | None, **known: Number) -> int:
    """`endturn plan`: print the figures, or the settings of a fleet."""
    if as_json and values:
        raise UsageError("--json prints figures, and --values settings: use one of them")
    found = figures(**known)
    if values:
        print(as_values(values, found, **known))
    elif as_json:
        print(json.dumps([asdict(each) for each in found], ensure_ascii=False, indent=2))
    else:
        print(as_table(found))
    return 0

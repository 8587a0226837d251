"""Every LogQL and TraceQL that is shipped: where it stands, what it names that there is not, and what it finds.

Loki and Tempo are not built here. Grafana's grammars parse the searches, the schema says which names there are, and
what a search of events finds is worked out from the records that the Collector writes, as Loki's documentation says:
attributes are labels with `_` for whatever is no letter or digit, what is not there is empty, an expression matches the
whole value (https://grafana.com/docs/loki/latest/send-data/otel/, .../query/log_queries/).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from endturn.telemetry import schema
from tests.support.grammar import Language, Node, parsed
from tests.support.processes import REPOSITORY, shipped

EVERYTHING = {"service": ".+", "namespace": ".+", "environment": ".*", "cluster": ".*", "provider": ".*", "model": ".*"}
"""What a dashboard's variables hold where everything is chosen."""
TRACE: Final = "traceId"
"""The variable that holds the trace to draw."""
_LINKED = {"__tags": 'service_name="agent"', "__trace": "0" * 32, TRACE: "0" * 32}
_OTLP = shipped("stack/loki.yaml")["limits_config"]["otlp_config"]["resource_attributes"]
RESOURCE: Final = tuple(_OTLP["attributes_config"][0]["attributes"])
"""What of a resource Loki indexes, and Tempo is asked for."""
BESIDE: Final = {"trace_id", "span_id"}
"""What of a record Loki keeps beside its attributes, as far as it is asked for."""
EVENT: Final = "event_name"
"""The label that `transform/keep_event_name` makes."""


def label(name: str) -> str:
    """What Loki calls an attribute."""
    return re.sub(r"\W", "_", name)


INDEXED: Final = tuple(map(label, RESOURCE))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The query as Grafana would send it; each variable has to have a value."""
    named = re.compile(r"\$(?:([a-z_]\w*)|\{(\w+)(?::\w+)?\})")
    return named.sub(lambda found: values[found[1] or found[2]], text)


# Where they stand


class Shipped(NamedTuple):
    """One search, and the file that says it."""

    file: str
    language: Language
    text: str

    @property
    def asked(self) -> str:
        """With everything chosen, and whatever a link fills in."""
        return filled(re.sub(r"\$(\{?__\w+)\.\w+", r"$\1", self.text), EVERYTHING | _LINKED)


def every() -> list[Shipped]:
    """All of dashboards, of links between data sources, and of documents."""
    return [*_of_dashboards(), *_of_links(), *_of_documents()]


def _of_dashboards() -> Iterator[Shipped]:
    for file in sorted((REPOSITORY / "dashboards").glob("*.json")):
        for node in _nodes(json.loads(file.read_text())):
            kind = node["datasource"].get("type") if isinstance(node.get("datasource"), dict) else None
            text = node.get("query") or node.get("expr")
            if kind in ("loki", "tempo") and isinstance(text, str) and text != f"${TRACE}":
                yield Shipped(file.name, "logql" if kind == "loki" else "traceql", text)


def _of_links() -> Iterator[Shipped]:
    for source in shipped("dashboards/provisioning/datasources/endturn.yaml")["datasources"]:
        for node in _nodes(source):
            if "customQuery" in node:  # `$$` is how Grafana's files spell `$`
                yield Shipped(source["name"], "logql", node["query"].replace("$$", "$"))


def _of_documents() -> Iterator[Shipped]:
    for file in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))):
        for text in re.findall(r"`(\{(?:\$__| *[\w.]+ *[=!<>])[^`]*)`", file.read_text()):
            plain = text.replace(r"\|", "|")  # as a table spells it
            yield Shipped(file.name, "traceql" if re.search(r"\b(span|resource)\.", plain) else "logql", plain)


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _nodes(each)


# Events

_UNDERSTOOD: Final = {
    "LogQL", "Expr", "LogExpr", "Selector", "Matchers", "Matcher", "Identifier", "Eq", "Neq", "Re", "Nre", "String",
    "PipelineExpr", "PipelineStage", "Pipe", "LabelFilter", "LineFormatExpr", "LineFormat",
}  # fmt: skip
"""What the grammar calls the parts of a search that is worked out here."""


class Matcher(NamedTuple):
    """One comparison of a label with a text."""

    label: str
    op: str
    value: str

    @classmethod
    def of(cls, node: Node) -> Self:
        """From a `Matcher` of the grammar."""
        name, op, value = node.children
        return cls(name.text, op.text, _text(value.text))

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether what has these labels passes."""
        value = labels.get(self.label, "")
        same = value == self.value if self.op in ("=", "!=") else bool(re.fullmatch(self.value, value))
        return same != self.op.startswith("!")

    def strange(self, known: Iterable[str]) -> list[str]:
        """Those of the values that it lets through, `|` between them, that nothing known is."""
        if self.op.startswith("!"):
            return []
        asked = [self.value] if self.op == "=" else [each for each in self.value.split("|") if each]
        one = re.escape if self.op == "=" else str
        return [each for each in asked if not any(re.fullmatch(one(each), value) for value in known)]


class Search(NamedTuple):
    """A search of events: a selector, filters by label, and how a line is written."""

    stream: tuple[Matcher, ...]
    filters: tuple[Matcher, ...]
    template: str

    @classmethod
    def of(cls, tree: Node) -> Self:
        """From a parsed query; one that does anything else wants a check of its own."""
        assert not tree.errors, (tree.text, tree.errors)
        others = {node.name for node in tree.every()} - _UNDERSTOOD
        assert not others, f"{tree.text}: {others} are not understood here"
        [selector] = tree.every("Selector")
        templates = [node.children[1].text for node in tree.every("LineFormatExpr")]
        return cls(
            tuple(map(Matcher.of, selector.every("Matcher"))),
            tuple(Matcher.of(node) for stage in tree.every("PipelineStage") for node in stage.every("Matcher")),
            _text(templates[-1]) if templates else "",
        )

    @property
    def shown(self) -> set[str]:
        """The labels that a line holds."""
        return set(re.findall(r"\{\{ *\.(\w+)", self.template))

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a record with these labels is found."""
        return all(each.takes(labels) for each in (*self.stream, *self.filters))

    def lines(self, records: Iterable[dict[str, Any]]) -> list[str]:
        """One line for each record that is found, sorted."""
        return sorted(self._line(labels) for labels in map(labelled, records) if self.takes(labels))

    def _line(self, labels: Mapping[str, str]) -> str:
        return re.sub(r"\{\{\.(\w+)\}\}", lambda name: labels.get(name[1], ""), self.template)


def search(text: str) -> Search:
    """A LogQL query, understood."""
    [tree] = parsed([("logql", text)])
    return Search.of(tree)


def labelled(record: dict[str, Any]) -> dict[str, str]:
    """A record's labels in Loki, of its resource's attributes and its own."""
    plain = {label(name): value for name, value in (record["resource"] | record["attributes"]).items()}
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in plain.items()}
    return text | {"trace_id": record.get("traceId", ""), "span_id": record.get("spanId", "")}


def _text(literal: str) -> str:
    return literal[1:-1] if literal.startswith("`") else str(json.loads(literal))


# What there is


def strange(language: Language, tree: Node) -> list[str]:
    """What a search does not say right: slips of the pen, and names and values that the schema lacks."""
    if tree.errors:
        return [f"no {language}: {text!r}" for text in tree.errors]
    return _strange_events(Search.of(tree)) if language == "logql" else _strange_spans(tree)


def _strange_events(found: Search) -> list[str]:
    wrong = [f"{each.label} is no index label" for each in found.stream if each.label not in INDEXED]
    named = [each for each in found.filters if each.label == EVENT]
    names = [event.name for event in schema.EVENTS]
    wrong += [f"no event is {value}" for each in named for value in each.strange(names)]
    events = [event for event in schema.EVENTS if all(each.takes({EVENT: event.name}) for each in named)]
    held = {event.name: {each.label: each for each in event.attributes} for event in events}
    for each in found.filters:
        if each.label in {EVENT, *BESIDE, *INDEXED}:
            continue
        wrong += [f"{name} has no {each.label}" for name, labels in held.items() if each.label not in labels]
        values = {value for labels in held.values() if each.label in labels for value in _values(labels[each.label])}
        wrong += [f"{each.label} is never {value}" for value in (each.strange(values) if values else [])]
    shown = {EVENT, *BESIDE, *INDEXED, *(name for labels in held.values() for name in labels)}
    return wrong + [f"no line has {name}" for name in sorted(found.shown - shown)]


def _strange_spans(tree: Node) -> list[str]:
    """All that is named of a span has to be on one: a search is of one kind of span."""
    fields = [node.text.split(".", 1) for node in tree.every("AttributeField")]
    named = {name for scope, name in fields if scope == "span"}
    wrong = [f"{name} of what?" for scope, name in fields if scope not in ("span", "resource")]
    wrong += [f"no resource has {name}" for scope, name in fields if scope == "resource" and name not in RESOURCE]
    known = {each.key: each for span in schema.SPANS for each in span.attributes}
    wrong += [f"no span has {name}" for name in sorted(named - known.keys())]
    if not wrong and not any(named <= {each.key for each in span.attributes} for span in schema.SPANS):
        wrong.append(f"no span has all of {sorted(named)}")
    for attribute, op, value in _comparisons(tree):
        if attribute in known:
            wrong += _strange_value(known[attribute], op, value)
    return wrong


def _comparisons(tree: Node) -> Iterator[tuple[str, str, Node]]:
    """Each attribute of a span with what it is compared with."""
    for node in tree.every("FieldExpression"):
        match node.children:
            case [
                Node("FieldExpression", _, (Node("AttributeField", _, (Node("Span"), Node(text=name))),)),
                Node("FieldOp", op),
                Node("FieldExpression", _, (Node("Static") as value,)),
            ]:
                yield name, op, value


def _strange_value(attribute: schema.Attribute, op: str, value: Node) -> list[str]:
    kind = next((child.name for child in value.children), value.text)
    kinds = {"boolean": ("true", "false"), "int": ("Integer",), "double": ("Float", "Integer")}
    if kind not in (*kinds.get(attribute.type, ("String",)), "nil"):
        return [f"{attribute.key} is a {attribute.type}, not {value.text}"]
    if kind != "String" or not attribute.values:
        return []
    wanted = Matcher(attribute.key, op, _text(value.text))
    return [f"{attribute.key} is never {each}" for each in wanted.strange(attribute.values)]


def _values(attribute: schema.Attribute) -> tuple[str, ...]:
    return attribute.values or (("true", "false") if attribute.type == "boolean" else ())

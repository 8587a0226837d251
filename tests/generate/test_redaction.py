"""Every name of redacted_names is deleted from spans, by expressions that Go matches in one pass."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from endturn.generate import redaction
from endturn.generate.redacted_names import NAME_SOURCES, Kind, names_of
from endturn.telemetry import schema
from tests.support.processes import REPOSITORY

DELETES = re.compile(r'delete_matching_keys\((\w+)\.attributes, (".*")\)')
REPLACES = re.compile(r'replace_pattern\(span\.attributes\["([^"]+)"\], ("(?:[^"\\]|\\.)*"), ("[^"]*")\) where .+')

KINDS: tuple[Kind, ...] = ("content", "content_trees", "content_lists", "errors", "credentials", "credential_trees")
TREES: tuple[Kind, ...] = ("content_trees", "content_lists", "credential_trees")


def keys(kind: Kind) -> Iterator[str]:
    """The names of a kind as keys: an index follows the name of a list."""
    for name in names_of(kind):
        yield f"{name}.12" if kind == "content_lists" else name


LISTED = {key for kind in KINDS for key in keys(kind)}


def statements(signal: str) -> list[str]:
    """Return the statements of the shipped processors of both files for a signal."""
    found: list[str] = []
    for file in ("collector", "redaction"):
        processors: dict[str, Any] = yaml.safe_load((REPOSITORY / f"collector/{file}.yaml").read_text())["processors"]
        for name in ("transform/drop_credentials", "transform/drop_message_content"):
            groups = (processors.get(name) or {}).get(signal, [])
            found += [statement for group in groups for statement in group["statements"]]
    return found


def patterns(of: str) -> list[re.Pattern[str]]:
    """Return the patterns for the keys of a map, such as a span's."""
    found = [match for each in statements("trace_statements") if (match := DELETES.fullmatch(each)) and match[1] == of]
    return [re.compile(json.loads(match[2])) for match in found]


@pytest.mark.parametrize("kind", KINDS)
def test_each_name_is_deleted_in_any_case_and_nothing_longer(kind: Kind) -> None:
    expressions = patterns("span")
    assert [*keys(kind)]
    for key in keys(kind):
        for written in (key, key.upper(), f" {key}\n"):
            assert any(pattern.match(written) for pattern in expressions), written
        assert key + "s" in LISTED or not any(pattern.match(key + "s") for pattern in expressions), key
        below = [pattern for pattern in expressions if pattern.match(f"{key}.x y")]
        assert bool(below) == (kind in TREES), key


def test_every_name_is_plain_and_has_one_place_in_the_table() -> None:
    """A pattern could begin like another name: Go would then try all branches at once, ten times as long."""
    assert len({entry.source for entry in NAME_SOURCES}) == len(NAME_SOURCES)
    for kind in (*KINDS, "event_fields", "urls"):
        names = [name for entry in NAME_SOURCES for name in getattr(entry, kind)]
        assert len(names) == len(set(names)), kind
        assert [name for name in names if not re.fullmatch(r"[\w.-]+", name)] == []
    assert set(names_of("event_fields")).isdisjoint(LISTED)


def test_go_is_fast_at_every_pattern_that_spans_are_matched_against() -> None:
    """With a thousand instructions it would no longer match in one pass; each pattern adds to the cost of a span."""
    expressions = patterns("span")
    assert len(expressions) == 8
    assert all(len(re.findall(r"\\.|\[[^]]+\]|[^()?:\\\[]", each.pattern)) < 990 for each in expressions)


@pytest.mark.parametrize(
    "key",
    [
        "openai.api_key",
        "my.service.apiKey",
        "X-Api-Key",
        "db.password",
        "oauth.access_token",
        "vault.token",
        "ssh_passphrase",
    ],
)
def test_a_resource_loses_whatever_ends_like_a_credential(key: str) -> None:
    assert any(pattern.search(key) for pattern in patterns("resource"))


@pytest.mark.parametrize(
    "key", ["service.name", "k8s.pod.name", "telemetry.sdk.name", "host.id", "gen_ai.usage.output_tokens", "keyboard"]
)
def test_a_resource_keeps_what_is_no_credential(key: str) -> None:
    assert not any(pattern.search(key) for pattern in patterns("resource"))


CLEAN = {
    "https://api.example.com/v1/models?alt=sse": "https://api.example.com/v1/models?alt=sse",
    "https://h/v1?key=SECRET&alt=sse": "https://h/v1?key=REDACTED&alt=sse",
    "https://h/v1?alt=sse&api_key=SECRET#part": "https://h/v1?alt=sse&api_key=REDACTED#part",
    "https://user:SECRET@h/v1": "https://REDACTED@h/v1",
    "//user:SECRET@h/?Sig=SECRET": "//REDACTED@h/?Sig=REDACTED",
    "https://h/?AWSAccessKeyId=SECRET&Signature=SECRET": "https://h/?AWSAccessKeyId=REDACTED&Signature=REDACTED",
    "https://h/?X-Goog-Signature=SECRET;X-Amz-Credential=SECRET": (
        "https://h/?X-Goog-Signature=REDACTED;X-Amz-Credential=REDACTED"
    ),
    "https://h/?keyword=a&design=b&author=c&page=2": "https://h/?keyword=a&design=b&author=c&page=2",
    "key=SECRET&q=1": "key=REDACTED&q=1",
    "/v1/generate?access_token=SECRET": "/v1/generate?access_token=REDACTED",
    "mail@example.com": "mail@example.com",
}
"""A URL, a target or a query → what is left of it, by the conventions of `url.full`."""


@pytest.mark.parametrize("name", names_of("urls"))
def test_secrets_in_a_url_are_replaced_and_the_rest_stays(name: str) -> None:
    """The statements are applied as Go does: `$1` is the group, `$$` is how the configuration spells `$`."""
    found = [
        match for each in statements("trace_statements") if (match := REPLACES.fullmatch(each)) and match[1] == name
    ]
    assert len(found) == 2
    for url, left in CLEAN.items():
        for match in found:
            replacement = json.loads(match[3]).replace("$$1", r"\g<1>")
            url = re.sub(json.loads(match[2]), replacement, url)
        assert url == left


def test_no_attribute_of_endturns_spans_without_content_is_searched_for() -> None:
    """Spans with the attribute count are not searched, so they must not have such names."""
    keys = {attribute.key for span in schema.SPANS for attribute in span.attributes if not attribute.opt_in}
    assert schema.ATTRIBUTE_COUNT.key in keys
    assert [key for key in keys if any(pattern.match(key) for pattern in patterns("span"))] == []
    for span in schema.SPANS:
        assert schema.ATTRIBUTE_COUNT in span.attributes


def test_attributes_that_hold_a_stop_reason_are_kept() -> None:
    """The reason of an old span is below the names of its content."""
    assert "gen_ai.completion.0.finish_reason" in redaction.preserved_attributes()

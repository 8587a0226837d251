"""Metrics of Collectors and SDKs are declared in one place, `external_metrics`, with all their names."""

from __future__ import annotations

import re

import pytest

from endturn.generate import external_metrics as external
from endturn.generate.external_metrics import EXTERNAL_METRICS, ExternalMetric, MetricFamily
from endturn.generate.queries import Matcher

FAMILIES = {name: value for name, value in vars(external).items() if isinstance(value, MetricFamily)}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_expression_of_a_family_has_just_the_names_of_its_metrics(name: str) -> None:
    family = FAMILIES[name]
    pattern = family.name_matcher.value
    read = {spelling for metric in EXTERNAL_METRICS for spelling in metric.names if re.fullmatch(pattern, spelling)}
    assert read == {spelling for metric in family.metrics for spelling in metric.names}


def test_a_selector_of_a_family_reads_every_spelling() -> None:
    lag = external.family(ExternalMetric("lag", suffixes=("", "_ratio")))
    assert lag.select() == '{__name__=~"lag(_ratio)?"}'
    assert lag.select(Matcher("job", "=~", "a|b")) == '{__name__=~"lag(_ratio)?",job=~"a|b"}'
    several = external.family(ExternalMetric("uptime", suffixes=("", "_total", "_seconds_total")))
    assert several.select() == '{__name__=~"uptime(_total|_seconds_total)?"}'
    assert external.family(ExternalMetric("size")).select() == '{__name__=~"size"}'

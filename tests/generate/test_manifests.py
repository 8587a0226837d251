"""The rules' other forms have the same rules: a PrometheusRule, and Grafana's own alerts in its provisioning form."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import jsonschema
import pytest
import yaml

from endturn.generate import manifests
from endturn.generate.config import RuleConfig
from endturn.generate.rules import alert_rules
from tests.support.processes import REPOSITORY

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models import alerting

CONFIG = RuleConfig()
ALERT_RULES = alert_rules(CONFIG)
GROUP: dict[str, Any] = yaml.safe_load((REPOSITORY / manifests.GRAFANA).read_text())["groups"][0]
RULES: dict[str, Any] = {rule["title"]: rule for rule in GROUP["rules"]}
PROVISIONED = {
    "uid", "title", "condition", "data", "noDataState", "execErrState", "for", "keepFiringFor", "annotations", "labels",
    "isPaused", "missing_series_evals_to_resolve",
}  # fmt: skip
"""The keys that Grafana's file provisioning reads, in its spelling; an unknown one is dropped without a word."""
BOARDS = {json.loads(file.read_text())["uid"] for file in (REPOSITORY / "dashboards").glob("*.json")}
NODE = ("refId", "type", "expr", "expression")


def test_the_prometheus_rule_has_the_operators_form() -> None:
    """It matches the operator's definition; members that the operator would drop silently are an error here."""
    manifest = yaml.safe_load((REPOSITORY / manifests.KUBERNETES).read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert re.fullmatch("[a-z0-9.-]+", manifest["metadata"]["name"])
    assert manifest["spec"] == yaml.safe_load((REPOSITORY / manifests.RULES).read_text())
    definition = yaml.safe_load((REPOSITORY / "tests/data/prometheusrules_crd.yaml").read_text())
    [version] = definition["spec"]["versions"]
    # Its patterns are Go's, so that it is no valid JSON Schema in Python; none that a manifest of ours meets differs.
    schema = jsonschema.Draft202012Validator(_strict(version["schema"]["openAPIV3Schema"]))
    schema.validate(manifest)
    manifest["spec"]["groups"][0]["rules"][0]["keep_firing"] = "5m"
    with pytest.raises(jsonschema.ValidationError, match="'keep_firing' was unexpected"):
        schema.validate(manifest)


def _strict(schema: Any) -> Any:
    """Return the schema without additional members."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return closed | {name: _strict(each) for name, each in schema.items()}


def test_grafana_has_every_alert() -> None:
    """Each alert has its query, times, severity and a stable uid; there is no contact point and no policy.

    The condition is a threshold on whether the query returned a number; each node reads the one before it. Labels,
    whose dollar signs provisioning expands, have none; annotations, left alone, use Grafana's name of a value.
    """
    assert {each.alert.name for each in ALERT_RULES} == RULES.keys()
    assert len({rule["uid"] for rule in RULES.values()}) == len(RULES)
    for each in ALERT_RULES:
        rule = RULES[each.alert.name]
        assert rule.keys() <= PROVISIONED
        assert rule["data"][0]["model"]["expr"] == each.expression
        assert rule["labels"] == each.labels
        assert re.fullmatch(r"endturn-[0-9a-f]{16}", rule["uid"])
        assert rule["keepFiringFor"] == each.keep_firing
        query, is_there, condition = rule["data"]
        assert (query["datasourceUid"], query["model"]["instant"]) == ("prometheus", True)
        assert re.findall(r"\$(\w+)", is_there["model"]["expression"]) == ["query"] * 3
        assert condition["model"]["expression"] == is_there["refId"]
        assert condition["model"]["conditions"] == [{"evaluator": {"type": "gt", "params": [0]}}]
        assert rule["condition"] == condition["refId"]
        assert not re.search(r"\$value\b", json.dumps(rule["annotations"]))
        assert rule["annotations"]["__dashboardUid__"] in BOARDS
    whole = yaml.safe_load((REPOSITORY / manifests.GRAFANA).read_text())
    assert whole.keys() == {"apiVersion", "groups"}
    assert GROUP.keys() == {"orgId", "name", "folder", "interval", "rules"}


def test_grafana_knows_the_shape() -> None:
    """Each rule, in the API's form, survives a round trip through the SDK's models, which drop unknown members."""
    register_default_plugins()
    for rule in RULES.values():
        renamed = ("keepFiringFor", "missing_series_evals_to_resolve")
        posted = {key: value for key, value in rule.items() if key not in renamed}
        posted |= {"keep_firing_for": rule.get("keepFiringFor", "0s"), "missingSeriesEvalsToResolve": 1}
        posted |= {"folderUID": "endturn", "ruleGroup": GROUP["name"], "orgID": 1}
        model = alerting.Rule.from_json(json.loads(json.dumps(posted)))
        back = json.loads(JSONEncoder(sort_keys=True).encode(model))
        for node in (*posted["data"], *back["data"]):
            # The SDK's builders write no `datasource` name, and its queries default to what is left out.
            node["model"] = {key: text for key, text in node["model"].items() if key in NODE}
        assert back == posted

"""Our alert rules in a running Grafana: compared field by field, and written if they differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from endturn.grafana.api import ChangeResult, Grafana
from endturn.grafana.assets import GRAFANA, PREFIX, Uids, with_data_sources

PROVISIONING: Final = "/api/v1/provisioning"
API_FIELD_NAMES: Final = {
    "keepFiringFor": "keep_firing_for",
    "missing_series_evals_to_resolve": "missingSeriesEvalsToResolve",
    "orgId": "orgID",
}
"""Name of a rule's field in a file → in the API."""
FIELDS_OF_NEWER_VERSIONS: Final = frozenset({"keep_firing_for", "missingSeriesEvalsToResolve"})
"""Fields that older versions of Grafana drop: a missing one is no difference."""
OPERATOR_FIELDS: Final = ("isPaused", "notification_settings")
"""Fields of our rules that belong to Grafana's operators: they are never changed in an existing
rule."""
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

Rule = Mapping[str, Any]


def install(
    grafana: Grafana, groups: Sequence[dict[str, Any]], folder: str, uids: Uids
) -> Iterator[ChangeResult]:
    """Install these groups of rules in a folder, and remove our other rules from our groups."""
    there: dict[str, Rule] = {
        rule["uid"]: rule for rule in grafana.get(f"{PROVISIONING}/alert-rules")
    }
    others = {uid: rule for uid, rule in there.items() if rule["folderUID"] == folder}
    for uid in (rule["uid"] for group in groups for rule in group["rules"]):
        others.pop(uid, None)
    obsolete = [
        uid
        for uid, rule in others.items()
        if uid.startswith(PREFIX) and rule["ruleGroup"].startswith(PREFIX)
    ]
    for group in groups:
        rules = [_as_api(rule, group["name"], folder, uids, grafana.url) for rule in group["rules"]]
        foreign = [
            rule
            for uid, rule in others.items()
            if rule["ruleGroup"] == group["name"] and uid not in obsolete
        ]
        yield _install_group(grafana, group, folder, rules, foreign, there)
    for uid in obsolete:
        grafana.write("DELETE", f"{PROVISIONING}/alert-rules/{uid}")
        yield ChangeResult("removed", "rule", uid)


def _install_group(
    grafana: Grafana,
    group: Rule,
    folder: str,
    rules: Sequence[Rule],
    foreign: Sequence[Rule],
    there: Mapping[str, Rule],
) -> ChangeResult:
    """Write a group of rules if it differs; `there` are all rules of the Grafana by uid."""
    name = str(group["name"])
    path = f"{PROVISIONING}/folder/{folder}/rule-groups/{quote(name, safe='')}"
    interval = _seconds(str(group["interval"]))
    former = grafana.get(path, absent=404)
    differing = [rule for rule in rules if not _same_rule(rule, there.get(rule["uid"], {}))]
    updated = [{**rule, **_theirs(there.get(rule["uid"], {}))} for rule in rules]
    paused = sum(bool(rule.get("isPaused")) for rule in updated)
    notes = (
        [f"{len(differing)} of {len(rules)} rules differ"]
        if former and differing
        else [f"{len(rules)} rules"]
    )
    notes += [f"{paused} stay paused"] * bool(paused) + [f"{len(foreign)} of others stay"] * bool(
        foreign
    )
    if former and not differing and former["interval"] == interval:
        return ChangeResult("unchanged", "rules", name, ", ".join(notes))
    body = {"title": name, "folderUid": folder, "interval": interval, "rules": [*updated, *foreign]}
    if refusal := grafana.write("PUT", path, body):
        return ChangeResult("refused", "rules", name, refusal)
    return ChangeResult("updated" if former else "created", "rules", name, ", ".join(notes))


def _theirs(rule: Rule) -> Rule:
    return {key: rule[key] for key in OPERATOR_FIELDS if rule.get(key) is not None}


def _as_api(rule: Rule, group: str, folder: str, uids: Uids, url: str) -> Rule:
    """Return a rule of a provisioning file in the API's form.

    Links to the Grafana of `make up` are replaced by links to this one.
    """
    body: dict[str, Any] = with_data_sources(
        {API_FIELD_NAMES.get(key, key): value for key, value in rule.items()}, uids
    )
    return {"orgID": 1} | body | {
        # Labels in files escape `$` as `$$`, since Grafana expands environment variables there.
        "labels": {key: str(value).replace("$$", "$") for key, value in rule.get("labels",
                                                                                 {}).items()},
        "annotations": {
            key: url + text.removeprefix(GRAFANA) if text.startswith(f"{GRAFANA}/") else text
            for key, text in rule.get("annotations", {}).items()
        },
        "ruleGroup": group,
        "folderUID": folder,
    }  # fmt: skip


def _same_rule(ours: Rule, there: Rule) -> bool:
    """Return True if a Grafana has our rule, in its own notation.

    Grafana adds fields, leaves out empty ones, and formats durations differently. Labels and
    annotations are compared completely: one that somebody added to ours is a difference.
    """
    if any(ours[key] != (there.get(key) or {}) for key in ("labels", "annotations")):
        return False
    not_compared = {*OPERATOR_FIELDS, "orgID", *(FIELDS_OF_NEWER_VERSIONS - there.keys())}
    return all(
        _contains(value, there.get(key)) for key, value in ours.items() if key not in not_compared
    )


def _contains(ours: Any, there: Any) -> bool:
    """Return True if the other value contains everything in ours."""
    match ours, there:
        case dict(), dict() | None:
            return all(_contains(value, (there or {}).get(key)) for key, value in ours.items())
        case list(), list():
            return len(ours) == len(there) and all(map(_contains, ours, there))
        case str(), str():
            return ours == there or (
                _seconds(ours) is not None and _seconds(ours) == _seconds(there)
            )
        case _:
            return bool(ours == there or (not ours and not there))


def _seconds(text: str) -> int | None:
    """Return the seconds of a duration such as `1h`, `1h0m0s` or `60`; None for other text."""
    if text.isdecimal():
        return int(text)
    if not re.fullmatch(r"(\d+[smhdw])+", text):
        return None
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhdw])", text))

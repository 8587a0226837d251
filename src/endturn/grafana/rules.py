"""Alert rules of ours in a running Grafana.

Compared field by field, and written where they differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from endturn.grafana.api import Done, Grafana
from endturn.grafana.assets import GRAFANA, PREFIX, Uids, rebound

PROVISIONING: Final = "/api/v1/provisioning"
RENAMED: Final = {
    "keepFiringFor": "keep_firing_for",
    "missing_series_evals_to_resolve": "missingSeriesEvalsToResolve",
    "orgId": "orgID",
}
"""Name of a rule's field in a file → in the API."""
YOUNG: Final = frozenset({"keep_firing_for", "missingSeriesEvalsToResolve"})
"""Fields that an older Grafana does not keep: that one is missing is no change."""
THEIRS: Final = ("isPaused", "notification_settings")
"""Fields of our rules that belong to whoever runs the Grafana: it is never changed where the rule
exists."""
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

Rule = Mapping[str, Any]


def install(
    grafana: Grafana, groups: Sequence[dict[str, Any]], folder: str, uids: Uids
) -> Iterator[Done]:
    """Make a folder hold these groups of rules, and no other rule of ours in a group of ours."""
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
        yield Done("removed", "rule", uid)


def _install_group(
    grafana: Grafana,
    group: Rule,
    folder: str,
    rules: Sequence[Rule],
    foreign: Sequence[Rule],
    there: Mapping[str, Rule],
) -> Done:
    """Write a group of rules where it differs; `there` are all rules of the Grafana by uid."""
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
        return Done("unchanged", "rules", name, ", ".join(notes))
    body = {"title": name, "folderUid": folder, "interval": interval, "rules": [*updated, *foreign]}
    if refusal := grafana.write("PUT", path, body):
        return Done("refused", "rules", name, refusal)
    return Done("updated" if former else "created", "rules", name, ", ".join(notes))


def _theirs(rule: Rule) -> Rule:
    return {key: rule[key] for key in THEIRS if rule.get(key) is not None}


def _as_api(rule: Rule, group: str, folder: str, uids: Uids, url: str) -> Rule:
    """Return a rule of a provisioning file as the API takes it.

    Links to the Grafana of `make up` lead to this one.
    """
    body: dict[str, Any] = rebound(
        {RENAMED.get(key, key): value for key, value in rule.items()}, uids
    )
    return {"orgID": 1} | body | {
        # In files `$$` is how a label spells `$`: Grafana expands variables of its environment
        # there.
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
    """Return True if a Grafana has our rule, in its own spelling.

    Grafana adds fields and leaves out empty ones, and writes durations its own way. Labels and
    annotations are compared whole: one that somebody added to ours is a change.
    """
    if any(ours[key] != (there.get(key) or {}) for key in ("labels", "annotations")):
        return False
    not_compared = {*THEIRS, "orgID", *(YOUNG - there.keys())}
    return all(
        _covered(value, there.get(key)) for key, value in ours.items() if key not in not_compared
    )


def _covered(ours: Any, there: Any) -> bool:
    """Return True if everything in ours is in the other."""
    match ours, there:
        case dict(), dict() | None:
            return all(_covered(value, (there or {}).get(key)) for key, value in ours.items())
        case list(), list():
            return len(ours) == len(there) and all(map(_covered, ours, there))
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

"""Alert rules of ours in a running Grafana: compared field by field, and written where they differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from endturn.errors import UsageError
from endturn.grafana_api import REFUSALS, Done, Grafana
from endturn.shipped import GRAFANA, PREFIX, Uids, rebound

PROVISIONING: Final = "/api/v1/provisioning"
RENAMED: Final = {
    "keepFiringFor": "keep_firing_for",
    "missing_series_evals_to_resolve": "missingSeriesEvalsToResolve",
    "orgId": "orgID",
}
"""What a rule's field is called in a file → in the API."""
YOUNG: Final = frozenset({"keep_firing_for", "missingSeriesEvalsToResolve"})
"""Fields that an older Grafana does not keep: that one is missing is no change."""
THEIRS: Final = ("isPaused", "notification_settings")
"""What whoever runs the Grafana decides of a rule of ours: it is never changed where the rule exists."""


def install(
    grafana: Grafana, groups: Sequence[dict[str, Any]], folder: str, uids: Uids, *, dry_run: bool
) -> Iterator[Done]:
    """Make a folder hold these groups of rules, and no other group of ours; without any, nothing is asked or done."""
    if not groups:
        return
    there = {str(rule["uid"]): rule for rule in grafana.get(f"{PROVISIONING}/alert-rules").body}
    for group in groups:
        yield from _install_group(grafana, group, folder, uids, there, dry_run=dry_run)
    yield from _remove_rules(grafana, groups, folder, there.values(), dry_run=dry_run)


def _install_group(
    grafana: Grafana,
    group: dict[str, Any],
    folder: str,
    uids: Uids,
    there: Mapping[str, dict[str, Any]],
    *,
    dry_run: bool,
) -> Iterator[Done]:
    """Write a group of rules where it differs; `there` are all rules of the Grafana by uid."""
    name = str(group["name"])
    path = f"{PROVISIONING}/folder/{folder}/rule-groups/{quote(name, safe='')}"
    found = grafana.get(path, or_=[404])
    former = found.body if found.status != 404 else {}
    if (interval := _seconds(str(group["interval"]))) is None:
        raise UsageError(f"{group['interval']!r} is no interval that a rule group can have: write it as in 60s or 1m")
    wanted = [_as_api(rule, name, folder, uids, grafana.url) for rule in group["rules"]]
    differing = [rule for rule in wanted if not _same_rule(rule, there.get(rule["uid"], {}))]
    others = [rule for rule in former.get("rules") or [] if rule["uid"] not in {each["uid"] for each in wanted}]
    gone = [str(rule["uid"]) for rule in others if str(rule["uid"]).startswith(PREFIX)]
    foreign = [rule for rule in others if str(rule["uid"]) not in gone]
    paused = sum(bool(there.get(rule["uid"], {}).get("isPaused")) for rule in wanted)
    notes = [f"{len(differing)} of {len(wanted)} rules differ"] if former and differing else [f"{len(wanted)} rules"]
    notes += [f"{paused} stay paused"] * bool(paused) + [f"{len(foreign)} of others stay"] * bool(foreign)
    if former and not differing and not gone and former.get("interval") == interval:
        yield Done("unchanged", "rules", name, ", ".join(notes))
        return
    if not dry_run:
        kept = [rule | _theirs(there.get(rule["uid"], {})) for rule in wanted]
        body = {"title": name, "folderUid": folder, "interval": interval, "rules": [*kept, *foreign]}
        answer = grafana.ask("PUT", path, body, or_=REFUSALS)
        if answer.status in REFUSALS:
            yield Done("refused", "rules", name, answer.message)
            return
    yield Done("updated" if former else "created", "rules", name, ", ".join(notes))
    for uid in gone:  # a group is replaced whole: what it is sent without is removed
        yield Done("removed", "rule", uid)


def _theirs(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {key: rule[key] for key in THEIRS if rule.get(key) is not None}


def _same_rule(ours: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Whether a Grafana has our rule, in its own spelling.

    Grafana adds fields and leaves out empty ones, and writes durations its own way. Labels and annotations are
    compared whole: one that somebody added to ours is a change.
    """
    asked = {key: value for key, value in ours.items() if key not in {*THEIRS, "orgID"}}
    return all(
        (value or {}) == (there.get(key) or {})
        if key in {"labels", "annotations"}
        else (key in YOUNG and key not in there) or _covered(value, there.get(key))
        for key, value in asked.items()
    )


def _covered(ours: Any, there: Any) -> bool:
    """Whether all that we say is there."""
    match ours, there:
        case dict(), dict() | None:
            return all(_covered(value, (there or {}).get(key)) for key, value in ours.items())
        case list(), list():
            return len(ours) == len(there) and all(map(_covered, ours, there))
        case str(), str():
            return ours == there or (_seconds(ours) is not None and _seconds(ours) == _seconds(there))
        case _:
            return bool(ours == there or (not ours and not there))


def _remove_rules(
    grafana: Grafana,
    groups: Sequence[dict[str, Any]],
    folder: str,
    there: Iterable[dict[str, Any]],
    *,
    dry_run: bool,
) -> Iterator[Done]:
    """A group is replaced whole, so what is left over are the rules of groups that are no more."""
    names = {str(group["name"]) for group in groups}
    wanted = {rule["uid"] for group in groups for rule in group["rules"]}
    for rule in there:
        ours = rule["folderUID"] == folder and str(rule["uid"]).startswith(PREFIX) and rule["uid"] not in wanted
        if ours and rule["ruleGroup"].startswith(PREFIX) and rule["ruleGroup"] not in names:
            if not dry_run:
                grafana.ask("DELETE", f"{PROVISIONING}/alert-rules/{rule['uid']}", or_=[404])
            yield Done("removed", "rule", str(rule["uid"]))


def _as_api(rule: dict[str, Any], group: str, folder: str, uids: Uids, url: str) -> dict[str, Any]:
    """A rule of a provisioning file, as the API takes it; links to the Grafana of `make up` lead to this one."""
    body = {RENAMED.get(key, key): value for key, value in rule.items()}
    # In files `$$` is how a label spells `$`: Grafana expands variables of its environment there.
    labels = {key: str(value).replace("$$", "$") for key, value in rule.get("labels", {}).items()}
    notes = {
        key: url + text.removeprefix(GRAFANA) if text.startswith(f"{GRAFANA}/") else text
        for key, text in rule.get("annotations", {}).items()
    }
    bound: dict[str, Any] = rebound(body, uids) | {"annotations": notes}
    return bound | {"labels": labels, "ruleGroup": group, "folderUID": folder, "orgID": rule.get("orgId", 1)}


def _seconds(text: str) -> int | None:
    """The seconds of a duration such as `1h`, `1h0m0s` or `60`; None for other text."""
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    parts = re.findall(r"(\d+)([smhdw])", text) if re.fullmatch(r"(\d+[smhdw])+", text) else []
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    return sum(int(number) * units[unit] for number, unit in parts) if parts else None

"""A stand-in for Grafana on loopback, which cannot be built here: the part of its HTTP API that installing uses.

It answers as https://grafana.com/docs/grafana/latest/developers/http_api/ documents for folders, dashboards (create,
get, versions, delete), search, data sources and alert rule groups: methods, paths, statuses, the fields that are
read. It proves what is sent, and how answers are taken; that a real Grafana answers so is the documentation's word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.serving import ReceivedRequest, serving

TOKEN = "glsa_planted_token"
DENIED = (403, {"message": "You'll need additional permissions to perform this action."})
SOURCES = (
    {"uid": "P1", "name": "Mimir", "type": "prometheus", "isDefault": True},
    {"uid": "P2", "name": "Old Prometheus", "type": "prometheus", "isDefault": False},
    {"uid": "L1", "name": "Loki", "type": "loki", "isDefault": False},
)


@dataclass
class State:
    """What a Grafana holds, and what it was asked."""

    url: str = ""
    folders: dict[str, str] = field(default_factory=dict)
    dashboards: dict[str, dict[str, Any]] = field(default_factory=dict)  # uid -> {"folder", "model", "versions"}
    groups: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=lambda: [dict(source) for source in SOURCES])
    provisioned: set[str] = field(default_factory=set)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)  # "METHOD /path" -> what it answers; None: HTML
    writes: list[ReceivedRequest] = field(default_factory=list)  # every request that was not only a question

    def save(self, model: dict[str, Any], folder: str, message: str) -> None:
        """Keep a dashboard, as a new version."""
        kept = self.dashboards.setdefault(model["uid"], {"versions": []})
        number = len(kept["versions"]) + 1
        kept["folder"], kept["model"] = folder, model | {"id": 1, "version": number}
        kept["versions"].append({"version": number, "message": message})


@contextmanager
def grafana(prefix: str = "") -> Iterator[State]:
    """A server; its state may be looked at and changed at any time."""
    state = State()

    def serve(asked: ReceivedRequest) -> tuple[int, bytes, str]:
        status, answer = _answer(state, asked, prefix)
        if answer is None:
            return status, b"<html>404</html>", "text/html"
        return status, json.dumps(answer).encode(), "application/json"

    with serving(serve) as url:
        state.url = f"{url}{prefix}"
        yield state


def _answer(state: State, asked: ReceivedRequest, prefix: str) -> tuple[int, Any]:
    url = urlsplit(asked.path)
    path = url.path.removeprefix(prefix)
    if asked.method != "GET":
        state.writes.append(asked)
    if not url.path.startswith(prefix):
        return 404, None
    if path == "/api/health":
        return 200, {"database": "ok", "version": "13.2.3"}
    if asked.headers.get("Authorization") != f"Bearer {TOKEN}":
        return 401, {"message": "Invalid API key", "statusCode": 401}
    if (planned := state.answers.get(f"{asked.method} {path}")) is not None:
        return planned
    body = json.loads(asked.body) if asked.body else None
    return _route(state, asked.method, [unquote(part) for part in path.split("/")[2:]], parse_qs(url.query), body)


def _route(state: State, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
    match method, *path:
        case "GET", "folders", uid:
            found = uid in state.folders
            return (200, {"uid": uid, "title": state.folders[uid]}) if found else (404, {"message": "folder not found"})
        case "POST", "folders":
            state.folders[body["uid"]] = body["title"]
            return 200, {"uid": body["uid"], "title": body["title"]}
        case "GET", "datasources":
            return 200, state.sources
        case "GET", "search":
            return 200, [
                {"uid": uid, "type": "dash-db", "tags": kept["model"]["tags"]}
                for uid, kept in state.dashboards.items()
                if query["tag"][0] in kept["model"]["tags"] and kept["folder"] in query["folderUIDs"]
            ]
        case "POST", "dashboards", "db":
            return _post_dashboard(state, body)
        case _, "dashboards", "uid", uid, *_ if uid not in state.dashboards:
            return 404, {"message": "Dashboard not found"}
        case "GET", "dashboards", "uid", uid, "versions":
            newest = sorted(state.dashboards[uid]["versions"], key=lambda version: -version["version"])
            return 200, {"continueToken": "", "versions": newest}
        case "GET", "dashboards", "uid", uid:
            meta = {"folderUid": state.dashboards[uid]["folder"], "provisioned": uid in state.provisioned}
            return 200, {"dashboard": state.dashboards[uid]["model"], "meta": meta}
        case "DELETE", "dashboards", "uid", uid:
            del state.dashboards[uid]
            return 200, {"message": "Dashboard deleted"}
        case "GET", "v1", "provisioning", "alert-rules":
            return 200, [_spelled(rule) for group in state.groups.values() for rule in group["rules"]]
        case "DELETE", "v1", "provisioning", "alert-rules", uid:
            for group in state.groups.values():
                group["rules"] = [rule for rule in group["rules"] if rule["uid"] != uid]
            return 204, {}
        case "PUT", "v1", "provisioning", "folder", folder, "rule-groups", name:
            return _put_group(state, folder, name, body)
        case "GET", "v1", "provisioning", "folder", folder, "rule-groups", name if (folder, name) in state.groups:
            group = state.groups[folder, name]
            return 200, group | {"rules": [_spelled(rule) for rule in group["rules"]]}
    return 404, {"message": "Not found"}


def _post_dashboard(state: State, body: dict[str, Any]) -> tuple[int, Any]:
    model, folder = body["dashboard"], body["folderUid"]
    if folder not in state.folders:
        return 404, {"message": "folder not found"}
    if model["uid"] in state.dashboards and not body["overwrite"]:
        return 412, {"status": "version-mismatch", "message": "The dashboard has been changed by someone else"}
    for uid, kept in state.dashboards.items():
        if uid != model["uid"] and (kept["folder"], kept["model"]["title"]) == (folder, model["title"]):
            return 412, {"status": "name-exists", "message": "A dashboard with the same name already exists"}
    state.save(model, folder, body["message"])
    return 200, {"uid": model["uid"], "status": "success", "url": f"/d/{model['uid']}"}


def _put_group(state: State, folder: str, name: str, body: Any) -> tuple[int, Any]:
    missing = {"uid", "title", "condition", "data", "folderUID", "ruleGroup", "orgID", "for", "noDataState"}
    for rule in body["rules"]:
        if gone := missing - rule.keys():
            return 400, {"message": f"invalid alert rule: {sorted(gone)} missing"}
    if not isinstance(body["interval"], int):
        return 400, {"message": "bad request data"}
    state.groups[folder, name] = body
    return 200, body


def _spelled(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule as Grafana gives it back: with fields of its own, durations its way, and what is empty left out."""
    own = {"id": 7, "updated": "2026-01-01T00:00:00Z", "provenance": "", "record": None, "notification_settings": None}
    data = [
        {key: value for key, value in query.items() if value not in ("", {"from": 0, "to": 0})}
        | {"model": {"intervalMs": 1000, "maxDataPoints": 43200} | query["model"]}
        for query in rule.get("data", [])
    ]
    kept = {"keep_firing_for": rule.get("keep_firing_for", "0s").replace("m", "m0s")}
    return own | {"isPaused": False} | rule | {"data": data} | kept

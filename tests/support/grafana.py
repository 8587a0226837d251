"""A stand-in for Grafana on loopback, which cannot be built here: the part of its HTTP API that installing uses.

It answers as https://grafana.com/docs/grafana/latest/developers/http_api/ documents for folders, dashboards (create,
get, versions, delete), search, data sources and alert rule groups: methods, paths, statuses, the fields that are
read. It proves what is sent, and how answers are taken; that a real Grafana answers so is the documentation's word.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.serving import Asked, serving

TOKEN = "glsa_planted_token"
SOURCES = (
    {"uid": "P1", "name": "Mimir", "type": "prometheus", "isDefault": True},
    {"uid": "P2", "name": "Old Prometheus", "type": "prometheus", "isDefault": False},
    {"uid": "L1", "name": "Loki", "type": "loki", "isDefault": False},
)


@dataclass
class State:
    """What a Grafana holds, and what it was asked."""

    folders: dict[str, str] = field(default_factory=dict)
    dashboards: dict[str, dict[str, Any]] = field(default_factory=dict)  # uid -> {"folder", "model", "versions"}
    groups: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=lambda: [dict(source) for source in SOURCES])
    provisioned: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)  # "METHOD /path" prefixes that answer 403
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)  # "METHOD /path" -> what it answers; None: HTML
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Every request that was not only a question."""
        return [(method, path) for method, path, _ in self.asked if method != "GET"]

    def save(self, model: dict[str, Any], folder: str, message: str) -> None:
        """Keep a dashboard, as a new version."""
        kept = self.dashboards.setdefault(model["uid"], {"versions": []})
        number = len(kept["versions"]) + 1
        kept["folder"], kept["model"] = folder, model | {"id": 1, "version": number}
        kept["versions"].append({"version": number, "message": message})


class FakeGrafana:
    """The server; `state` may be looked at and changed at any time."""

    def __init__(self, prefix: str = "") -> None:
        self.state = State()
        self.prefix = prefix
        self._serving = serving(self._serve)

    def _serve(self, asked: Asked) -> tuple[int, bytes, str]:
        url = urlsplit(asked.path)
        path, body = url.path.removeprefix(self.prefix), json.loads(asked.body) if asked.body else None
        self.state.asked.append((asked.method, path, body))
        self.state.headers.append(dict(asked.headers))
        known = url.path.startswith(self.prefix)
        status, answer = self._answer(asked, path, parse_qs(url.query), body) if known else (404, None)
        if answer is None:
            return status, b"<html>404</html>", "text/html"
        return status, json.dumps(answer).encode(), "application/json"

    def _answer(self, asked: Asked, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if path == "/api/health":
            return 200, {"database": "ok", "version": "13.2.3"}
        if asked.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key", "statusCode": 401}
        if any(f"{asked.method} {path}".startswith(each) for each in self.state.denied):
            return 403, {"message": "You'll need additional permissions to perform this action."}
        if (planned := self.state.answers.get(f"{asked.method} {path}")) is not None:
            return planned
        return _route(self.state, asked.method, [unquote(part) for part in path.split("/")[2:]], query, body)

    def __enter__(self) -> Self:
        self.url = f"{self._serving.__enter__()}{self.prefix}"
        return self

    def __exit__(self, *raised: Any) -> None:
        self._serving.__exit__(*raised)


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

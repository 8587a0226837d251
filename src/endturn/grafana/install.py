"""Install our dashboards, and optionally alert rules, into a running Grafana; idempotent."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from endturn._version import __version__
from endturn.errors import UsageError
from endturn.grafana import api, assets, rules
from endturn.grafana.api import ChangeResult, Grafana
from endturn.grafana.assets import PREFIX, Uids, with_data_sources

TAG: Final = "endturn"
WRITES: Final = frozenset({"created", "updated", "removed"})
"""Results that a dry run prints as "would be"."""
MESSAGE: Final = "endturn dashboards install "
"""Prefix of our versions' messages in a dashboard's history; the message ends with the content's
digest."""


def command(
    url: str,
    token: str | None,
    source: Path | None,
    alerts: bool,
    dry_run: bool,
    folder: str,
    source_options: Sequence[str],
) -> int:
    """Run `endturn dashboards install`: the status is 1 if Grafana rejects something."""
    if not (token := (token or os.environ.get("GRAFANA_TOKEN") or "").strip()):
        raise UsageError(
            "no token: create a service account in Grafana, and set GRAFANA_TOKEN to "
            "one of its tokens"
        )
    sources = dict(map(_pair, source_options))
    source = source or assets.folder()
    boards = assets.dashboards(source)
    groups = assets.rule_groups(source) if alerts else []
    refused = False
    with api.connect(url, token, dry_run=dry_run) as grafana:
        if api.exposes_token(url):
            print(
                "endturn: the token is sent to another machine over unencrypted http",
                file=sys.stderr,
            )
        print(
            f"Grafana {grafana.get('/api/health').get('version', 'of unknown version')} at "
            f"{grafana.url}"
        )
        for done in install(grafana, boards, groups, folder=folder, sources=sources):
            refused |= done.what == "refused"
            print(f"{'would be ' if dry_run and done.what in WRITES else ''}{done}")
    if dry_run:
        print("nothing was changed: --dry-run", file=sys.stderr)
    return 1 if refused else 0


def _pair(text: str) -> tuple[str, str]:
    kind, equals, name = text.partition("=")
    if not (kind and equals and name):
        raise UsageError(f"--datasource takes TYPE=NAME, e.g. prometheus=Mimir, not {text!r}")
    return kind, name


def install(
    grafana: Grafana,
    boards: Sequence[dict[str, Any]],
    groups: Sequence[dict[str, Any]],
    *,
    folder: str,
    sources: Mapping[str, str],
) -> Iterator[ChangeResult]:
    """Install exactly these dashboards and rule groups of ours in a folder.

    A dashboard is identified by its uid and written only if its content differs or somebody has
    changed it. Our dashboards and rules that no longer exist are removed, unless somebody has
    changed the dashboard since. A rule is compared field by field; its pause, its notification
    settings, and other rules in the same group are not changed.

    Args:
        folder: the folder's uid; created if it is missing.
        sources: data source type → the name or uid of the initial data source; otherwise Grafana's
            default.

    Raises:
        UsageError: Grafana cannot be reached or rejects all requests, the folder's uid is invalid,
            or a requested or required data source is unknown.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", folder):
        raise UsageError(
            f"a folder's uid must have at most 40 letters, digits, - and _, not {folder!r}"
        )
    used = {variable["query"] for board in boards for variable in _source_variables(board)}
    uids, missing = _sources(grafana, sources, used | ({"prometheus"} if groups else set()))
    if groups and "prometheus" not in uids:
        raise UsageError("alert rules need a data source: pass --datasource prometheus=NAME")
    yield from missing
    if grafana.get(f"/api/folders/{folder}", absent=404) is None:
        grafana.write("POST", "/api/folders", {"uid": folder, "title": folder})
        yield ChangeResult("created", "folder", folder)
    for board in boards:
        yield _install_board(grafana, _bound(board, {kind: uids[kind] for kind in sources}), folder)
    yield from _remove_boards(grafana, folder, keep={str(board["uid"]) for board in boards})
    if groups:
        yield from rules.install(grafana, groups, folder, uids)


def _sources(
    grafana: Grafana, requested: Mapping[str, str], used: set[str]
) -> tuple[dict[str, str], list[ChangeResult]]:
    """Return the data sources to use, type → uid: the requested ones, else the default."""
    available = grafana.get("/api/datasources", absent=403)
    if available is None:  # without datasources:read; a uid needs no lookup
        return dict(requested), [
            ChangeResult("unknown", "source", uid, "the token may not look it up")
            for uid in requested.values()
        ]
    chosen, missing = {}, []
    for kind in sorted({*requested, *used}):
        there = [source for source in available if source["type"] == kind]
        if kind in requested:
            matching = [
                source for source in there if requested[kind] in (source["uid"], source["name"])
            ]
            if not matching:
                names = (
                    ", ".join(f"{source['name']} ({source['uid']})" for source in there) or "none"
                )
                raise UsageError(
                    f"unknown {kind} data source {requested[kind]!r}; there are: {names}"
                )
        else:
            matching = (
                there
                if len(there) == 1
                else [source for source in there if source.get("isDefault")]
            )
        if matching:
            chosen[kind] = str(matching[0]["uid"])
        elif not there:
            missing.append(
                ChangeResult("missing", "source", kind, "what needs one stays empty until there is")
            )
    return chosen, missing


def _source_variables(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variable for choosing a data source at the top of a dashboard."""
    variables = board.get("templating", {}).get("list", [])
    return [variable for variable in variables if variable["type"] == "datasource"]


def _bound(board: dict[str, Any], uids: Uids) -> dict[str, Any]:
    """Return a dashboard with these data source variables and fixed references."""
    result: dict[str, Any] = with_data_sources(board, uids)
    for variable in _source_variables(result):
        if uid := uids.get(variable["query"]):
            variable["current"] = {"selected": True, "text": uid, "value": uid}
    return result


def _install_board(grafana: Grafana, board: dict[str, Any], folder: str) -> ChangeResult:
    uid = str(board["uid"])
    digest = hashlib.sha256(json.dumps(board, sort_keys=True).encode()).hexdigest()[:12]
    result = ChangeResult("created", "dashboard", uid, str(board["title"]))
    if there := grafana.get(f"/api/dashboards/uid/{uid}", absent=404):
        if there["meta"].get("provisioned"):
            return ChangeResult(
                "refused", "dashboard", uid, "it is provisioned from a file, which alone changes it"
            )
        last = _last_message(grafana, uid)
        # Compared by our message in its history, since Grafana adds to and reorders the stored
        # content.
        if (
            last.startswith(MESSAGE)
            and last.endswith(digest)
            and there["meta"].get("folderUid") == folder
        ):
            return ChangeResult("unchanged", "dashboard", uid)
        by_hand = (
            ""
            if last.startswith(MESSAGE)
            else "a change made by hand is overwritten; its history keeps it"
        )
        result = ChangeResult("updated", "dashboard", uid, by_hand)
    body = {
        "dashboard": board | {"id": None},
        "folderUid": folder,
        # A new dashboard must not overwrite anything.
        "overwrite": result.what == "updated",
        "message": f"{MESSAGE}{__version__} {digest}",
    }
    refusal = grafana.write("POST", "/api/dashboards/db", body)
    return ChangeResult("refused", "dashboard", uid, refusal) if refusal else result


def _remove_boards(grafana: Grafana, folder: str, *, keep: set[str]) -> Iterator[ChangeResult]:
    boards = grafana.get("/api/search", type="dash-db", tag=TAG, folderUIDs=folder, limit=5000)
    for uid in sorted({str(board["uid"]) for board in boards} - keep):
        if not uid.startswith(PREFIX):
            continue
        if not _last_message(grafana, uid).startswith(MESSAGE):
            yield ChangeResult(
                "kept",
                "dashboard",
                uid,
                "no longer ours, but somebody has changed it; delete it by hand",
            )
        elif refusal := grafana.write("DELETE", f"/api/dashboards/uid/{uid}"):
            yield ChangeResult("refused", "dashboard", uid, refusal)
        else:
            yield ChangeResult("removed", "dashboard", uid)


def _last_message(grafana: Grafana, uid: str) -> str:
    """Return the message of the newest version in a dashboard's history."""
    history = grafana.get(f"/api/dashboards/uid/{uid}/versions", absent=404, limit=1) or {
        "versions": []
    }
    return "".join(str(version.get("message") or "") for version in history["versions"][:1])

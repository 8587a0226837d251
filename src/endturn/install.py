"""Puts this package's dashboards, and alert rules if asked, into a running Grafana, again and again with one result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from endturn import __version__, grafana_rules
from endturn.errors import UsageError
from endturn.grafana_api import REFUSALS, Done, Grafana
from endturn.shipped import PREFIX, Uids, rebound

FOLDER: Final = "endturn"
TAG: Final = "endturn"
WRITES: Final = frozenset({"created", "updated", "removed"})
"""What is only said in a dry run."""
MESSAGE: Final = "endturn dashboards install "
"""How our versions' messages begin in a dashboard's history; the message ends with the content's digest."""


def sources(grafana: Grafana, asked: Mapping[str, str], used: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The data sources to use: those asked for by uid or name, and for the rest the only or default one.

    Args:
        asked: data source type → the name or uid that somebody wants.
        used: the types that are needed.

    Returns:
        Type → uid for what was asked for or is unambiguous, and remarks about what is missing.

    Raises:
        UsageError: what was asked for does not exist.
    """
    answer = grafana.get("/api/datasources", or_=[403])
    if answer.status == 403:  # without datasources:read; a uid needs no looking up
        return dict(asked), ["the token may not list data sources: --datasource is taken as uids"] if asked else []
    chosen, remarks = {}, []
    for kind in dict.fromkeys((*asked, *used)):
        there = [source for source in answer.body if source["type"] == kind]
        if kind in asked:
            match = [source for source in there if asked[kind] in (source["uid"], source["name"])]
            if not match:
                names = ", ".join(f"{source['name']} ({source['uid']})" for source in there) or "none"
                raise UsageError(f"no {kind} data source is called {asked[kind]!r}; there are: {names}")
            chosen[kind] = str(match[0]["uid"])
        elif not there:
            remarks.append(f"no data source of type {kind}: what needs one stays empty until there is")
        elif len(there) == 1 or any(source.get("isDefault") for source in there):
            chosen[kind] = str(next((s for s in there if s.get("isDefault")), there[0])["uid"])
    return chosen, remarks


def types(content: Any) -> set[str]:
    """The types of data sources that dashboards let people choose."""
    return {
        variable["query"]
        for board in content
        for variable in board.get("templating", {}).get("list", [])
        if variable["type"] == "datasource"
    }


def bound(board: dict[str, Any], uids: Uids) -> dict[str, Any]:
    """A dashboard whose data source variables start with these, and whose fixed references are these."""
    result: dict[str, Any] = rebound(board, uids)
    for variable in result.get("templating", {}).get("list", []):
        if variable["type"] == "datasource" and (uid := uids.get(variable["query"])):
            variable["current"] = {"selected": True, "text": uid, "value": uid}
    return result


def install(
    grafana: Grafana,
    boards: Sequence[dict[str, Any]],
    groups: Sequence[dict[str, Any]] = (),
    *,
    folder: str = FOLDER,
    asked: Uids | None = None,
    uids: Uids | None = None,
    dry_run: bool = False,
) -> Iterator[Done]:
    """Make a Grafana hold exactly these dashboards and rule groups of ours, in a folder.

    A dashboard is told by its uid and written only where its content differs or somebody has changed it. Dashboards and
    rules of ours that are no more are removed, unless somebody has changed the dashboard since. A rule is compared
    field by field; whether it is paused, where it notifies, and rules of others in the same group stay as they are.

    Args:
        folder: the folder's uid; created where it is missing.
        asked: data sources that dashboards shall start with, by type; otherwise they start with Grafana's default.
        uids: data sources that alert rules, which have no variables, shall use.
        dry_run: say what would happen, and only read.

    Raises:
        UsageError: Grafana cannot be reached or refuses altogether, or the folder's uid is none.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", folder):
        raise UsageError(f"a folder's uid is of letters, digits, - and _, at most 40, not {folder!r}")
    if grafana.get(f"/api/folders/{folder}", or_=[404]).status == 404:
        if not dry_run:
            grafana.ask("POST", "/api/folders", {"uid": folder, "title": folder}, or_=[409, 412])
        yield Done("created", "folder", folder)
    for board in boards:
        yield _install_board(grafana, bound(board, asked or {}), folder, dry_run=dry_run)
    yield from _remove_boards(grafana, folder, keep={str(board["uid"]) for board in boards}, dry_run=dry_run)
    yield from grafana_rules.install(grafana, groups, folder, uids or {}, dry_run=dry_run)


def _install_board(grafana: Grafana, board: dict[str, Any], folder: str, *, dry_run: bool) -> Done:
    uid = str(board["uid"])
    message = f"{MESSAGE}{__version__} {_digest(board)}"
    there = grafana.get(f"/api/dashboards/uid/{uid}", or_=[404])
    if there.status != 404:
        meta = there.body.get("meta", {})
        if meta.get("provisioned"):
            return Done(
                "refused", "dashboard", uid, "it is provisioned from a file: that file, not the API, changes it"
            )
        last = _last_message(grafana, uid)
        # Compared by what we left in its history: Grafana adds to and reorders what it stores.
        same = last.startswith(MESSAGE) and last.endswith(_digest(board))
        if same and meta.get("folderUid") == folder:
            return Done("unchanged", "dashboard", uid)
        detail = "" if last.startswith(MESSAGE) else "a change made by hand is overwritten; its history keeps it"
        done = Done("updated", "dashboard", uid, detail)
    else:
        done = Done("created", "dashboard", uid, str(board["title"]))
    if dry_run:
        return done
    # Where it is new, nothing may be overwritten: a Grafana before 11 would take over a dashboard of the same title.
    overwrite = done.what == "updated"
    body = {"dashboard": board | {"id": None}, "folderUid": folder, "overwrite": overwrite, "message": message}
    answer = grafana.ask("POST", "/api/dashboards/db", body, or_=REFUSALS)
    if answer.status == 412:
        return Done(
            "refused",
            "dashboard",
            uid,
            f"it collides with another dashboard ({answer.message}): rename that one, or choose another --folder",
        )
    return Done("refused", "dashboard", uid, answer.message) if answer.status in REFUSALS else done


def _remove_boards(grafana: Grafana, folder: str, *, keep: set[str], dry_run: bool) -> Iterator[Done]:
    found = grafana.get("/api/search", type="dash-db", tag=TAG, folderUIDs=folder, limit=5000).body
    for uid in sorted({str(each["uid"]) for each in found} - keep):
        if not uid.startswith(PREFIX):
            continue
        if not _last_message(grafana, uid).startswith(MESSAGE):
            yield Done("kept", "dashboard", uid, "no longer ours, but somebody has changed it; delete it by hand")
            continue
        if not dry_run:
            answer = grafana.ask("DELETE", f"/api/dashboards/uid/{uid}", or_={*REFUSALS, 404})
            if answer.status in REFUSALS:
                yield Done("refused", "dashboard", uid, answer.message)
                continue
        yield Done("removed", "dashboard", uid)


def _last_message(grafana: Grafana, uid: str) -> str:
    """What the newest version in a dashboard's history says of itself."""
    body = grafana.get(f"/api/dashboards/uid/{uid}/versions", or_=[404], limit=1).body
    versions = body.get("versions", []) if isinstance(body, dict) else body  # a bare list before Grafana 11.3
    newest = max(versions or [{}], key=lambda version: version.get("version", 0))
    return str(newest.get("message") or "")


def _digest(board: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(board, sort_keys=True).encode()).hexdigest()[:12]

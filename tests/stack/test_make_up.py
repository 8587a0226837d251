"""`make up` and its password. `docker` is a script that answers as Docker does, and proves nothing about Docker."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stack import compose
from tests.support.serving import serving

DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >> asked
case "$*" in
  *" up "*) exit $(cat status) ;;
  *" ps "*) echo 1f 2f ;;
  *" logs "*) for name; do :; done; echo "last words of $name" ;;
  inspect*) look=$(ls looks | head -n 1); cat "looks/$look"; [ "$(ls looks | wc -l)" = 1 ] || rm "looks/$look" ;;
esac
"""


def container(
    service: str, status: str = "running", health: str = "", *, said: str = "", restart: str = "always", **state: Any
) -> dict[str, Any]:
    """What `docker inspect` says of one, as far as it is read."""
    told: dict[str, Any] = {"Status": status, "ExitCode": 0, "OOMKilled": False, "Error": "", **state}
    if health:
        log = [{"ExitCode": 1, "Output": output} for output in ("before", said)]
        told["Health"] = {"Status": health, "Log": log}
    labels = {"com.docker.compose.service": service}
    policy = {"RestartPolicy": {"Name": restart}}
    return {"Name": f"/endturn-{service}-1", "State": told, "Config": {"Labels": labels}, "HostConfig": policy}


GRAFANA, STARTING = container("grafana", health="healthy"), container("grafana", health="starting")
LOKI = container("loki", health="starting", said="503")


Up = Callable[..., tuple[int, str]]
"""Starts the folder `root`; gives its status, and what it says."""


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Up:
    """`make up`, with a `docker` on the path that shows containers as they are from look to look."""
    (tmp_path / "looks").mkdir()
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv(compose.PASSWORD, raising=False)
    monkeypatch.setattr(compose, "LOOK_S", 0)
    for name in compose.MOUNTED:
        (tmp_path / "root" / name).mkdir(parents=True)

    def started(*options: str, looks: Sequence[list[dict[str, Any]]] = (), compose_ends: int = 0) -> tuple[int, str]:
        for number, look in enumerate(looks):
            (tmp_path / "looks" / str(number)).write_text(json.dumps(look))
        (tmp_path / "status").write_text(str(compose_ends))
        return compose.main(["up", *options], root=tmp_path / "root"), "".join(capsys.readouterr())

    return started


def test_a_password_is_made_once_and_kept_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make up` adds a random password to .env, readable by its owner alone, and leaves what is there as it is."""
    monkeypatch.delenv(compose.PASSWORD, raising=False)
    env = tmp_path / ".env"
    env.write_text("GRAFANA_TAG=13.2.3")
    assert compose.ensure_password(tmp_path) == f"in {env} ({compose.PASSWORD})"
    first = env.read_text()
    assert re.fullmatch(rf"GRAFANA_TAG=13\.2\.3\n{compose.PASSWORD}=[\w-]{{24}}\n", first)
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    compose.ensure_password(tmp_path)
    assert env.read_text() == first
    monkeypatch.setenv(compose.PASSWORD, "chosen")
    assert "environment" in compose.ensure_password(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(None, "Docker is missing", id="no docker"),
        pytest.param('[ "$1" != compose ]', "no Compose plugin", id="no compose"),
        pytest.param('[ "$1" = compose ]', "Docker does not answer", id="no daemon"),
    ],
)
def test_up_says_what_is_missing(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, words: str
) -> None:
    """Without Docker, its Compose plugin or its daemon, `make up` says so and what to do, and makes no password."""
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n{script}\n") if script else docker.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    status, said = up()
    assert (status, words in said, (tmp_path / "root" / ".env").exists()) == (1, True, False)


def test_up_waits_and_prints_the_addresses(up: Up, tmp_path: Path) -> None:
    """And where the password is, not what. A part of the fleet that was there for one thing may have ended."""
    status, said = up("--lgtm", looks=[[GRAFANA, LOKI], [GRAFANA, container("loki", health="healthy")]])
    env = tmp_path / "root" / ".env"
    password = env.read_text().strip().partition("=")[2]
    parts = ("waiting for loki\n", "http://127.0.0.1:3000", str(env), password)
    assert (status, [part in said for part in parts]) == (0, [True, True, True, False])
    assert up("--fleet", looks=[[GRAFANA, container("topics", "exited", restart="on-failure")]])[0] == 0
    asked = (tmp_path / "asked").read_text().replace(f"{env.parent}/", "")
    for files in ("docker-compose.lgtm.yml", "docker-compose.yml --file docker-compose.fleet.yml"):
        assert f"--file {files} up --detach --remove-orphans\n" in asked


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (container("loki", "restarting", ExitCode=1), "restarting (exit code 1)"),
        (container("loki", "exited", ExitCode=137, OOMKilled=True), "exited (out of memory)"),
        (container("loki", health="unhealthy", said="connection refused\n"), "unhealthy (connection refused)"),
    ],
    ids=["keeps exiting", "out of memory", "unhealthy"],
)
def test_up_fails_at_once_and_says_why(up: Up, failed: dict[str, Any], reason: str) -> None:
    """A container that exits or is unhealthy ends the waiting: its name, the reason and the end of its log are told."""
    status, said = up(looks=[[STARTING, LOKI], [STARTING, failed]])
    assert status == 1
    _, waited, trouble = said.partition("waiting for grafana, loki\n")
    assert waited
    assert f"endturn-loki-1: {reason}\n  last words of loki\n" in trouble
    assert [part for part in ("grafana", "http://") if part in trouble] == []


def test_up_ends_when_it_cannot_go_on(up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that is not there, a port in use: Compose has said so. What is waited for in vain is named."""
    status, said = up(looks=[], compose_ends=18)
    assert (status, "reason is above" in said, " ps " in (tmp_path / "asked").read_text()) == (18, True, False)
    monkeypatch.setattr(compose, "WAIT_S", 0)
    status, said = up(looks=[[GRAFANA, LOKI]])
    assert (status, "endturn-loki-1: starting (503)\n  last words of loki\n" in said) == (1, True)


def test_the_collector_is_asked_from_outside(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container has no health check: it is well when it answers, not when it runs."""
    with serving(lambda asked: (200, b"", "text/plain")) as url:
        monkeypatch.setitem(compose.ASKED_FROM_OUTSIDE, "collector", url)
        assert up(looks=[[container("collector")]])[0] == 0
    monkeypatch.setattr(compose, "WAIT_S", 0)
    status, said = up(looks=[[container("collector")]])
    assert (status, "endturn-collector-1: running, but does not answer" in said) == (1, True)


def test_what_is_mounted_can_be_read_by_others(up: Up, tmp_path: Path) -> None:
    """After a checkout with umask 077 the containers' users may read our files; the password stays private."""
    file = tmp_path / "root" / "dashboards" / "rules" / "endturn.yaml"
    file.parent.mkdir()
    file.write_text("groups: []")
    file.chmod(0o600)
    file.parent.chmod(0o700)
    assert up(looks=[[GRAFANA]])[0] == 0
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent, tmp_path / "root" / ".env")]
    assert modes == [0o644, 0o755, 0o600]

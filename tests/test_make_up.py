"""`make up` and its password. `docker` is a script that answers as Docker does, and proves nothing about Docker."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stack import compose
from tests.support.processes import free_port
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
    service: str,
    status: str = "running",
    health: str = "",
    *,
    said: str = "",
    code: int = 0,
    oom: bool = False,
    restart: str = "unless-stopped",
) -> dict[str, Any]:
    """What `docker inspect` says of one, as far as it is read."""
    state: dict[str, Any] = {"Status": status, "ExitCode": code, "OOMKilled": oom, "Error": ""}
    if health:
        state["Health"] = {
            "Status": health,
            "Log": [{"ExitCode": 1, "Output": "before"}, {"ExitCode": 1, "Output": said}],
        }
    labels = {"com.docker.compose.service": service}
    policy = {"RestartPolicy": {"Name": restart}}
    return {"Name": f"/endturn-{service}-1", "State": state, "Config": {"Labels": labels}, "HostConfig": policy}


GRAFANA = container("grafana", health="healthy")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a `docker` on the path that shows containers as they are from look to look; the folder that is started."""

    def install(*looks: list[dict[str, Any]], status: int = 0) -> Path:
        folder = tmp_path / "bin"
        (folder / "looks").mkdir(parents=True)
        (folder / "docker").write_text(DOCKER)
        (folder / "docker").chmod(0o755)
        (folder / "status").write_text(str(status))
        for number, look in enumerate(looks):
            (folder / "looks" / str(number)).write_text(json.dumps(look))
        monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
        monkeypatch.delenv(compose.PASSWORD, raising=False)
        monkeypatch.setattr(compose, "LOOK_S", 0)
        root = tmp_path / "root"
        for name in compose.MOUNTED:
            (root / name).mkdir(parents=True)
        return root

    return install


def asked(root: Path) -> list[str]:
    return (root.parent / "bin" / "asked").read_text().splitlines()


@pytest.fixture
def health() -> Iterator[str]:
    with serving(lambda asked: (200, b"", "text/plain")) as url:
        yield url


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str | None,
    words: str,
) -> None:
    """Without Docker, its Compose plugin or its daemon, `make up` says so and what to do, and makes no password."""
    if script:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compose.main(["up"], root=tmp_path) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / ".env").exists()


def test_up_waits_and_prints_the_addresses(docker: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = docker([GRAFANA, container("loki", health="starting")], [GRAFANA, container("loki", health="healthy")])
    assert compose.main(["up", "--lgtm"], root=root) == 0
    assert any(
        line.endswith(f"--file {root}/docker-compose.lgtm.yml up --detach --remove-orphans") for line in asked(root)
    )
    said = capsys.readouterr().out
    assert "waiting for loki\n" in said
    assert "http://127.0.0.1:3000" in said
    assert str(root / ".env") in said
    assert (root / ".env").read_text().strip().partition("=")[2] not in said


def test_the_fleet_is_laid_over_and_a_part_that_was_there_for_one_thing_may_have_ended(
    docker: Callable[..., Path],
) -> None:
    root = docker([GRAFANA, container("topics", "exited", restart="on-failure")])
    assert compose.main(["up", "--fleet"], root=root) == 0
    files = f"--file {root}/docker-compose.yml --file {root}/docker-compose.fleet.yml"
    assert any(line.endswith(f"{files} up --detach --remove-orphans") for line in asked(root))


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        pytest.param(container("loki", "restarting", code=1), "restarting (exit code 1)", id="keeps exiting"),
        pytest.param(container("loki", "exited", code=137, oom=True), "exited (out of memory)", id="out of memory"),
        pytest.param(
            container("loki", health="unhealthy", said="connection refused\n"),
            "unhealthy (connection refused)",
            id="unhealthy",
        ),
    ],
)
def test_up_fails_at_once_and_says_why(
    docker: Callable[..., Path], capsys: pytest.CaptureFixture[str], failed: dict[str, Any], reason: str
) -> None:
    """A container that exits or is unhealthy ends the waiting: its name, the reason and the end of its log are told."""
    starting = container("grafana", health="starting")
    root = docker([starting, container("loki", health="starting")], [starting, failed])
    assert compose.main(["up"], root=root) == 1
    said = capsys.readouterr()
    assert f"endturn-loki-1: {reason}\n  last words of loki\n" in said.err
    assert "grafana" not in said.err
    assert "http://" not in said.out


def test_up_names_those_that_it_waits_for_in_vain(
    docker: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "WAIT_S", 0)
    root = docker([GRAFANA, container("loki", health="starting", said="503")])
    assert compose.main(["up"], root=root) == 1
    assert "endturn-loki-1: starting (503)\n  last words of loki\n" in capsys.readouterr().err


def test_up_ends_when_compose_cannot_start_it(docker: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """An image that is not there, a port in use: Compose has said so, and nothing is waited for."""
    root = docker(status=18)
    assert compose.main(["up"], root=root) == 18
    assert "reason is above" in capsys.readouterr().err
    assert [line for line in asked(root) if " ps " in line] == []


def test_the_collector_is_asked_from_outside(
    docker: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, health: str
) -> None:
    """Its container has no health check: it is well when it answers, not when it runs."""
    root = docker([container("collector")])
    monkeypatch.setitem(compose.ASKED_FROM_OUTSIDE, "collector", health)
    assert compose.main(["up"], root=root) == 0

    monkeypatch.setattr(compose, "WAIT_S", 0)
    monkeypatch.setitem(compose.ASKED_FROM_OUTSIDE, "collector", f"http://127.0.0.1:{free_port()}")
    assert compose.main(["up"], root=root) == 1
    assert "endturn-collector-1: running, but does not answer" in capsys.readouterr().err


def test_what_is_mounted_can_be_read_by_others(docker: Callable[..., Path]) -> None:
    """After a checkout with umask 077 the containers' users may read our files; the password stays private."""
    root = docker([GRAFANA])
    file = root / "dashboards" / "rules" / "endturn.yaml"
    file.parent.mkdir()
    file.write_text("groups: []")
    file.chmod(0o600)
    file.parent.chmod(0o700)
    assert compose.main(["up"], root=root) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755
    assert stat.S_IMODE((root / ".env").stat().st_mode) == 0o600

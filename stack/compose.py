#!/usr/bin/env python3
"""Start and stop the stack by Docker Compose: a password if there is none, all parts awaited, the addresses printed.

    python stack/compose.py up [--lgtm | --fleet]     docker-compose.yml, or the two containers of
                                                      docker-compose.lgtm.yml, or docker-compose.fleet.yml laid over
    python stack/compose.py down [--lgtm | --fleet] [--volumes]

Needs Python alone, besides Docker with Compose.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "GRAFANA_ADMIN_PASSWORD"
MOUNTED = ("collector", "dashboards", "stack")
"""The folders that the compose files mount from."""
ASKED_FROM_OUTSIDE = {"collector": "http://127.0.0.1:13133"}
"""By service: where to ask one whose image has nothing to make a health check of."""
WAIT_S = 300.0  # the first start also builds Grafana's database; pulling images is not counted
LOOK_S = 1.0
LOG_LINES = 15
ADDRESSES = """
  Grafana       http://127.0.0.1:3000/d/endturn-overview   user admin, password {where}
  OTLP          http://127.0.0.1:4318  (gRPC: 127.0.0.1:4317)
  Prometheus    http://127.0.0.1:9090
  Alertmanager  http://127.0.0.1:9093

Send something:  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 endturn demo --minutes 10
"""

Container = dict[str, Any]
"""What `docker inspect` tells of one."""


def ensure_password(root: Path) -> str:
    """Have a password for Grafana's administrator: the environment's, that of `.env`, or a new one written there.

    Returns:
        Where it stands. The password itself is not printed: terminals are recorded.
    """
    if os.environ.get(PASSWORD):
        return f"from the environment ({PASSWORD})"
    file = root / ".env"
    lines = file.read_text() if file.exists() else ""
    if not re.search(rf"^\s*(export\s+)?{PASSWORD}\s*=\s*\S", lines, re.MULTILINE):
        lines += "" if not lines or lines.endswith("\n") else "\n"
        # Created before it is written to, so that at no moment others can read it.
        with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as sink:
            sink.write(f"{lines}{PASSWORD}={secrets.token_urlsafe(18)}\n")
        file.chmod(0o600)
    return f"in {file} ({PASSWORD})"


def make_readable(root: Path) -> None:
    """Let the containers' users read what is mounted: after a checkout with umask 077 only its owner may."""
    folders = [root / name for name in MOUNTED]
    for path in [*folders, *(path for folder in folders for path in folder.rglob("*"))]:
        mode = stat.S_IMODE(path.stat().st_mode)
        readable = mode | (0o055 if path.is_dir() else 0o044)
        if readable != mode:
            path.chmod(readable)


def require_docker() -> str | None:
    """What is missing for Docker Compose to work here, and what to do; None where nothing is."""
    if shutil.which("docker") is None:
        return "Docker is missing. Install it (docs.docker.com/get-docker), or run the parts natively: make stack"
    for command, advice in (
        (["docker", "compose", "version"], "Docker has no Compose plugin (docs.docker.com/compose/install)"),
        (
            ["docker", "info", "--format", "{{.ServerVersion}}"],
            "Docker does not answer: is it running, may you use it?",
        ),
    ):
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            return f"{advice}\n  {' '.join(command)}: {(answer.stderr or answer.stdout).strip()}"
    return None


def wait(compose: list[str]) -> str | None:
    """Wait until every container is well.

    Not by `up --wait`: a container that exits is started again (`restart`), and while it is, Compose goes on waiting.

    Returns:
        What is wrong, as soon as a container exits or is unhealthy; or who is not well after `WAIT_S`; None if all are.
    """
    deadline = time.monotonic() + WAIT_S
    told: list[str] = []
    while True:
        containers = inspect(compose)
        if failed := [container for container in containers if is_failed(container)]:
            return describe(compose, failed)
        starting = [container for container in containers if not is_well(container)]
        if not starting:
            return None
        if time.monotonic() > deadline:
            return f"not well after {WAIT_S:.0f} s:\n" + describe(compose, starting)
        names = [service(container) for container in starting]
        if names != told:
            print("waiting for", ", ".join(names), flush=True)
            told = names
        time.sleep(LOOK_S)


def inspect(compose: list[str]) -> list[Container]:
    """All containers of the project, stopped ones, too."""
    ids = subprocess.run([*compose, "ps", "--all", "--quiet"], stdout=subprocess.PIPE, text=True, check=True).stdout
    command = ["docker", "inspect", *ids.split()]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    containers: list[Container] = json.loads(told)
    return containers


def is_failed(container: Container) -> bool:
    """It is not going to be well by waiting."""
    if is_done(container):
        return False
    return container["State"]["Status"] != "running" or health(container).get("Status") == "unhealthy"


def is_well(container: Container) -> bool:
    """Its health check says so, or the address where it is asked from outside, or it has done what it was for."""
    if is_done(container):
        return True
    if status := health(container).get("Status"):
        return bool(status == "healthy")
    address = ASKED_FROM_OUTSIDE.get(service(container))
    return address is None or answers(address)


def is_done(container: Container) -> bool:
    """It was there for one thing, is not started again, and has done it."""
    once = container["HostConfig"]["RestartPolicy"]["Name"] == "on-failure"
    return bool(once and container["State"]["Status"] == "exited" and container["State"]["ExitCode"] == 0)


def answers(address: str) -> bool:
    """Something there says 200. No proxy is asked."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=2):
            return True
    except OSError:
        return False


def service(container: Container) -> str:
    """The name that the compose file gives it."""
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def health(container: Container) -> dict[str, Any]:
    """What its health check says; empty if it has none."""
    return container["State"].get("Health") or {}


def describe(compose: list[str], containers: list[Container]) -> str:
    """Each container's name, why it is not well, and the end of its log."""
    return "\n\n".join(
        f"{container['Name'].lstrip('/')}: {reason(container)}\n{log(compose, service(container))}"
        for container in containers
    )


def reason(container: Container) -> str:
    """Why it is not well, as Docker knows it."""
    state = container["State"]
    if state["Status"] != "running":
        why = "out of memory" if state["OOMKilled"] else state["Error"] or f"exit code {state['ExitCode']}"
        return f"{state['Status']} ({why})"
    if checked := health(container):
        said = [run["Output"].strip() for run in checked.get("Log") or []]
        return f"{checked['Status']} ({said[-1] if said else 'not yet asked'})"
    return "running, but does not answer"


def log(compose: list[str], name: str) -> str:
    """The last lines that a service wrote."""
    command = [*compose, "logs", "--no-color", "--no-log-prefix", "--tail", str(LOG_LINES), name]
    written = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return "\n".join(f"  {line}" for line in written.splitlines())


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["up", "down"])
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--lgtm", action="store_true", help="two containers instead of six (grafana/otel-lgtm)")
    kind.add_argument("--fleet", action="store_true", help="on engines that shard: Kafka, three gateways, Thanos")
    parser.add_argument("--volumes", action="store_true", help="with down: drop the data, too")
    asked = parser.parse_args(arguments)
    if missing := require_docker():
        print(missing, file=sys.stderr)
        return 1
    where = ensure_password(root)  # stopping needs one as well: Compose reads the whole file
    compose = ["docker", "compose", "--project-directory", str(root)]
    compose += ["--file", str(root / ("docker-compose.lgtm.yml" if asked.lgtm else "docker-compose.yml"))]
    compose += ["--file", str(root / "docker-compose.fleet.yml")] if asked.fleet else []
    if asked.action == "down":
        command = [*compose, "down", *(["--volumes"] if asked.volumes else [])]
        return subprocess.run(command, cwd=root, check=False).returncode
    make_readable(root)
    if status := subprocess.run([*compose, "up", "--detach", "--remove-orphans"], cwd=root, check=False).returncode:
        print("Compose could not start the containers: its reason is above", file=sys.stderr)
        return status
    if trouble := wait(compose):
        print(f"{trouble}\n\nThe others go on; `make down` stops all.", file=sys.stderr)
        return 1
    print(ADDRESSES.format(where=where))
    return 0


if __name__ == "__main__":
    sys.exit(main())

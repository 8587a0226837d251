#!/usr/bin/env python3
"""Start and stop the stack by Docker Compose: a password if there is none, all parts awaited, the addresses printed.

    python stack/compose.py up [--lgtm]     docker-compose.yml, or the two containers of docker-compose.lgtm.yml
    python stack/compose.py down [--lgtm] [--volumes]

Needs Python alone, besides Docker with Compose.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "GRAFANA_ADMIN_PASSWORD"
WAIT_S = 300  # the first start also builds Grafana's database; pulling images is not counted
ADDRESSES = """
  Grafana       http://127.0.0.1:3000/d/endturn-overview   user admin, password {where}
  OTLP          http://127.0.0.1:4318  (gRPC: 127.0.0.1:4317)
  Prometheus    http://127.0.0.1:9090
  Alertmanager  http://127.0.0.1:9093

Send something:  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 endturn demo --minutes 10
"""


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


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["up", "down"])
    parser.add_argument("--lgtm", action="store_true", help="two containers instead of six (grafana/otel-lgtm)")
    parser.add_argument("--volumes", action="store_true", help="with down: drop the data, too")
    asked = parser.parse_args(arguments)
    if missing := require_docker():
        print(missing, file=sys.stderr)
        return 1
    where = ensure_password(root)  # stopping needs one as well: Compose reads the whole file
    compose = ["docker", "compose", "--project-directory", str(root)]
    compose += ["--file", str(root / ("docker-compose.lgtm.yml" if asked.lgtm else "docker-compose.yml"))]
    if asked.action == "down":
        command = [*compose, "down", *(["--volumes"] if asked.volumes else [])]
        return subprocess.run(command, cwd=root, check=False).returncode
    command = [*compose, "up", "--detach", "--wait", "--wait-timeout", str(WAIT_S)]
    if status := subprocess.run(command, cwd=root, check=False).returncode:
        print("not all of it is up; `docker compose ps` and `docker compose logs` tell more", file=sys.stderr)
        return status
    print(ADDRESSES.format(where=where))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Try the lowest versions that `pyproject.toml` admits: each extra by itself, then all together with some tests.

    python tests/lowest.py

A bound that no test installs is soon untrue. Each environment lands below `.venv`; a second run only checks it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = [sys.executable, "-m", "uv"]
RUNNER = ("pytest", "pytest-asyncio", "pytest-xdist", "hypothesis")
"""What runs the tests, at the versions of constraints.txt: endturn does not depend on it."""
READ = "import endturn; assert endturn.read(b'data: [DONE]', format='openai_chat').stop.reason == 'missing'"
CHECKS: dict[str, Sequence[str]] = {
    "": ("-c", READ),
    "otlp": ("-c", "import endturn\nwith endturn.configure(): pass"),
    "bedrock": ("-c", "import endturn.providers.aws_signing, botocore.auth"),
    "grafana": ("-m", "endturn.cli", "generate", "--check"),
    "ui": ("-c", "import endturn.ui.report, endturn.ui.server"),
    "scan": ("-m", "endturn.cli", "scan", "tests/scan"),
    "demo": ("-m", "endturn.cli", "demo", "--once"),
}
"""What has to work with an extra alone."""
TESTS = (
    "tests/project/test_public.py",
    "tests/formats/test_read_reply.py",
    "tests/cli/test_demo.py",
    "tests/continuation/test_controller.py",
    "tests/continuation/test_transcript.py",
    "tests/continuation/test_policy.py",
    "tests/continuation/test_schema_check.py",
    "tests/continuation/test_tool_gate.py",
    "tests/scan/test_sources.py",
    "tests/telemetry/test_privacy.py",
    "tests/ui/test_otlp.py",
    "tests/ui/test_pages.py",
    "tests/ui/test_report.py",
    "tests/ui/test_told.py",
)  # fmt: skip
"""Tests that import no other SDK: of each dependency that has a lower bound, one at least runs it."""


def environment(extras: str, *more: str) -> str:
    """Install the lowest direct versions of some extras, and return the Python that has them."""
    folder = ROOT / ".venv" / f"lowest-{extras.replace(',', '-') or 'none'}"
    python = str(folder / "bin" / "python")
    subprocess.run([*UV, "venv", "--quiet", "--allow-existing", str(folder)], cwd=ROOT, check=True)
    install = [*UV, "pip", "install", "--quiet", "--python", python]
    wanted = f".[{extras}]" if extras else "."
    subprocess.run([*install, "--resolution", "lowest-direct", "-e", wanted], cwd=ROOT, check=True)
    if more:
        subprocess.run([*install, *more], cwd=ROOT, check=True)
    return python


def runner() -> list[str]:
    """The packages that run the tests, pinned."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return re.findall(rf"^(?:{'|'.join(RUNNER)})==\S+", pins, re.MULTILINE)


def main() -> int:
    """Run every check; the status is 1 where one fails."""
    failed = []
    for extras, check in CHECKS.items():
        print(f"== lowest versions of endturn[{extras}]", flush=True)
        output = subprocess.run([environment(extras), *check], cwd=ROOT, capture_output=True, text=True, check=False)
        if output.returncode:
            failed.append(extras)
            print(output.stdout, output.stderr, sep="\n", flush=True)
    print("== lowest versions of endturn[all,demo]: tests", flush=True)
    tests = [environment("all,demo", *runner()), "-m", "pytest", "-q", "-p", "no:cacheprovider", *sys.argv[1:], *TESTS]
    if subprocess.run(tests, cwd=ROOT, check=False).returncode:
        failed.append("all,demo")
    print(f"lowest versions: {f'failed: {failed}' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

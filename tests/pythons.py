#!/usr/bin/env python3
"""Run the fast tests on the other Pythons that endturn supports, each in an environment of its own below `.venv`.

    python tests/pythons.py [PYTEST OPTION ...]

uv finds an interpreter, also one of pyenv's, or brings it where it may download one. The end says which versions could
not be had; only a test that fails is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = [sys.executable, "-m", "uv"]
VERSIONS = [version for version in ("3.11", "3.12", "3.13", "3.14") if version != "{}.{}".format(*sys.version_info)]
SECONDS_TO_DOWNLOAD = 60


def interpreter(version: str) -> str | None:
    """The path of a Python of that version; None where there is none to be had."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [version, *map(str, pyenv.glob(f"versions/{version}.*/bin/python"))]
    found = next(
        (path for place in places if (path := _asked("python", "find", "--no-project", "--system", place))), None
    )
    if found is None and _asked("python", "install", "--quiet", version) is not None:
        found = _asked("python", "find", "--no-project", version)
    return found


def _asked(*command: str) -> str | None:
    try:
        done = subprocess.run([*UV, *command], capture_output=True, text=True, timeout=SECONDS_TO_DOWNLOAD, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def tested(version: str, python: str, options: list[str]) -> bool:
    """Whether the fast tests pass on that Python."""
    here = ROOT / ".venv" / f"python{version}"
    own = str(here / "bin" / "python")
    subprocess.run([*UV, "venv", "--quiet", "--allow-existing", "--python", python, str(here)], check=True)
    install = [*UV, "pip", "install", "--quiet", "--python", own, "-c", "constraints.txt"]
    subprocess.run([*install, "-e", ".[all,demo]", "--group", "dev"], cwd=ROOT, check=True)
    print(f"== Python {version}: {python}", flush=True)
    return (
        subprocess.run([own, "-m", "pytest", "-p", "no:cacheprovider", *options], cwd=ROOT, check=False).returncode == 0
    )


def main() -> int:
    """Test on each version in turn."""
    found = {version: interpreter(version) for version in VERSIONS}
    failed = [version for version, python in found.items() if python and not tested(version, python, sys.argv[1:])]
    for version, python in found.items():
        state = "not to be had here" if python is None else "failed" if version in failed else "passed"
        print(f"Python {version}: {state}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

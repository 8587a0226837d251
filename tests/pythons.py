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


def tested(version: str) -> str:
    """How the fast tests went on that Python."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = os.pathsep.join([os.environ["PATH"], *map(str, pyenv.glob(f"versions/{version}.*/bin"))])
    here = ROOT / ".venv" / f"python{version}"
    make = [*UV, "venv", "--quiet", "--allow-existing", "--python", version, str(here)]
    try:
        subprocess.run(make, env=os.environ | {"PATH": places}, timeout=SECONDS_TO_DOWNLOAD, check=True)
    except subprocess.SubprocessError:
        return "not to be had here"
    python = str(here / "bin" / "python")
    install = [*UV, "pip", "install", "--quiet", "--python", python, "-c", "constraints.txt"]
    subprocess.run([*install, "-e", ".[all,demo]", "--group", "dev"], cwd=ROOT, check=True)
    print(f"== Python {version}", flush=True)
    done = subprocess.run([python, "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]], cwd=ROOT, check=False)
    return "failed" if done.returncode else "passed"


if __name__ == "__main__":
    found = {version: tested(version) for version in VERSIONS}
    print("\n".join(f"Python {version}: {state}" for version, state in found.items()))
    sys.exit("failed" in found.values())

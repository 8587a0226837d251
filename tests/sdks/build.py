#!/usr/bin/env python3
"""Install the environments of `envs.toml`, Python's and npm's, each once, into a cache outside the tree.

    python tests/sdks/build.py [NAME ...]     install what is missing (all by default)

Each lands in a folder named by a hash of its packages and the Python that runs them, so a changed pin installs anew.
endturn itself is not installed there: tests put the tree's `src` on the path.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Env:
    """One environment: its name, what it is for, the packages that are pinned in it, and the tests that run there.

    `alone` are packages that are installed without what they ask for, where that cannot be had together. `python` is
    the version that the packages need, if they need a newer one than endturn; where it is not to be had, nothing is
    installed. `node` are packages of npm, of command-line programs; an environment with them has no Python.
    """

    name: str
    says: str
    packages: tuple[str, ...]
    tests: str = ""
    alone: tuple[str, ...] = ()
    version: str = ""
    node: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        body = json.dumps(
            [self.packages, sys.version_info[:2], sys.platform, *self.alone, *self.node, *filter(None, [self.version])]
        )
        return cache() / f"{self.name}-{hashlib.sha256(body.encode()).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def program(self, name: str) -> Path:
        """A command-line program that npm installed."""
        return self.folder / "node_modules" / ".bin" / name

    @property
    def built(self) -> bool:
        """Whether everything is installed: the mark is made last."""
        return (self.folder / ".installed").is_file()


def cache() -> Path:
    """`$XDG_CACHE_HOME/endturn/sdks`, by default below `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "endturn" / "sdks"


def envs() -> Mapping[str, Env]:
    """The environments of `envs.toml`, by name."""
    declared = tomllib.loads((HERE / "envs.toml").read_text())
    return {
        name: Env(
            name,
            table["says"],
            tuple(table.get("packages", ())),
            table.get("tests", ""),
            tuple(table.get("alone", ())),
            table.get("python", ""),
            tuple(table.get("node", ())),
        )
        for name, table in declared.items()
    }


def build(env: Env) -> None:
    """Install an environment, unless it is there; processes that want the same wait for one another.

    Raises:
        subprocess.CalledProcessError: uv or npm could not; what it said went to stderr.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{env.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if env.built:
            return
        print(f"installing {env.says} into {env.folder}", flush=True)
        shutil.rmtree(env.folder, ignore_errors=True)
        if env.node:
            install_programs(env)
        elif make_python(env):
            install_packages(env)
        else:
            print(f"{env.says}: Python {env.version} is not to be had here", flush=True)
            return
        (env.folder / ".installed").touch()


def install_programs(env: Env) -> None:
    """Install the packages of npm."""
    env.folder.mkdir(parents=True)
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(env.folder)]
    subprocess.run([*install, *env.node], check=True)


def make_python(env: Env) -> bool:
    """Make the environment of a Python; return False if there is none of its version."""
    if not env.version:
        venv.create(env.folder)
        return True
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = os.pathsep.join([os.environ["PATH"], *map(str, pyenv.glob(f"versions/{env.version}.*/bin"))])
    make = [sys.executable, "-m", "uv", "venv", "--quiet", "--no-python-downloads", "--python", env.version]
    made = subprocess.run([*make, str(env.folder)], env=os.environ | {"PATH": places}, check=False)
    return made.returncode == 0


def install_packages(env: Env) -> None:
    """Install the packages of PyPI."""
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(env.python)]
    subprocess.run([*install, *env.packages], check=True)
    if env.alone:
        subprocess.run([*install, "--no-deps", *env.alone], check=True)


def main(names: Sequence[str]) -> None:
    """Install what is asked for."""
    known = envs()
    if unknown := set(names) - known.keys():
        sys.exit(f"no environment is called {unknown.pop()!r}; there are: {', '.join(known)}")
    for name in names or known:
        try:
            build(known[name])
        except subprocess.CalledProcessError as error:
            sys.exit(f"{name} could not be installed: uv exited with {error.returncode}")


if __name__ == "__main__":
    main(sys.argv[1:])

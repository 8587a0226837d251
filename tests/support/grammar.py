"""Grafana's own grammars of TraceQL and LogQL, run by Node; the packages are kept in the cache beside the stack.

`@grafana/lezer-logql` and `@grafana/lezer-traceql` are published under Apache-2.0, apart from the databases.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import pytest

from stack import build
from tests.support.processes import REPOSITORY

SOURCE = REPOSITORY / "tests" / "grammar"
PINS = ("package.json", "package-lock.json")
Language = Literal["traceql", "logql"]


class Node(NamedTuple):
    """What stands in a query, by the grammar's name for it."""

    name: str
    text: str
    children: tuple[Node, ...]

    @classmethod
    def of(cls, made: Sequence[Any]) -> Self:
        """From a tree as `parse.mjs` prints it."""
        name, text, children = made
        return cls(name, text, tuple(cls.of(child) for child in children))

    def every(self, *names: str) -> Iterator[Node]:
        """The nodes of these names, or all, itself among them, from left to right."""
        if self.name in names or not names:
            yield self
        for child in self.children:
            yield from child.every(*names)

    @property
    def errors(self) -> list[str]:
        """The places where the grammar does not fit."""
        return [node.text for node in self.every("⚠")]


def parsed(queries: Sequence[tuple[Language, str]]) -> list[Node]:
    """Each query's tree; fails the test where Node or npm cannot serve."""
    folder = _installed()
    # Beside its packages: that is where Node looks for them.
    script = shutil.copy(SOURCE / "parse.mjs", folder)
    done = subprocess.run(
        ["node", script], input=json.dumps(queries), capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return [Node.of(tree) for tree in json.loads(done.stdout)]


def _installed() -> Path:
    if missing := [program for program in ("node", "npm") if shutil.which(program) is None]:
        pytest.fail(f"{' and '.join(missing)} missing: TraceQL and LogQL are not parsed (nodejs.org)")
    key = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in PINS)).hexdigest()[:12]
    folder = build.cache() / f"grammar-{key}"
    if not (folder / "node_modules" / ".package-lock.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in PINS:
            shutil.copy(SOURCE / name, folder)
        install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"npm could not fetch the grammars: {done.stderr.strip().splitlines()[-1:]}")
    return folder

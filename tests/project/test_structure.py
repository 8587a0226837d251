"""The structure of the package: its doors, its layers' direction, and that no modules need each other in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import endturn

ROOT = Path(endturn.__file__).parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
    if "site" not in path.relative_to(ROOT).parts
}
DOCUMENTED = ("adapters", "cli", "events", "frameworks", "hooks", "providers", "scripted", "transcript")


@cache
def imports(module: str) -> Sequence[tuple[str, str]]:
    """Module and name of each `from endturn… import …`, in functions and for types too."""
    return [
        (str(node.module), alias.name)
        for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "endturn"
        for alias in node.names
    ]


def home(module: str, name: str) -> str:
    """The module that an import really needs: behind a door, the one that the door takes the name from."""
    if f"{module}.{name}" in MODULES:
        return f"{module}.{name}"
    if MODULES[module].name == "__init__.py":
        for inner, exported in imports(module):
            if exported == name:
                return home(inner, name)
    return module


def package_of(module: str) -> str | None:
    package = module.removeprefix("endturn").lstrip(".").split(".")[0]
    return package if package in PACKAGES else None


def test_no_modules_need_each_other_in_a_circle() -> None:
    """Imports for types alone count as well."""
    needs = {module: {home(*imported) for imported in imports(module)} for module in MODULES}
    del needs["endturn"]  # its public names are resolved when they are first used
    try:
        list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("package", PACKAGES)
def test_other_packages_come_through_the_door(package: str) -> None:
    """They import what `__init__` exports, or a whole module, and nothing that is private."""
    outside = [module for module in MODULES if package_of(module) != package and module != "endturn"]
    wrong = [
        f"{module}: from {source} import {name}"
        for module in outside
        for source, name in imports(module)
        if package_of(source) == package and f"{source}.{name}" not in MODULES and source != f"endturn.{package}"
    ]
    kept = ("endturn.scripted: ", "endturn.providers: from endturn.vocabulary.providers ")  # paths that users have
    assert [each for each in wrong if not each.startswith(kept)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_door_opens_lazily(package: str) -> None:
    """Importing a package loads none of its modules, and every name that it lists can be had."""
    code = (
        f"import sys, endturn.{package}; print([name for name in sys.modules if name.startswith('endturn.{package}.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    door = import_module(f"endturn.{package}")
    names = getattr(door, "__all__", [])
    assert [name for name in names if getattr(door, name) is None] == []
    assert [name for name in names if f"endturn.{package}.{name}" in MODULES] == []
    assert set(names) <= set(dir(door))
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        door.no_such_name  # noqa: B018


@pytest.mark.parametrize("path", DOCUMENTED)
def test_a_documented_path_still_has_its_names(path: str) -> None:
    module = import_module(f"endturn.{path}")
    names = module.__all__
    assert names
    assert [name for name in names if not hasattr(module, name)] == []

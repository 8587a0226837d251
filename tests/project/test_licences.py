"""Whose source is built: programs under the AGPL are images that a user pulls, and no part of what is built here."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from stack import build
from tests.support.processes import REPOSITORY, require_stack

PINS = {part: pin for part, pin in build.versions().items() if part != "go"}
AGPL = "AGPL-3.0-only"
GRAFANAS = re.compile(r"github\.com/grafana/(grafana|loki|tempo|mimir)(/v\d+)?")
"""The modules that Grafana Labs publishes under the AGPL (https://grafana.com/licensing/)."""
GO = {part: recipe for part, recipe in build.recipes().items() if recipe.gomod}


def test_what_is_under_the_agpl_is_an_image_alone() -> None:
    """It has a tag to pull, and no module, artifact or recipe; everything that is built is under Apache-2.0."""
    closed = {part for part, pin in PINS.items() if pin["licence"] == AGPL}
    assert closed == {"loki", "tempo", "grafana", "lgtm"}
    assert all(PINS[part].keys() == {"licence", "image", "tag"} for part in closed)
    assert {PINS[part]["licence"] for part in build.recipes()} == {"Apache-2.0"}
    assert build.recipes().keys() == PINS.keys() - closed


def test_the_grammars_are_under_licences_that_let_them_be_used() -> None:
    """Each package of the lock file; which comes from whatever registry npm is told to ask."""
    lock = json.loads((REPOSITORY / "tests" / "grammar" / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert {package["license"] for package in packages.values()} == {"Apache-2.0", "MIT"}
    assert "node_modules/@grafana/lezer-logql" in packages
    assert not any("resolved" in package for package in packages.values())


@pytest.mark.stack
def test_no_module_that_a_part_asks_for_is_under_the_agpl() -> None:
    """By the licence beside its source, which is Apache-2.0 for each."""
    asked = sorted({f"{path}@{version}" for recipe in GO.values() for path, version in required(recipe.gomod)})
    assert len(asked) > len(GO)
    assert build.affero(asked) == []
    answer = subprocess.run(["go", "mod", "download", "-json", *asked], capture_output=True, text=True, check=True)
    folders = re.findall(r'"Dir": "([^"]+)"', answer.stdout)
    heads = {Path(folder, "LICENSE").read_text().split("Version 2.0")[0].strip() for folder in folders}
    assert (len(folders), heads) == (len(asked), {"Apache License"})


@pytest.mark.stack
def test_nothing_of_grafanas_is_in_a_binary() -> None:
    """None of its programs is linked into another, however far down; the pattern knows them."""
    binaries = require_stack(*GO)
    modules = {name: [each.split("@")[0] for each in build.linked(file)] for name, file in binaries.items()}
    assert all(modules.values())
    assert {name: [each for each in paths if GRAFANAS.fullmatch(each)] for name, paths in modules.items()} == {
        name: [] for name in binaries
    }
    assert GRAFANAS.fullmatch("github.com/grafana/loki/v3")


@pytest.mark.stack
def test_no_jar_is_under_the_agpl() -> None:
    """Of the broker and of whatever it needs."""
    jars = [*build.recipes()["kafka"].folder.glob("*.jar")]
    assert require_stack("kafka").keys() <= {jar.name for jar in jars}
    for jar in jars:
        with zipfile.ZipFile(jar) as held:
            texts = [held.read(name) for name in held.namelist() if re.search("(licen[cs]e|copying)[^/]*$", name, re.I)]
        assert not any(b"AFFERO" in text.upper() for text in texts), jar.name


@pytest.mark.stack
@pytest.mark.parametrize("closed", ["main", "library", None])
def test_a_build_with_agpl_source_in_it_fails(
    closed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the program itself, or of anything that is linked; and leaves no binary behind."""
    kept = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    own = {"GOPROXY": (tmp_path / "proxy").as_uri(), "GOMODCACHE": str(tmp_path / "modules"), "GONOSUMDB": "*"}
    for name, value in ({"GOCACHE": kept, "XDG_CACHE_HOME": str(tmp_path)} | own).items():
        monkeypatch.setenv(name, value)
    licences = dict.fromkeys(("main", "library"), "Mozilla Public License Version 2.0\n\nor the GNU Affero ...\n")
    licences |= {closed: "GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3\n"} if closed else {}
    sources = {
        "main": 'package main\n\nimport "example.test/library"\n\nfunc main() { library.Say() }\n',
        "library": 'package library\n\nfunc Say() { println("hello") }\n',
    }
    for name, source in sources.items():
        publish(tmp_path / "proxy", name, {f"{name}.go": source, "LICENSE": licences[name]})
    gomod = "module example.test/stack\ngo 1.26.0\nrequire example.test/main v1.0.0\n"
    recipe = build.Recipe(part="planted", gomod=gomod, binaries={"planted": "example.test/main"})
    if closed is None:
        assert build.linked(build.build(recipe) / "planted") == [
            "example.test/main@v1.0.0",
            "example.test/library@v1.0.0",
        ]
    else:
        with pytest.raises(build.BuildError, match=f"example.test/{closed}@v1.0.0 in it: under the AGPL"):
            build.build(recipe)
        assert not recipe.folder.exists()


@pytest.mark.stack
def test_a_licence_that_cannot_be_read_is_no_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one of a module that is nowhere, nor one asked for in no way that Go knows."""
    monkeypatch.setenv("GOPROXY", tmp_path.as_uri())
    monkeypatch.setenv("GONOSUMDB", "*")
    for asked in (["example.test/nowhere@v1.0.0"], ["no module"], ["-unknown"]):
        with pytest.raises(build.BuildError, match=r"licences cannot be read: .+"):
            build.affero(asked)


def required(gomod: str) -> list[tuple[str, str]]:
    """The modules that a go.mod of ours asks for."""
    return re.findall(r"^require (\S+) (\S+)$", gomod, re.MULTILINE)


def publish(proxy: Path, name: str, files: dict[str, str]) -> None:
    """Put version 1 of a module into a folder that serves as a Go module proxy."""
    folder = proxy / "example.test" / name / "@v"
    folder.mkdir(parents=True)
    needs = "require example.test/library v1.0.0\n" if name == "main" else ""
    gomod = f"module example.test/{name}\ngo 1.21\n{needs}"
    (folder / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
    (folder / "v1.0.0.mod").write_text(gomod)
    with zipfile.ZipFile(folder / "v1.0.0.zip", "w") as archive:
        for file, text in {**files, "go.mod": gomod}.items():
            archive.writestr(f"example.test/{name}@v1.0.0/{file}", text)

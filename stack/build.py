#!/usr/bin/env python3
"""Build the Collector, Prometheus, Alertmanager and Thanos from Go modules, fetch Kafka, once per set of pins.

    python stack/build.py [PART ...]     build what is missing (all parts by default) and print each part's folder

Needs nothing but Python, Go and a Go module proxy. The binaries land in a cache outside the tree, in a folder named by
a hash of everything that decides what they are; so a changed pin builds anew, and an unchanged one costs nothing. A
binary with source under the AGPL in it is an error.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MANIFEST = HERE.parent / "collector" / "manifest.yaml"
TAIL = 30  # lines of a failed build's log to show


class BuildError(Exception):
    """A part could not be built; the message says what to do next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that decides what a part's binaries are: hashed, it names their folder."""

    part: str
    binaries: Mapping[str, str]  # file name -> package to build, or artifact to fetch
    gomod: str = ""  # the whole go.mod of the throw-away module that the build runs in
    tags: str = ""
    stamp: Mapping[str, str] = field(default_factory=dict)  # Go variable -> value, set by the linker
    builder: str = ""  # a Go command that first writes the main package from `manifest`
    manifest: str = ""  # what it reads; of a part without a go.mod, the pom.xml of what Maven fetches

    @property
    def key(self) -> str:
        """The first 12 hex digits of the hash over the recipe and the platform."""
        body = json.dumps([asdict(self), platform.system(), platform.machine()], sort_keys=True)
        return hashlib.sha256(body.encode()).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        """Where the binaries are, or will be."""
        return cache() / f"{self.part}-{self.key}"

    @property
    def built(self) -> bool:
        """Whether every binary is there. The folder appears by a rename, whole or not at all."""
        return all((self.folder / name).is_file() for name in self.binaries)


def cache() -> Path:
    """`$XDG_CACHE_HOME/endturn/stack`, by default below `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "endturn" / "stack"


def versions() -> dict[str, Any]:
    """The pins of `versions.toml`."""
    return tomllib.loads((HERE / "versions.toml").read_text())


def recipes() -> dict[str, Recipe]:
    """The parts that can be built, in building order."""
    pins = versions()
    go, collector, prometheus, alertmanager, thanos, kafka, kustomize = (
        pins[part] for part in ("go", "collector", "prometheus", "alertmanager", "thanos", "kafka", "kustomize")
    )
    manifest = MANIFEST.read_text()
    components = re.findall(r"^ *- *gomod: *(\S+ v\S+)", manifest, re.MULTILINE)
    # What Prometheus and Alertmanager report as their version; the module's own number would confuse (0.315 is 3.15).
    version = "github.com/prometheus/common/version.Version"
    every = (
        Recipe(
            part="collector",
            gomod=_gomod(go["minimum"], [f"{collector['module']} {collector['version']}", *components]),
            binaries={"otelcol": "."},
            builder=collector["builder"],
            manifest=manifest,
        ),
        Recipe(
            part="prometheus",
            gomod=_gomod(
                go["minimum"], [f"{prometheus['module']} {prometheus['version']}"], prometheus.get("replace", {})
            ),
            binaries={name: f"{prometheus['module']}/cmd/{name}" for name in ("prometheus", "promtool")},
            # Without service discovery for every cloud the build takes half the time, the binary half the space.
            tags="remove_all_sd",
            stamp={version: prometheus["tag"].removeprefix("v")},
        ),
        Recipe(
            part="alertmanager",
            gomod=_gomod(go["minimum"], [f"{alertmanager['module']} {alertmanager['version']}"]),
            binaries={name: f"{alertmanager['module']}/cmd/{name}" for name in ("alertmanager", "amtool")},
            stamp={version: alertmanager["tag"].removeprefix("v")},
        ),
        Recipe(
            part="thanos",
            gomod=_gomod(go["minimum"], [f"{thanos['module']} {thanos['version']}"], thanos["replace"]),
            binaries={"thanos": f"{thanos['module']}/cmd/thanos"},
            tags="netgo slicelabels",  # as it is released; with Prometheus' other labels it crashes
            stamp={version: thanos["tag"].removeprefix("v")},
        ),
        Recipe(
            part="kustomize",
            gomod=_gomod(go["minimum"], [f"{kustomize['module']} {kustomize['version']}"]),
            binaries={"kustomize": kustomize["module"]},
        ),
        Recipe(
            part="kafka",
            # Maven's project of the jars that a broker is; they are started as `java -cp 'FOLDER/*' kafka.Kafka`.
            manifest=_pom(kafka["artifacts"]),
            binaries={_jar(artifact): artifact for artifact in kafka["artifacts"]},
        ),
    )
    return {recipe.part: recipe for recipe in every}


def build(recipe: Recipe) -> Path:
    """Build a part unless it is there, and return its folder. Two at once: the second waits, then finds it built."""
    if recipe.built:
        return recipe.folder
    with _locked(recipe):
        if recipe.built:
            return recipe.folder
        cache().mkdir(parents=True, exist_ok=True)
        # Beside the final folder, so that the rename stays within one file system.
        with tempfile.TemporaryDirectory(prefix=f".{recipe.part}-", dir=cache()) as scratch:
            module, out = Path(scratch, "module"), Path(scratch, "bin")
            module.mkdir()
            out.mkdir()
            (_compile if recipe.gomod else _fetch)(recipe, module=module, out=out)
            if recipe.folder.exists():  # incomplete: somebody removed a binary by hand
                shutil.rmtree(recipe.folder)
            out.rename(recipe.folder)
    return recipe.folder


def require_go(minimum: str, folder: Path) -> None:
    """Refuse to start without a Go that takes a module which asks for `minimum`."""
    advice = f"Install Go {minimum} or newer (go.dev/dl, or your system's packages) and have `go` on the PATH."
    if shutil.which("go") is None:
        raise BuildError(f"Go is missing. {advice}")
    # Asked inside the module: a Go that fetches newer ones by itself (GOTOOLCHAIN=auto) answers with the newer one.
    ask = ["go", "version"]
    answer = subprocess.run(ask, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)
    found = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    if answer.returncode or not found:
        raise BuildError(f"Go does not work here: {(answer.stderr or answer.stdout).strip()}. {advice}")
    if tuple(map(int, found.groups())) < tuple(map(int, minimum.split("."))):
        raise BuildError(f"Go {'.'.join(found.groups())} is too old. {advice}")


def linked(binary: Path) -> list[str]:
    """The modules in a binary, each as `path@version`, as its linker says; for a replaced one what replaces it."""
    told = subprocess.run(["go", "version", "-m", str(binary)], capture_output=True, text=True, check=True).stdout
    modules: list[str] = []
    for kind, *words in (line.split() for line in told.splitlines() if line.strip()):
        if kind in ("mod", "dep"):
            modules.append("@".join(words[:2]))
        elif kind == "=>":
            modules[-1] = "@".join(words[:2])
    return [module for module in modules if not module.endswith("@(devel)")]


def affero(modules: Sequence[str]) -> list[str]:
    """Which of these are under the AGPL, by the licence beside their source; fetches a source that is not there.

    The Mozilla Public License names the AGPL among those that one may choose besides it, and is not meant.
    """
    ask = ["go", "mod", "download", "-json", *modules]
    answer = subprocess.run(ask, cwd=HERE, env=_environment(), capture_output=True, text=True, check=False)
    found, sources, text = [], [], answer.stdout.strip()
    while text:
        module, end = json.JSONDecoder().raw_decode(text)
        sources.append(module)
        text = text[end:].lstrip()
    if answer.returncode or len(sources) != len(modules):
        errors = [module["Error"] for module in sources if "Error" in module]
        raise BuildError(f"licences cannot be read: {'; '.join(errors) or answer.stderr.strip()}")
    for module in sources:
        files = [file for file in Path(module["Dir"]).iterdir() if re.match("licen[cs]e|copying", file.name, re.I)]
        said = [file.read_text(errors="replace") for file in files if file.is_file()]
        if any(re.search("affero|agpl", each, re.I) and "Mozilla Public License" not in each[:200] for each in said):
            found.append(f"{module['Path']}@{module['Version']}")
    return found


def _compile(recipe: Recipe, *, module: Path, out: Path) -> None:
    (module / "go.mod").write_text(recipe.gomod)
    require_go(versions()["go"]["minimum"], module)
    if recipe.builder:
        _write_main(recipe, module)
    for name, package in recipe.binaries.items():
        linker = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in recipe.stamp.items())])
        flags = ["-mod=mod", "-trimpath", "-buildvcs=false", f"-tags={recipe.tags}", f"-ldflags={linker}"]
        _run(recipe, f"compiling {name}", ["go", "build", *flags, "-o", str(out / name), package], module)
        if found := affero(linked(out / name)):
            raise BuildError(f"{name} is not kept: {', '.join(found)} in it: under the AGPL, which is not built here")


def _fetch(recipe: Recipe, *, module: Path, out: Path) -> None:
    """Let Maven put the artifacts, and all that they need, into one folder."""
    if shutil.which("mvn") is None:
        raise BuildError("Maven is missing. Install it (apt-get install maven) and have `mvn` on the PATH.")
    (module / "pom.xml").write_text(recipe.manifest)
    copy = ["mvn", "--batch-mode", "dependency:copy-dependencies", f"-DoutputDirectory={out}"]
    _run(recipe, "fetching the jars", copy, module)


def _write_main(recipe: Recipe, module: Path) -> None:
    """Let the collector's builder write the main package, and nothing else.

    Its usual way runs `go mod tidy`, which also resolves what the components' *tests* import; some of those modules are
    not on the module proxy at this version. A build never needs them, so the go.mod is ours and tidy is not run.
    """
    manifest = module / "manifest.yaml"
    manifest.write_text(recipe.manifest)
    bin_ = module / "bin"
    # Outside the module, or `go install` would take our go.mod for the main one; its own flags come with @version.
    _run(recipe, "installing the builder", ["go", "install", recipe.builder], module.parent, GOBIN=str(bin_))
    sources = ["--config", str(manifest), "--skip-get-modules", "--skip-compilation"]
    _run(recipe, "writing the sources", [str(bin_ / "builder"), *sources], module)
    for source in (module / "build").glob("*.go"):
        source.rename(module / source.name)


def _run(recipe: Recipe, what: str, command: Sequence[str], cwd: Path, **environment: str) -> None:
    print(f"[{recipe.part}] {what} ...", file=sys.stderr, flush=True)
    started = time.monotonic()
    log = cache() / f"{recipe.part}.log"
    with log.open("wb") as sink:
        status = subprocess.run(
            command, cwd=cwd, env=_environment() | environment, stdout=sink, stderr=subprocess.STDOUT, check=False
        ).returncode
    seconds = time.monotonic() - started
    if status:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])
        raise BuildError(f"{what} failed after {seconds:.0f} s (exit {status}); the whole log is in {log}\n{tail}")
    log.unlink()
    print(f"[{recipe.part}] {what}: {seconds:.0f} s", file=sys.stderr, flush=True)


def _environment() -> dict[str, str]:
    """The caller's environment less what would bend the build; static binaries, one compile job per core."""
    kept = {name: value for name, value in os.environ.items() if name not in {"GOFLAGS", "GOOS", "GOARCH", "GOBIN"}}
    return kept | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": f"-p={min(os.cpu_count() or 2, 4)}"}


def _gomod(minimum: str, modules: Sequence[str], replace: Mapping[str, str] | None = None) -> str:
    lines = ["module endturn.dev/stack", f"go {minimum}.0"]
    lines += [f"require {module}" for module in modules]
    # "v1.2.3" is another version of the same module, "example.org/fork v1.2.3" another module.
    lines += [
        f"replace {module} => {instead if ' ' in instead else f'{module} {instead}'}"
        for module, instead in (replace or {}).items()
    ]
    return "\n".join(lines) + "\n"


def _jar(artifact: str) -> str:
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def _pom(artifacts: Sequence[str]) -> str:
    needed = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *artifact.split(":")
        )
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>dev.endturn</groupId><artifactId>stack</artifactId><version>1</version>"
        f"<dependencies>{needed}</dependencies></project>"
    )


@contextmanager
def _locked(recipe: Recipe) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{recipe.part}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"[{recipe.part}] another build is running; waiting for it ...", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield  # closing the file, or dying, gives the lock back


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    known = recipes()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to build, by default all of {', '.join(known)}")
    asked = parser.parse_args(arguments)
    if unknown := [part for part in asked.parts if part not in known]:
        parser.error(f"unknown part {unknown[0]!r}; known are {', '.join(known)}")
    failed = 0
    for part in asked.parts or known:
        started = time.monotonic()
        try:
            folder = build(known[part])
        except BuildError as error:
            print(f"[{part}] {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        print(f"[{part}] ready after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        print(folder, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

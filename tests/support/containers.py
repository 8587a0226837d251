"""The containers of the compose files and of the manifests, in one form: what they run, which files, where they listen.

Containers cannot be started here. What their programs accept is asked of the same programs, built natively.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from stack import build
from tests.support.processes import REPOSITORY, require_stack, shipped

ONE, LGTM, FLEET = FILES = ("docker-compose.yml", "docker-compose.lgtm.yml", "docker-compose.fleet.yml")
"""The compose files; the fleet's is laid over the first."""
PROGRAMS: Final = {
    "collector": "otelcol",
    "prometheus": "prometheus",
    "alertmanager": "alertmanager",
    "thanos": "thanos",
}
"""By part: the natively built program that its image runs."""
NOT_BUILT: Final = {"grafana": {3000}, "loki": {3100}, "tempo": {3200, 4317}, "lgtm": {3000, 3100, 3200, 4417, 9090}}
"""By part of which only an image exists: where it listens, by its documentation and its file in `stack/`."""
LISTENS: Final = {
    "prometheus": ("web.listen-address",),
    "alertmanager": ("web.listen-address",),
    "thanos": ("http-address", "grpc-address", "remote-write.address"),
}
"""By part: the flags that say where its program listens."""
COLLECTOR_PORT: Final = re.compile(r"\$\{env:(ENDTURN_COLLECTOR_\w+_PORT):-(\d+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container.

    Attributes:
        where: The file or the pod that it is of.
        part: The table of `stack/versions.toml` that names its image.
        command: What its entry point is given.
        environment: Its variables, with the defaults of Compose's own.
        files: Its read-only mounts: by the path in it, a file or folder of the repository, or the text of a ConfigMap.
        volumes: The paths that it may write below.
        ports: What it publishes, or declares.
        checks: The commands by which it is asked how it is.
    """

    where: str
    name: str
    part: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, Path | str]
    volumes: frozenset[str]
    ports: frozenset[int]
    checks: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.where}: {self.name}"

    @property
    def program(self) -> Path:
        """The natively built program that the image runs."""
        return require_stack(self.part)[PROGRAMS[self.part]]

    @property
    def flags(self) -> dict[str, list[str]]:
        """The values of each flag."""
        found: dict[str, list[str]] = {}
        for word in self.command:
            if match := re.fullmatch(r"--?([\w.-]+)(?:=(.*))?", word, re.DOTALL):
                found.setdefault(match[1], []).append(match[2] or "")
        return found

    def text_of(self, path: str) -> str | None:
        """The content of a file in it, None where none is mounted there."""
        for mount, source in self.files.items():
            if path == mount and isinstance(source, str):
                return source
            if isinstance(source, Path) and (path == mount or path.startswith(f"{mount}/")):
                file = source / path.removeprefix(mount).lstrip("/")
                return file.read_text() if file.is_file() else None
        return None

    def configurations(self) -> list[str]:
        """The texts of the files that its command names."""
        named = [*self.flags.get("config", []), *self.flags.get("config.file", [])]
        if extra := self.environment.get("OTELCOL_EXTRA_ARGS"):
            named = ["/otel-lgtm/otelcol-config.yaml", *re.findall(r"--config=(\S+)", extra)]
        return [text for path in named if (text := self.text_of(path)) is not None]

    def listens(self) -> set[int]:
        """The ports on which its program listens, by its flags, its variables or its defaults."""
        found = set(NOT_BUILT.get(self.part, ()))
        for text in self.configurations():
            found |= {int(self.environment.get(name, port)) for name, port in COLLECTOR_PORT.findall(text)}
        if self.part == "kafka":
            found |= {int(port) for port in re.findall(r":(\d+)", self.environment.get("KAFKA_LISTENERS", ""))}
        for flag in LISTENS.get(self.part, ()):
            for address in self.flags.get(flag) or defaults(self.program, self.subcommand).get(flag, []):
                found.add(int(address.rpartition(":")[2]))
        return found

    @property
    def subcommand(self) -> str:
        """Thanos' first word; no other program has one."""
        return self.command[0] if self.part == "thanos" else ""


@cache
def help_of(program: Path, subcommand: str = "") -> str:
    """What a program says of its flags, in one line."""
    command = [str(program), *([subcommand] if subcommand else []), "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return " ".join((told.stdout + told.stderr).split())


def defaults(program: Path, subcommand: str = "") -> dict[str, list[str]]:
    """Every flag that a program has, with its default."""
    found: dict[str, list[str]] = {}
    pattern = r'--(?:\[no-\])?([\w.-]+)(?:=(?:"([^"]*)"|([\w.:/-]+)))?'
    for name, quoted, plain in re.findall(pattern, help_of(program, subcommand)):
        found.setdefault(name, []).extend([quoted or plain] if quoted or plain else [])
    return found


def composed(name: str) -> dict[str, Any]:
    """A compose file as it is run: the fleet's is laid over that of one machine."""
    file = shipped(name)
    if name != FLEET:
        return file
    whole = shipped(ONE)
    for service, over in file["services"].items():
        under = whole["services"].get(service, {})
        environment = under.get("environment", {}) | over.get("environment", {})
        volumes = [*under.get("volumes", ()), *over.get("volumes", ())]
        whole["services"][service] = under | over | {"environment": environment, "volumes": volumes}
    return whole | {"volumes": whole["volumes"] | file["volumes"]}


def of_compose(file: str) -> Iterator[Container]:
    """The containers that a compose file starts."""
    images = {pin["image"]: part for part, pin in build.versions().items() if "image" in pin}
    for name, service in composed(file)["services"].items():
        mounts = [mount.split(":") for mount in service.get("volumes", [])]
        check = service.get("healthcheck", {}).get("test", [])
        yield Container(
            where=file,
            name=name,
            part=images[service["image"].partition(":")[0]],
            command=tuple(interpolated(str(word)) for word in service.get("command", ())),
            environment={key: interpolated(str(value)) for key, value in service.get("environment", {}).items()},
            files={target: REPOSITORY / source for source, target, *_ in mounts if source.startswith(".")},
            volumes=frozenset(target for source, target, *_ in mounts if not source.startswith(".")),
            ports=frozenset(int(port.rpartition(":")[2]) for port in service.get("ports", [])),
            checks=(tuple(check[1:]),) if check else (),
        )


def interpolated(text: str) -> str:
    """A value with Compose's defaults in the place of its variables."""
    return re.sub(r"\$\{\w+(?::-([^}]*)|[^}]*)\}", lambda match: match[1] or "", text).replace("$$", "$")


def of_pods(kind: str, pods: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]) -> Iterator[Container]:
    """The containers of a DaemonSet's or StatefulSet's pods.

    Args:
        kind: How to name it.
        pods: The rendered object.
        maps: The data of each ConfigMap, by its name.
    """
    images = {pin["image"]: part for part, pin in build.versions().items() if "image" in pin}
    spec = pods["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for container in spec["containers"]:
        files: dict[str, Path | str] = {}
        writable = set()
        for mount in container["volumeMounts"]:
            source = volumes.get(mount["name"], {}).get("configMap")
            if source is None:
                writable.add(mount["mountPath"])
                continue
            data = maps[source["name"]]
            items = source.get("items", [{"key": key, "path": key} for key in data])
            files |= {f"{mount['mountPath']}/{item['path']}": data[item["key"]] for item in items}
        environment: dict[str, str] = {}
        for source in container.get("envFrom", []):
            environment |= maps.get(source.get("configMapRef", {}).get("name", ""), {})
        environment |= {each["name"]: each.get("value", "from-the-pod") for each in container.get("env", [])}
        probes = [container[name] for name in ("readinessProbe", "livenessProbe", "startupProbe") if name in container]
        yield Container(
            where=kind,
            name=container["name"],
            part=images[container["image"].rpartition(":")[0]],
            command=tuple(container["args"]),
            environment=environment,
            files=files,
            volumes=frozenset(writable),
            ports=frozenset(port["containerPort"] for port in container.get("ports", [])),
            checks=tuple(tuple(probe["exec"]["command"]) for probe in probes if "exec" in probe),
        )


def references(texts: list[str]) -> set[tuple[str, int]]:
    """Every host and port that texts name, comments left out."""
    plain = "\n".join(re.sub(r"(^|\s)#.*", "", line) for text in texts for line in text.splitlines())
    found = re.findall(r"(?<![\w.-])([a-z][\w.-]*|127\.0\.0\.1|0\.0\.0\.0):(\d{4,5})\b", plain)
    return {(host, int(port)) for host, port in found}

"""A real Loki for tests: `stack/loki.yaml` on free loopback ports, its data in a folder of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import LOOPBACK, REPOSITORY, QueryError, Server, free_port, http, require_stack


class Loki(Server):
    """One process, with the limits and labels that Compose gives it. Only paths, ports and waiting differ."""

    def __init__(self, folder: Path) -> None:
        binary = require_stack("loki")["loki"]
        port = free_port()
        data = folder / "loki"
        data.mkdir(parents=True, exist_ok=True)
        config = yaml.safe_load((REPOSITORY / "stack" / "loki.yaml").read_text().replace("/loki", str(data)))
        config["server"] |= {
            "http_listen_address": LOOPBACK,
            "http_listen_port": port,
            "grpc_listen_address": LOOPBACK,
            "grpc_listen_port": free_port(),
        }
        # Its parts wait for each other to have joined a ring; alone they need not.
        config["ingester"] = {"lifecycler": {"min_ready_duration": "0s"}}
        file = folder / "loki.yaml"
        file.write_text(yaml.safe_dump(config))
        self.url = f"http://{LOOPBACK}:{port}"
        super().__init__(
            "loki",
            [binary, f"-config.file={file}"],
            log=folder / "loki.log",
            ready=f"{self.url}/ready",
            timeout=90.0,
        )

    def query_range(self, expression: str, *, start: float, end: float, step: float = 60.0) -> dict[str, Any]:
        """The `data` of a range query: `resultType` is `streams` for lines and `matrix` for numbers.

        Raises:
            QueryError: Loki refused it; the message is its own.
        """
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}", "limit": "1000"}
        found: dict[str, Any] = self._ask("query_range", {"query": expression} | times)
        return found

    def label_values(self, label: str, *, start: float) -> list[str]:
        """Every value of an index label."""
        found: list[str] = self._ask(f"label/{label}/values", {"start": f"{start:.3f}"})
        return found

    def _ask(self, endpoint: str, parameters: dict[str, str]) -> Any:
        answer = http.get(f"{self.url}/loki/api/v1/{endpoint}", params=parameters)
        if answer.is_error:
            raise QueryError(f"{parameters.get('query')}: {answer.text}")
        return answer.json().get("data", [])  # left out where there is nothing

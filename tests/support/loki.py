"""A real Loki for tests: `stack/loki.yaml` on free loopback ports, its data in a folder of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import LOOPBACK, REPOSITORY, QueryError, Server, free_port, http, require_stack, written


class Loki(Server):
    """One process, with the limits and labels that Compose gives it. Only paths, ports and waiting differ."""

    def __init__(self, folder: Path) -> None:
        port, data = free_port(), folder / "loki"
        config = yaml.safe_load((REPOSITORY / "stack" / "loki.yaml").read_text().replace("/loki", str(data)))
        for name, each in (("http", port), ("grpc", free_port())):
            config["server"] |= {f"{name}_listen_address": LOOPBACK, f"{name}_listen_port": each}
        # Its parts wait for each other to have joined a ring; alone they need not.
        config["ingester"] = {"lifecycler": {"min_ready_duration": "0s"}}
        self.url = f"http://{LOOPBACK}:{port}"
        super().__init__(
            "loki",
            [require_stack("loki")["loki"], f"-config.file={written(data / 'loki.yaml', config)}"],
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

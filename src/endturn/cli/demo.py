"""`endturn demo`: agents on real SDKs against a scripted provider, and why their models stopped."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypedDict
from urllib.parse import urlsplit

from endturn import settings
from endturn.calls import CallEnded, DispatchBlocked, Record, Turn, TurnEnded, subscribe
from endturn.cli.demo_agents import plan, scripted_provider
from endturn.errors import UsageError
from endturn.instrumentation import configure, destinations
from endturn.ui import Store, server

_MAX_MINUTES: Final = 525_600  # a year


def command(
    *,
    as_json: bool,
    once: bool,
    minutes: float | None,
    port: int | None = None,
    open_browser: bool | None = None,
) -> int:
    """Check the options of `endturn demo` and run it; on a terminal it serves a page.

    Args:
        port: the port of the page; None: 4318, or a free one. With a port, the page is served
            without a terminal too.
        open_browser: open a browser; None: if there is a display.
    """
    if minutes is not None and not 0 < minutes <= _MAX_MINUTES:
        raise UsageError(
            f"--minutes must be more than 0 and at most {_MAX_MINUTES}, not {minutes:g}"
        )
    if once and minutes is not None:
        raise UsageError("--once and --minutes exclude each other: use one of them")
    if port is not None:
        if once or as_json or minutes:
            raise UsageError(
                "--port cannot be combined with --once, --minutes or --json, which serve no page: "
                "remove it"
            )
        if not 0 <= port < 1 << 16:
            raise UsageError(f"--port must be from 0 (any free port) to 65535, not {port}")
    is_shown = sys.stdout.isatty() or port is not None
    with_page = not (once or as_json or minutes) and is_shown
    return run(
        as_json=as_json,
        minutes=minutes or 0.0,
        with_page=with_page,
        port=port,
        open_browser=open_browser,
    )


def run(
    *,
    as_json: bool = False,
    minutes: float = 0.0,
    with_page: bool = False,
    port: int | None = None,
    open_browser: bool | None = None,
) -> int:
    """Run the demo and print the result.

    Args:
        as_json: print one JSON object and nothing else.
        minutes: repeat the script for that long, with pauses as between people's questions; 0 runs
            it once.
        with_page: serve a page until Ctrl-C, unless OTEL_EXPORTER_OTLP_ENDPOINT is set.
        port: the port of the page; None: 4318, or a free one if that is in use.
        open_browser: open a browser at the page; None: if there is a display.

    Returns:
        The exit status: 0, or 130 after an interrupt; the result up to then is printed.

    Raises:
        UsageError: nothing listens at the OTLP endpoint, or the page's port is in use.
    """
    os.environ.setdefault("OTEL_SERVICE_NAME", "endturn-demo")
    if with_page and "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ:
        return _with_page(port, open_browser)
    return _play(as_json=as_json, minutes=minutes)


def _with_page(port: int | None, open_browser: bool | None) -> int:
    """Serve a page and run the demo with it.

    It never sends to a page that already runs, which may hold real telemetry.
    """
    # The scripted content may be shown, and short intervals make the page update while it runs.
    os.environ.setdefault("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    os.environ.setdefault("OTEL_METRIC_EXPORT_INTERVAL", "1000")
    os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "500")
    os.environ.setdefault("OTEL_BLRP_SCHEDULE_DELAY", "500")
    try:
        listener = server.listen("127.0.0.1", server.PORT if port is None else port)
    except UsageError:
        if port is not None:
            raise
        print(
            f"Port {server.PORT} is in use, so the demo serves its page on another port; it sends "
            f"nothing to port {server.PORT}."
        )
        listener = server.listen("127.0.0.1", 0)
    store = Store()
    try:
        with server.serving(store, listener) as address:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = address
            print(f"endturn's page is at {address}  (Ctrl-C ends it)", flush=True)
            server.browse(address, open_browser)
            if status := _play(pause_s=0.1):
                return status
            print(
                f"\nThe page stays at {address} until Ctrl-C. For your own agent:\n"
                f"  OTEL_EXPORTER_OTLP_ENDPOINT={address} endturn run python agent.py",
                flush=True,
            )
            threading.Event().wait()
    finally:
        store.close()
    return 0


def _play(*, as_json: bool = False, minutes: float = 0.0, pause_s: float = 0.0) -> int:
    """Run the script, once or for that many minutes, and print the table."""
    exported_to = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if exported_to:
        _reach(exported_to)
    else:  # nobody is listener on the default port: do not try
        for signal in ("TRACES", "METRICS", "LOGS"):
            os.environ.setdefault(f"OTEL_{signal}_EXPORTER", "none")

    quiet = logging.NullHandler()
    logging.getLogger("endturn").addHandler(quiet)  # the table has the same facts as its log lines
    tally = Tally()
    stop_listening = subscribe(tally)
    started = time.monotonic()
    status = 0
    if minutes:
        print(f"Playing turns for {minutes:g} minutes; Ctrl-C stops.", file=sys.stderr, flush=True)
    with configure(), scripted_provider().serve() as url:
        try:
            for agent, question in plan(minutes):
                agent(url, question)
                time.sleep(0.5 if minutes else pause_s)
        except KeyboardInterrupt:
            status = 130
        finally:
            # export errors are not in the table
            logging.getLogger("endturn").removeHandler(quiet)
    stop_listening()
    result: DemoResult = {
        "models": tally.result(), "seconds": round(time.monotonic() - started, 1),
        "exported_to": exported_to,
    }  # fmt: skip
    print(json.dumps(result, indent=2) if as_json else report(result))
    return status


def _reach(endpoint: str) -> None:
    """Raise UsageError if the endpoint is malformed or nothing listens there.

    Otherwise only the exporters' log lines would say so.
    """
    for mistake in destinations.mistakes(os.environ, ["traces"]):
        raise UsageError(mistake)
    where = urlsplit(endpoint)
    port = where.port or (443 if where.scheme == "https" else 80)
    try:
        socket.create_connection((where.hostname or "", port), timeout=3).close()
    except OSError as error:
        raise UsageError(
            f"nothing listens at OTEL_EXPORTER_OTLP_ENDPOINT="
            f"{settings.redact_address(endpoint)} ({error}); start `endturn ui` or a Collector"
        ) from None


class ModelFigures(TypedDict):
    """The figures of one model, as the JSON output has them; rates are fractions of 1."""

    provider: str
    model: str
    responses: dict[str, int]
    turns: int
    truncated_turns: int
    truncation_rate: float | None
    continued_turns: int
    unfinished_turns: int
    unfinished_rate: float | None
    blocked_tool_calls: int


class DemoResult(TypedDict):
    """The result of a run, as the JSON output has it.

    Attributes:
        exported_to: the OTLP endpoint; None if nothing was exported.
    """

    models: list[ModelFigures]
    seconds: float
    exported_to: str | None


@dataclass
class _ModelTally:
    """The counts of one model."""

    reasons: Counter[str] = field(default_factory=Counter)
    turns: list[Turn] = field(default_factory=list)
    blocked: int = 0

    def figures(self, provider: str, model: str) -> ModelFigures:
        """Return the figures of the model."""
        truncated = [turn for turn in self.turns if turn.truncated]
        unfinished = sum(turn.unfinished for turn in truncated)
        return {
            "provider": provider,
            "model": model,
            "responses": dict(self.reasons.most_common()),
            "turns": len(self.turns),
            "truncated_turns": len(truncated),
            "truncation_rate": len(truncated) / len(self.turns) if self.turns else None,
            "continued_turns": sum(turn.continued for turn in self.turns),
            "unfinished_turns": unfinished,
            "unfinished_rate": unfinished / len(truncated) if truncated else None,
            "blocked_tool_calls": self.blocked,
        }


class Tally:
    """A listener that counts calls and turns for the report, by provider and model."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], _ModelTally] = defaultdict(_ModelTally)

    def __call__(self, record: Record) -> None:
        match record:
            case CallEnded(started=started, stop=stop):
                self._models[started.endpoint.provider, started.request.model].reasons[
                    stop.reason.value
                ] += 1
            case TurnEnded(turn=turn):
                self._models[turn.provider, turn.model].turns.append(turn)
            case DispatchBlocked(provider=provider, model=model, names=names):
                self._models[provider, model].blocked += len(names)
            case _:
                pass

    def result(self) -> list[ModelFigures]:
        """Return the figures of each model."""
        return [
            tally.figures(provider, model)
            for (provider, model), tally in sorted(self._models.items())
        ]


def _with_rate(count: int, rate: float | None) -> str:
    return f"{count} ({rate:.0%})" if count else "–"


COLUMNS: Final[dict[str, Callable[[ModelFigures], object]]] = {
    "provider": lambda row: row["provider"],
    "model": lambda row: row["model"],
    "turns": lambda row: row["turns"],
    "truncated": lambda row: _with_rate(row["truncated_turns"], row["truncation_rate"]),
    "continued": lambda row: row["continued_turns"] or "–",
    "unfinished": lambda row: _with_rate(row["unfinished_turns"], row["unfinished_rate"]),
    "responses by reason": lambda row: ", ".join(
        f"{reason} {count}" for reason, count in row["responses"].items()
    ),
}
"""The columns of the table: each title, and its cell of a model's figures."""


def report(result: DemoResult) -> str:
    """Return the result as a table, with the next commands to try."""
    rows = [
        [*COLUMNS],
        *([str(cell(row)) for cell in COLUMNS.values()] for row in result["models"]),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["─" * width for width in widths])
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    turns = sum(row["turns"] for row in result["models"])
    truncated = sum(row["truncated_turns"] for row in result["models"])
    unfinished = sum(row["unfinished_turns"] for row in result["models"])
    blocked = sum(row["blocked_tool_calls"] for row in result["models"])
    calls = "1 tool call was" if blocked == 1 else f"{blocked} tool calls were"
    lines += [
        "",
        f"{turns} turns in {result['seconds']} s. {truncated} were truncated; {unfinished} of "
        f"those stayed unfinished. {calls} truncated and not run.",
        "",
    ]
    if result["exported_to"]:
        lines.append(f"The telemetry went to {result['exported_to']}.")
    else:
        command = "endturn" if shutil.which("endturn") else os.path.relpath(sys.argv[0])
        lines += [
            f"See it as a page:  {command} demo, in a terminal",
            f"In Grafana:        docs/install.md, then OTEL_EXPORTER_OTLP_ENDPOINT=… {command} "
            f"demo --minutes 10",
        ]
    return "\n".join(lines)

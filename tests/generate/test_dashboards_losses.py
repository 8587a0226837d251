"""Panels and alerts say the same of what the Collector lost: the committed queries over the committed rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import REPOSITORY, require_stack

pytestmark = pytest.mark.stack

RULES = REPOSITORY / "dashboards" / "rules"
CHOSEN = {"$__range": "1h", "$__interval": "5m", "$job": "(shop/agent)", "$provider": ".*", "$model": ".*"}
COLLECTOR = 'job="collector",instance="c"'
LOST = f'{{{COLLECTOR},exporter="otlp_grpc/tempo"}}'
MODEL = 'job="shop/agent",gen_ai_provider_name="openai",gen_ai_request_model="gpt-5"'
TURNS = 'endturn_turn_outcome="completed",endturn_turn_truncated="false",endturn_turn_continued="false"'
HAPPENED = {
    f"otelcol_process_uptime{{{COLLECTOR}}}": "1+60x120",
    'otelcol_process_uptime_seconds_total{job="endturn-collector",instance="c"}': "1+60x120",
    f"up{{{COLLECTOR}}}": "1x120",
    # Both counters are born with what was lost at once.
    f"otelcol_exporter_send_failed_spans{LOST}": "_x60 5000x60",
    f"otelcol_exporter_enqueue_failed_spans{LOST}": "_x60 7000x60",
    # One process, and what the Collector counted itself of an agent without endturn.
    f'endturn_responses_total{{{MODEL},endturn_stop_reason="end_turn",instance="one"}}': "0+1x120",
    f'endturn_turns_total{{{MODEL},{TURNS},instance="one"}}': "0+1x120",
    f'endturn_responses_total{{{MODEL},endturn_stop_reason="end_turn",instance="c"}}': "0+1x120",
}


def asked(board: str, id_: int, query: int = 0) -> str:
    """A committed panel's query, one service chosen."""
    panels = json.loads((REPOSITORY / "dashboards" / f"{board}.json").read_text())["panels"]
    [panel] = [panel for panel in panels if panel["id"] == id_]
    text: str = panel["targets"][query]["expr"]
    for name, value in CHOSEN.items():
        text = text.replace(name, value)
    return text


def check(expression: str, at: int, folder: Path, *found: tuple[str, float]) -> None:
    """The expression is exactly this, at that minute, by the current promtool."""
    samples = [{"labels": labels, "value": value} for labels, value in found]
    series = [{"series": name, "values": values} for name, values in HAPPENED.items()]
    asks: dict[str, Any] = {"expr": expression, "eval_time": f"{at}m", "exp_samples": samples}
    test = {
        "rule_files": [str(RULES / f"{name}.yaml") for name in ("increments", "slo", "alerts", "collector")],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [asks]}],
    }
    (folder / "test.yaml").write_text(json.dumps(test))
    done = subprocess.run(
        [require_stack("prometheus")["promtool"], "test", "rules", "test.yaml"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("board", ["overview", "pipeline"])
def test_a_lost_batch_is_in_the_figure(board: str, tmp_path: Path) -> None:
    """What counters were born with counts, and so does what a full queue did not take."""
    check(asked(board, 76), 90, tmp_path, ("{}", 12_000))


def test_a_lost_batch_is_in_the_chart(tmp_path: Path) -> None:
    """In the step in which it was lost, by exporter, signal and cause."""
    labels = '{{exporter="otlp_grpc/tempo", signal="spans", cause="{}"}}'.format
    found = (labels("send_failed"), 5000), (labels("queue_full"), 7000)
    check(f"max_over_time(({asked('pipeline', 22)})[20m:1m])", 75, tmp_path, *found)


def test_an_alert_about_the_collector_is_in_the_figure(tmp_path: Path) -> None:
    """Whichever service is chosen: both losses fire, under the Collector's own job."""
    check(asked("overview", 17), 75, tmp_path, ("{}", 2))


@pytest.mark.parametrize("board", ["overview", "pipeline"])
def test_the_collector_is_no_process(board: str, tmp_path: Path) -> None:
    """What it counts for agents without endturn is under its own instance."""
    check(asked(board, 72), 90, tmp_path, ("{}", 1))


def test_the_table_of_services_counts_processes_alone(tmp_path: Path) -> None:
    """Their number is that of instances that count turns."""
    check(asked("pipeline", 11, 1), 90, tmp_path, ('{job="shop/agent"}', 1))

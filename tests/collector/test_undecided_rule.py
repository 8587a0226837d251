"""The recorded loss of undecided traces: what left memory less what was decided on, and nothing for kept traces."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.processes import REPOSITORY, require_stack

pytestmark = pytest.mark.stack

TAIL = "otelcol_processor_tail_sampling"
OF = 'job="collector",instance="gateway"'
SERIES = {
    f"otelcol_process_uptime{{{OF}}}": "1+15x200",
    # 2000 are let go early; later 2500 kept, for which the other counter is born; later 500 let go in time.
    f"{TAIL}_sampling_trace_removal_age_count{{{OF}}}": "0x40 2000x39 4500x39 5000x80",
    f'{TAIL}_global_count_traces_sampled{{{OF},sampled="true"}}': "_x81 2500x120",
    f'{TAIL}_global_count_traces_sampled{{{OF},sampled="false"}}': "_x121 500x80",
}
LOST = 'endturn:collector_lost:increase5m{cause="undecided"}'
LABELS = '{cause="undecided",instance="gateway",job="collector",signal="traces"}'


def test_only_traces_without_room_are_recorded_as_lost(tmp_path: Path) -> None:
    """2000 once; nothing where as many leave memory as are decided on, even in the counters' first moments."""
    promtool = require_stack("prometheus")["promtool"]
    expected = {("9m", "9m"): 0, ("14m", "4m"): 2000, ("45m", "24m"): 0}
    test = {
        "rule_files": [str(REPOSITORY / "dashboards" / "rules" / "collector.yaml")],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in SERIES.items()],
                "promql_expr_test": [
                    {
                        "expr": f"max_over_time({LOST}[{window}])",
                        "eval_time": at,
                        "exp_samples": [{"labels": LABELS, "value": value}],
                    }
                    for (at, window), value in expected.items()
                ],
            }
        ],
    }
    file = tmp_path / "undecided.yaml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

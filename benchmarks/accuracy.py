"""What dashboards say against what happened: real agents, Collector and Prometheus, through outages and restarts.

    python benchmarks/accuracy.py                    all at once, each with a stack of its own: some 20 minutes
    python benchmarks/accuracy.py --write FILE       and the page, docs/accuracy.md
    python benchmarks/accuracy.py --turns FILE       only what the page says of turns that nobody declared: seconds
    python benchmarks/accuracy.py --times 15         on a clock fifteen times as fast (what the test does)

Each agent calls a model through a real HTTP client, and says itself what happened. Then the expressions of the
Overview's tiles are asked of Prometheus as Grafana asks them, over the whole run, and the recorded counts as alerts do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from endturn.generate.queries import JOB, Matcher, Queries  # noqa: E402
from endturn.telemetry import INDICATORS, Indicator  # noqa: E402
from tests.support import conversations, faster  # noqa: E402
from tests.support.processes import Collector, Prometheus, eventually  # noqa: E402

EXPORT: Final = 15.0
"""Seconds between two exports of an agent, and between two evaluations' minutes a quarter."""

AGENT: Final = """
import json, os, sys, time
import endturn, httpx
seconds, calls, truth = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
endturn.configure(service_name="agent")
happened = {"responses": 0, "truncated": 0, "turns": 0, "unfinished": 0}

def answer(request):
    body = json.loads(request.content)
    cut = body["messages"][-1]["content"].startswith("cut")
    message = {"role": "assistant", "content": "text"}
    choice = {"index": 0, "finish_reason": "length" if cut else "stop", "message": message}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    whole = {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    return httpx.Response(200, json=whole)

@endturn.observe_turn
def ask(client, content):
    body = {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": content}]}
    client.post("https://api.openai.com/v1/chat/completions", json=body)

with httpx.Client(transport=httpx.MockTransport(answer)) as client:
    begun = time.monotonic()
    for n in range(calls):
        time.sleep(max(0.0, begun + n * seconds / calls - time.monotonic()))
        ask(client, f"cut {n}" if n % 3 == 0 else f"whole {n}")
        happened["responses"] += 1
        happened["turns"] += 1
        happened["truncated"] += n % 3 == 0
        happened["unfinished"] += n % 3 == 0
        with open(truth + ".new", "w") as file:
            json.dump(happened, file)
        os.replace(truth + ".new", truth)  # whole, whenever this process is killed
"""

SHOWN: Final = {
    "responses": "responses",
    "turns": "turns",
    "truncated": "truncated_turns",
    "unfinished": "unfinished",
    "truncation": "truncation",
    "unfinished share": "unfinished_share",
}
"""What the panels show -> the indicator."""
RECORDED: Final = {"turns": "turns", "truncated": "truncated", "unfinished": "unfinished"}


HEAD: Final = """\
# Accuracy

This page covers the difference between what happened and what the dashboards show, and how well
continuations and turns are inferred.

Each cell has two values: the agent's own count · the tile's value. Agents, Collector 0.155 and
Prometheus 3.15 are real, set up as in Compose, with 15 s between exports. The tile's expression
covers the entire run, and is evaluated 45 s after its end. A turn of these agents is one call that
is not continued; only the demo's turns have several calls. *As increase* is the value of plain
`increase` for turns. *Recorded* is `sum_over_time(endturn:service_turns:count5m[…]) / 5`, which
alerts and windows longer than a day read. `python benchmarks/accuracy.py --write docs/accuracy.md`
repeats the measurement.
"""
FOOT: Final = """
- An agent that is killed loses its records since its last export, up to 15 s.
- While Prometheus is down, nothing is evaluated: the recorded counts lack the events of that time,
  on both sides of a share alike. The counters and the panels include them when Prometheus is back.
- Responses of agents in other languages, which the Collector counts, are complete with Prometheus 3
  as in Compose, also in windows that include a restart of the Collector: 70 responses for 70, and
  106 for 106. In a database that ignores the start times of counters, the responses before the
  first scrape of each series are missing in every window ([the Collector](collector.md#any-language)).
- `increase` extrapolates to the edges of its window, by half if a series has two samples.
- A Collector that is away for longer than two minutes costs spans and events, never counts. After
  five minutes away, 28% of the spans and 32% of the events of a run of half an hour were missing;
  *Dropped by SDKs* on the Pipeline dashboard showed exactly these.
- A process that restarts under the same `service.instance.id` begins again at zero in the same
  series. Its windows are counted with `increase`: 150 turns for 140. `configure()` gives each
  process an id of its own.
- These figures are for OTLP into Prometheus 3. [What is exact](install.md#what-is-exact) has other
  back ends and ways in.

## Continuations that nobody declared

After a truncated answer, a call continues the turn if it has the same history, the partial answer
and a message that asks for the rest. A message that asks for something new ends the turn. The two
are distinguished by their structure: a verb of continuing with a mention of the truncation or of
the place where the text stopped, or a statement that the answer was truncated. After a complete
answer no message is a continuation. Measured with `tests/telemetry/continuations.json`: prompts
modelled on those of public agents and frameworks, prompts in fourteen languages that were written
for the test, and follow-ups of ordinary chats.

| messages after a truncated answer | number | recognised as a continuation |
| --- | --- | --- |
| ask for the rest | 175 | 174 |
| ask for something new | 182 | 0 |

The rules were written with these messages at hand. Before the messages were inspected, the rules
recognised 27 of 27 collected prompts and 56 of 98 written ones, and mistook 3 of 123 follow-ups for
a continuation: expect that a rare wording is missed.

Other ways to get a complete answer are not recognised. The truncated turn then ends
`not_continued`, and the next call is another turn:

- The host quotes the partial answer within one new user message ("… You already wrote: … Continue
  from there."), so the history is a different one.
- The host sends a text completion (`/v1/completions`) again, with the partial text appended to the
  prompt.
- The host asks for another answer to replace the truncated one: "Too long. Answer again in 3
  words."
- The host sends the same request with the same limit.

## Turns that nobody declared

Conversations with known turns (`tests/support/conversations.py`) are replayed to the inference, six
at a time, with their calls in any order. A question is right if all its calls are one turn, and no
other call is in that turn. A property test replays the families with 100% in random orders and
allows no mistake. The exception is `rewritten_ids`: its 100% is for these orders only.

@table@

A numbered id proves nothing, and a call to another model after a failure is another turn. A prompt
that another turn sent within a minute counts as a sample of that prompt. This is right in `batch`
and `evaluation`, and wrong from the second user on in `retried_by_hand` and
`larger_limit_same_prompt`. In `nudged` the complete text ends its turn, and the host's demand for a
tool call does not ask for the rest of a truncated text. Declare the turns of such agents
([decorators](decorators.md)), or use a framework that makes agent spans.
"""


@dataclass
class Stack:
    """One Prometheus and one Collector, and the agents that ran."""

    folder: Path
    prometheus: Prometheus
    collector: Collector
    times: float
    truths: list[Path]

    def wait(self, seconds: float) -> None:
        """On the clock of the run."""
        time.sleep(seconds / self.times)

    def agent(self, seconds: float = 90, calls: int = 210) -> subprocess.Popen[bytes]:
        """An agent that spreads its calls over so many seconds, and ends; it has made its first one."""
        self.truths.append(self.folder / f"truth-{len(self.truths)}.json")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.url,
            "OTEL_METRIC_EXPORT_INTERVAL": str(int(1000 * EXPORT / self.times)),
            "PYTHONPATH": str(ROOT / "src"),
        }
        command = [sys.executable, "-c", AGENT, str(seconds / self.times), str(calls), str(self.truths[-1])]
        with (self.folder / "agent.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        eventually(self.truths[-1].exists, what="the agent's first call", timeout=300)
        return process

    def happened(self) -> dict[str, float]:
        """What the agents say themselves."""
        every = [json.loads(file.read_text()) for file in self.truths]
        counts = {name: sum(each[name] for each in every) for name in every[0]}
        return counts | {
            "truncation": counts["truncated"] / counts["responses"],
            "unfinished share": counts["unfinished"] / counts["truncated"],
        }


def load(stack: Stack) -> None:
    """210 calls"""
    stack.agent().wait()


def _collector_killed(seconds: float) -> Callable[[Stack], None]:
    def play(stack: Stack) -> None:
        running = stack.agent(seconds=90 + 2 * seconds)
        stack.wait(30)
        stack.collector.kill()
        stack.wait(seconds)
        stack.collector.start()
        running.wait()

    span = f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min"
    play.__doc__ = f"Collector killed for {span}"
    return play


def prometheus_away(stack: Stack) -> None:
    """Prometheus away for 2 min"""
    running = stack.agent(210, 210)
    stack.wait(30)
    stack.prometheus.stop()
    stack.wait(120)
    stack.prometheus.start()
    running.wait()


def prometheus_restarted(stack: Stack) -> None:
    """Prometheus restarted"""
    running = stack.agent()
    stack.wait(45)
    stack.prometheus.stop()
    stack.prometheus.start()
    running.wait()


def short(stack: Stack) -> None:
    """20 agents of a second, 7 turns each"""
    for _ in range(20):
        stack.agent(stack.times, 7).wait()  # a second is a second: no process is faster


def terminated(stack: Stack) -> None:
    """SIGTERM of an agent"""
    running = stack.agent()
    stack.wait(50)
    running.send_signal(signal.SIGTERM)
    running.wait()


def killed(stack: Stack) -> None:
    """SIGKILL of an agent"""
    running = stack.agent()
    stack.wait(50)
    running.send_signal(signal.SIGKILL)
    running.wait()


SITUATIONS: Final[dict[str, Callable[[Stack], None]]] = {
    "load": load,
    "collector-10": _collector_killed(10),
    "collector-60": _collector_killed(60),
    "collector-480": _collector_killed(480),
    "prometheus-away": prometheus_away,
    "prometheus-restarted": prometheus_restarted,
    "short": short,
    "terminated": terminated,
    "killed": killed,
}


@contextmanager
def running(folder: Path, times: float) -> Iterator[Stack]:
    """A stack of its own, on a clock that is so many times as fast."""
    rules = faster.rules(folder, int(times))
    offset = f"{max(1, int(1000 * EXPORT / times))}ms"
    with ExitStack() as stack:
        prometheus = stack.enter_context(Prometheus(folder / "prometheus", rules=rules, rule_query_offset=offset))
        collector = stack.enter_context(Collector(folder / "collector", prometheus=prometheus.url))
        yield Stack(folder, prometheus, collector, times, [])


def shown(indicator: Indicator, window: str, *where: Matcher) -> str:
    """The query of a panel that shows an indicator over a window."""
    queries = Queries(where)
    if indicator.denominator is None:
        return queries.events(indicator.count, over=window)
    return queries.ratio(indicator, over=window)


def measure(name: str, times: float = 1) -> dict[str, Any]:
    """Play one situation; what happened, what panels say, what `increase` would say, what is recorded."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), times) as stack:
        begun = time.time()
        SITUATIONS[name](stack)
        ended = time.time()
        time.sleep(max(45 / times, 10))  # what a queue or a retry still delivers
        window = f"{math.ceil(time.time() - begun)}s"

        def ask(text: str) -> float:
            return sum(each.value for each in stack.prometheus.client.query(text))

        said = {key: ask(shown(INDICATORS[name], window, Matcher(JOB, "=", "agent"))) for key, name in SHOWN.items()}
        guessed = ask(f'sum(increase(endturn_turns_total{{job="agent"}}[{window}]))')
        stack.wait(330)  # a turn stands in the counts for five minutes and one export
        since = f"{math.ceil(time.time() - begun)}s"
        counted = {
            key: ask(f'sum(sum_over_time(endturn:service_{count}:count5m{{job="agent"}}[{since}])) / 5')
            for key, count in RECORDED.items()
        }
        return {
            "title": (SITUATIONS[name].__doc__ or "").strip(),
            "seconds": ended - begun,
            "happened": stack.happened(),
            "said": said,
            "increase": guessed,
            "recorded": counted,
        }


def demo() -> dict[str, Any]:
    """A fresh stack, and `endturn demo`: the tiles beside what the command printed."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), 1) as stack:
        begun = time.time()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": stack.collector.url
        }
        command = [sys.executable, "-m", "endturn", "demo", "--once", "--json"]
        rows = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)["models"]
        time.sleep(30)
        window = f"{math.ceil(time.time() - begun)}s"
        said = {
            key: sum(each.value for each in stack.prometheus.client.query(shown(INDICATORS[name], window)))
            for key, name in SHOWN.items()
        }
        guessed = stack.prometheus.client.query(f"sum(increase(endturn_turns_total[{window}]))")[0].value
    responses = sum(sum(row["responses"].values()) for row in rows)
    errors = sum(row["responses"].get("error", 0) for row in rows)
    cut = sum(row["responses"].get(why, 0) for row in rows for why in ("max_tokens", "missing"))
    truncated, left = (sum(row[key] for row in rows) for key in ("truncated_turns", "unfinished_turns"))
    happened = {
        "responses": responses,
        "turns": sum(row["turns"] for row in rows),
        "truncated": truncated,
        "unfinished": left,
        "truncation": cut / (responses - errors),
        "unfinished share": left / truncated,
    }
    return {"title": "`endturn demo` on a fresh stack", "happened": happened, "said": said, "increase": guessed,
            "recorded": {}}  # fmt: skip


def page(results: list[dict[str, Any]]) -> str:
    """The table, and what it says, in Markdown."""

    def pair(result: dict[str, Any], key: str) -> str:
        happened, said = result["happened"][key], result["said"][key]
        if "share" in key or key == "truncation":
            return f"{happened:.1%} · {said:.1%}"
        return f"{happened:.0f} · {said:.0f}"

    head = ["situation", *SHOWN, "turns, as increase", "turns, recorded"]
    lines = [HEAD, f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    for result in results:
        recorded = f"{result['recorded']['turns']:.0f}" if result["recorded"] else "–"
        cells = [pair(result, key) for key in SHOWN]
        lines.append(f"| {' | '.join([result['title'], *cells, format(result['increase'], '.0f'), recorded])} |")
    return "\n".join([*lines, foot()])


def foot() -> str:
    """Write what stands below the situations, with the families of conversations as they are measured now."""
    return FOOT.replace("@table@", "\n".join(conversations.table()))


def with_turns(text: str) -> str:
    """Write the page anew from the table of families on: what the others say takes a stack to measure."""
    return text[: text.index(FOOT.partition("\n## ")[0])] + foot()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=float, default=1)
    parser.add_argument("--only", choices=SITUATIONS, nargs="*")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--turns", type=Path)
    arguments = parser.parse_args()
    if arguments.turns:
        arguments.turns.write_text(with_turns(arguments.turns.read_text()))
        return
    names = arguments.only or list(SITUATIONS)
    with ThreadPoolExecutor(len(names) + 1) as pool:
        first = pool.submit(demo) if not arguments.only else None
        results = [*([first.result()] if first else []), *pool.map(lambda name: measure(name, arguments.times), names)]
    text = page(results)
    print(text)
    if arguments.write:
        arguments.write.write_text(text)


if __name__ == "__main__":
    main()

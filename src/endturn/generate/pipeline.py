"""Pipeline: is telemetry arriving, and is anything lost on the way? Every other number stands on this."""

from __future__ import annotations

from endturn.generate import losses, panels, promql, rules, shown, tables
from endturn.generate.declare import VARIABLES
from endturn.generate.layout import Section
from endturn.generate.panels import About, AnyPanel, Needs, Query
from endturn.generate.promql import INSTANCE, JOB, SIGNALS, Matcher
from endturn.generate.rules import HEARTBEAT, RuleConfig
from endturn.generate.sdk import stat, table, timeseries
from endturn.generate.tables import Column
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Part, Thresholds

OWN = (promql.chosen(JOB, VARIABLES[JOB]),)
"""Of these dashboards' variables the pipeline knows the service alone."""
OF_PROCESSES = schema.TURNS
"""Which only processes count: responses are counted by the Collector too, under its own instance."""
SOME = Thresholds(look=1, act=10)
RANGE, RATE = "[$__range]", "[$__rate_interval]"


def health(config: RuleConfig, where: tuple[Matcher, ...] = OWN) -> tuple[tuple[AnyPanel, int], ...]:
    """One line of figures: is the telemetry itself all right?

    Args:
        where: what the dashboard's variables let through.
    """
    return tuple((panel, 4) for panel in _figures(config, where))


def sections(config: RuleConfig) -> list[Section]:
    """All of them, from the top."""
    arriving = ((_services(11, config), 12), (_capped(12, config), 6), (_listeners(13, config), 6))
    through = ((_flow(21), 12), (_lost(22, config), 12))
    queues = ((_queues(23), 12), (_memory(24), 6), (_refused(25), 6))
    complete = ((_evaluations(31), 12), (_duration(32), 6), (_series(33), 6))
    return [
        Section(70, "Is the telemetry itself all right?", ((4, health(config)),)),
        Section(10, "Does telemetry arrive?", ((8, arriving),)),
        Section(20, "Does the Collector pass it on?", ((8, through), (8, queues))),
        Section(30, "Are the recorded increments complete?", ((7, complete),)),
    ]


def _figures(config: RuleConfig, where: tuple[Matcher, ...]) -> tuple[stat.Panel, ...]:
    window = promql.duration(config.increase)
    beat = f"last_over_time({HEARTBEAT}[{window}])"
    processes = f"last_over_time({promql.select(OF_PROCESSES).where(*where)}[{window}])"
    missed = _group("prometheus_rule_group_iterations_missed_total")

    def gauge(
        id_: int, title: str, question: str, formula: str, advice: str, expression: str, needs: Needs,
        limits: Thresholds | None = SOME,
    ) -> stat.Panel:  # fmt: skip
        says = About(
            id=id_, title=title, question=question, formula=formula, advice=advice, unit="short", needs=needs,
            empty="0", decimals=0,
        )  # fmt: skip
        return panels.number(says, Query(expression, at="end"), limits)

    def lost(count: indicators.Count) -> str:
        recorded = rules.recorded(count, config).where(*OWN)
        return promql.counted(recorded, (), "$__range", overlap=config.overlap).text

    alive = About(
        id=71,
        title="Heartbeat",
        question="Does telemetry arrive at all?",
        formula="the Collector's own uptime, or else any of our metrics, has come within the last minutes",
        advice="Silent: every number here is old. See the runbook of EndturnTelemetryAbsent.",
        unit="short",
        needs="collector",
        empty="silent",
    )
    beats = Query(f"min({beat} >= bool 1) or vector(0)", at="end")
    return (
        panels.number(alive, beats, says={"1": "alive", "0": "silent"}),
        gauge(
            72, "Processes", "How many processes report?",
            "processes with endturn whose counters came within the last minutes",
            "Fewer than are running: some are not instrumented, or export elsewhere.",
            f"count(count by (job, {INSTANCE}) ({processes}))", "process", None,
        ),
        gauge(
            73, "Recording failures", "Is endturn itself failing?",
            "records that a listener lost, in the whole time range",
            "See the runbook of EndturnTelemetryFailing.", lost(indicators.LISTENER_FAILURES), "process",
        ),
        gauge(
            74, "Labels capped", "Is a label unbounded?",
            "measurements that were put under `other`, in the whole time range",
            "A model name with an id in it, for example. Raise the cap only where the names are really that many.",
            lost(indicators.CAPPED), "process",
        ),
        gauge(
            75, "Evaluations missed", "Are the recorded increments complete?",
            "missed evaluations of our rules, in the whole time range",
            "See the runbook of EndturnRuleEvaluationsMissed.", f"round(sum(increase({missed}{RANGE})))", "rules",
        ),
        gauge(
            76, "Collector failures", "Does the Collector deliver what it gets?",
            "metric points, spans and log records that it lost, however that came, in the whole time range",
            "*Lost by the Collector* on *Pipeline* says which and why. See the runbook of "
            "EndturnCollectorLosingTelemetry.",
            f"round(sum(sum_over_time({losses.recorded('lost', config)}{RANGE})) / {config.overlap})", "collector",
        ),
    )  # fmt: skip


def _services(id_: int, config: RuleConfig) -> table.Panel:
    lookback = promql.duration(config.lookback)
    responses, turns = (promql.select(what).where(*OWN) for what in (schema.RESPONSES, OF_PROCESSES))
    # `timestamp` of a selector alone is that of its sample, so it is asked for at each evaluation's pace.
    ago = (
        f"time() - max by (job) (max_over_time(timestamp({responses})[{lookback}:{promql.duration(config.interval)}]))"
    )
    processes = f"count by (job) (count by (job, {INSTANCE}) (last_over_time({turns}[{lookback}])))"
    series = f"count by (job) (last_over_time({responses}[{lookback}]))"
    says = About(
        id=id_,
        title="Services, the longest silent first",
        question="Who has stopped reporting?",
        formula=f"services with counters in the last {lookback}: time since the newest, processes, series of responses",
        advice="Silent for longer than the export interval: the process ended, or its way to here is broken. A service "
        "that was silent for longer than the look-back is not listed at all. No processes: the Collector counts it.",
        unit="short",
        empty="–",
    )
    columns = (
        Column(name="Service", label=JOB),
        Column(name="Silent for", value_of="A", unit="s", limits=Thresholds(look=180, act=600)),
        Column(name="Processes", value_of="B"),
        Column(name="Series", value_of="C"),
    )
    asked = [Query(expression, at="end", form="table") for expression in (ago, processes, series)]
    return tables.rows(says, asked, columns, sort="Silent for")


def _own(config: RuleConfig, count: indicators.Count, says: About, by: schema.Attribute) -> timeseries.Panel:
    query = Query(shown.steps(Part(count=count), config, by=(by,), where=OWN), f"{{{{{by.label}}}}}")
    return panels.bars(says, [query], step=promql.duration(config.increase), colours={})


def _capped(id_: int, config: RuleConfig) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Labels capped, by label",
        question="Which label is unbounded?",
        formula="measurements that were put under `other` in each step, by the label whose cap was reached",
        advice="What is under `other` is counted, but nobody can tell which it was.",
        unit="short",
        empty="none",
        decimals=0,
    )
    return _own(config, indicators.CAPPED, says, schema.CAPPED)


def _listeners(id_: int, config: RuleConfig) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Recording failures, by listener",
        question="Which listener loses records?",
        formula="records that a listener lost in each step",
        advice="The agent went on; its telemetry is short of these. The logger `endturn` has the exception.",
        unit="short",
        empty="none",
        decimals=0,
    )
    return _own(config, indicators.LISTENER_FAILURES, says, schema.LISTENER)


def _sum(name: str, by: str = "") -> str:
    return f"sum {f'by ({by}) ' if by else ''}(rate({promql.foreign(name)}{RATE}))"


def _flow(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Accepted and delivered, per second",
        question="Does as much go out as comes in?",
        formula="items that the Collector's receivers accepted (drawn) and its exporters sent (dashed), by signal",
        advice="Sent stays below accepted: something is dropped by sampling or a filter, or piles up in a queue.",
        unit="short",
        needs="collector",
        empty="no Collector is scraped",
    )
    asked = [Query(_sum(f"otelcol_receiver_accepted_{signal}"), f"{_words(signal)}, in") for signal in SIGNALS]
    asked += [Query(_sum(f"otelcol_exporter_sent_{signal}"), f"{_words(signal)}, out") for signal in SIGNALS]
    colours = {f"{_words(signal)}, {way}": _COLOURS[signal] for signal in SIGNALS for way in ("in", "out")}
    return panels.lines(
        says, asked, colours=colours, dashed=[f"{_words(signal)}, out" for signal in SIGNALS], logarithmic=True
    )


_COLOURS = {"spans": "purple", "log_records": "green", "metric_points": "blue"}


def _words(signal: str) -> str:
    return signal.replace("_", " ")


def _lost(id_: int, config: RuleConfig) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Lost by the Collector",
        question="What does the Collector give up?",
        formula="items whose sending was given up, that a full queue did not take, or that were dropped on the way, in "
        "each step, by exporter, signal and cause",
        advice="`send_failed`: the back end refused them, or was away for longer than the retries last. `queue_full`: "
        "it is too slow, or the queue too small. All are data that no panel shows any more.",
        unit="short",
        needs="collector",
        empty="nothing lost",
        decimals=0,
    )
    recorded = losses.recorded("lost", config)
    by = f"{losses.EXPORTER}, {losses.SIGNAL}, {losses.CAUSE}"
    steps = f"round(sum by ({by}) (sum_over_time({recorded}[$__interval])) / {config.overlap})"
    # As counts of our own are shown: what happened at all in the time range, with its zeros.
    ever = f"sum by ({by}) (sum_over_time({recorded}[$__range] @ end())) > 0"
    legend = f"{{{{{losses.EXPORTER}}}}} {{{{{losses.SIGNAL}}}}}, {{{{{losses.CAUSE}}}}}"
    query = Query(f"{steps}\nand on ({by})\n{ever}", legend)
    return panels.bars(says, [query], step=promql.duration(config.increase), colours={})


def _queues(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Queues",
        question="How full are the Collector's queues?",
        formula="queue size ÷ capacity, by exporter and kind of data",
        advice="A queue that fills is a back end that does not keep up. At 100% senders are refused, or data are lost.",
        unit="percentunit",
        needs="collector",
        empty="no Collector is scraped",
    )
    size, capacity = (promql.foreign(f"otelcol_exporter_queue_{what}") for what in ("size", "capacity"))
    by = "sum by (exporter, data_type)"
    query = Query(f"{by} ({size}) / ({by} ({capacity}) > 0)", "{{exporter}}, {{data_type}}")
    return panels.lines(says, [query], limits=Thresholds(look=0.5, act=0.9), soft_max=1)


def _memory(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Collector memory",
        question="Does the Collector come near its limit?",
        formula="resident memory of each Collector",
        advice="Near its memory limit it refuses data, and senders keep and retry what they can.",
        unit="bytes",
        needs="collector",
        empty="no Collector is scraped",
    )
    memory = promql.foreign("otelcol_process_memory_rss")
    return panels.lines(says, [Query(f"max by ({INSTANCE}) ({memory})", f"{{{{{INSTANCE}}}}}")])


def _refused(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Refused, per second",
        question="Whom does the Collector turn away?",
        formula="items that receivers refused, because memory or a queue was full, by signal",
        advice="A sender that is refused tries again for a while, and then drops: SDKs keep little.",
        unit="short",
        needs="collector",
        empty="nothing refused",
    )
    asked = [Query(f"{_sum(f'otelcol_receiver_refused_{signal}')} > 0", _words(signal)) for signal in SIGNALS]
    return panels.lines(says, asked)


def _evaluations(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Evaluations missed or failed",
        question="Were the rules evaluated each time?",
        formula="missed and failed evaluations of our rule groups, in each step",
        advice="Each missed one undercounts what happened in its minute by a fifth. Prometheus is overloaded, or was "
        "restarted.",
        unit="short",
        needs="rules",
        empty="none",
        decimals=0,
    )
    asked = [
        Query(
            _short(f"round(sum by (rule_group) (increase({_group(name)}[$__interval]))) > 0"), f"{{{{group}}}}, {what}"
        )
        for name, what in (
            ("prometheus_rule_group_iterations_missed_total", "missed"),
            ("prometheus_rule_evaluation_failures_total", "failed"),
        )
    ]
    return panels.bars(says, asked, step="5m", colours={})


def _group(name: str) -> promql.Selector:
    return promql.foreign(name, rule_group=".*;endturn-.*")


def _short(expression: str) -> str:
    """With `group`, the rule group's name without the path of its file."""
    return f'label_replace({expression}, "group", "$1", "rule_group", ".*;endturn-(.*)")'


def _duration(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Evaluation time",
        question="Are evaluations about to be missed?",
        formula="duration of a rule group's last evaluation ÷ its interval",
        advice="Above 100% the next one is missed. Too many series: look at the labels that are capped.",
        unit="percentunit",
        needs="rules",
    )
    last, interval = (
        _group("prometheus_rule_group_last_duration_seconds"),
        _group("prometheus_rule_group_interval_seconds"),
    )
    query = Query(_short(f"max by (rule_group) ({last}) / (max by (rule_group) ({interval}) > 0)"), "{{group}}")
    return panels.lines(says, [query], limits=Thresholds(look=0.5, act=1), soft_max=0.1)


def _series(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Series in Prometheus",
        question="Does the number of series grow without end?",
        formula="series in the head block, of everything that this Prometheus holds",
        advice="Growing with each restart: process ids in labels. Ours are in `instance` alone.",
        unit="short",
        needs="rules",
    )
    head = promql.foreign("prometheus_tsdb_head_series")
    return panels.lines(says, [Query(f"max by ({INSTANCE}) ({head})", f"{{{{{INSTANCE}}}}}")])

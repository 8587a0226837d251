-- One row for each turn with these ids, from its spans and events. Its outcome is that of the turn's own span, else that
-- of the event of its end, else the meaning of its last call's stop reason; a truncated turn without any of them is open.
WITH ids AS (
    SELECT unnest($ids::VARCHAR[]) AS turn_id
),
calls AS (
    SELECT
        turn_id,
        count(*) AS calls,
        max(continuation) AS continuations,
        bool_or(coalesce(truncated, false)) AS truncated,
        max(start_ns) FILTER (WHERE truncated) AS cut_ns,
        max(start_ns) FILTER (WHERE continuation >= 1) AS continued_ns,
        bool_and(turn_id = span_id) AS lone, -- from an instrumentation without turns: each call counts as one
        sum(input_tokens) AS input_tokens,
        sum(output_tokens) AS output_tokens,
        arg_min(provider, (NOT coalesce(truncated, false), start_ns)) AS provider,
        arg_min(model, (NOT coalesce(truncated, false), start_ns)) AS model,
        arg_max_null(reason, start_ns) AS reason,
        arg_max_null(error, start_ns) AS error
    FROM spans SEMI JOIN ids USING (turn_id)
    WHERE operation IN ('chat', 'generate_content', 'text_completion')
    GROUP BY turn_id
),
turn_spans AS (
    SELECT
        turn_id,
        min(start_ns) AS start_ns,
        max(end_ns) AS end_ns,
        any_value(service) AS service,
        any_value(environment) AS environment,
        any_value(cluster) AS cluster,
        any_value(trace_id) AS trace_id,
        any_value(agent) AS agent,
        any_value(provider) AS provider,
        any_value(model) AS model,
        any_value(outcome) AS outcome,
        any_value(complete) AS complete,
        max(CASE operation WHEN 'invoke_agent' THEN @repairs@ END) AS repairs
    FROM spans SEMI JOIN ids USING (turn_id)
    GROUP BY turn_id
),
turn_ends AS (
    SELECT
        turn_id,
        arg_max(outcome, at_ns) AS outcome,
        max(@repairs@) AS repairs
    FROM events SEMI JOIN ids USING (turn_id)
    WHERE name = 'endturn.continuation_terminated'
    GROUP BY turn_id
),
repair_events AS ( -- for turns that have not ended; earlier versions of endturn count a repair as a continuation
    SELECT turn_id, count(DISTINCT attributes ->> '$."@index@"') AS repairs
    FROM events SEMI JOIN ids USING (turn_id)
    WHERE name = 'endturn.continuation_attempt' AND (attributes ->> '$."@strategy@"') = 'repair'
    GROUP BY turn_id
),
repair_counts AS (
    SELECT turn_id, greatest(turn_spans.repairs, turn_ends.repairs, repair_events.repairs, 0) AS repairs
    FROM turn_spans LEFT JOIN turn_ends USING (turn_id) LEFT JOIN repair_events USING (turn_id)
),
turn_rows AS (
    SELECT
        turn_id, start_ns, end_ns, service, environment, cluster, trace_id, agent, calls.calls, calls.reason,
        coalesce(calls.provider, turn_spans.provider) AS provider,
        coalesce(calls.model, turn_spans.model) AS model,
        repair_counts.repairs AS repairs,
        greatest(coalesce(continuations, 0) - repair_counts.repairs, 0) AS continuations,
        coalesce(truncated, false) AS truncated,
        coalesce(lone, false) AS lone,
        input_tokens,
        output_tokens,
        coalesce(
            turn_spans.outcome,
            turn_ends.outcome,
            CASE
                WHEN continued_ns > cut_ns AND calls.reason IN ('end_turn', 'tool_call') THEN 'completed'
                WHEN truncated THEN NULL
                WHEN error IS NOT NULL AND calls.reason <> 'cancelled' THEN 'provider_error'
                ELSE CASE calls.reason @outcomes@ END
            END
        ) AS outcome,
        turn_spans.complete AS declared_complete
    FROM turn_spans LEFT JOIN calls USING (turn_id) LEFT JOIN turn_ends USING (turn_id) JOIN repair_counts USING (turn_id)
)
SELECT
    turn_id, start_ns, end_ns, service, environment, cluster, trace_id, agent, calls, reason, provider, model,
    continuations, repairs, truncated, lone, input_tokens, output_tokens, outcome,
    coalesce(declared_complete, outcome IN (@complete@), false) AS complete,
    CASE
        WHEN outcome IS NULL THEN 'open'
        WHEN coalesce(declared_complete, outcome IN (@complete@)) THEN CASE WHEN truncated THEN 'finished' ELSE 'whole' END
        WHEN truncated AND outcome NOT IN ('cancelled', 'stopped') THEN 'unfinished'
        ELSE 'other'
    END AS state
FROM turn_rows
WHERE calls IS NOT NULL OR outcome IS NOT NULL

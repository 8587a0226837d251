-- The tables of the store. Attributes and links are JSON; times are nanoseconds since the epoch.
CREATE TABLE spans (
    trace_id VARCHAR, span_id VARCHAR, parent_id VARCHAR, name VARCHAR, scope VARCHAR, service VARCHAR,
    environment VARCHAR, cluster VARCHAR, start_ns BIGINT, end_ns BIGINT, operation VARCHAR, provider VARCHAR, model VARCHAR, agent VARCHAR,
    turn_id VARCHAR, iteration BIGINT, continuation BIGINT, reason VARCHAR, raw VARCHAR, truncated BOOLEAN,
    max_tokens BIGINT, input_tokens BIGINT, output_tokens BIGINT, outcome VARCHAR, complete BOOLEAN,
    error VARCHAR, links VARCHAR, attributes VARCHAR, conversation VARCHAR, response_id VARCHAR
);
-- Log records with an event name, and span events that carry messages; the latter have no turn id.
CREATE TABLE events (
    at_ns BIGINT, service VARCHAR, environment VARCHAR, cluster VARCHAR, trace_id VARCHAR, span_id VARCHAR, name VARCHAR, severity VARCHAR, body VARCHAR,
    provider VARCHAR, model VARCHAR, turn_id VARCHAR, outcome VARCHAR, attributes VARCHAR
);
-- The recorded messages of a call: the beginning of the user's last message, and the searchable text in lower case.
-- The turn id is NULL if the event has none, and is then that of its span.
CREATE TABLE texts (at_ns BIGINT, span_id VARCHAR, turn_id VARCHAR, question VARCHAR, words VARCHAR);
-- A metric of one process with its labels, and its values at the last export: that of a counter; of a histogram the sum,
-- then the count of each bucket.
CREATE TABLE series (
    id BIGINT, metric VARCHAR, service VARCHAR, instance VARCHAR, started_ns BIGINT, at_ns BIGINT, last DOUBLE[],
    bounds DOUBLE[], @labels@
);
-- The increment of a series at an export: of a counter or a histogram's sum, or of the bucket with the upper bound `le`.
CREATE TABLE increments (at_ns BIGINT, series BIGINT, le DOUBLE, added DOUBLE);
CREATE TABLE meta AS SELECT @version@ AS version;

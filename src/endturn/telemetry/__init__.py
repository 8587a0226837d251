"""Telemetry: the schema, the recorder that turns emitted records into signals, and turns and spans that it finds."""

"""Telemetry: the schema, the recorder that folds announced records into signals, and what announces from outside."""

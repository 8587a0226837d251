"""Instrumentation: what announces, from outside, the calls of agents that exist: SDKs, HTTP, decorators, spans."""

"""Decisions about a turn, without I/O: policy, machine, stitching, the tool gate, termination."""

"""The sources: one module each, with its `SOURCE`."""

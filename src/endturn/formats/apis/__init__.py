"""The API formats: one module each, with its readers, writers and `Format` declaration."""

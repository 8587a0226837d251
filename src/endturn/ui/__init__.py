"""The local page: takes OTLP over HTTP, keeps it in DuckDB, shows what became of each turn. Needs `endturn[ui]`."""

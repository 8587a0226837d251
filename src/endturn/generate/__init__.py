"""What is generated from the schema and committed: dashboards, rules and their tests, reference documents."""

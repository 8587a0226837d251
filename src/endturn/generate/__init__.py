"""What is generated from the schema and committed: dashboards, rules, collector statements, reference documents."""

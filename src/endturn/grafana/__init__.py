"""Installing the shipped dashboards and rules into a running Grafana."""

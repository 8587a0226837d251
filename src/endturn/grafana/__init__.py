"""Install the packaged dashboards and rules into a running Grafana."""

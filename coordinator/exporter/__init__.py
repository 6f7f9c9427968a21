"""The OpenMetrics endpoint of a running coordinator: what the run shows now, for Prometheus and friends to scrape."""

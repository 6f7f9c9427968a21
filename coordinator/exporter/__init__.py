"""The OpenMetrics endpoint of a running coordinator, for Prometheus and other scrapers."""

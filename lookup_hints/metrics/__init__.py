"""Counts and requests of lookups for other people's monitoring: Prometheus and OpenTelemetry."""

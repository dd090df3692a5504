"""The connectors that come with lookup_hints; each imports its own driver and nothing of the others."""

"""Decisions for each use of a lookup table: look up by key or read whole, and the settings of that."""

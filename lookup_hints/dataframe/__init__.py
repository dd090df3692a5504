"""Lookups of DataFrames: `lookup_join`, `async_wait`, and frames in braces in a text."""

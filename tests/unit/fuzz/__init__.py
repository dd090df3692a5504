"""Parsers of what comes from outside, fed with bytes that nobody would write."""

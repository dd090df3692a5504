"""Tests of what is told to other people's monitoring."""

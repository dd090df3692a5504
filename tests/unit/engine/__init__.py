"""Tests of what runs on the workers."""

"""The version of the library: what a log, a report and a worker say of it."""

__version__ = "0.1.0"

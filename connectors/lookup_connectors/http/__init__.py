"""The ``http`` connector: looks up one key, or many, with each request to an HTTP API."""

from lookup_connectors.http.connector import HttpConnector

__all__ = ["HttpConnector"]

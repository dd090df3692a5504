"""The ``http`` connector: an HTTP API that is asked for one key, or many, with each request."""

from lookup_connectors.http.connector import HttpConnector

__all__ = ["HttpConnector"]

"""The ``postgres`` connector: looks up rows of a table or view in batches, over a small pool."""

from lookup_connectors.postgres.connector import PostgresConnector

__all__ = ["PostgresConnector"]

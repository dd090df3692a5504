"""The ``postgres`` connector: a table or view of PostgreSQL, asked in batches over a small pool."""

from lookup_connectors.postgres.connector import PostgresConnector

__all__ = ["PostgresConnector"]

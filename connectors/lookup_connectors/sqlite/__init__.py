"""The ``sqlite`` connector: a table or view of an SQLite file that every worker can read."""

from lookup_connectors.sqlite.connector import SqliteConnector

__all__ = ["SqliteConnector"]

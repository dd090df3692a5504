"""The ``adbc`` connector: a table of any database that has an ADBC driver."""

from lookup_connectors.adbc.connector import AdbcConnector

__all__ = ["AdbcConnector"]

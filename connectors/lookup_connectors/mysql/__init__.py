"""The ``mysql`` connector: a table or view of MariaDB or MySQL."""

from lookup_connectors.mysql.connector import MysqlConnector

__all__ = ["MysqlConnector"]

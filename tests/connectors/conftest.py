"""The servers that connector tests use."""

from tests.servers.postgres import postgres_server

__all__ = ["postgres_server"]

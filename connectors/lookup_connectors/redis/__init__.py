"""The ``redis`` connector: values of Redis or Valkey, by keys made of a template."""

from lookup_connectors.redis.connector import RedisConnector

__all__ = ["RedisConnector"]

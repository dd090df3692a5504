"""``lookup-hints import``: CREATE statements from an OpenAPI document, an answer of an API, or a database."""

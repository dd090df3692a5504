"""The options of the ``redis`` connector."""

from __future__ import annotations

from lookup_hints.spi import BOOLEAN, DURATION, FILE, TEXT, Option, choice, integer

READING: tuple[Option, ...] = (
    Option("key", TEXT, "The key: text with a `{column}` for each column asked by.", required=True),
    Option(
        "value-type",
        choice("string", "hash", "json"),
        "What the key holds: a string that is one column, a hash whose fields are columns,"
        " or a string of JSON (an object is a row, an array of objects many).",
        default="hash",
    ),
    Option(
        "field.",
        TEXT,
        "The field of a hash, or the member of a JSON object, for a column; its own name by default.",
        family="column",
    ),
)

CONNECTING: tuple[Option, ...] = (
    Option("url", TEXT, "redis://user:password@host:6379/0, or rediss:// for TLS.", secret=True),
    Option("host", TEXT, "Server, in place of `url`."),
    Option("port", integer(1, 65535), "Port of the server.", default=6379),
    Option("database", integer(0), "Number of the database.", default=0),
    Option("username", TEXT, "User, where the server knows more than one."),
    Option("password", TEXT, "Password.", secret=True),
    Option("tls", BOOLEAN, "Whether to speak TLS; `rediss://` says it, too.", default=False),
    Option("tls-ca", FILE, "File of the authorities to trust; those of the system by default."),
    Option("tls-cert", FILE, "File of the client's certificate."),
    Option("tls-key", FILE, "File of the client's private key."),
    Option("cluster", BOOLEAN, "Whether the server is a node of a Redis Cluster.", default=False),
    Option(
        "pool-size",
        integer(1, 1000),
        "Lookups at once per worker process, at most; each has a connection.",
        default=4,
    ),
    Option("connect-timeout", DURATION, "Time to establish one connection.", default=10.0),
    Option("request-timeout", DURATION, "Time for one reply.", default=10.0),
)

OPTIONS = (*CONNECTING, *READING)

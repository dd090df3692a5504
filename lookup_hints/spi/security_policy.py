"""What SQL may use on machines that are not its author's: connectors, references, files and hosts.

An administrator sets the switches in Spark's static configuration, in the environment of the driver, or in
that of the workers. Something is allowed if every place that sets a switch allows it. No statement can widen
them.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from lookup_hints.errors import NotAllowed, OptionError, Problem, nearest
from lookup_hints.spi.secrets import REFERENCE_KINDS

CONNECTORS = "lookup.security.allowed-connectors"
REFERENCES = "lookup.security.allowed-references"
HOSTS = "lookup.security.allowed-hosts"
SWITCHES = (CONNECTORS, REFERENCES, HOSTS)
_PREFIX = "lookup.security."

Patterns = tuple[str, ...]
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST = re.compile(r"[a-z0-9._-]+")


def variable_of(switch: str) -> str:
    """The environment variable of a switch.

    >>> variable_of("lookup.security.allowed-hosts")
    'LOOKUP_SECURITY_ALLOWED_HOSTS'
    """
    return re.sub(r"\W", "_", switch).upper()


# In the application's configuration, not the session's: SET and RESET must not widen it. It is pickled with
# the table, so a worker needs no Spark. (docs/decisions/0090)
@dataclass(frozen=True)
class Policy:
    """What is allowed. Each switch has a list of patterns from every place that sets it; with none, all is.

    Args:
        connectors: names of connectors, as ``'connector'`` gives them.
        references: ``env:NAME``, ``conf:key``, ``file:/path`` and ``call:module:function``.
        hosts: hosts, networks and paths of sockets, some with a port.
    """

    connectors: tuple[Patterns, ...] = ()
    references: tuple[Patterns, ...] = ()
    hosts: tuple[Patterns, ...] = ()

    def __post_init__(self) -> None:
        for switch, parse in ((self.references, _reference_pattern), (self.hosts, _host_pattern)):
            for pattern in (each for patterns in switch for each in patterns):
                parse(pattern)

    def __and__(self, other: Policy) -> Policy:
        return Policy(
            _join_lists(self.connectors, other.connectors),
            _join_lists(self.references, other.references),
            _join_lists(self.hosts, other.hosts),
        )

    @property
    def restricts(self) -> bool:
        """Whether anything may not be used."""
        return bool(self.connectors or self.references or self.hosts)

    @property
    def restricts_files(self) -> bool:
        """Whether some files may not be read."""
        return any(("file", "**") not in map(_reference_pattern, patterns) for patterns in self.references)

    def check_connector(self, table: str, name: str) -> None:
        """Refuse a connector that is not allowed; called before anything of it is imported.

        Raises:
            NotAllowed: it is not.
        """
        if not _all_allow(self.connectors, lambda pattern: _matches_name(pattern.lower(), name.lower())):
            raise _not_allowed(table, "connector", f"the connector {name!r}", CONNECTORS)

    def check_code(self, table: str, option: str, name: str) -> None:
        """Refuse code that an option of a connector names; called before anything of it is loaded.

        Args:
            table: the table's name, for the message.
            option: what names the code, for the message.
            name: as the list of connectors spells it: the connector's name, a colon, the module or library.

        Raises:
            NotAllowed: it is not allowed.
        """
        if not _all_allow(self.connectors, lambda pattern: _matches_name(pattern, name)):
            raise _not_allowed(table, option, f"the code {name!r}", CONNECTORS)

    def check_reference(self, table: str, option: str, kind: str, name: str) -> None:
        """Refuse a reference (``env``, ``file`` ...) that is not allowed, as far as its text tells.

        A function is code. So where any switch is set, it must be listed.

        Raises:
            NotAllowed: it is not.
        """
        if kind == "file":
            self.check_path(table, option, name)
            return

        def matches(pattern: str) -> bool:
            allowed_kind, names = _reference_pattern(pattern)
            return allowed_kind == kind and _matches_name(names, name)

        is_unlisted_code = kind == "call" and self.restricts and not self.references
        if is_unlisted_code or not _all_allow(self.references, matches):
            raise _not_allowed(table, option, f"the {REFERENCE_KINDS[kind]} {name!r}", REFERENCES)

    def check_path(self, table: str, option: str, path: str) -> None:
        """Refuse a file that is not allowed, as far as the text of its path tells; reads nothing.

        Raises:
            NotAllowed: it is not, or where files are restricted the path is relative or holds ``..``.
        """
        is_plain = path.startswith("/") and ".." not in PurePosixPath(path).parts and "\0" not in path
        if self.restricts_files and not is_plain:
            raise _not_allowed(
                table,
                option,
                f"the file {path!r}",
                REFERENCES,
                tip="Where files are restricted, write an absolute path without '..'.",
            )
        if not _all_allow(self.references, lambda pattern: _matches_path(_reference_pattern(pattern), path)):
            raise _not_allowed(table, option, f"the file {path!r}", REFERENCES)

    def checked_file(self, table: str, option: str, path: str) -> str:
        """Where the file ``path`` really is on this machine, once that is allowed too: links are followed.

        Raises:
            NotAllowed: the path, or where its links lead, is not allowed.
        """
        self.check_path(table, option, path)
        if not self.restricts_files:
            return path
        real = os.path.realpath(path)

        def matches(pattern: str) -> bool:
            kind, names = _reference_pattern(pattern)
            return _matches_path((kind, _with_real_start(names)), real)

        if not _all_allow(self.references, matches):
            raise _not_allowed(
                table, option, f"the file {path!r}, which is a link to another place,", REFERENCES
            )
        return real

    def check_host(self, table: str, option: str, host: str, port: int | None) -> None:
        """Refuse a host that is not allowed; called before it is connected to. Names are not resolved.

        Args:
            table: the table's name, for the message.
            option: what names the host, for the message.
            host: a name, an address (of IPv6 with or without brackets), or the path of a socket.
            port: where it is known.

        Raises:
            NotAllowed: it is not.
        """
        spelled = _normal_host(host)
        if not _all_allow(self.hosts, lambda pattern: _matches_host(_host_pattern(pattern), spelled, port)):
            shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
            place = shown if port is None or host.startswith("/") else f"{shown}:{port}"
            raise _not_allowed(table, option, f"the host {place!r}", HOSTS)


def read_policy(*places: Mapping[str, str]) -> Policy:
    """The policy that ``places`` set together, each a mapping from switches to what they allow.

    Keys that are not switches are left alone, but for those that begin as one does.

    Raises:
        OptionError: there is no such switch, or a value is no list of patterns.
    """
    policy = Policy()
    for place in places:
        for key in place:
            if key.startswith(_PREFIX) and key not in SWITCHES:
                raise OptionError(
                    Problem(f"There is no security switch {key!r}.", tip=nearest(key, SWITCHES))
                )
        connectors, references, hosts = (
            (_parse_patterns(place[key]),) if key in place else () for key in SWITCHES
        )
        try:
            policy &= Policy(connectors, references, hosts)
        except ValueError as error:
            raise OptionError(Problem(f"The security switches '{_PREFIX}*': {error}.")) from None
    return policy


def policy_of_configuration(settings: Mapping[str, str]) -> Policy:
    """What Spark's configuration allows: its switches, and those that begin with ``spark.``.

    Raises:
        OptionError: there is no such switch, or a value is no list of patterns.
    """
    prefixed = {
        key.removeprefix("spark."): value
        for key, value in settings.items()
        if key.startswith(f"spark.{_PREFIX}")
    }
    return read_policy(settings, prefixed)


def policy_of_environment() -> Policy:
    """What the environment of this process allows.

    Raises:
        OptionError: there is no such switch, or a value is no list of patterns.
    """
    start = variable_of(_PREFIX)
    return _policy_of_variables(tuple(each for each in os.environ.items() if each[0].startswith(start)))


@lru_cache(maxsize=8)  # asked for at every use, and it hardly ever changes
def _policy_of_variables(variables: tuple[tuple[str, str], ...]) -> Policy:
    switch_of = {variable_of(switch): switch for switch in SWITCHES}
    for name, _ in variables:
        if name not in switch_of:
            tip = nearest(name, list(switch_of))
            raise OptionError(Problem(f"There is no security switch {name} (environment).", tip=tip))
    return read_policy({switch_of[name]: value for name, value in variables})


def _parse_patterns(text: str) -> Patterns:
    listed = tuple(each.strip() for each in text.split(",") if each.strip())
    return () if listed == ("none",) else listed


def _join_lists(some: tuple[Patterns, ...], others: tuple[Patterns, ...]) -> tuple[Patterns, ...]:
    return tuple(dict.fromkeys((*some, *others)))


def _all_allow(lists: Iterable[Patterns], matches: Callable[[str], bool]) -> bool:
    return all(any(map(matches, patterns)) for patterns in lists)


def _not_allowed(table: str, option: str, what: str, switch: str, tip: str = "") -> NotAllowed:
    ask = f"Ask the administrator to allow it in '{switch}' ({variable_of(switch)})."
    where = f"table {table}" if option == "connector" else f"table {table} (option {option!r})"
    return NotAllowed(Problem(f"{where}: {what} is not allowed here.", tip=f"{tip} {ask}".strip()))


# --- names and references --------------------------------------------------------------------------


def _matches_name(pattern: str, name: str) -> bool:
    return _compile_pattern(pattern, star=".*").fullmatch(name) is not None


def _matches_path(pattern: tuple[str, str], path: str) -> bool:
    kind, names = pattern
    return kind == "file" and (
        names == "**" or _compile_pattern(names, star="[^/]*").fullmatch(path) is not None
    )


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str, star: str) -> re.Pattern[str]:
    """``*`` is ``star``; ``**`` is any text; all else is itself."""
    meaning = {"**": ".*", "*": star}
    parts = re.split(r"(\*\*|\*)", pattern)
    return re.compile("".join(meaning.get(part) or re.escape(part) for part in parts), re.DOTALL)


@lru_cache(maxsize=256)
def _reference_pattern(text: str) -> tuple[str, str]:
    """Kind and pattern; a kind alone stands for all of its kind."""
    kind, _, names = text.partition(":")
    kind = kind.strip().lower()
    if kind not in REFERENCE_KINDS:
        raise ValueError(f"{text!r} does not begin with env:, file:, conf: or call:")
    if names in ("", "*", "**"):
        return kind, "**"
    if kind == "file" and (not names.startswith("/") or ".." in PurePosixPath(names).parts):
        raise ValueError(f"{text!r} is not an absolute path without '..'")
    return kind, names


def _with_real_start(pattern: str) -> str:
    """``pattern`` with the links followed in the folders before its first star."""
    if not pattern.startswith("/"):
        return pattern
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if "*" in part), len(parts))
    start = os.path.realpath("/".join(parts[:plain]) or "/")
    return "/".join([start.rstrip("/"), *parts[plain:]])


# --- hosts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _HostPattern:
    """A host (a name, ``*.name``, ``*``, the path of a socket) or a network, and a port or None."""

    host: str | _Network
    port: int | None


_PORT = re.compile(r"(?P<host>\[.*\](?:/\d+)?|[^:]*):(?P<port>\d{1,5})")


@lru_cache(maxsize=256)
def _host_pattern(text: str) -> _HostPattern:
    """The pattern that ``text`` spells."""
    if text.startswith("/"):
        return _HostPattern(text, None)
    with_port = _PORT.fullmatch(text)
    host, port = (with_port["host"], int(with_port["port"])) if with_port else (text, None)
    bare = host.replace("[", "").replace("]", "").lower()
    try:
        return _HostPattern(ipaddress.ip_network(bare, strict=False), port)
    except ValueError:
        if not re.fullmatch(r"\*|(\*\.)?[a-z0-9_-][a-z0-9._-]*", bare.rstrip(".")):
            raise ValueError(
                f"{text!r} is not a host: write a name, '*.example.com', an address, a network or '*',"
                " and a port after ':' where it matters"
            ) from None
    return _HostPattern(bare.rstrip("."), port)


def _normal_host(host: str) -> str | _Address:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return host if host.startswith("/") else bare.lower().removesuffix(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _matches_host(pattern: _HostPattern, host: str | _Address, port: int | None) -> bool:
    if pattern.port is not None and pattern.port != port:
        return False
    if isinstance(host, str) and host.startswith("/"):
        return pattern.host == host
    if pattern.host == "*":
        return True
    if not isinstance(pattern.host, str):
        return not isinstance(host, str) and host in pattern.host
    # What is not plain ASCII is read in more ways than one; its xn-- form is not.
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        return False
    if pattern.host.startswith("*."):
        return host.endswith(pattern.host[1:])
    return host == pattern.host

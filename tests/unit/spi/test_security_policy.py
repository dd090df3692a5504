"""What an administrator does not allow is refused, however it is spelled."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_hints.errors import NotAllowed, OptionError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import masked_text
from lookup_hints.spi.security_policy import (
    CONNECTORS,
    HOSTS,
    REFERENCES,
    Policy,
    policy_of_configuration,
    policy_of_environment,
    read_policy,
    variable_of,
)
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import own_setting
from lookup_hints.tables.catalog import LookupCatalog, build_connector, declared_table
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl


def hosts(*patterns: str) -> Policy:
    return Policy(hosts=(patterns,))


def files(*patterns: str) -> Policy:
    return Policy(references=(patterns,))


def allows_host(policy: Policy, host: str, port: int | None = 443) -> bool:
    try:
        policy.check_host("t", "url", host, port)
    except NotAllowed:
        return False
    return True


@pytest.mark.parametrize(
    ("pattern", "host", "port"),
    [
        ("api.example.com", "api.example.com", 443),
        ("api.example.com", "API.Example.COM.", 8443),
        ("API.example.com:8443", "api.example.com", 8443),
        ("*.example.com", "a.b.example.com", 1),
        ("*", "anything", None),
        ("10.0.0.0/8", "10.1.2.3", 5432),
        ("10.0.0.0/8:5432", "10.1.2.3", 5432),
        ("10.1.2.3", "::ffff:10.1.2.3", 1),
        ("::1", "[::1]", 1),
        ("[::1]:5432", "::1", 5432),
        ("[fe80::]/10:1", "fe80::7", 1),
        ("0:0:0:0:0:0:0:1", "::1", 1),
        ("/run/postgresql", "/run/postgresql", 5432),
    ],
)
def test_a_host_is_allowed_however_it_is_spelled(pattern: str, host: str, port: int | None) -> None:
    assert allows_host(hosts(pattern), host, port)


@pytest.mark.parametrize(
    ("pattern", "host", "port"),
    [
        ("api.example.com", "api.example.com.evil.net", 443),
        ("api.example.com", "evil-api.example.com", 443),
        ("*.example.com", "example.com", 443),
        ("*.example.com", "evilexample.com", 443),
        ("*.example.com", "evil.net/.example.com", 443),
        ("*.example.com", "evil.net\\.example.com", 443),
        ("*.example.com", "bücher.example.com", 443),
        ("api.example.com:443", "api.example.com", 80),
        ("api.example.com:443", "api.example.com", None),
        ("10.0.0.0/8", "11.0.0.1", 443),
        ("10.0.0.0/8", "10.evil.net", 443),
        ("10.0.0.0/8", "167837955", 443),
        ("127.0.0.1", "localhost", 443),
        ("localhost", "127.0.0.1", 443),
        ("127.0.0.0/8", "127.1", 443),
        ("127.0.0.0/8", "0x7f.1", 443),
        ("*", "/run/postgresql", None),
        ("api.example.com", "", 443),
    ],
)
def test_another_host_is_refused(pattern: str, host: str, port: int | None) -> None:
    assert not allows_host(hosts(pattern), host, port)


def test_what_every_place_allows_is_allowed() -> None:
    both = hosts("*.example.com") & hosts("api.example.com", "other.net")
    assert allows_host(both, "api.example.com")
    assert not allows_host(both, "other.net")
    assert not allows_host(both, "www.example.com")
    assert allows_host(Policy(), "other.net")
    assert not allows_host(hosts(), "other.net"), "an empty list allows nothing"


def refused_file(policy: Policy, path: str) -> str:
    with pytest.raises(NotAllowed) as caught:
        policy.checked_file("t", "path", path)
    return str(caught.value)


def test_files_are_allowed_by_folder() -> None:
    policy = files("file:/run/secrets/*", "file:/data/**", "env:A")
    policy.check_path("t", "path", "/run/secrets/token")
    policy.check_path("t", "path", "/data/a/b.sqlite")
    for path in ("/run/secrets/a/token", "/run/secrets", "/etc/passwd", "/run/secretsx"):
        assert f"the file {path!r} is not allowed here" in refused_file(policy, path)
    for path in (
        "/run/secrets/../../etc/passwd",
        "/data/../etc/passwd",
        "token",
        "./token",
        "~/token",
        "/data/a\0b",
    ):
        assert "write an absolute path without '..'" in refused_file(policy, path)
    assert files("file").checked_file("t", "path", "../x") == "../x", "where no file is restricted"


def test_a_link_must_lead_to_where_reading_is_allowed(tmp_path: Path) -> None:
    tmp_path = tmp_path.resolve()
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "secret").write_text("hunter2")
    (tmp_path / "open" / "plain").write_text("x")
    (tmp_path / "open" / "link").symlink_to(tmp_path / "closed" / "secret")
    (tmp_path / "open" / "inside").symlink_to("plain")
    (tmp_path / "way").symlink_to(tmp_path / "open")
    policy = files(f"file:{tmp_path}/open/*")
    assert "which is a link to another place" in refused_file(policy, f"{tmp_path}/open/link")
    assert policy.checked_file("t", "path", f"{tmp_path}/open/inside") == f"{tmp_path}/open/plain"
    assert "is not allowed" in refused_file(policy, f"{tmp_path}/way/plain")
    by_way = files(f"file:{tmp_path}/way/*")
    assert by_way.checked_file("t", "path", f"{tmp_path}/way/plain") == f"{tmp_path}/open/plain"


def test_references_are_allowed_by_kind_and_name() -> None:
    policy = files("env:LOOKUP_*", "conf:spark.lookup.secret.*")
    policy.check_reference("t", "token", "env", "LOOKUP_TOKEN")
    policy.check_reference("t", "token", "conf", "spark.lookup.secret.a")
    for kind, name in (("env", "lookup_token"), ("env", "PATH"), ("conf", "LOOKUP_TOKEN"), ("file", "/x")):
        with pytest.raises(NotAllowed, match=r"table t \(option 'token'\): .* is not allowed here\."):
            policy.check_reference("t", "token", kind, name)
    files("env").check_reference("t", "token", "env", "PATH")


def test_a_refusal_for_an_option_that_is_a_secret_is_shown_whole() -> None:
    with pytest.raises(NotAllowed) as refused:
        files("env:A").check_reference("t", "token", "env", "PATH")
    assert masked_text(str(refused.value)) == str(refused.value)


def test_connectors_are_allowed_by_the_name_that_sql_gives() -> None:
    policy = Policy(connectors=(("http", "geo.*:*"),))
    policy.check_connector("t", "HTTP")
    policy.check_connector("t", "geo.api:Geo")
    for name in ("postgres", "lookup_connectors.http:HttpConnector", "os:system", "https"):
        with pytest.raises(NotAllowed) as caught:
            policy.check_connector("t", name)
        assert str(caught.value) == (
            f"table t: the connector {name!r} is not allowed here. Ask the administrator to allow it in"
            " 'lookup.security.allowed-connectors' (LOOKUP_SECURITY_ALLOWED_CONNECTORS)."
        )


def test_switches_are_read_from_every_place() -> None:
    one = {CONNECTORS: "http, postgres", HOSTS: "none"}
    two = {CONNECTORS: "http", REFERENCES: " env:A ,file:/x/* "}
    assert read_policy(one, two) == Policy(
        (("http", "postgres"), ("http",)), (("env:A", "file:/x/*"),), ((),)
    )
    assert variable_of(REFERENCES) == "LOOKUP_SECURITY_ALLOWED_REFERENCES"


@pytest.mark.parametrize(
    ("switch", "text", "said"),
    [
        (REFERENCES, "secret:x", "'secret:x' does not begin with env:, file:, conf: or call:"),
        (REFERENCES, "file:secrets/*", "'file:secrets/*' is not an absolute path without '..'"),
        (REFERENCES, "file:/a/../b", "'file:/a/../b' is not an absolute path without '..'"),
        (HOSTS, "https://api.example.com", "'https://api.example.com' is not a host"),
        (HOSTS, "10.*", "'10.*' is not a host"),
        (HOSTS, "api.*.com", "'api.*.com' is not a host"),
    ],
)
def test_a_switch_that_cannot_be_read_is_an_error(switch: str, text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_policy({switch: text})
    assert said in str(caught.value)


def test_a_switch_that_is_misspelt_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = {"spark.lookup.security.allowed-hosts": "a.b", "spark.master": "local"}
    assert policy_of_configuration(spark) == hosts("a.b")
    with pytest.raises(OptionError) as caught:
        policy_of_configuration({"spark.lookup.security.allowed-host": "a.b"})
    assert str(caught.value) == (
        "There is no security switch 'lookup.security.allowed-host'."
        " Did you mean 'lookup.security.allowed-hosts'?"
    )
    monkeypatch.setenv("LOOKUP_SECURITY_ALLOWED_HOST", "a.b")
    with pytest.raises(OptionError, match="Did you mean 'LOOKUP_SECURITY_ALLOWED_HOSTS'"):
        policy_of_environment()


# --- tables ----------------------------------------------------------------------------------------


def table(policy: Policy | None, **options: str) -> LookupTable:
    given = {key.replace("_", "-"): text for key, text in options.items()}
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    return LookupTable("t", schema, ("id",), given, policy=policy)


def refused(policy: Policy, **options: str) -> str:
    with pytest.raises(NotAllowed) as caught:
        build_connector(table(policy, **options))
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"connector": "http", "url": "https://evil.net/{id}"}, "(option 'url'): the host 'evil.net:443'"),
        ({"connector": "http", "url": "http://EVIL.net:81/{id}"}, "(option 'url'): the host 'evil.net:81'"),
        ({"connector": "http", "url": "http://[2001:db8::1]/{id}"}, "the host '[2001:db8::1]:80'"),
        (
            {
                "connector": "http",
                "url": "https://ok.example/{id}",
                "proxy": "http://u:hunter2@evil.net:3128",
            },
            "(option 'proxy'): the host 'evil.net:3128'",
        ),
        (
            {
                "connector": "http",
                "url": "https://ok.example/{id}",
                "oauth2_token_url": "https://evil.net/token",
                "oauth2_client_id": "a",
                "oauth2_client_secret": "${env:S}",
            },
            "(option 'oauth2-token-url'): the host 'evil.net:443'",
        ),
        (
            {"connector": "postgres", "url": "postgresql://u:hunter2@evil.net/db"},
            "(option 'url'): the host 'evil.net:5432'",
        ),
        (
            {"connector": "postgres", "url": "postgresql://ok.example,evil.net:6543/db"},
            "(option 'url'): the host 'evil.net:6543'",
        ),
        (
            {"connector": "postgres", "url": "postgresql:///db?host=ok.example,evil.net&port=1,2"},
            "(option 'url'): the host 'evil.net:2'",
        ),
        ({"connector": "postgres", "url": "postgresql://%65vil.net/db"}, "the host 'evil.net:5432'"),
        ({"connector": "postgres", "url": "postgresql://ok.example@evil.net/db"}, "the host 'evil.net:5432'"),
        ({"connector": "postgres", "url": "postgresql:///db?host=/tmp"}, "(option 'url'): the host '/tmp'"),
        ({"connector": "postgres", "host": "/run/postgresql"}, "(option 'host'): the host '/run/postgresql'"),
        (
            {"connector": "postgres", "host": "evil.net", "port": "1"},
            "(option 'host'): the host 'evil.net:1'",
        ),
        (
            {"connector": "redis", "key": "{id}", "url": "rediss://:hunter2@evil.net/0"},
            "(option 'url'): the host 'evil.net:6379'",
        ),
        (
            {"connector": "redis", "key": "{id}", "host": "evil.net"},
            "(option 'host'): the host 'evil.net:6379'",
        ),
    ],
    ids=str,
)
def test_a_host_is_refused_on_the_driver(options: dict[str, str], what: str) -> None:
    said = refused(hosts("ok.example"), **options)
    assert what in said
    assert said.endswith(
        " is not allowed here. Ask the administrator to allow it in"
        " 'lookup.security.allowed-hosts' (LOOKUP_SECURITY_ALLOWED_HOSTS)."
    )
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "options",
    [
        {"connector": "http", "url": "https://ok.example/{id}"},
        {"connector": "http", "url": "https://${env:HOST}/{id}"},
        {"connector": "http", "url": "${file:/run/secrets/url}/{id}"},
        {"connector": "postgres", "url": "${env:DSN}"},
        {"connector": "postgres", "url": "postgresql://u@ok.example:1,ok.example:2/db"},
        {"connector": "postgres", "host": "ok.example"},
        {"connector": "redis", "key": "{id}", "url": "redis://ok.example"},
    ],
    ids=str,
)
def test_an_allowed_host_and_one_that_only_a_worker_knows_pass_the_driver(options: dict[str, str]) -> None:
    build_connector(table(hosts("ok.example"), **options))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql:///db", "option 'url': it names no host; where hosts are restricted, write it."),
        ("postgresql://ok.example/db?service=x", "'service' may not stand in it where hosts or files are"),
        ("postgresql://ok.example:port/db", "option 'url': it cannot be read."),
    ],
)
def test_a_url_of_postgresql_must_say_where_it_leads(url: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        build_connector(table(hosts("ok.example"), connector="postgres", url=url))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"connector": "sqlite", "path": "/etc/app.sqlite"}, "/etc/app.sqlite"),
        ({"connector": "sqlite", "path": "data.sqlite"}, "data.sqlite"),
        ({"connector": "http", "url": "https://x/{id}", "tls_ca": "/etc/ca.pem"}, "/etc/ca.pem"),
        ({"connector": "postgres", "host": "x", "sslkey": "/root/key.pem"}, "/root/key.pem"),
        ({"connector": "postgres", "url": "postgresql://x/db?sslkey=/root/k"}, "/root/k"),
        ({"connector": "postgres", "url": "postgresql://x/db?passfile=/root/p"}, "/root/p"),
        ({"connector": "redis", "key": "{id}", "host": "x", "tls_key": "/k", "tls_cert": "/k"}, "/k"),
    ],
    ids=str,
)
def test_files_that_options_name_are_references_of_the_kind_file(options: dict[str, str], path: str) -> None:
    said = refused(files("env", "file:/data/*"), **options)
    assert f"the file {path!r} is not allowed here." in said
    assert "'lookup.security.allowed-references' (LOOKUP_SECURITY_ALLOWED_REFERENCES)." in said


def created(text: str, policy: Policy) -> LookupTable:
    ddl = parse_ddl(SqlText(text))
    assert isinstance(ddl, CreateLookupTable)
    return LookupCatalog(policy).create(ddl, {"a.key": "hunter2"}.get)


def test_nothing_of_a_connector_is_imported_that_is_not_allowed(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match=r"the connector 'tests\.booby:Trap' is not allowed here"):
        created(
            "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'tests.booby:Trap')",
            Policy(connectors=(("memory",),)),
        )


def test_a_configuration_key_is_not_read_that_is_not_allowed() -> None:
    ddl = parse_ddl(
        SqlText("CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'memory', 'rows' = '${conf:a.key}')")
    )
    assert isinstance(ddl, CreateLookupTable)
    asked: dict[str, str] = {}
    with pytest.raises(NotAllowed, match=r"the Spark configuration key 'a\.key' is not allowed"):
        declared_table(ddl, lambda key: asked.setdefault(key, ""), files("env"))
    assert not asked


def test_the_policy_travels_with_the_table() -> None:
    made = created(
        "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'memory', 'rows' = '[]')", hosts("ok.example")
    )
    there = pickle.loads(pickle.dumps(build_connector(made))).table
    with pytest.raises(NotAllowed):
        there.check_host("evil.net", 1, option="url")


def test_a_worker_has_a_policy_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    of_sql, of_python = table(Policy(), connector="memory"), table(None, connector="memory")
    monkeypatch.setenv("LOOKUP_SECURITY_ALLOWED_CONNECTORS", "http")
    monkeypatch.setenv("LOOKUP_SECURITY_ALLOWED_HOSTS", "ok.example")
    with pytest.raises(NotAllowed, match="the connector 'memory' is not allowed here"):
        of_sql.check_allowed()
    with pytest.raises(NotAllowed):
        of_sql.check_host("evil.net", 1, option="url")
    of_python.check_allowed()
    of_python.check_host("evil.net", 1, option="url")


def test_references_are_checked_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    path = (tmp_path / "link").resolve().parent
    monkeypatch.setenv("LOOKUP_A", "a")
    policy = files("env:LOOKUP_*", f"file:{path}/secret")
    known: set[str] = set()
    asked = table(policy, connector="memory")
    both = f"${{env:LOOKUP_A}} ${{file:{path}/secret}}"
    assert asked.resolve(both, option="token", known=known) == "a hunter2"
    for text in ("${env:PATH}", f"${{file:{path}/link}}", "${conf:a.key}"):
        with pytest.raises(NotAllowed):
            asked.resolve(text, option="token", known=known)
    assert known == {"a", "hunter2"}


@pytest.mark.parametrize("key", ["lookup.security.allowed-hosts", "spark.LOOKUP.security.allowed-connectors"])
def test_no_statement_changes_a_switch(key: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        own_setting(SqlText(f"SET {key} = *"))
    assert f"{key!r} cannot be changed by a statement. Ask the administrator" in str(caught.value)

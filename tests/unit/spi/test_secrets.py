"""What is hidden of texts that hold passwords, and what stays."""

from __future__ import annotations

import pickle
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import has_reference, masked_text, masker
from lookup_hints.tables.registry import connector_class


@pytest.mark.parametrize(
    ("text", "as_shown"),
    [
        ("postgresql://app:hunter2@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:hun@ter2@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:hun/ter2@db/shop", "postgresql://app:***@db/shop"),
        ("a://u:hunter2@h and b://v:hunter2@i", "a://u:***@h and b://v:***@i"),
        ("postgresql://db/shop?password=hunter2&sslmode=require", "postgresql://db/shop?password=***&sslmode=require"),
        ("postgresql://db/shop?user=app&password=hun@ter2", "postgresql://db/shop?user=app&password=***"),
        ("postgresql://db:5432/shop?password=hun@ter2&x=1", "postgresql://db:***&x=1"),
        ("host=h password=hunter2 user=u", "host=h password=*** user=u"),
        ("host=h password = hunter2", "host=h password = ***"),
        ("host=h password=hun&ter2 user=u", "host=h password=*** user=u"),
        ("host=h password='hunter2 hunter2' user=u", "host=h password=*** user=u"),
        (r"password='it\'s hunter2' user=u", "password=*** user=u"),
        (r"password=hunter2\ hunter2 user=u", "password=*** user=u"),
        ("password='hunter2 is never closed", "password=***"),
        ("password='hunter2 \\", "password=***"),
        ('{"password": "hunter2 hunter2", "x": 1}', '{"password": ***, "x": 1}'),
        ("'password' = 'hunter2 hunter2', 'x' = 'y'", "'password' = ***, 'x' = 'y'"),
        ("PGPASSWORD=hunter2", "PGPASSWORD=***"),
        ("https://h/?grant=x&client_secret=hunter2&y=z", "https://h/?grant=x&client_secret=***&y=z"),
    ],
)  # fmt: skip
def test_passwords_are_masked_to_their_end(text: str, as_shown: str) -> None:
    assert masked_text(text) == as_shown


@pytest.mark.parametrize(
    "key",
    [
        *("password", "sslpassword", "passwd", "pwd", "passphrase", "secret", "token", "api_key", "apikey"),
        *("api-key", "access_token", "accessToken", "client_secret", "aws.secret", "aws_secret_access_key"),
        *("x-auth-key", "private_key", "credentials"),
    ],
)
def test_every_key_that_speaks_of_a_secret_is_masked(key: str) -> None:
    assert masked_text(f"{key}=hunter2 host=h") == f"{key}=*** host=h"


@pytest.mark.parametrize(
    "text",
    [
        "host=h password=${env:PASSWORD} user=u",
        "postgresql://app:${file:/run/secrets/db}@db/shop",
        "postgresql://${env:USER}:${env:PASSWORD}@db/shop",
        "postgresql://db:5432/shop",
        "postgresql://app@db/shop",
        'password authentication failed for user "app"',
        "the token is bad",
        "max_tokens=3 keyword=x secretary=y",
        "host=h password=",
    ],
)
def test_references_and_what_only_looks_like_a_password_stay(text: str) -> None:
    assert masked_text(text) == text


@pytest.mark.parametrize(
    ("connector", "hidden"),
    [
        ("postgres:PostgresConnector", "url password"),
        ("redis:RedisConnector", "url password"),
        (
            "http:HttpConnector",
            "proxy password token api-key oauth2-client-secret aws-secret-access-key aws-session-token tls-key-password",
        ),
        ("adbc:AdbcConnector", "uri password adbc.db. adbc.connection."),
    ],
)
def test_these_options_are_secret(connector: str, hidden: str) -> None:
    options = connector_class(f"lookup_connectors.{connector}").OPTIONS
    assert [option.key for option in options if option.secret] == hidden.split()


def test_a_message_shows_no_form_of_a_secret() -> None:
    mask = masker({"postgresql://app:hun%40ter2@x@db/shop?mail=a@b", r"host=h password='it\'s 007'"})
    assert mask("refused hun%40ter2, hun@ter2@x and hun%2540ter2") == "refused ***, *** and ***"
    assert mask("refused it's 007") == "refused ***"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_nothing_of_any_url_password_without_blanks_is_left(password: str) -> None:
    password = "hunter2".join(["".join(password.split())] * 2)
    assert "hunter2" not in masked_text(f"connect to postgresql://app:{password}@db/shop")


@given(st.text())
def test_nothing_of_any_quoted_password_is_left(password: str) -> None:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    assert masked_text(f"host=h password = 'hunter2{escaped}' user=u") == "host=h password = *** user=u"


@pytest.mark.parametrize(
    ("secret", "message", "as_shown"),
    [
        ("Db-Prod.Example.Com", "cannot resolve db-prod.example.com.", "cannot resolve ***."),
        ("s3cret-pässword", "no S3CRET-PÄSSWORD here", "no *** here"),
        ("a/b c+d", "a%2Fb%20c%2Bd, a%2fb c%2bd, a/b+c+d", "***, ***, ***"),
        ("pässwörd", "p%c3%a4ssw%C3%B6rd%21", "***%21"),
        ("straße-9", "STRASSE-9", "***"),
        ('it\'s\n"x"', repr('it\'s\n"x"'), "'***'"),
        ("100%41", "100%41 and 100A", "*** and ***"),
        ("abcabc", "abcabcabc", "***abc"),
    ],
)
def test_a_secret_is_masked_in_capitals_and_however_it_is_encoded(
    secret: str, message: str, as_shown: str
) -> None:
    assert masker({secret})(message) == as_shown


LONG = 100_000


@pytest.mark.parametrize(
    "piece",
    [
        "://a:",
        "://a:b@",
        "password",
        "password=",
        "token ",
        "${env:",
        "://${",
        "a",
        "@",
        "'",
        "?token=",
        "%",
        "%4",
    ],
)
def test_masking_takes_time_by_the_length_of_the_text(piece: str) -> None:
    text = piece * (LONG // len(piece))
    started = time.process_time()
    masked_text(text)
    masker({text})(text)
    assert not has_reference(text)
    assert time.process_time() - started < 3


def test_the_options_of_a_table_show_their_names_alone() -> None:
    table = LookupTable("t", pa.schema([]), options={"connector": "http", "token": "hunter2"})
    travelled = pickle.loads(pickle.dumps(table)).options
    for options in (table.options, travelled, vars(table)["options"]):
        assert options["token"] == "hunter2"
        assert repr(options) == str(options) == f"{options}" == "{'connector': ***, 'token': ***}"

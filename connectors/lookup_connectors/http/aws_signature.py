"""Requests signed for AWS (Signature Version 4), by botocore's own signer and with its credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from lookup_connectors.http.auth_interface import Auth
from lookup_connectors.http.client import HttpClient, one_of
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import HttpFailure
from lookup_connectors.shared.bytes_in_flight import ByteLease

_PARTS = ("access_key", "secret_key", "token")


class AwsSignature(Auth):
    """A signature over method, URL, headers, body and time, made again for each request that is sent.

    Args:
        table: its name, for messages.
        options: ``aws-service``, ``aws-region``, and keys where they are given; else botocore's chain finds
            keys, and renews those that end.
        secrets: takes keys and tokens, which may not be shown.
    """

    def __init__(self, table: str, options: Mapping[str, Any], secrets: set[str]) -> None:
        super().__init__({})
        self._table, self._secrets = table, secrets
        self._service: str = options["aws-service"]
        self._auth, self._request = (
            self._import_module("botocore.auth"),
            self._import_module("botocore.awsrequest"),
        )
        self._credentials = self._import_module("botocore.credentials")
        session = self._import_module("botocore.session").Session()
        self._region: str | None = options["aws-region"] or session.get_config_variable("region")
        if not self._region:
            raise self._permanent_failure(
                "there is no 'aws-region', and none in the environment or in ~/.aws/config"
            )
        self._session = session
        self._chain: Any = None
        self._finding = asyncio.Semaphore(1)
        if options["aws-access-key-id"] is not None:
            given = (
                options[f"aws-{name}"] for name in ("access-key-id", "secret-access-key", "session-token")
            )
            self._headers = {name: text for name, text in zip(_PARTS, given, strict=True) if text}

    def _import_module(self, module: str) -> Any:
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            what = f"'aws-service' needs the module {error.name!r}: pip install 'lookup-hints[aws]'"
            raise self._permanent_failure(what) from error

    @property
    def known(self) -> dict[str, str] | None:
        """The parts of the key; not headers."""
        is_ended = self._chain is not None and self._is_ending()
        return self._headers if self._headers and not is_ended else None

    def _is_ending(self) -> bool:
        ending = getattr(self._chain, "refresh_needed", None)
        return ending is not None and bool(ending())

    async def fetched(self, client: HttpClient, lease: ByteLease, timeout: float) -> dict[str, str]:
        """The key that botocore's chain finds now, which may ask files and other services."""
        async with one_of(self._finding, lease):
            if self.known is None:
                try:
                    self._headers = await asyncio.wait_for(asyncio.to_thread(self._find_key), timeout)
                except asyncio.TimeoutError:
                    text = f"table {self._table}: AWS gave no credentials within {timeout:g} s."
                    raise HttpFailure(text) from None
            return self._headers

    def _find_key(self) -> dict[str, str]:
        errors = self._import_module("botocore.exceptions")
        try:
            self._chain = self._chain or self._session.get_credentials()
            found = None if self._chain is None else self._chain.get_frozen_credentials()
        except errors.BotoCoreError as error:
            raise HttpFailure(f"table {self._table}: AWS gave no credentials: {error}") from error
        if found is None or not found.access_key:
            tip = "Give 'aws-access-key-id' and 'aws-secret-access-key', or set up what the AWS CLI reads."
            raise self._permanent_failure(f"no credentials for AWS are found here. {tip.rstrip('.')}")
        self._secrets.update(filter(None, (found.secret_key, found.token)))
        return {name: text for name in _PARTS if (text := getattr(found, name))}

    def applied(self, request: Request, credentials: dict[str, str]) -> Request:
        signers = {"s3": self._auth.S3SigV4Auth}
        signer = signers.get(self._service, self._auth.SigV4Auth)
        key = self._credentials.Credentials(*(credentials.get(name) for name in _PARTS))
        signed = self._request.AWSRequest(
            request.method, request.url, headers=dict(request.headers), data=request.body or b""
        )
        signer(key, self._service, self._region).add_auth(signed)
        return request._replace(headers=dict(signed.headers.items()))

    def _permanent_failure(self, what: str) -> HttpFailure:
        return HttpFailure(f"table {self._table}: {what}.", permanent=True)

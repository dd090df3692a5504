"""A server that checks signatures of AWS by the documented algorithm, without any code of Amazon's.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SKEW = timedelta(seconds=20)
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\S+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=(\S+), Signature=(\S+)"
)


def wrong_signature(
    method: str, target: str, headers: Mapping[str, str], body: bytes, *, region: str, service: str
) -> str:
    """Why the request is not signed with the key of this module; empty where it is.

    Args:
        method: of the request.
        target: path and query, as they were sent.
        headers: by name in lower case.
        body: as it was sent.
        region: that it must be signed for.
        service: the same.
    """
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if match is None:
        return "no signature"
    key_id, day, in_region, in_service, listed, signature = match.groups()
    if (key_id, in_region, in_service) != (KEY_ID, region, service):
        return f"signed for {key_id}, {in_region}, {in_service}"
    moment = headers.get("x-amz-date", "")
    at = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    if abs(datetime.now(timezone.utc) - at) > SKEW or not moment.startswith(day):
        return f"signed at {moment}"
    names = listed.split(";")
    if names != sorted(names) or not {"host", "x-amz-date"} <= set(names):
        return f"signed headers {listed}"
    path, _, query = target.partition("?")
    if service != "s3":  # S3 alone encodes the path once
        path = quote(path, safe="/-_.~")
    parameters = sorted(
        (quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~"))
        for name, _, value in (each.partition("=") for each in query.split("&") if each)
    )
    digest = hashlib.sha256(body).hexdigest()
    if service == "s3" and headers.get("x-amz-content-sha256") != digest:
        return "another body"
    canonical = "\n".join(
        [
            method,
            path,
            "&".join(f"{name}={value}" for name, value in parameters),
            *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in names),
            "",
            listed,
            digest,
        ]
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = f"AWS4{SECRET}".encode()
    for part in (day, region, service, "aws4_request"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(secret, to_sign.encode(), hashlib.sha256).hexdigest()
    return "" if hmac.compare_digest(expected, signature) else "another signature"


@contextmanager
def checking_server(
    answer: Callable[[str, bytes], tuple[int, str]], *, region: str, service: str
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The URL of a server that answers signed requests alone, and the headers of all it was sent."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append(headers)
            body = self.rfile.read(int(headers.get("content-length", "0")))
            wrong = wrong_signature(self.command, self.path, headers, body, region=region, service=service)
            status, text = (403, f'{{"message": "{wrong}"}}') if wrong else answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == 429:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET  # noqa: N815 (the name is theirs)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()

"""A small API, and the example that asks it: ``python sql_examples/http_api.py``."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lookup_hints.cli.main import main as lookup_hints

CUSTOMERS: dict[str, dict[str, Any]] = {
    "1": {"id": 1, "name": "Ada", "address": {"city": "London"}, "tags": ["early", "kind"]},
    "2": {"id": 2, "name": "Emmy", "address": {"city": "Erlangen"}, "tags": []},
    "3": {"id": 3, "name": "Grace", "address": {"city": "New York"}, "tags": None},
}
PRICES = {"tea": 3.5, "cup": 8.25, "pot": 21.0}


class Api(BaseHTTPRequestHandler):
    """Customers by id, prices by the list, and now and then some trouble."""

    protocol_version = "HTTP/1.1"
    troubles: dict[str, tuple[int, dict[str, str]]] = {  # noqa: RUF012 - shared by all requests on purpose
        "/customers/1": (429, {"Retry-After": "1"}),
        "/customers/3": (500, {}),
    }

    def do_GET(self) -> None:
        """Answer one request."""
        url = urlsplit(self.path)
        trouble = self.troubles.pop(self.path, None)
        if trouble is not None:
            self._answer(trouble[0], {"error": "not now"}, trouble[1])
        elif url.path.startswith("/customers/"):
            customer = CUSTOMERS.get(url.path.rpartition("/")[2])
            self._answer(200 if customer else 404, customer or {"error": "nobody"})
        elif url.path == "/prices":
            self._answer(200, {"prices": list(_prices(parse_qs(url.query)))})
        else:
            self._answer(500 if url.path.endswith("2") else 404, {"error": "fragile"})

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's own name
        """Show what is asked."""
        print("   ", self.requestline, "->", args[1] if len(args) > 1 else "")


def _prices(query: dict[str, list[str]]) -> list[dict[str, Any]]:
    skus, [currency] = query["skus"][0].split(","), query["currency"]
    factor = {"EUR": 1.0, "USD": 1.1}[currency]
    return [{"sku": sku, "price": round(PRICES[sku] * factor, 2)} for sku in skus]


def main() -> int:
    """Start the API on a free port, and run ``http.sql`` against it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["API"] = f"http://127.0.0.1:{server.server_address[1]}"
        code = lookup_hints(["run", str(Path(__file__).with_name("http.sql"))])
        server.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())

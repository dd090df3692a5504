"""Pauses that servers ask for, on times that are made up."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from lookup_connectors.http.throttle import reported_pause

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry-after": "7"}, 7.0),
        (503, {"retry-after": " 1.5 "}, 1.5),
        (429, {"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        (429, {"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        (429, {"retry-after": "soon"}, None),
        (500, {"retry-after": "7"}, None),
        (200, {"retry-after": "7"}, None),
        (200, {"ratelimit-remaining": "0", "ratelimit-reset": "12"}, 12.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 9)}, 9.0),
        (200, {"x-rate-limit-remaining": "0", "x-rate-limit-reset": str(int(NOW) - 9)}, 0.0),
        (200, {"ratelimit-remaining": "1", "ratelimit-reset": "12"}, None),
        (200, {"ratelimit-remaining": "0"}, None),
        (200, {"ratelimit": '"default";r=0;t=30'}, 30.0),
        (200, {"ratelimit": "limit=10, remaining=0, reset=5"}, 5.0),
        (200, {"ratelimit": '"default";r=4;t=30'}, None),
        (429, {"retry-after": "3", "ratelimit-remaining": "0", "ratelimit-reset": "60"}, 3.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((int(NOW) + 9) * 1000)}, 9.0),
        (429, {"retry-after": "9" * 400}, None),
        (429, {"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}, None),
        (429, {"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
        (200, {"ratelimit-remaining": "0", "ratelimit-reset": "999999999"}, None),
        (200, {}, None),
    ],
)
def test_what_a_response_asks_for(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert reported_pause(status, headers, NOW) == seconds

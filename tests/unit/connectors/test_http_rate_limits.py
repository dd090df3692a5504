"""Pauses that servers ask for, on times that are made up."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from lookup_connectors.http.headers import reported_pause

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
        # GitHub says 403.
        (403, {"retry-after": "60"}, 60.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 9)}, 9.0),
        (403, {"x-ratelimit-remaining": "41", "x-ratelimit-reset": str(int(NOW) + 9)}, None),
        # A code that says that nothing remains, and headers that do not say what does.
        (429, {"x-ratelimit-reset": "57"}, 57.0),
        (503, {"x-ratelimit-limit": "5", "x-ratelimit-reset": str(int(NOW) + 9)}, 9.0),
        (429, {"x-ratelimit-reset-requests": "9s", "x-ratelimit-reset-tokens": "1h"}, 9.0),
        (429, {"x-ratelimit-reset": "57", "x-ratelimit-remaining": "41"}, None),
        (429, {"retry-after": "soon", "ratelimit-reset": "57"}, 57.0),
        (429, {"ratelimit-reset": "soon"}, None),
        (403, {"x-ratelimit-reset": "57"}, None),
        (200, {"x-ratelimit-reset": "57"}, None),
        # Nothing remains, in other words.
        (200, {"x-ratelimit-remaining": "0.0", "x-ratelimit-reset": "57"}, 57.0),
        (200, {"x-ratelimit-remaining": "-1", "x-ratelimit-reset": "57"}, 57.0),
        (200, {"x-ratelimit-remaining": "0.5", "x-ratelimit-reset": "57"}, None),
        (200, {"x-ratelimit-remaining": "none", "x-ratelimit-reset": "57"}, None),
        (200, {"ratelimit-remaining": "9, 0", "ratelimit-reset": "1, 60"}, 60.0),
        (200, {"ratelimit-remaining": "0, 7", "ratelimit-reset": "1, 60"}, 1.0),
        # Each limit has its reset.
        (
            200,
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "6m0s",
                "x-ratelimit-remaining-tokens": "9",
                "x-ratelimit-reset-tokens": "1h",
            },
            360.0,
        ),
        (
            200,
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:50Z",
            },
            30.0,
        ),
        (200, {"x-rate-limit-remaining": "0", "ratelimit-reset": "41"}, 41.0),
        # Moments and times in other forms.
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2023-11-14T22:13:50Z"}, 30.0),
        (
            200,
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2023-11-14T22:13:50.123456789+00:00"},
            30.0,
        ),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2023-11-15 00:13:50+0200"}, 30.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2023-11-14T22:13:50"}, 30.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": formatdate(NOW + 30, usegmt=True)}, 30.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((int(NOW) + 9) * 1_000_000)}, 9.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "1.25"}, 1.25),
        (
            429,
            {
                "x-ratelimit-remaining": "0",
                "x-ratelimit-reset": str(NOW + 9),
                "x-ratelimit-reset-after": "1.5",
            },
            1.5,
        ),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "20ms"}, 0.02),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1h2m3.5s"}, 3723.5),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "-5"}, None),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2019-13-40T00:00:00Z"}, None),
        # The IETF's drafts.
        (200, {"ratelimit": '"burst";r=10;t=1, "daily";r=0;t=3600'}, 3600.0),
        (200, {"ratelimit": '"a;r=0;t=5";r=3;t=9'}, None),
        (200, {"ratelimit": '"default";r=0', "ratelimit-policy": '"default";q=100;w=10'}, 10.0),
        (200, {"ratelimit": '"default;r=0'}, None),
        # Retry-After in other forms.
        (429, {"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        (429, {"x-ms-retry-after-ms": "250"}, 0.25),
        (429, {"retry-after": "7, 9"}, 9.0),
        (429, {"retry-after": "7s"}, 7.0),
        (429, {"retry-after": "Tue Nov 14 22:13:50 2023"}, 30.0),
        (429, {"retry-after": "Tuesday, 14-Nov-23 22:13:50 GMT"}, 30.0),
        (429, {"retry-after": "-1"}, None),
        (429, {"retry-after": "nan"}, None),
        (429, {"retry-after": "1e9"}, None),
        (429, {"retry-after": ""}, None),
    ],
)
def test_what_a_response_asks_for(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert reported_pause(status, headers, NOW) == seconds

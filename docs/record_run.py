"""Writes ``docs/recording.svg``, a run on a terminal as it was: ``python docs/record_run.py``.

It asks an HTTP server of its own that takes 40 ms for each answer. Pauses are cut to 150 ms;
the rest, and each character, is what the terminal got.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pexpect

TARGET = Path(__file__).with_name("recording.svg")
COLUMNS, ROWS = 80, 18
ANSWER_SECONDS, KEYS = 0.04, 6_000
LONGEST_PAUSE, LAST_FRAME = 0.15, 6.0
FILE = """\
CREATE TEMPORARY TABLE customers (id BIGINT, country STRING)
WITH ('connector' = 'http', 'url' = '{url}/customers/{{id}}');

SELECT c.country, count(*) AS orders
FROM range({keys}) AS o LEFT JOIN customers AS c ON o.id = c.id
GROUP BY c.country ORDER BY orders DESC;
"""
_CONTROL = re.compile(r"\x1b\[(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class _Customers(BaseHTTPRequestHandler):
    """Knows most of the customers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        key = int(self.path.rpartition("/")[2])
        time.sleep(ANSWER_SECONDS)
        country = ("GB", "DE", "GB", "FR", "GB", "DE", "")[key % 7]
        body = json.dumps({"id": key, "country": country}).encode() if country else b""
        self.send_response(200 if country else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing beside what is recorded."""


class _Screen:
    """What stands on a terminal after the characters that came."""

    def __init__(self) -> None:
        self.lines = [""]
        self._line = self._column = 0

    def take(self, text: str) -> None:
        for count, control, end, shown in _CONTROL.findall(text):
            if shown:
                line = self.lines[self._line].ljust(self._column)
                self.lines[self._line] = line[: self._column] + shown + line[self._column + len(shown) :]
                self._column += len(shown)
            elif end == "\n":
                self._line += 1
                self.lines += [""] * (self._line + 1 - len(self.lines))
            elif end == "\r":
                self._column = 0
            elif control == "A":
                self._line = max(0, self._line - int(count or 1))
            elif control in "JK":
                self.lines[self._line] = self.lines[self._line][: self._column]
                del self.lines[self._line + 1 :]

    def shown(self) -> list[str]:
        """The lines; one that is wider than the terminal goes on below."""
        lines = (line.rstrip() or " " for line in self.lines)
        return [line[at : at + COLUMNS].rstrip() for line in lines for at in range(0, len(line), COLUMNS)]


def recorded() -> list[tuple[float, list[str]]]:
    """The seconds at which the screen changed, and its lines from then on."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Customers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    frames: list[tuple[float, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{server.server_port}"
        Path(folder, "orders.sql").write_text(FILE.format(url=url, keys=KEYS), encoding="utf-8")
        program = str(Path(sys.executable).with_name("lookup-hints"))
        screen, at, last = _Screen(), 0.0, time.monotonic()
        for text in _written(program, folder):
            now = time.monotonic()
            at += min(now - last, LONGEST_PAUSE)
            last = now
            screen.take(text)
            frames.append((at, screen.shown()))
    server.shutdown()
    return frames


def _written(program: str, folder: str) -> Iterator[str]:
    child = pexpect.spawn(
        program, ["run", "orders.sql"], cwd=folder, dimensions=(40, COLUMNS), encoding="utf-8", timeout=300
    )
    yield "$ lookup-hints run orders.sql\r\n"
    while True:
        try:
            yield child.read_nonblocking(65536, 300)
        except pexpect.EOF:
            return


def drawn(frames: list[tuple[float, list[str]]]) -> str:
    """The animation: each line is shown for as long as it stood at its place."""
    end = frames[-1][0] + LAST_FRAME
    shown: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for (at, lines), until in zip(frames, [*(at for at, _ in frames[1:]), end], strict=True):
        for row, line in enumerate(lines[-ROWS:]):
            if line:
                times = shown.setdefault((row, line), [])
                if times and times[-1][1] == at:
                    times[-1] = (times[-1][0], until)
                else:
                    times.append((at, until))
    width, height = COLUMNS * 8.43 + 24, ROWS * 19 + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
        "<title>lookup-hints run, on a terminal</title>",
        "<style>text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #d8dee9 }</style>",
        f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1b1f27"/>',
    ]
    parts += [_line(row, line, times, end) for (row, line), times in shown.items()]
    return "\n".join([*parts, "</svg>\n"])


def _line(row: int, line: str, times: list[tuple[float, float]], end: float) -> str:
    values, keys = ["hidden"], [0.0]
    for begin, until in times:
        if begin == 0:
            values, keys = [], []
        values += ["visible", "hidden"]
        keys += [begin / end, until / end]
    if keys[-1] >= 1:
        values, keys = values[:-1], keys[:-1]
    animation = (
        f'<animate attributeName="visibility" calcMode="discrete" dur="{end:.1f}s" repeatCount="indefinite"'
        f' values="{";".join(values)}" keyTimes="{";".join(f"{key:.4f}" for key in keys)}"/>'
    )
    # Without animation the last screen stands.
    hidden = "" if times[-1][1] == end else ' visibility="hidden"'
    return f'<text x="12" y="{row * 19 + 26}" xml:space="preserve"{hidden}>{escape(line)}{animation}</text>'


if __name__ == "__main__":
    TARGET.write_text(drawn(recorded()), encoding="utf-8")

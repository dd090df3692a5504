"""A small plot as SVG: lines over two logarithmic axes, in the colours of the page that shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 400, 44, 388, 28, 240
_COLOURS = ("#3f6fd8", "#e8720c", "#2f9e6e", "#c2408a", "#8a6d3b")
_STYLE = """\
.plot { --ink: #1f2933; --soft: #52606d; --ground: #fff }
@media (prefers-color-scheme: dark) { .plot { --ink: #e4e7eb; --soft: #9aa5b1; --ground: #1e2129 } }
.md-typeset .plot { --ink: var(--md-typeset-color); --soft: var(--md-default-fg-color--light) }
.md-typeset .plot { --ground: none }
.plot text { font: 13px system-ui, sans-serif; fill: var(--ink) } .plot .soft { fill: var(--soft) }
.plot .grid { stroke: var(--soft); stroke-opacity: 0.3 } .plot .line { fill: none; stroke-width: 2 }"""


def plot(series: Mapping[str, Mapping[str, float]], title: str, across: str, up: str) -> str:
    """The plot of what each way took, by size: ``series`` has a figure for each way under each size."""
    sizes = [int(size) for size in series]
    ways = list(next(iter(series.values())))
    figures = [figure for taken in series.values() for figure in taken.values()]
    x_axis, y_axis = _Axis(sizes, _LEFT + 14, _RIGHT - 14), _Axis(figures, _HEIGHT, _TOP)
    height = _HEIGHT + 52 + 20 * len(ways)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="var(--ground)"/>',
        f'<text class="soft" x="4" y="16">{escape(up)}</text>',
        f'<text class="soft" x="{_RIGHT}" y="{_HEIGHT + 38}" text-anchor="end">{escape(across)}</text>',
    ]
    for tick in x_axis.ticks():
        at = x_axis.at(tick)
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{_HEIGHT}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT + 18}" text-anchor="middle">{_shown(tick)}</text>')
    for tick in y_axis.ticks():
        at = y_axis.at(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_shown(tick)}</text>')
    for place, (way, colour) in enumerate(zip(ways, _COLOURS, strict=False)):
        points = [(x_axis.at(size), y_axis.at(series[str(size)][way])) for size in sizes]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="line" d="M{line}" stroke="{colour}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        below = _HEIGHT + 62 + 20 * place
        parts.append(f'<circle cx="12" cy="{below - 4}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="24" y="{below}">{escape(way)}</text>')
    return "\n".join([*parts, "</svg>\n"])


class _Axis:
    """A logarithmic axis of ``values`` from ``begin`` to ``end`` of the picture."""

    def __init__(self, values: list[int] | list[float], begin: float, end: float) -> None:
        self._low, self._high = math.log10(min(values)), math.log10(max(values))
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """The powers of ten within, or more where they are few."""
        powers = [10.0**power for power in range(math.floor(self._low), math.ceil(self._high) + 1)]
        within = [each * step for each in powers for step in (1, 2, 5)]
        found = [each for each in within if self._low <= math.log10(each) + 1e-9 <= self._high + 2e-9]
        tens = [each for each in found if each in powers]
        return tens if len(tens) > 3 else found


def _shown(value: float) -> str:
    for least, unit in ((1e6, " M"), (1e3, " k")):
        if value >= least:
            return f"{value / least:g}{unit}"
    return f"{value:g}"

"""Rows, counts and plans as HTML for a notebook: plain markup and SVG, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from textwrap import TextWrapper
from types import MappingProxyType

from lookup_hints.errors import Span, counted
from lookup_hints.lookup_spec import LookupName
from lookup_hints.plan.explain import rows_of
from lookup_hints.plan.joins import LookupJoin, LookupPlan, TableScan
from lookup_hints.runs.progress import Progress

_BAR = "width:320px;height:8px;border-radius:4px;background:#8883;overflow:hidden;margin:6px 0 2px"


def note(text: str) -> str:
    return f'<div style="font-size:12px;opacity:.7;margin:2px 0">{escape(text)}</div>'


def text_block(text: str) -> str:
    return f'<pre style="font-size:12px;overflow-x:auto;margin:4px 0">{escape(text)}</pre>'


def folded(title: str, html: str) -> str:
    """``html`` behind a line that opens it."""
    head = f'<summary style="font-size:12px">{escape(title)}</summary>'
    return f'<details style="margin:4px 0">{head}{html}</details>'


def bar(progress: Progress) -> str:
    """How far a statement is."""
    return (
        f'<div style="{_BAR}">'
        f'<div style="width:{progress.share:.0%};height:100%;background:#3b82c4"></div></div>'
        f"{note(str(progress))}{''.join(map(note, progress.lookups))}"
    )


# --- the plan --------------------------------------------------------------------------------------

_SPINE, _SOURCE, _BOX = 90, 470, 360
_FACT, _GAP = 16, 24
# Characters in a line of a box.
_WIDE = 51
_COLOURS = {"INNER": "#3b82c4", "LEFT": "#2f9e6e", "LEFT SEMI": "#b7791f", "LEFT ANTI": "#c2410c"}
_SCAN = "#7c3aed"
_FONT = "font-family:ui-monospace,Menlo,Consolas,monospace"


@dataclass(frozen=True)
class _LookupNode:
    """One place of the picture where a source is asked.

    Args:
        badge: what the place is called.
        colour: of the badge.
        asked: what goes to the source.
        given: what comes back.
        name: of the source.
        facts: small print about it; long ones take several lines.
    """

    badge: str
    colour: str
    asked: str
    given: str
    name: str
    facts: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        lines = TextWrapper(_WIDE, subsequent_indent="\N{NO-BREAK SPACE}" * 2, max_lines=6, placeholder=" …")
        return [line for fact in self.facts for line in lines.wrap(fact)]

    @property
    def height(self) -> int:
        return max(80, 34 + _FACT * len(self.lines))


def plan_picture(
    plan: LookupPlan, measured: Mapping[LookupName, Sequence[str]] = MappingProxyType({})
) -> str:
    """The lookups of a statement: its rows run down the left, and ask the sources on the right."""
    joins = (_node_of_join(plan, join, measured.get(join.function.name, ())) for join in plan.joins)
    stops = [*joins, *map(_node_of_scan, plan.scans)]
    tops = list(accumulate((stop.height + _GAP for stop in stops), initial=36))
    height = tops[-1] + 34
    parts = "".join(map(_draw_node, stops, tops))
    output = "result" if plan.output is None else f"result: {', '.join(name for name, _ in plan.output)}"
    titles = ", ".join(f"{stop.badge} {stop.name}" for stop in stops)
    notes = "".join(note(f"Note: {each}.") for each in plan.notes)
    return (
        f'<svg role="img" aria-label="{escape(titles, quote=True)}" xmlns="http://www.w3.org/2000/svg"'
        f' width="{_SOURCE + _BOX + 10}" height="{height}" style="max-width:100%;color:inherit"'
        f' viewBox="0 0 {_SOURCE + _BOX + 10} {height}">'
        f"{_svg_text(_SPINE, 14, 'rows of the query', anchor='middle', faint=True)}"
        f'<line x1="{_SPINE}" y1="20" x2="{_SPINE}" y2="{height - 32}" stroke="#888" stroke-width="2"/>'
        f"{_arrow_down(_SPINE, height - 32)}{parts}"
        f"{_svg_text(8, height - 8, _cut_text(output, 110))}</svg>{notes}"
    )


def _node_of_join(plan: LookupPlan, join: LookupJoin, measured: Sequence[str]) -> _LookupNode:
    use, settings = join.use, join.chosen.settings
    alias = "" if use.alias == use.table.name else f" AS {use.alias}"
    asked_for = join.form.asked_for
    asked = ", ".join(f"{key.column} = {plan.text_of(asked_for(key))}" for key in join.conditions.keys)
    given = ", ".join(join.columns) or "only whether there is a row"
    runner = f"{use.table.connector}, {'async' if settings.asynchronous else 'sync'}"
    return _LookupNode(
        join.kind,
        _COLOURS.get(join.kind, "#888"),
        asked,
        given,
        f"{use.table.name}{alias}",
        (*_facts_of_join(plan, join, runner), *measured),
    )


def _facts_of_join(plan: LookupPlan, join: LookupJoin, first: str) -> Iterator[str]:
    settings, conditions = join.chosen.settings, join.conditions
    line = Span(plan.text, join.at.start, join.at.end).line
    in_flight = f", {settings.capacity} in flight" if settings.asynchronous else ""
    keys = counted(settings.batch_size, "key")
    yield f"{first}{in_flight}, {keys} a request"
    yield f"timeout {settings.timeout:g} s, on error {settings.failures}; line {line}"
    yield f"retry {settings.retry}"
    yield f"asked: {join.access.reason}"
    yield from (f"instead {text}" for text in [join.access.other_way] if text)
    checked = [plan.text_of(each.at) for each in (*conditions.residual, *conditions.after)]
    if conditions.left_only:
        yield f"asked only if {' AND '.join(plan.text_of(each.at) for each in conditions.left_only)}"
    if checked:
        yield f"then {' AND '.join(checked)}"


def _node_of_scan(scan: TableScan) -> _LookupNode:
    table = scan.use.table
    return _LookupNode(
        "WHOLE TABLE",
        _SCAN,
        "all rows",
        ", ".join(scan.columns),
        table.name,
        (table.connector, *_facts_of_scan(scan)),
    )


def _facts_of_scan(scan: TableScan) -> Iterator[str]:
    yield f"read because {scan.decision.reason}"
    yield f"rows: {rows_of(scan)}"
    yield from (f"instead {text}" for text in [scan.decision.other_way] if text)
    yield from (f"warning: {text}" for text in [scan.warning] if text)


def _draw_node(stop: _LookupNode, top: int) -> str:
    middle = top + 40
    left, right = _SPINE + 62, _SOURCE
    box = (
        f'<rect x="{right}" y="{top}" width="{_BOX}" height="{stop.height}" rx="8" fill="{stop.colour}"'
        f' fill-opacity=".08" stroke="{stop.colour}"/>'
        f"{_svg_text(right + 12, top + 20, _cut_text(stop.name, 42), strong=True)}"
    )
    facts = "".join(
        _svg_text(right + 12, top + 38 + _FACT * number, line, faint=True, small=True)
        for number, line in enumerate(stop.lines)
    )
    badge = (
        f'<rect x="{_SPINE - 60}" y="{middle - 14}" width="120" height="28" rx="14" fill="{stop.colour}"/>'
        f'<text x="{_SPINE}" y="{middle + 4}" text-anchor="middle" fill="#fff" font-size="12"'
        f' font-weight="600" style="{_FONT}">{escape(stop.badge)}</text>'
    )
    ways = (
        f'<line x1="{left}" y1="{middle - 6}" x2="{right - 8}" y2="{middle - 6}" stroke="{stop.colour}"/>'
        f'<path d="M{right - 8},{middle - 10} l8,4 l-8,4 z" fill="{stop.colour}"/>'
        f'<line x1="{left + 8}" y1="{middle + 8}" x2="{right}" y2="{middle + 8}" stroke="{stop.colour}"'
        f' stroke-dasharray="4 3"/><path d="M{left + 8},{middle + 4} l-8,4 l8,4 z" fill="{stop.colour}"/>'
        f"{_svg_text(left + 6, middle - 13, stop.asked, fit=42, small=True)}"
        f"{_svg_text(left + 12, middle + 23, stop.given, fit=42, small=True)}"
    )
    return box + facts + badge + ways


def _svg_text(
    x: int,
    y: int,
    text: str,
    *,
    anchor: str = "start",
    fit: int | None = None,
    strong: bool = False,
    faint: bool = False,
    small: bool = False,
) -> str:
    """Text at a place; what does not ``fit`` (in characters) is cut, and whole under the pointer."""
    cut = text if fit is None else _cut_text(text, fit)
    whole = f"<title>{escape(text)}</title>" if cut != text else ""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor" font-size="{11 if small else 12}"'
        f' font-weight="{600 if strong else 400}" opacity="{0.7 if faint else 1}" style="{_FONT}">'
        f"{whole}{escape(cut)}</text>"
    )


def _arrow_down(x: int, y: int) -> str:
    return f'<path d="M{x - 5},{y - 2} l10,0 l-5,8 z" fill="#888"/>'


def _cut_text(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}\u2026"

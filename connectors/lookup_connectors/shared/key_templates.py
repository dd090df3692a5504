"""Text that names columns (``https://api/x/{id}``, ``customer:{id}``), and keys as text.

All connectors share one grammar: ``{column}`` is a hole, ``{{`` and ``}}`` are braces, and ``${env:NAME}`` is
a reference, which is resolved later and never holds holes. What looks like a hole and is none is an error.
``{column|odata}`` says in which language the value stands, where the text around it is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import types

from lookup_hints.errors import did_you_mean, nearest

Resolve = Callable[[str], str]
"""Text with references to secrets -> the text itself."""

TemplatePlace = Literal["path", "parameter", "key", "text"]
"""Where a template stands: in the path or a parameter of a URL, in a key, or in text that may have braces."""


class TemplateError(ValueError):
    """A text that is no template: what is wrong, and what to try."""

    def __init__(self, what: str, tip: str = "") -> None:
        super().__init__(what)
        self.tip = tip


@dataclass(frozen=True)
class Hole:
    """A place for the value of a column, in the language of the text around it; empty where that is none."""

    column: str
    language: str = ""

    def text(self, value: Any) -> str:
        """``value`` as it stands there."""
        text = spelled(value)
        return LANGUAGES[self.language].escape(text) if self.language else text


class _Language(NamedTuple):
    """Between which quotes a text is safe, and how it is written there."""

    quotes: str
    escape: Callable[[str], str]


LANGUAGES: Mapping[str, _Language] = {
    "odata": _Language("'", lambda text: text.replace("'", "''")),
    "sql": _Language("'", lambda text: text.replace("'", "''")),
    "json": _Language('"', lambda text: json.dumps(text, ensure_ascii=False)[1:-1]),
    "backslash": _Language("'\"", lambda text: re.sub(r"[\\'\"]", r"\\\g<0>", text).replace("\n", "\\n")),
    "lucene": _Language('"', lambda text: re.sub(r'[-+&|!(){}\[\]^"~*?:\\/]', r"\\\g<0>", text)),
    "url": _Language("'\"", str),
}
"""GraphQL writes texts as JSON does; SOQL, JQL and most others have a backslash; `url` leaves texts alone."""


@dataclass(frozen=True)
class Template:
    parts: tuple[str | Hole, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(part.column for part in self.parts if isinstance(part, Hole))

    @cached_property
    def sole_column(self) -> str | None:
        """The column whose value as it is, is all there is."""
        [part, *others] = self.parts or ("",)
        return part.column if isinstance(part, Hole) and not others and not part.language else None

    @cached_property
    def several(self) -> tuple[str, ...]:
        """The columns that it names, where they are several."""
        names = tuple(dict.fromkeys(self.columns))
        return names if len(names) > 1 else ()

    @cached_property
    def _columns_and_ends(self) -> tuple[tuple[str, str], ...]:
        """Each column but the last, and the text behind it."""
        names = self.several and self.columns
        behind = zip(self.parts, (*self.parts[1:], ""), strict=True)
        texts = [text if isinstance(text, str) else "" for part, text in behind if isinstance(part, Hole)]
        repeated = len(names) > len(self.several)
        return tuple((name, "" if repeated else text) for name, text in zip(names[:-1], texts, strict=False))

    def filled(self, fill: Callable[[Hole], str]) -> str:
        return "".join([part if isinstance(part, str) else fill(part) for part in self.parts])

    def unsafe_holes(self, quoted: Collection[str]) -> Iterator[tuple[str, str]]:
        """The columns of ``quoted`` that stand between quotes which a value may end, each with the quote."""
        text = "".join(part if isinstance(part, str) else "\0" for part in self.parts)
        holes = iter(part for part in self.parts if isinstance(part, Hole))
        for match in re.finditer(r"('|%27)[^']*?\1|(\"|%22)[^\"]*?\2|\0", text):
            quote = "'" if match[1] else '"'
            for hole in islice(holes, match[0].count("\0")):
                is_safe = match[0] == "\0" or (hole.language and quote in LANGUAGES[hole.language].quotes)
                if hole.column in quoted and not is_safe:
                    yield hole.column, quote

    def resolved(self, resolve: Resolve) -> Template:
        """The same, with references to secrets resolved; what a secret holds is never a hole."""
        return Template(tuple(part if isinstance(part, Hole) else resolve(part) for part in self.parts))

    def mistaken(self, values: Mapping[str, Any]) -> str:
        """What to say of ``values`` whose text another key may have, too; empty where no other has.

        Of all keys with one text the one is taken whose values end where the text behind them first stands:
        of ``{a}-{b}`` the key ('a', 'b-c'), and not ('a-b', 'c').
        """
        if all(_ends_at_text(values[name], text) for name, text in self._columns_and_ends):
            return ""
        given = {name: values[name] for name in self.several}
        texts = {name: spelled(value) for name, value in given.items()}
        reading = _reading_pattern(self.parts, tuple(map(type, given.values())))
        match = reading.fullmatch(self.filled(lambda hole: texts[hole.column]))
        if match is not None and match.groups() == tuple(texts.values()):
            return ""
        key = ", ".join(f"{name} = {text[:60]!r}" for name, text in texts.items())
        return (
            f"the key {key} has the same text as another one: a value contains the separator of the columns."
            " Declare one column for the whole text, and join it to an expression, as in concat(a, '-', b)."
        )


def _ends_at_text(value: Any, end: str) -> bool:
    """Whether ``end`` first stands right behind ``value``, which is told in a fraction of the time."""
    if type(value) is int:
        return bool(end) and not end[0].isdigit()
    return bool(end) and isinstance(value, str) and (value + end).find(end) == len(value)


@lru_cache(maxsize=256)
def _reading_pattern(parts: tuple[str | Hole, ...], kinds: tuple[type, ...]) -> re.Pattern[str]:
    """The expression that finds the values of columns of ``kinds`` in the text of a template."""
    unread = dict(
        zip(dict.fromkeys(part.column for part in parts if isinstance(part, Hole)), kinds, strict=True)
    )
    numbers = {name: number for number, name in enumerate(unread, start=1)}
    pieces = []
    for part in parts:
        if isinstance(part, str):
            pieces.append(re.escape(part))
        elif part.column in unread:
            pieces.append(f"({_SPELLINGS.get(unread.pop(part.column), '.*?')})")
        else:
            pieces.append(f"(?:\\{numbers[part.column]})")
    return re.compile("".join(pieces), re.DOTALL)


# How values are spelled that no text between columns can be mistaken for; all others may hold anything.
_SPELLINGS: Mapping[type, str] = {
    int: r"-?\d+",
    bool: "true|false",
    date: r"\d{4,}-\d\d-\d\d",
    datetime: r"[-\d]+T[:.\d]+Z?",
    Decimal: r"-?\d+(?:\.\d+)?",
}


# --- reading --------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"(?P<reference>\$\{(?:env|file|conf):[^}]*\})|(?P<opening>\{\{)|(?P<closing>\}\})"
    r"|\{(?P<inside>[^{}]*)\}|(?P<brace>[{}])"
)
_DOUBLED = re.compile(r"(?<!\{)\{\{([^{}]*)\}\}(?!\})")
_DOUBLED_AMONG_BRACES = re.compile(r"(?<!\{)\{\{([^{}]*)\}\}")
_HOLE_LIKE = re.compile(r"\s*[?/+#&;.*]?\s*(?!\d+\s*$)\w[\w.:-]*[?*+]?(?:\|\w+)?\s*")
_BEFORE_VALUES = tuple(":=,([\"'")
_DOUBLE_IT = "Braces that are text are doubled: {{ and }}."


# Braces are never text by chance: `:id`, `<id>` and `{{id}}` of API pages would be sent as they stand, and
# find nothing. (docs/decisions/0178)
def parse_template(
    text: str, columns: Sequence[str], place: TemplatePlace = "key", start: int = 0
) -> Template:
    """The template that ``text`` spells: ``{name}`` is a hole, ``{{`` and ``}}`` are braces.

    In ``text`` (a header, a text of JSON) that has more braces, as GraphQL has, these may stand as they are.
    A column in braces must then stand where a value does: behind a colon, a quote and the like.

    Args:
        text: the template.
        columns: those of the table.
        place: where it stands.
        start: where in the value of its option it begins.

    Raises:
        TemplateError: something in it looks like a hole, and is none.
    """
    return _Parsing(text, columns, place, start).template()


class _Parsing:
    def __init__(self, text: str, columns: Sequence[str], place: TemplatePlace, start: int) -> None:
        self._text, self._columns, self._place, self._start = text, columns, place, start
        self._tokens = list(_TOKEN.finditer(text))
        self._in_url = place in ("path", "parameter")
        self._own_braces = place == "text" and any(map(self._is_own_brace, self._tokens))
        inside = (each["inside"] for each in self._tokens if each["inside"] is not None)
        self._named = {found for each in inside if (found := self._find_column(each)) is not None}

    def template(self) -> Template:
        self._check_doubled()
        self._check_other_signs()
        parts: list[str | Hole] = []
        for part in self._parse_parts():
            if parts and isinstance(part, str) and isinstance(last := parts[-1], str):
                parts[-1] = last + part
            elif part != "":
                parts.append(part)
        return Template(tuple(parts))

    def _parse_parts(self) -> Iterator[str | Hole]:
        end = 0
        doubled = {match.start(): match.end() for match in _DOUBLED_AMONG_BRACES.finditer(self._text)}
        for token in self._tokens:
            if token.start() < end:
                continue
            yield self._text[end : token.start()]
            end = token.end()
            if token["reference"]:
                yield token[0]
            elif self._own_braces and token.start() in doubled:
                end = doubled[token.start()]
                yield self._text[token.start() + 1 : end - 1]
            elif token["opening"] or token["closing"]:
                yield token[0] if self._own_braces else self._encode_brace(token[0][0])
            elif token["inside"] is not None:
                yield self._hole_or_text(token)
            else:
                yield token[0] if self._own_braces else self._refuse_brace(token)
        yield self._text[end:]

    def _encode_brace(self, brace: str) -> str:
        return f"%{ord(brace):X}" if self._in_url else brace

    def _find_column(self, name: str) -> str | None:
        if name in self._columns:
            return name
        if self._place != "key":
            name = name.partition("|")[0]
        return next((each for each in self._columns if each.lower() == name.lower()), None)

    def _is_own_brace(self, token: re.Match[str]) -> bool:
        inside = token["inside"]
        if inside is None:
            return token["brace"] is not None
        return (
            self._find_column(inside) is None and token[0] != self._text and not _HOLE_LIKE.fullmatch(inside)
        )

    def _hole_or_text(self, token: re.Match[str]) -> str | Hole:
        column = self._find_column(token["inside"])
        before = self._text[: token.start()]
        if before.endswith("$"):
            raise self._wrong_reference(token, column)
        if not self._own_braces:
            return self._unknown_column(token) if column is None else self._read_hole(column, token)
        is_value = self._is_value(token)
        if column is not None and is_value:
            return self._read_hole(column, token)
        if column is not None:
            raise self._template_error(
                f"{token[0]} may be a value or text, as other braces of this text are not doubled",
                f"Write {{{token[0]}}} for the text; for the value, double the other braces.",
                token,
            )
        if _HOLE_LIKE.fullmatch(token["inside"]) and (is_value or not token["inside"].startswith(" ")):
            return self._unknown_column(token)
        return token[0]

    def _read_hole(self, column: str, token: re.Match[str]) -> Hole:
        language = token["inside"][len(column) + 1 :]
        if language and language not in LANGUAGES:
            raise self._template_error(
                f"there is no language {language!r}", nearest(language, list(LANGUAGES)), token
            )
        return Hole(column, language)

    # What is wrong.

    def _template_error(self, what: str, tip: str, at: re.Match[str] | int) -> TemplateError:
        number = self._start + (at if isinstance(at, int) else at.start()) + 1
        return TemplateError(what, f"{tip} It is at character {number}.".lstrip())

    def _wrong_reference(self, token: re.Match[str], column: str | None) -> TemplateError:
        if column is not None:
            return self._template_error(f"write {token[0]} without the dollar sign", "", token)
        what = f"${token[0][:40]} is no reference"
        return self._template_error(what, "There are ${env:NAME}, ${file:path} and ${conf:key}.", token)

    def _unknown_column(self, token: re.Match[str]) -> str:
        name = token["inside"].strip()
        column = self._find_column(name)
        if column is not None:
            raise self._template_error(
                f"{token[0]!r} is no column", f"Write {{{column}}}. {_DOUBLE_IT}", token
            )
        if name.isidentifier():
            tip = f"{nearest(name, self._columns)} {_DOUBLE_IT}"
            raise self._template_error(f"there is no column {name!r}", tip, token)
        near = did_you_mean(re.sub(r"\W", "_", name), self._columns)
        raise self._template_error(f"{token[0][:60]!r} is no column", f"{near} {_DOUBLE_IT}".lstrip(), token)

    def _refuse_brace(self, token: re.Match[str]) -> str:
        raise self._template_error(f"the brace {token[0]!r} has no other one", _DOUBLE_IT, token)

    def _check_doubled(self) -> None:
        """Refuse ``{{id}}`` where that is all that is doubled, or a value stands: others write holes so."""
        doubled = [*(_DOUBLED_AMONG_BRACES if self._own_braces else _DOUBLED).finditer(self._text)]
        braces = sum(token["opening"] is not None or token["closing"] is not None for token in self._tokens)
        if not self._own_braces and braces > 2 * len(doubled):
            return
        for match in doubled:
            column = self._find_column(match[1].strip())
            is_text = self._own_braces and not self._is_value(match)
            if column is not None and column not in self._named and not is_text:
                raise self._template_error(
                    f"{match[0]!r} is the text {match[0][1:-1]!r}, and no value",
                    f"Write {{{column}}} for the value, {{{{{{{column}}}}}}} for the value in braces.",
                    match,
                )

    def _is_value(self, match: re.Match[str]) -> bool:
        """Whether a value may stand there, and no field of GraphQL."""
        return self._text[: match.start()].rstrip().endswith(_BEFORE_VALUES)

    def _check_other_signs(self) -> None:
        """Refuse holes of other languages: ``:id``, ``%s``, ``<id>``."""
        text = _TOKEN.sub(lambda token: "\0" * len(token[0]), self._text)
        for sign, of_columns in _SIGNS[self._place]:
            for match in sign.finditer(text):
                name = unquote(next((group for group in match.groups() if group), ""))
                column = self._find_column(name)
                if of_columns and (column is None or column in self._named):
                    continue
                what = f"{match[0][:40]!r} is no column"
                tip = f"Write {{{column or 'column'}}} for a value."
                if self._in_url and column != match[0][3:-3]:
                    what += " and no percent-encoding" if match[0].startswith("%") else ""
                    tip += f" What is text is percent-encoded: {quote(match[0][:40])}."
                raise self._template_error(what, tip, match)


def _compile_signs(
    *of_columns: str, never_text: Collection[str] = ()
) -> tuple[tuple[re.Pattern[str], bool], ...]:
    every = [(sign, False) for sign in never_text] + [(sign, True) for sign in of_columns]
    return tuple((re.compile(sign), only_columns) for sign, only_columns in every)


_FORMAT = r"%(?:\((\w+)\))?[sd]"
_PERCENT = r"%(?:\((\w+)\)[sd]?|(?![0-9A-Fa-f]{2})[sd]?)"
_ENCODED = r"(?i:%7B((?:(?!%7D).)*)%7D)"
_ANGLES = r"<(?:\w+:)?([\w.-]+)>"
_ODATA = "(?!(?:value|count|ref|links|metadata|batch|all)\\b)"
# How others write holes, at each place: whether only with the name of a column that no hole names.
_SIGNS: Mapping[TemplatePlace, Sequence[tuple[re.Pattern[str], bool]]] = {
    "path": _compile_signs(
        _ENCODED,
        r"(?<=[^/:]/):(\w+)",
        r"(?<=[^/:]/)\[(\w+)\](?=/|$)",
        rf"(?<=[^/:]/)\${_ODATA}(\w+)(?=/|$)",
        never_text=(_PERCENT, _ANGLES, r"(?<=[^/:]/):([^\W\d]\w*)(?=/|$)"),
    ),
    "parameter": _compile_signs(_ENCODED, r"^[:$](\w+)$", r"^\[(\w+)\]$", never_text=(_PERCENT, _ANGLES)),
    "key": _compile_signs(_ENCODED, _ANGLES, r"(?<!\w)\$(\w+)", r"^:(\w+)$", never_text=(_FORMAT,)),
    "text": _compile_signs(
        r"^:(\w+)$", r"^<([\w.-]+)>$", r"%\((\w+)\)[sd]", r"^\[(\w+)\]$", never_text=(rf"^{_FORMAT}$",)
    ),
}


# --- keys -----------------------------------------------------------------------------------------


def can_be_spelled(kind: pa.DataType) -> bool:
    """Whether values of ``kind`` can be a key as text."""
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_duration(kind))


def spelled(value: Any) -> str:
    """A key as text: ISO dates, moments in UTC, exact numbers without zeros that say nothing."""
    if type(value) is int:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        in_utc = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        return in_utc.isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        digits = format(value, "f")
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return str(value)


def keys_of(keys: pa.Table) -> list[dict[str, Any]]:
    """The values of each row of ``keys``, by column: what ``to_pylist`` gives, in a quarter of the time."""
    names = keys.column_names
    if len(names) == 1:
        [name] = names
        return [{name: value} for value in keys.column(0).to_pylist()]
    columns = (column.to_pylist() for column in keys.columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

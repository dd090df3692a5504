"""Classify a response by status code, headers and body: an answer, a miss or a kind of failure. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lookup_connectors.http import error_bodies
from lookup_connectors.http.completeness import failed_part
from lookup_connectors.http.headers import asks_to_wait, nothing_remains
from lookup_connectors.http.response import HttpFailure, PageRows, Response, ResponseReader
from lookup_connectors.shared.conversion import shown_as_json
from lookup_connectors.shared.json_paths import Path, PathFailure
from lookup_hints.errors import did_you_mean

FAILURES = ("transient", "permanent", "throttled")
"""The kinds of failures: one may pass, is permanent, or means too many requests and is waited for."""

ResponseKind = Literal["answer", "miss", "transient", "permanent", "throttled"]

_ALWAYS_THROTTLED = (420, 429)
# Codes that mean too many requests where a header says when to come back.
_MAY_BE_THROTTLED = (403, 503, 509)
SMALL_BODY = 64 * 1024
"""The body of a failure is looked at up to this size."""
_CODE = re.compile(r"!?[1-5](\d\d|[xX]{2})")
_SHOULD_RETRY = ("stripe-should-retry", "x-should-retry")


@dataclass(frozen=True)
class Codes:
    """A list of status codes: ``2XX,!203`` is every code from 200 to 299 but 203."""

    text: str
    statuses: frozenset[int]

    @classmethod
    def listed(cls, text: str) -> Codes:
        given = [code.strip().upper() for code in text.split(",")]
        included: set[int] = set()
        excluded: set[int] = set()
        for code in given:
            if not _CODE.fullmatch(code):
                raise ValueError(
                    f"{code!r} is not a status code; write 404, 5XX or !501, separated by commas"
                )
            first = int(code.lstrip("!").replace("X", "0"))
            counted = excluded if code.startswith("!") else included
            counted.update(range(first, first + (100 if code.endswith("XX") else 1)))
        # Exclusions win, regardless of order.
        return cls(",".join(given), frozenset(included - excluded))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ErrorRules:
    """Rules for bodies that report a miss or an error.

    Args:
        miss: path whose value is true or not empty if nothing was found.
        keeps_rows: whether rows beside it still count, as other keys of the request may be found.
        when: path whose value is true or not empty for an error; it may name the kind of failure.
        kind: the kind of failure if ``when`` names none.
        message: path to the description of the failure.
    """

    miss: Path | None = None
    keeps_rows: bool = False
    when: Path | None = None
    kind: ResponseKind | None = None
    message: Path | None = None


class Classification(NamedTuple):
    """The result of classifying a response.

    Args:
        kind: an answer, a miss or a kind of failure.
        rows: the rows of an answer.
        document: the parsed body.
        said: the body's description of the failure.
        verdict: the error that the body reports although the status code is a success.
        tip: what to try.
        failure: the failure itself, if the body cannot be read.
        no_place: why the path to the rows leads nowhere, if it does.
    """

    kind: ResponseKind
    rows: PageRows
    document: Any = None
    said: str = ""
    verdict: str = ""
    tip: str = ""
    failure: HttpFailure | None = None
    no_place: str = ""


_NONE = PageRows()
_MISS = Classification("miss", _NONE)

_FAILED = "says that it failed"
_PARTIAL = "says that it is not whole"
_TAKE_PART = "'partial' = 'accept' takes what came."
_USED_UP = "A quota of these credentials is used up; waiting a little does not help."
_NOT_YET = "The answer is not there yet. If it is, 'error-when' = '`false`' takes it as it is."
_OTHERWISE = (
    "If it is none, say with 'error-when' what is a failure, as a JMESPath (`false`: nothing is), or with"
    " 'miss-when' what is a miss. 'error-kind' says of which kind."
)


# One judge without I/O: answer, miss, transient, permanent or throttled. (docs/decisions/0176)
@dataclass(frozen=True)
class ResponseClassifier:
    """Classifies the responses to the requests of one table, whose status codes mean these."""

    reader: ResponseReader
    success: Codes
    miss: Codes
    transient: Codes
    rules: ErrorRules

    def __call__(self, response: Response) -> Classification:
        if response.status in self.miss.statuses:
            return _MISS
        if response.status not in self.success.statuses:
            return self._classify_failure(response)
        try:
            return self._classify_success(self.reader.document(response))
        except HttpFailure as failure:
            return Classification("permanent", _NONE, failure=failure)

    # A success code.

    def _classify_success(self, document: Any) -> Classification:
        """Classify a response with a success code.

        Raises:
            HttpFailure: the document is malformed.
        """
        if self.rules.miss is not None and self._apply_rule(self.rules.miss, "'miss-when'", document):
            found = self.reader.found(document) if self.rules.keeps_rows else _NONE
            return Classification("answer", found, document) if found.rows else _MISS
        if self.rules.when is not None:
            by_rule = self._classify_by_rule(self.rules.when, document)
            return by_rule or self._check_place_for_rows(
                document, self._check_partial_failure(document, self._classify_answer(document))
            )
        if self.reader.is_row(document):
            return self._classify_answer(document)  # most answers, for which nothing below applies
        errors = error_bodies.graphql_errors(document, self.reader.rows.way)
        if errors is not None and self.reader.reads("errors"):
            errors = []
        if errors and not (self.reader.takes_part and self._classify_answer(document).rows.rows):
            return self._classify_error_body(
                ["errors"], {"errors": errors}, document, error_bodies.status_told({"errors": errors})
            )
        if errors is not None:
            return self._check_partial_failure(document, self._classify_answer(document), heeds_errors=False)
        try:
            classified = self._classify_answer(document)
        except HttpFailure:
            told = self._classify_by_envelope(document)
            if told is None:
                raise
            return told
        if not classified.rows.rows:
            told = self._classify_by_envelope(document, is_absent=not classified.rows.is_listed)
            return told or self._check_place_for_rows(
                document, self._check_partial_failure(document, classified)
            )
        text = classified.rows.rows[0]
        if self.reader.rows.text != "@" and isinstance(text, str) and self.reader.reads_members:
            return self._classify_error_body(["message"], {"message": text}, document, None)
        if self.reader.rows.text == "@":
            # A non-row is refused later, unless the body reports a retryable error or a miss.
            told = self._classify_by_envelope(document)
            if told is not None and told.kind != "permanent":
                return told
        return self._check_partial_failure(document, classified)

    def _check_partial_failure(
        self, document: Any, classified: Classification, *, heeds_errors: bool = True
    ) -> Classification:
        """``classified``, unless the answer says that a part of it failed."""
        if self.reader.takes_part:
            return classified
        part = failed_part(
            document,
            self.reader.rows,
            self.reader.read_of(document),
            has_rows=bool(classified.rows.rows),
            heeds_errors=heeds_errors and self.rules.when is None,
        )
        if part is None:
            return classified
        told = self._classify_error_body(part.names, part.envelope, document, None, kind=part.kind)
        return told._replace(verdict=_PARTIAL, tip=_TAKE_PART)

    def _classify_answer(self, document: Any) -> Classification:
        return Classification("answer", self.reader.found(document), document)

    def _check_place_for_rows(self, document: Any, classified: Classification) -> Classification:
        """``classified``; with ``no_place`` set if the path to the rows leads nowhere."""
        way = self.reader.rows.way
        is_empty = classified.kind == "answer" and not classified.rows.rows
        lost = error_bodies.misplaced(document, way) if is_empty else None
        if lost is None or (self.rules.when is not None and not lost.may_be_rows):
            return classified
        members = list(lost.found)[:20] if isinstance(lost.found, dict) else []
        there = ", ".join(map(repr, members))
        instead = f"has no {lost.name!r} but {there}" if members else "is something else"
        near = [did_you_mean(lost.name, members)] if members else []
        what = (
            f"there is nothing at 'rows' = {self.reader.rows.text!r}: the answer {instead}.",
            *filter(None, near),
            f"It says: {_short_text(self._find_description(document) or document)}",
            f"If that means that nothing was found, say so: 'miss-when' = '!{self.reader.rows.text}'.",
        )
        return classified._replace(no_place=" ".join(what))

    def _apply_rule(self, rule: Path, option: str, document: Any) -> Any:
        """The value at ``rule``; None if it is false or empty."""
        try:
            told = rule.find(document)
        except PathFailure as error:
            raise self.reader.not_followed(rule, option, error) from None
        return None if told is None or told is False or told in ("", [], {}) else told

    def _classify_by_rule(self, when: Path, document: Any) -> Classification | None:
        told = self._apply_rule(when, "'error-when'", document)
        if told is None:
            return None
        kind: ResponseKind = (
            told if told in FAILURES else (self.rules.kind or _kind_by_words(error_bodies.words(document)))
        )
        return Classification(
            kind, _NONE, document, self._find_description(document) or _short_text(document), _FAILED
        )

    # Words are compared by letters and digits, from a list. A word that is not in it changes nothing.
    # (docs/decisions/0176)
    def _classify_by_envelope(self, document: Any, *, is_absent: bool = True) -> Classification | None:
        """The failure that an answer without rows reports beside the place of the rows.

        If even that place is absent, a word about a rate limit or unfinished work is enough.
        """
        if isinstance(document, dict) and not self.reader.is_envelope(document):
            return None
        for beside in error_bodies.envelopes(document, self.reader.rows.way):
            status = error_bodies.status_told(beside)
            if (status is not None and status in self.miss.statuses) or error_bodies.nothing_told(beside):
                return _MISS
            names = error_bodies.failure_told(beside)
            if names or (is_absent and error_bodies.speaks_of_rates(beside)):
                return self._classify_error_body(names, beside, document, status)
            if error_bodies.is_refused(beside):
                return self._classify_error_body(["status"], beside, document, None, kind="transient")
            names = error_bodies.not_yet_told(beside) if is_absent else []
            if names:
                said = self._find_description(document) or _short_text(error_bodies.told_of(beside, names))
                return Classification(
                    self.rules.kind or "transient", _NONE, document, said, _FAILED, _NOT_YET
                )
        beside, names = error_bodies.null_explained(document, self.reader.rows.way)
        return self._classify_error_body(names, beside, document, None) if names else None

    def _classify_error_body(
        self,
        names: Sequence[str],
        about: Mapping[str, Any],
        document: Any,
        status: int | None,
        kind: ResponseKind = "permanent",
    ) -> Classification:
        """The failure that members ``names`` say, of ``kind`` where no word of theirs says another."""
        if self.rules.kind is not None:
            kind = self.rules.kind
        elif (status is not None and status in _ALWAYS_THROTTLED) or error_bodies.speaks_of_rates(about):
            kind = "throttled"
        elif status is not None and status in self.transient.statuses:
            kind = "transient"
        else:
            kind = _kind_by_words(error_bodies.words(about), kind)
        said = self._find_description(document) or _short_text(error_bodies.told_of(about, names))
        return Classification(kind, _NONE, document, said, _FAILED, _OTHERWISE)

    # Another code.

    def _classify_failure(self, response: Response) -> Classification:
        document = self._document_of_failure(response)
        if self.rules.miss is not None and self._apply_rule_quietly(self.rules.miss, document):
            return _MISS
        told = error_bodies.words(document)
        said = self._find_description(document)
        kind = self._kind_named(document)
        if kind is None:
            code = error_bodies.word(response.headers.get("x-amzn-errortype", ""))
            kind = self._kind_of_failure(response, document, told | {code})
        tip = _USED_UP if kind == "permanent" and not error_bodies.USED_UP.isdisjoint(told) else ""
        return Classification(kind, _NONE, document, said, tip=tip)

    def _kind_of_failure(self, response: Response, document: Any, told: frozenset[str]) -> ResponseKind:
        status, headers = response.status, response.headers
        should_retry = next((headers[name].strip().lower() for name in _SHOULD_RETRY if name in headers), "")
        if should_retry == "false":
            return "permanent"
        if (
            status in _ALWAYS_THROTTLED
            or (status in _MAY_BE_THROTTLED and asks_to_wait(headers))
            or (status == 403 and (nothing_remains(headers) or error_bodies.speaks_of_rates(document)))
            or not error_bodies.THROTTLED.isdisjoint(told)
        ):
            return "throttled"
        return "transient" if should_retry == "true" or status in self.transient.statuses else "permanent"

    def _kind_named(self, document: Any) -> ResponseKind | None:
        """The kind that `error-when` names, which counts for any code."""
        told = None if self.rules.when is None else self._apply_rule_quietly(self.rules.when, document)
        return told if told in FAILURES else None

    def _apply_rule_quietly(self, rule: Path, document: Any) -> Any:
        """The value at ``rule`` in the body of a failure; None if the path does not apply."""
        with suppress(HttpFailure):
            return None if document is None else self._apply_rule(rule, "", document)
        return None

    def _document_of_failure(self, response: Response) -> Any:
        body = response.body
        if response.status < 400 or len(body) > SMALL_BODY or body.lstrip()[:1] not in (b"{", b"["):
            return None
        try:
            return self.reader.document(response)
        except HttpFailure:
            return None

    def _find_description(self, document: Any) -> str:
        if self.rules.message is None or document is None:
            return ""
        try:
            found = self.rules.message.find(document)
        except PathFailure:
            return ""
        return "" if found is None else _short_text(found)


def _kind_by_words(told: frozenset[str], otherwise: ResponseKind = "permanent") -> ResponseKind:
    if not error_bodies.THROTTLED.isdisjoint(told):
        return "throttled"
    return "transient" if not error_bodies.PASSING.isdisjoint(told) else otherwise


def _short_text(value: Any) -> str:
    return " ".join(value.split())[:200] if isinstance(value, str) else shown_as_json(value)

"""Compares two answers to one request: status, headers that matter, content."""

from typing import Any
from urllib.parse import urlsplit

import orjson

from forgefront.shadow.comparison.comparison_rules import ComparisonRules
from forgefront.shadow.comparison.content_codings import UndecodableError, decode_content, header_value
from forgefront.shadow.comparison.id_map import IdMap
from forgefront.shadow.comparison.json_comparison import AnswerDifference, JsonComparison, TooDeepError, type_name
from forgefront.shadow.comparison.shadow_client import ShadowAnswer
from forgefront.shadow.comparison.value_forms import AddressNormalizer
from forgefront.shadow.exchanges import Exchange
from forgefront.shadow.settings import ShadowSettings

DECODED_FACTOR = 8
"""How many times as long as the limit of a body its decoded content may be."""
EXCERPT_BYTES = 200


class IncomparableError(Exception):
    """The answers cannot be compared; the message is the reason to count."""


class AnswerComparison:
    """Compares answers by the rules. `compare` is pure, so it may run in a thread."""

    def __init__(self, settings: ShadowSettings, rules: ComparisonRules, ids: IdMap | None) -> None:
        self._rules = rules
        self._ids = ids
        self._max_bytes = settings.max_body * DECODED_FACTOR
        self._is_switched = settings.is_switched
        self._hosts = {settings.primary.host, settings.secondary.host, *rules.hosts}

    def compare(self, exchange: Exchange, answer: ShadowAnswer, route: str) -> list[AnswerDifference]:
        """All differences, also those that a rule ignores. Raises IncomparableError."""
        sides = [
            (exchange.status, exchange.response_headers or [], bytes(exchange.response_body)),
            (answer.status, answer.headers, answer.body),
        ]
        (old_status, old_headers, old_body), (new_status, new_headers, new_body) = reversed(sides) if self._is_switched else sides
        is_head = exchange.method == "HEAD"
        if old_status != new_status:
            shown = [
                _describe_status(status, b"" if is_head else body) for status, body in ((old_status, old_body), (new_status, new_body))
            ]
            return [AnswerDifference("status", (), *shown)]
        host = urlsplit("//" + header_value(exchange.request_headers, "host")).hostname or ""
        addresses = AddressNormalizer({*self._hosts, host}, self._rules.url_parameters)
        found = self._compare_headers(old_headers, new_headers, addresses)
        if is_head:
            return found
        try:
            old_body = decode_content(old_headers, old_body, self._max_bytes)
            new_body = decode_content(new_headers, new_body, self._max_bytes)
        except UndecodableError as error:
            raise IncomparableError(str(error)) from None
        if old_body == new_body:
            return found
        if not (_is_json(old_headers) and _is_json(new_headers)):
            return [*found, AnswerDifference("body", (), _describe_bytes(old_body), _describe_bytes(new_body))]
        old_document, new_document = _read_json(old_body), _read_json(new_body)
        if old_document is _INVALID or new_document is _INVALID:
            return [*found, AnswerDifference("body", (), _describe_bytes(old_body), _describe_bytes(new_body))]
        comparison = JsonComparison(self._rules, route, addresses, self._ids, old_is_primary=not self._is_switched)
        kind = self._ids.kind_of_path(exchange.target.partition("?")[0]) if self._ids is not None else None
        try:
            return found + comparison.compare(old_document, new_document, kind)
        except TooDeepError as error:
            raise IncomparableError(str(error)) from None

    def _compare_headers(
        self, old: list[tuple[str, str]], new: list[tuple[str, str]], addresses: AddressNormalizer
    ) -> list[AnswerDifference]:
        found = []
        for name in sorted(self._rules.headers):
            values = [header_value(headers, name) for headers in (old, new)]
            if addresses.normalize_header(name, values[0]) != addresses.normalize_header(name, values[1]):
                found.append(AnswerDifference("header", name, *values))
        return found


_INVALID = object()


def _is_json(headers: list[tuple[str, str]]) -> bool:
    media_type = header_value(headers, "content-type").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def _read_json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _INVALID


def _describe_status(status: int, body: bytes) -> Any:
    document = _read_json(body)
    message = document.get("message", document.get("error")) if isinstance(document, dict) else None
    return status if message is None or status < 400 else {"status": status, "message": message}


def _describe_bytes(body: bytes) -> str:
    text = body[:EXCERPT_BYTES].decode("utf-8", "replace")
    document = _read_json(body) if len(body) < EXCERPT_BYTES else _INVALID
    return f"{len(body)} bytes: {text}" if document is _INVALID or type_name(document) == "string" else text

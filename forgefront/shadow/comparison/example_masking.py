"""Examples in the report: without tokens, and on request without values."""

import base64
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

from forgefront.shadow.comparison.comparison_rules import ComparisonRules
from forgefront.shadow.comparison.json_comparison import type_name
from forgefront.shadow.exchanges import Exchange

MASK = "***"
MAX_STRING = 200
MAX_ITEMS = 5
MAX_LEVELS = 3
MAX_MASKED = 20_000
"""How much of a long string is searched for secrets. An example shows less, and no secret is longer than the rest."""
_PAIR = re.compile(r"""(["']?)([\w.%-]{1,80})\1(\s{0,9}[:=]\s{0,9})("(?:[^"\\]|\\.)*"?|[^\s&"',;<>?=]+)""")
"""A name and its value, in JSON, a query or a text."""
_USER_INFO = re.compile(r"//[^/@\s:]*:[^/@\s]+@")
"""User and password of a URL. Only the first colon separates them, so no part of the string is read twice."""
MIN_CREDENTIAL = 6
"""Shorter strings would mask parts of ordinary words."""


class ExampleMasker:
    """Masks what one exchange shows: the credentials of its request wherever they occur, and everything with the name of a secret."""

    def __init__(self, rules: ComparisonRules, exchange: Exchange, *, masks_values: bool) -> None:
        self._rules = rules
        self._masks_values = masks_values
        found = credentials_of(exchange, rules)
        forms = sorted({form for each in found for form in (each, quote(each, safe=""))}, key=len, reverse=True)
        self._credentials = re.compile("|".join(map(re.escape, forms))) if forms else None

    def mask_target(self, target: str, route: str) -> str:
        """The path and query of the request; with masked values the route and the names of the parameters."""
        path, mark, query = target.partition("?")
        pairs = [pair.partition("=") for pair in query.split("&") if pair]
        if self._masks_values:
            path = route.partition(" ")[2]
            shown = [f"{name}={MASK}" if equals else name for name, equals, _ in pairs]
        else:
            path = self._mask_paths(path)
            shown = [f"{name}{equals}{MASK if self._is_secret(unquote(name)) else value}" for name, equals, value in pairs]
        return self.mask_text(path + mark + "&".join(shown))

    def mask_text(self, text: str) -> str:
        """A string without the credentials of the request, and without parameters and paths that are secret."""
        if self._credentials is not None:
            text = self._credentials.sub(MASK, text)
        text = _PAIR.sub(self._mask_pair, text)
        return self._mask_paths(_USER_INFO.sub(f"//{MASK}@", text))

    def mask_value(self, value: Any, name: str = "", level: int = 0) -> Any:
        """A JSON value for an example: long strings, lists and objects are cut short."""
        if self._is_secret(name) and value is not None:
            return MASK
        if isinstance(value, dict):
            if level >= MAX_LEVELS:
                return "{…}"
            shown = {key: self.mask_value(item, key, level + 1) for key, item in list(value.items())[: 4 * MAX_ITEMS]}
            return shown | ({"…": f"{len(value) - len(shown)} more"} if len(value) > len(shown) else {})
        if isinstance(value, list | tuple):
            if level >= MAX_LEVELS:
                return "[…]"
            items = [self.mask_value(item, name, level + 1) for item in value[:MAX_ITEMS]]
            return items + ([f"… {len(value) - len(items)} more"] if len(value) > len(items) else [])
        if self._masks_values and value is not None and not isinstance(value, bool):
            return f"{type_name(value)} of {len(value)}" if isinstance(value, str) else type_name(value)
        if isinstance(value, str):
            text = self.mask_text(value[:MAX_MASKED])
            return text if len(text) <= MAX_STRING else text[:MAX_STRING] + "…"
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
            return str(value)[:MAX_STRING]
        return value

    def _is_secret(self, name: str) -> bool:
        return bool(name) and self._rules.secret_names.search(name) is not None

    def _mask_pair(self, match: re.Match[str]) -> str:
        start = f"{match[1]}{match[2]}{match[1]}{match[3]}"
        if self._is_secret(unquote(match[2])):
            return start + MASK
        value = match[4]
        return start + (f'"{_PAIR.sub(self._mask_pair, value[1:])}' if value.startswith('"') else value)

    def _mask_paths(self, text: str) -> str:
        def mask(match: re.Match[str]) -> str:
            found = match[0]
            for group in match.groups():
                found = found.replace(group, MASK) if group else found
            return found

        return self._rules.secret_paths.sub(mask, text)


def mask_client(name: str, exchange: Exchange, rules: ComparisonRules) -> str:
    """The name of a client, without the credentials of its request."""
    for credential in credentials_of(exchange, rules):
        name = name.replace(credential, MASK)
    return name


def credentials_of(exchange: Exchange, rules: ComparisonRules) -> set[str]:
    """The tokens and passwords of a request, whole and in parts."""
    return {each for each in _find_credentials(exchange, rules) if len(each) >= MIN_CREDENTIAL}


def _find_credentials(exchange: Exchange, rules: ComparisonRules) -> Iterable[str]:
    for name, value in exchange.request_headers:
        if rules.secret_names.search(name) is None:
            continue
        yield value
        yield from re.split(r"[\s;,=]+", value)
        scheme, _, encoded = value.partition(" ")
        if scheme.lower() == "basic":
            try:
                yield base64.b64decode(encoded, validate=False).decode("utf-8", "replace").partition(":")[2]
            except ValueError:
                continue
    for pair in exchange.target.partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        if rules.secret_names.search(unquote(name)):
            yield unquote(value)

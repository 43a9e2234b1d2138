"""The rules of the comparison, read from `rules.toml`, from `--rules` and from `--ignore`."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

from forgefront.shadow.comparison.json_paths import JsonPath, JsonPathError, JsonPlace

BUILT_IN = Path(__file__).with_name("rules.toml")
KINDS = ("status", "header", "missing", "added", "type", "value", "format", "order", "body")
"""Kinds of differences. `missing` and `added` say what the new server lacks and has; `format` is the same time in another format."""

_TABLES = {
    "headers": ("compared",),
    "addresses": ("hosts", "parameters"),
    "lists": ("identity",),
    "secrets": ("names", "paths"),
    "ids": ("segments", "fields", "types"),
    "ignore": ("path", "header", "routes", "kinds", "when", "reason"),
    "tolerance": ("path", "routes", "seconds", "when", "reason"),
    "skip": ("path", "content_type", "fields", "when", "reason"),
}


class RulesError(ValueError):
    """A rule that cannot be read; the message says which."""


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A place whose differences do not count: a JSONPath, or the name of a header."""

    path: JsonPath | None
    header: str | None
    routes: tuple[str, ...]
    kinds: tuple[str, ...]
    reason: str

    @property
    def title(self) -> str:
        return self.path.text if self.path else f"header {self.header}"

    def covers(self, route: str, kind: str, place: JsonPlace | str) -> bool:
        if self.kinds and kind not in self.kinds:
            return False
        if self.routes and not any(fnmatchcase(route, pattern) for pattern in self.routes):
            return False
        if isinstance(place, str):
            return kind == "header" and self.header == place
        return self.path is not None and self.path.covers(place)


@dataclass(frozen=True, slots=True)
class SkipRule:
    """Requests that are neither repeated nor compared, by a pattern of the path or by the type of their answer.

    With `fields`, only GraphQL requests whose document asks for one of these fields.
    """

    path: str | None
    content_type: str | None
    reason: str
    fields: re.Pattern[bytes] | None = None

    def covers(self, path: str, body: bytes | bytearray) -> bool:
        return self.path is not None and fnmatchcase(path, self.path) and (self.fields is None or self.fields.search(body) is not None)


@dataclass(frozen=True, slots=True)
class ComparisonRules:
    headers: frozenset[str]
    hosts: frozenset[str]
    url_parameters: frozenset[str]
    identity: tuple[str, ...]
    secret_names: re.Pattern[str]
    secret_paths: re.Pattern[str]
    id_segments: Mapping[str, str]
    id_fields: Mapping[str, str]
    id_types: Mapping[str, str]
    ignored: tuple[IgnoreRule, ...]
    tolerances: tuple[tuple[IgnoreRule, float], ...]
    skipped: tuple[SkipRule, ...]

    @classmethod
    def read(cls, further: str = "", ignored: Iterable[str] = (), *, replays_writes: bool = False) -> Self:
        """The built-in rules, those of the TOML document `further`, and the JSONPaths `ignored`. Raises RulesError."""
        sources: list[dict[str, Any]] = [tomllib.loads(BUILT_IN.read_text(encoding="utf-8"))]
        if further:
            try:
                added = tomllib.loads(further)
            except tomllib.TOMLDecodeError as error:
                raise RulesError(f"the rules are not TOML: {error}") from None
            if not added.pop("defaults", True):
                for name in ("ignore", "tolerance", "skip"):
                    sources[0].pop(name)
            sources.append(added)
        for source in sources:
            _check_names(source)
        when = ("replay", None) if replays_writes else (None,)
        rows: dict[str, list[dict[str, Any]]] = {
            name: [row for source in sources for row in source.get(name, ()) if row.get("when") in when]
            for name in ("ignore", "tolerance", "skip")
        }

        def listed(table: str, name: str) -> list[str]:
            return [str(each) for source in sources for each in source.get(table, {}).get(name, ())]

        def mapped(name: str) -> dict[str, str]:
            return {key: str(value) for source in sources for key, value in source.get("ids", {}).get(name, {}).items()}

        try:
            return cls(
                headers=frozenset(name.lower() for name in listed("headers", "compared")),
                hosts=frozenset(name.lower() for name in listed("addresses", "hosts")),
                url_parameters=frozenset(listed("addresses", "parameters")),
                identity=tuple(listed("lists", "identity")),
                secret_names=re.compile("|".join(f"(?:{each})" for each in listed("secrets", "names")), re.IGNORECASE),
                secret_paths=re.compile("|".join(listed("secrets", "paths"))),
                id_segments=mapped("segments"),
                id_fields=mapped("fields"),
                id_types=mapped("types"),
                ignored=(
                    *(IgnoreRule(JsonPath.parse(path), None, (), (), "--ignore") for path in ignored),
                    *map(_read_rule, rows["ignore"]),
                ),
                tolerances=tuple((_read_rule(row), float(row.get("seconds", 0))) for row in rows["tolerance"]),
                skipped=tuple(map(_read_skip_rule, rows["skip"])),
            )
        except (JsonPathError, re.error, TypeError, ValueError, AttributeError) as error:
            raise RulesError(str(error)) from None

    def find_ignored(self, route: str, kind: str, place: JsonPlace | str) -> IgnoreRule | None:
        """The rule because of which a difference does not count. `place` is the name of a header in lower case if that differs."""
        return next((rule for rule in self.ignored if rule.covers(route, kind, place)), None)

    def tolerance(self, route: str, place: JsonPlace) -> float:
        """Maximum difference of two timestamps at this place, in seconds."""
        return max((seconds for rule, seconds in self.tolerances if rule.covers(route, "value", place)), default=0.0)

    def find_skipped(self, path: str, body: bytes | bytearray = b"") -> SkipRule | None:
        """The rule because of which a request is not repeated, by its path and body."""
        return next((rule for rule in self.skipped if rule.covers(path, body)), None)

    def find_skipped_answer(self, content_type: str) -> SkipRule | None:
        """The rule because of which an answer is not compared."""
        return next((rule for rule in self.skipped if rule.content_type is not None and content_type.startswith(rule.content_type)), None)


def _check_names(source: Mapping[str, Any]) -> None:
    for table, value in source.items():
        names = _TABLES.get(table)
        if names is None:
            raise RulesError(f"{table!r} is not a table of rules; use {', '.join(_TABLES)}")
        is_list = table in ("ignore", "tolerance", "skip")
        if not isinstance(value, list if is_list else dict):
            raise RulesError(f"{table!r} must be written as {f'[[{table}]]' if is_list else f'[{table}]'}")
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                raise RulesError(f"{table!r} must be written as [[{table}]]")
            unknown = sorted(set(row) - set(names))
            if unknown:
                raise RulesError(f"{table!r} has no {unknown[0]!r}; use {', '.join(names)}")
            if is_list and not (row.get("path") or row.get("header") or row.get("content_type")):
                raise RulesError(f"a rule of {table!r} names neither a path nor {'a content_type' if table == 'skip' else 'a header'}")
            if row.get("when") not in (None, "replay"):
                raise RulesError(f"'when' of {table!r} can only be \"replay\"")


def _read_skip_rule(row: Mapping[str, Any]) -> SkipRule:
    fields = row.get("fields")
    if fields is not None and not (isinstance(fields, list) and fields and all(isinstance(each, str) for each in fields)):
        raise RulesError("'fields' of 'skip' is a list of names")
    pattern = None if fields is None else re.compile(rf"(?:\b|\\[nrt])(?:{'|'.join(map(re.escape, fields))})\s*[({{]".encode())
    return SkipRule(row.get("path"), row.get("content_type"), str(row.get("reason", "")), pattern)


def _read_rule(row: Mapping[str, Any]) -> IgnoreRule:
    kinds = tuple(row.get("kinds", ()))
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise RulesError(f"{unknown[0]!r} is not a kind of difference; use {', '.join(KINDS)}")
    path, header = row.get("path"), row.get("header")
    return IgnoreRule(
        None if path is None else JsonPath.parse(path),
        None if header is None else str(header).lower(),
        tuple(row.get("routes", ())),
        kinds,
        str(row.get("reason", "")),
    )

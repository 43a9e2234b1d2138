"""The part of docs/profiles.md that follows from the data: how routes and objects of the two profiles differ.

`python -m rest_v3.api_docs.profile_differences docs/profiles.md` writes it between the markers of the file.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rest_v3 import create_app
from rest_v3.api_docs.json_schemas import Schema, response_schema
from rest_v3.endpoints.endpoint import Endpoint
from rest_v3.profiles import DOCUMENT, PROFILES
from rest_v3.route import Route

START, END = "<!-- from the data, by scripts/profiles -->", "<!-- end -->"
ABSENT = "-"


def render(profile: str) -> str:
    """Two tables in Markdown."""
    pairs = list(zip(_endpoints(DOCUMENT), _endpoints(profile), strict=True))
    routes = [
        f"| `{before.route.call}` | {old} | {new} |"
        for before, after in pairs
        for old, new in _route_differences(before.route, after.route)
    ]
    # Responses with the same differences share a row.
    responses: dict[str, list[str]] = {}
    for before, after in pairs:
        if before.route.shape == after.route.shape:
            row = _response_row(list(_schema_differences(response_schema(before), response_schema(after))))
            shapes = responses.setdefault(row, [])
            if after.route.shape is not None and after.route.shape not in shapes:
                shapes.append(after.route.shape)
    responses.pop("", None)
    return "\n".join(
        [
            f"| Route | `{DOCUMENT}` | `{profile}` |",
            "|---|---|---|",
            *routes,
            "",
            f"| Response | Only in `{DOCUMENT}` | Only in `{profile}` | Other values |",
            "|---|---|---|---|",
            *(f"| {', '.join(shapes)} | {row} |" for row, shapes in responses.items()),
        ]
    )


def _endpoints(profile: str) -> list[Endpoint]:
    nothing_runs: Any = None
    return list(create_app(nothing_runs, external_url="", profile=profile).endpoints)


def _response_row(differences: list[tuple[str, str, str]]) -> str:
    if not differences:
        return ""
    removed = [f"`{path}`" for path, _, new in differences if new == ABSENT]
    added = [f"`{path}`" for path, old, _ in differences if old == ABSENT]
    changed = [f"`{path}`: {old} → {new}" for path, old, new in differences if ABSENT not in (old, new)]
    return f"{', '.join(removed)} | {', '.join(added)} | {'; '.join(changed)}"


def write_into(text: str, profile: str) -> str:
    """The text with the tables between its markers."""
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    return f"{head}{START}\n\n{render(profile)}\n\n{END}{tail}"


def _route_differences(before: Route, after: Route) -> Iterator[tuple[str, str]]:
    if before.success_status != after.success_status:
        yield f"{before.success_status}", f"{after.success_status}"
    if before.is_unpaged != after.is_unpaged:
        yield "in pages", "whole, without headers"
    if before.page_rules != after.page_rules:
        yield _page_words(before), _page_words(after)
    for code in sorted(before.errors.keys() | after.errors.keys()):
        old, new = before.errors.get(code), after.errors.get(code)
        if old != new:
            yield f"{code}: {_answer_words(old)}", f"{code}: {_answer_words(new)}"
    if before.not_found_noun != after.not_found_noun:
        yield f"not found: {before.not_found_noun or 'no noun'}", f"not found: {after.not_found_noun}"
    if before.errors_by_value != after.errors_by_value:
        yield "invalid values in one list of messages", "messages by value"
    if before.shape != after.shape:
        yield f"{before.shape}", f"{after.shape}"
    if before.operation != after.operation and before.shape == after.shape:
        yield before.operation, after.operation


def _page_words(route: Route) -> str:
    rules = route.page_rules
    headers = "with" if rules.has_headers else "without"
    return f"pages from {rules.first_number}, at most {rules.max_size:,} entries, {headers} headers"


def _answer_words(answer: Any) -> str:
    if answer is None:
        return "as usual"
    status, body = answer if isinstance(answer, tuple) else (answer, None)
    return f"{status}" if body is None else f"{status} `{body!r}`"


def _schema_differences(before: Schema, after: Schema, path: str = "") -> Iterable[tuple[str, str, str]]:
    """(path of a key, before, after) for each key that differs."""
    if ("items" in before) != ("items" in after) and not path:
        yield "(body)", _type_words(before), _type_words(after)
    before, after = before.get("items", before), after.get("items", after)
    old, new = before.get("properties", {}), after.get("properties", {})
    for key in dict.fromkeys((*old, *new)):
        inner = f"{path}{key}"
        words = [_key_words(key, schema) for schema in (before, after)]
        if words[0] != words[1]:
            yield inner, words[0], words[1]
        if key in old and key in new:
            yield from _schema_differences(_inner(old[key]), _inner(new[key]), f"{inner}.")


def _inner(schema: Schema) -> Schema:
    """The schema without the choice of null."""
    return next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)


def _key_words(key: str, schema: Schema) -> str:
    if key not in schema.get("properties", {}):
        return ABSENT
    words = _type_words(schema["properties"][key])
    return words if key in schema.get("required", ()) else f"{words}, may be absent"


def _type_words(schema: Schema) -> str:
    if "const" in schema:
        return f"`{schema['const']!r}`".replace("None", "null")
    if "anyOf" in schema:
        return " or ".join(map(_type_words, schema["anyOf"]))
    if "items" in schema:
        return f"list of {_type_words(schema['items'])}"
    if isinstance(schema.get("enum"), list) and isinstance(schema["enum"][0], int):
        return ", ".join(map(str, schema["enum"]))
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    (legacy,) = (name for name in PROFILES if name != DOCUMENT)
    file.write_text(write_into(file.read_text(encoding="utf-8"), legacy), encoding="utf-8")

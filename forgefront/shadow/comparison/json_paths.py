"""JSONPath (RFC 9535) as a pattern for places: names, indices, wildcards and descendants.

A rule is applied to the place of a difference that was found, not to a document, so nothing is searched. Filters and slices, which
need a document, are not supported; libraries for JSONPath only evaluate queries against documents.
"""

import re
from dataclasses import dataclass
from typing import Self

JsonPlace = tuple[str | int, ...]
"""Where a value is in a document: ("author", "name"), (3, "labels", 0)."""

_SEGMENT = re.compile(
    r"(?P<descendant>\.\.)?(?:"
    r"(?P<wildcard>(?(descendant)|\.)\*|\[\s*\*\s*\])"
    r"|(?(descendant)|\.)(?P<name>[^\W\d][\w-]*)"
    r"|\[\s*(?P<index>0|[1-9]\d*)\s*\]"
    r"|\[\s*(?:'(?P<single>(?:[^'\\]|\\.)*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\")\s*\])"
)


class JsonPathError(ValueError):
    """A path with a syntax error, or with a selector that is not supported."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    text: str
    _segments: tuple[tuple[bool, str | int | None], ...]
    """Whether each may be any number of levels further down, and its name or index; None for any."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises JsonPathError."""
        if not text.startswith("$"):
            raise JsonPathError(f"{text!r} must begin with $, as in $..updated_at")
        segments: list[tuple[bool, str | int | None]] = []
        position = 1
        while position < len(text):
            match = _SEGMENT.match(text, position)
            if match is None:
                raise JsonPathError(f"{text!r} is not supported from {text[position:]!r}: use names, indices, * and .. only")
            quoted = match["single"] if match["single"] is not None else match["double"]
            selector: str | int | None = None
            if match["index"]:
                selector = int(match["index"])
            elif not match["wildcard"]:
                selector = match["name"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            segments.append((match["descendant"] is not None, selector))
            position = match.end()
        return cls(text, tuple(segments))

    def covers(self, place: JsonPlace) -> bool:
        """Whether the path selects the value at this place, or one around it.

        >>> JsonPath.parse("$..author").covers((0, "author", "name"))
        True
        """
        end = len(self._segments)
        states = {0}
        for step in place:
            if end in states:
                return True
            following = set()
            for state in states:
                is_descendant, selector = self._segments[state]
                if is_descendant:
                    following.add(state)
                if selector is None or selector == step:
                    following.add(state + 1)
            states = following
        return end in states


def format_place(place: JsonPlace) -> str:
    """The place as a JSONPath, with all elements of a list as one: `$[*].author.name`."""
    parts = ["$"]
    for step in place:
        if isinstance(step, int):
            parts.append("[*]")
        elif re.fullmatch(r"[^\W\d][\w-]*", step):
            parts.append(f".{step}")
        else:
            parts.append("['" + step.replace("\\", "\\\\").replace("'", "\\'") + "']")
    return "".join(parts)

"""From a raw path to the endpoints that stand there."""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import unquote_to_bytes

T = TypeVar("T")


class Place(Generic[T]):
    """A node of the tree of paths: what answers there by method, and what lies below."""

    __slots__ = ("below", "methods", "parameter")

    def __init__(self) -> None:
        self.methods: dict[str, T] = {}
        self.below: dict[str, Place[T]] = {}
        self.parameter: Place[T] | None = None

    @property
    def allow(self) -> str:
        """The Allow header of this place."""
        names = {"OPTIONS", *self.methods}
        if "GET" in names:
            names.add("HEAD")
        return ", ".join(sorted(names))


class Router(Generic[T]):
    """The tree of paths. A literal segment goes before a parameter."""

    def __init__(self) -> None:
        self._root: Place[T] = Place()

    def add(self, method: str, path: str, target: T) -> None:
        """Raises ValueError for a second row of the same call."""
        place = self._root
        for segment in split(path.encode()):
            if segment.startswith(":"):
                place.parameter = place.parameter or Place()
                place = place.parameter
            else:
                place = place.below.setdefault(segment, Place())
        if method in place.methods:
            raise ValueError(f"two rows for {method} {path}")
        place.methods[method] = target

    def find(self, segments: list[str]) -> tuple[Place[T], list[str]] | None:
        """The place of a path and the values of its parameters, in order; None for an unknown path."""
        values: list[str] = []
        place = self._root
        for segment in segments:
            below = place.below.get(segment)
            if below is None:
                below = place.parameter
                if below is None:
                    break
                values.append(segment)
            place = below
        else:
            if place.methods:
                return place, values
        # A literal segment may lead nowhere where a parameter of the same place does not.
        values = []
        found = _descend(self._root, segments, 0, values)
        return None if found is None else (found, values)

    def places(self) -> Iterator[Place[T]]:
        waiting = [self._root]
        while waiting:
            place = waiting.pop()
            yield place
            waiting += place.below.values()
            if place.parameter is not None:
                waiting.append(place.parameter)


def _descend(place: Place[T], segments: list[str], depth: int, values: list[str]) -> Place[T] | None:
    if depth == len(segments):
        return place if place.methods else None
    segment = segments[depth]
    below = place.below.get(segment)
    if below is not None:
        found = _descend(below, segments, depth + 1, values)
        if found is not None:
            return found
    if place.parameter is None:
        return None
    values.append(segment)
    found = _descend(place.parameter, segments, depth + 1, values)
    if found is None:
        values.pop()
    return found


def split(raw: bytes) -> list[str]:
    """The decoded segments of a raw path, with doubled and closing slashes folded.

    Decoding comes after splitting, so that an escaped slash stays inside its segment:

    >>> split(b"/projects/group%2Fname//issues/")
    ['projects', 'group/name', 'issues']
    """
    return [_decoded(segment) for segment in raw.split(b"/") if segment]


def _decoded(segment: bytes) -> str:
    if b"%" in segment:
        segment = unquote_to_bytes(segment)
    return segment.decode("utf-8", "replace")


def segments_of(scope: Mapping[str, Any], base: str = "/api/v3") -> list[str]:
    """The segments of a request's path below the mount (and below `base` where the application is not mounted)."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if scope.get("root_path", "") in ("", base) and raw.isascii() and b"%" not in raw and b"?" not in raw:
        # As most are.
        path = raw.decode("ascii")
        if path.startswith(base) and path[len(base) : len(base) + 1] == "/":
            return [segment for segment in path[len(base) + 1 :].split("/") if segment]
    segments = split(raw.partition(b"?")[0])
    root = split(scope.get("root_path", "").encode())
    if segments[: len(root)] == root:
        segments = segments[len(root) :]
    mount = split(base.encode())
    if root[-len(mount) :] != mount and segments[: len(mount)] == mount:
        segments = segments[len(mount) :]
    return segments

"""Routing: from a raw path to the endpoints of that path."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

from graph.http.percent_encoding import decode_percent

T = TypeVar("T")


class RouteNode(Generic[T]):
    """A node of the tree of paths: the endpoints by method, and the nodes below."""

    __slots__ = ("children", "methods", "parameter_child", "spans_segments")

    def __init__(self) -> None:
        self.methods: dict[str, T] = {}
        self.children: dict[str, RouteNode[T]] = {}
        self.parameter_child: RouteNode[T] | None = None
        self.spans_segments = False
        """Whether the parameter of this node may hold several segments."""

    @property
    def allow_header(self) -> str:
        """The Allow header of this path."""
        names = {"OPTIONS", *self.methods}
        if "GET" in names:
            names.add("HEAD")
        return ", ".join(sorted(names))


class Router(Generic[T]):
    """The tree of paths. A literal segment takes precedence over a parameter, and a parameter of one segment over one of several."""

    def __init__(self) -> None:
        self._root: RouteNode[T] = RouteNode()

    def add(self, method: str, path: str, target: T, spanning: Collection[str] = ()) -> None:
        """Adds a path, whose parameters `spanning` may hold several segments. Raises ValueError for a duplicate call."""
        node = self._root
        for segment in split_path(path.encode()):
            if segment.startswith(":"):
                node.parameter_child = node.parameter_child or RouteNode()
                node = node.parameter_child
                node.spans_segments |= segment[1:] in spanning
            else:
                node = node.children.setdefault(segment, RouteNode())
        if method in node.methods:
            raise ValueError(f"duplicate route {method} {path}")
        node.methods[method] = target

    def get(self, path: str) -> RouteNode[T] | None:
        """The node of a path as it was added, with the names of its parameters."""
        found = self.find(split_path(path.encode()))
        return found and found[0]

    def find(self, segments: list[str], method: str | None = None) -> tuple[RouteNode[T], list[str]] | None:
        """The node of a path and the values of its parameters, in order; None for an unknown path.

        With `method`, a node that has it takes precedence where a parameter holds several segments: `branches/a/protect` is an action on a
        branch, and may be a branch itself.
        """
        found = self._find(segments)
        if found is None or method is None or method in found[0].methods:
            return found
        values: list[str] = []
        node = _find_node(self._root, segments, 0, values, method)
        return found if node is None or all(value in segments for value in values) else (node, values)

    def _find(self, segments: list[str]) -> tuple[RouteNode[T], list[str]] | None:
        values: list[str] = []
        node = self._root
        for segment in segments:
            child = node.children.get(segment)
            if child is None:
                child = node.parameter_child
                if child is None:
                    break
                values.append(segment)
            node = child
        else:
            if node.methods:
                return node, values
        # A literal segment may be a dead end where a parameter of the same node is not.
        values = []
        node_found = _find_node(self._root, segments, 0, values)
        return None if node_found is None else (node_found, values)

    def nodes(self) -> Iterator[RouteNode[T]]:
        pending = [self._root]
        while pending:
            node = pending.pop()
            yield node
            pending += node.children.values()
            if node.parameter_child is not None:
                pending.append(node.parameter_child)


def _find_node(node: RouteNode[T], segments: list[str], depth: int, values: list[str], method: str | None = None) -> RouteNode[T] | None:
    """The first node of the path that has any method, or this one."""
    if depth == len(segments):
        return node if (node.methods if method is None else method in node.methods) else None
    segment = segments[depth]
    child = node.children.get(segment)
    if child is not None:
        found = _find_node(child, segments, depth + 1, values, method)
        if found is not None:
            return found
    child = node.parameter_child
    if child is None:
        return None
    for end in range(depth + 1, len(segments) + 1 if child.spans_segments else depth + 2):
        values.append("/".join(segments[depth:end]))
        found = _find_node(child, segments, end, values, method)
        if found is not None:
            return found
        values.pop()
    return None


def split_path(raw: bytes) -> list[str]:
    """The decoded segments of a raw path, without empty segments.

    Segments are decoded after splitting, so that an escaped slash stays inside its segment:

    >>> split_path(b"/projects/group%2Fname//issues/")
    ['projects', 'group/name', 'issues']
    """
    return [_decode_segment(segment) for segment in raw.split(b"/") if segment]


def _decode_segment(segment: bytes) -> str:
    return decode_percent(segment).decode("utf-8", "replace")


def path_segments(scope: Mapping[str, Any], base: str = "/api/v3") -> list[str]:
    """The segments of a request's path below the mount (and below `base` where the application is not mounted)."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if scope.get("root_path", "") in ("", base) and raw.isascii() and b"%" not in raw and b"?" not in raw:
        # The common case.
        path = raw.decode("ascii")
        if path.startswith(base) and path[len(base) : len(base) + 1] == "/":
            return [segment for segment in path[len(base) + 1 :].split("/") if segment]
    segments = split_path(raw.partition(b"?")[0])
    root = split_path(scope.get("root_path", "").encode())
    if segments[: len(root)] == root:
        segments = segments[len(root) :]
    base_segments = split_path(base.encode())
    if root[-len(base_segments) :] != base_segments and segments[: len(base_segments)] == base_segments:
        segments = segments[len(base_segments) :]
    return segments

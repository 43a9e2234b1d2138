"""Pages of connections: their arguments, and what a page shows."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graph.errors import BadRequest, LimitExceeded
from graph.fields.connections import Edge, PageInfo
from graph.operations.cost import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE

DEFAULT_FIRST = DEFAULT_PAGE_SIZE
MAX_FIRST = MAX_PAGE_SIZE
MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True)
class Window:
    """The validated page arguments: `size` rows from the start, or from the end if `backward`."""

    size: int
    after: str | None = None
    before: str | None = None
    backward: bool = False
    offset: int = 0

    @classmethod
    def of(
        cls,
        first: int | None,
        after: str | None,
        last: int | None = None,
        before: str | None = None,
        offset: int | None = None,
        max_size: int = MAX_FIRST,
    ) -> "Window":
        """Validates page arguments. Raises BadRequest for contradictory arguments, LimitExceeded for more than `max_size` rows."""
        if first is not None and last is not None:
            raise BadRequest("Use `first` or `last`, not both.")
        size = first if first is not None else last if last is not None else DEFAULT_FIRST
        if size < 0:
            raise BadRequest("`first` and `last` cannot be negative.")
        if size > max_size:
            raise LimitExceeded(f"The page size exceeds the limit of {max_size}; use `first: {max_size}` and continue with `after`.")
        if offset is not None and (offset < 0 or offset > MAX_OFFSET or after or before or last is not None):
            raise BadRequest("`offset` can only be combined with `first`, and cannot be negative.")
        return cls(size, after, before, last is not None, offset or 0)


@dataclass
class ConnectionPage:
    """A page of a connection. `count` is called only if `totalCount` is requested; None if the list is not counted."""

    nodes: Sequence[Any]
    has_next: bool
    has_previous: bool
    cursor: Callable[[Any], str]
    count: Callable[[], int | Awaitable[int]] | None = None
    boundary_rows: tuple[Any, Any] | None = None
    """The first and the last row of the page, if they are not in `nodes`."""

    @property
    def edges(self) -> list[Edge[Any]]:
        return [Edge(cursor=self.cursor(node), node=node) for node in self.nodes]

    @property
    def page_info(self) -> PageInfo:
        first, last = self.boundary_rows or ((self.nodes[0], self.nodes[-1]) if self.nodes else (None, None))
        return PageInfo(
            has_next_page=self.has_next,
            has_previous_page=self.has_previous,
            start_cursor=self.cursor(first) if first is not None else None,
            end_cursor=self.cursor(last) if last is not None else None,
        )

    @property
    def total_count(self) -> int | Awaitable[int] | None:
        return self.count() if self.count is not None else None


def make_page(
    rows: list[Any], window: Window, cursor: Callable[[Any], str], count: Callable[[], int | Awaitable[int]] | None = None
) -> ConnectionPage:
    """Makes a page of the rows that were read: those of the window, and one more if the list continues.

    `count` is not called for a list whose first page contains its end.
    """
    has_more = len(rows) > window.size
    known = None if count is None else _count_from_page(window, rows)
    nodes = rows[: window.size]
    if window.backward:
        nodes.reverse()
    return ConnectionPage(
        nodes=nodes,
        has_next=window.before is not None if window.backward else has_more,
        has_previous=has_more if window.backward else window.after is not None or window.offset > 0,
        cursor=cursor,
        count=count if known is None else lambda: known,
    )


def _count_from_page(window: Window, rows: Sequence[Any]) -> int | None:
    """Returns the number of rows of a list if its first page contains its end; None otherwise."""
    is_exact = (
        not window.backward and window.after is None and window.before is None and len(rows) <= window.size and (rows or not window.offset)
    )
    return window.offset + len(rows) if is_exact else None

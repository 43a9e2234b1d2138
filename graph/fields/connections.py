"""The GraphQL types of lists: connections, after the Relay specification (https://relay.dev/graphql/connections.htm)."""

from enum import Enum
from typing import Generic, TypeVar

import strawberry

T = TypeVar("T")


@strawberry.enum(description="Sort direction.")
class OrderDirection(Enum):
    ASC = "asc"
    DESC = "desc"


@strawberry.type(description="Pagination information.")
class PageInfo:
    has_next_page: bool = strawberry.field(description="Whether there are more items after this page.")
    has_previous_page: bool = strawberry.field(description="Whether there are more items before this page.")
    start_cursor: str | None = strawberry.field(description="Cursor of the first item; null if the page is empty.")
    end_cursor: str | None = strawberry.field(description="Cursor of the last item; null if the page is empty.")


@strawberry.type(description="An item of a connection and its cursor.")
class Edge(Generic[T]):
    cursor: str = strawberry.field(description="Cursor of the item; pass it as `after` or `before` to continue from here.")
    node: T = strawberry.field(description="The item.")


@strawberry.type(description="A page of results.")
class Connection(Generic[T]):
    nodes: list[T] = strawberry.field(description="Items on the page.")
    edges: list[Edge[T]] = strawberry.field(description="Items on the page with their cursors.")
    page_info: PageInfo = strawberry.field(description="Pagination information.")
    total_count: int = strawberry.field(description="Total number of items; counted only when the field is requested.")


@strawberry.type(name="Connection", description="A page of results whose total count may be unknown.")
class UncountedConnection(Generic[T]):
    nodes: list[T] = strawberry.field(description="Items on the page.")
    edges: list[Edge[T]] = strawberry.field(description="Items on the page with their cursors.")
    page_info: PageInfo = strawberry.field(description="Pagination information.")
    total_count: int | None = strawberry.field(
        description="Total number of items; null when counting would require reading the whole list."
    )

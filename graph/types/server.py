"""Information about the service, and the viewer's remaining limits."""

import asyncio
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version

import strawberry

from graph.context import Info
from graph.operations.cost import MAX_PAGE_SIZE, MAX_ROWS
from graph.operations.limits import MAX_DEPTH
from graph.operations.rate_limits import RateUsage, unlimited_usage


@strawberry.type(
    description="Cost of this operation and remaining hourly budget of the viewer, in points: one per 100 rows of the static cost, at"
    " least one. The values are also sent in the headers `X-RateLimit-Limit`, `-Cost`, `-Used`, `-Remaining` and `-Reset` of"
    " each response. Operations that exceed the limit are rejected with LIMIT_EXCEEDED and cost nothing. The limit"
    " holds for all server processes together. Without a rate limit, `limit` and `remaining` are 2147483647 and the headers are omitted."
)
class RateLimit:
    limit: int = strawberry.field(description="Points per hour; the hour starts with the first operation.")
    cost: int = strawberry.field(description="Cost of this operation in points.")
    used: int = strawberry.field(description="Points used in this hour, including this operation.")
    remaining: int = strawberry.field(description="Points remaining in this hour, after this operation.")
    node_count: int = strawberry.field(
        description="Maximum number of rows the operation can read: its static cost, calculated from the requested page sizes."
    )
    reset_at: datetime = strawberry.field(description="When the hour ends and the budget is restored.")

    @classmethod
    def of(cls, usage: RateUsage) -> "RateLimit":
        return cls(
            limit=usage.limit,
            cost=usage.cost,
            used=usage.used,
            remaining=usage.remaining,
            node_count=usage.rows,
            reset_at=usage.resets_at,
        )


@strawberry.type(description="Information about the server and its limits.")
class ServerInfo:
    version: str = strawberry.field(description="Version of the service.")
    rest_versions: list[str] = strawberry.field(description="Versions of the REST API that are served, below `/api/`.")
    schema_hash: str = strawberry.field(
        description="SHA-256 of the output of `forgefront schema`, in hexadecimal; changes with the schema."
    )
    max_cost: int = strawberry.field(description="Maximum static cost of an operation in rows.")
    max_depth: int = strawberry.field(description="Maximum nesting depth of fields.")
    max_page_size: int = strawberry.field(description="Maximum page size of a connection: maximum of `first` and `last`.")
    ssh_enabled: bool = strawberry.field(description="Whether repositories can be cloned over SSH.")


@cache
def schema_hash() -> str:
    """The SHA-256 of the printed schema in hex, cached because printing takes 0.1 s."""
    from graph.schema import print_schema

    return sha256(print_schema().encode()).hexdigest()


@strawberry.type
class ServerQueries:
    @strawberry.field(description="Cost of this operation and remaining hourly budget of the viewer.")
    def rate_limit(self, info: Info) -> RateLimit:
        return RateLimit.of(info.context.rate_usage or unlimited_usage(info.context.now()))

    @strawberry.field(description="Information about the server and its limits. Available to all signed-in users.")
    async def server_info(self, info: Info) -> ServerInfo:
        return ServerInfo(
            version=version("forgefront"),
            rest_versions=["v3"],
            schema_hash=await asyncio.to_thread(schema_hash),
            max_cost=MAX_ROWS,
            max_depth=MAX_DEPTH,
            max_page_size=MAX_PAGE_SIZE,
            ssh_enabled=bool(info.context.services.ssh_prefix),
        )

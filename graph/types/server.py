"""What the service tells of itself, and of what its limits leave the viewer."""

import asyncio
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version

import strawberry

from graph.context import Info
from graph.cost import LARGEST_PAGE, ROWS
from graph.limits import DEPTH
from graph.rates import Charge, unlimited


@strawberry.type(
    description="What this operation costs, and what is left of the viewer's hour. Paid is in points: one for each 100 rows of the static "
    "cost, and at least one. The same stands in the headers `X-RateLimit-Limit`, `-Cost`, `-Used`, `-Remaining` and `-Reset` of every "
    "answer to a viewer. What exceeds the limit is refused with LIMIT_EXCEEDED and costs nothing. Each server process counts by itself. "
    "Where nothing is limited, `limit` and `remaining` are 2147483647, and there are no such headers."
)
class RateLimit:
    limit: int = strawberry.field(description="Points that a viewer may spend in an hour, which begins with the first operation.")
    cost: int = strawberry.field(description="Points that this operation costs.")
    used: int = strawberry.field(description="Points spent in this hour, with this operation.")
    remaining: int = strawberry.field(description="Points left in this hour, after this operation.")
    node_count: int = strawberry.field(description="Rows that this operation may read: its static cost, by the page sizes it asks for.")
    reset_at: datetime = strawberry.field(description="When the hour is over, and all points are there again.")

    @classmethod
    def of(cls, charge: Charge) -> "RateLimit":
        return cls(
            limit=charge.limit,
            cost=charge.cost,
            used=charge.used,
            remaining=charge.remaining,
            node_count=charge.rows,
            reset_at=charge.resets_at,
        )


@strawberry.type(description="What serves here, and what it allows.")
class ServerInfo:
    version: str = strawberry.field(description="The version of the service.")
    rest_versions: list[str] = strawberry.field(description="The REST interfaces that are served too, each below `/api/`.")
    schema_hash: str = strawberry.field(
        description="The SHA-256 of the schema as `forgefront schema` prints it, in hex: the same hash, the same schema."
    )
    max_cost: int = strawberry.field(description="Rows that an operation may read at most, by its static cost.")
    max_depth: int = strawberry.field(description="Fields that may lie inside one another.")
    max_page_size: int = strawberry.field(description="The most items of one page of a connection: what `first` and `last` may ask for.")


@cache
def schema_hash() -> str:
    """The SHA-256 of the printed schema, in hex. Printing takes a tenth of a second, once."""
    from graph.schema import printed

    return sha256(printed().encode()).hexdigest()


@strawberry.type
class ServerQueries:
    @strawberry.field(description="What this operation costs, and what is left of the viewer's hour.")
    def rate_limit(self, info: Info) -> RateLimit:
        return RateLimit.of(info.context.charge or unlimited(info.context.now()))

    @strawberry.field(description="What serves here, and what it allows. Everybody who is signed in may know it.")
    async def server_info(self, info: Info) -> ServerInfo:
        return ServerInfo(
            version=version("forgefront"),
            rest_versions=["v3"],
            schema_hash=await asyncio.to_thread(schema_hash),
            max_cost=ROWS,
            max_depth=DEPTH,
            max_page_size=LARGEST_PAGE,
        )

"""What many values come to."""

import strawberry


@strawberry.type(
    description="What many values come to: seconds, or per cent for a coverage. A quantile is the smallest of the values that at least so"
    " many per cent of them do not exceed (nearest rank). Without a value all but `count` is null."
)
class Quantiles:
    count: int = strawberry.field(description="How many values there are.")
    mean: float | None = strawberry.field(description="Their sum, divided by their number.")
    p50: float | None = strawberry.field(description="The median.")
    p90: float | None = strawberry.field(description="What nine of ten do not exceed.")
    p95: float | None = strawberry.field(description="What nineteen of twenty do not exceed.")
    max: float | None = strawberry.field(description="The largest.")

"""Summaries of numeric values."""

import strawberry


@strawberry.type(
    description="Distribution of values: seconds, or percent for coverage. Quantiles use the nearest-rank method. If there are no values,"
    " all fields except `count` are null."
)
class Quantiles:
    count: int = strawberry.field(description="Number of values.")
    mean: float | None = strawberry.field(description="Arithmetic mean.")
    p50: float | None = strawberry.field(description="Median.")
    p90: float | None = strawberry.field(description="90th percentile.")
    p95: float | None = strawberry.field(description="95th percentile.")
    max: float | None = strawberry.field(description="Maximum.")

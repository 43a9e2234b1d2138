"""Time buckets of statistics."""

from typing import Annotated

import strawberry

from storage.tables import buckets

TimeBucket = strawberry.enum(
    buckets.TimeBucket,
    name="TimeBucket",
    description="A calendar period in a time zone: a clock hour (an hour that is repeated when clocks go back counts as two), a day from"
    " midnight (23 or 25 hours when clocks change), a week from Monday, or a month. The end of the period is exclusive.",
)
TimezoneArgument = Annotated[
    str | None,
    strawberry.argument(description="Time zone of the buckets, as an IANA name such as `Europe/Helsinki`; `UTC` if null."),
]

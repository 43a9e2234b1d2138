"""How time is cut for statistics."""

from typing import Annotated

import strawberry

from storage.tables import buckets

TimeBucket = strawberry.enum(
    buckets.TimeBucket,
    name="TimeBucket",
    description="A span of the calendar of a time zone: an hour of the clock (where clocks are put back, the hour that comes twice is two),"
    " a day from midnight on (of 23 or 25 hours where clocks change), a week from Monday on, or a month; each up to before the next.",
)
Timezone = Annotated[
    str | None,
    strawberry.argument(description="The time zone of the buckets, by its IANA name, as `Europe/Helsinki`; `UTC` when null."),
]

"""Fields common to all subscription events."""

from datetime import datetime
from typing import Any

import strawberry

from graph.live.change_log import LoggedChange

END_OF_PROJECTS = "The subscription ends with `NOT_FOUND` or `FORBIDDEN` when the viewer can follow none of them any more."
PROJECTS_ARGUMENT = strawberry.argument(
    description=f"Full paths or v3 IDs of at most 50 projects; default: all projects visible to the viewer. {END_OF_PROJECTS}"
)
AFTER_SEQ_ARGUMENT = strawberry.argument(
    description="Resume after this `seq`; missed events are sent first. If some of them were deleted because they are old, the"
    " subscription ends with `BAD_REQUEST`."
)


def as_change(event: Any) -> LoggedChange:
    """The change record behind an event; events are created from change records."""
    return event  # type: ignore[no-any-return]


@strawberry.type
class LiveEvent:
    @strawberry.field(description="Sequence number, increasing over time; accepted by `afterSeq`.")
    def seq(self) -> str:
        return str(as_change(self).seq)

    @strawberry.field(description="When the event occurred.")
    def at(self) -> datetime:
        return as_change(self).at

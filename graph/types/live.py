"""What all that can be followed has in common."""

from datetime import datetime
from typing import Any

import strawberry

from graph.settled import Change

PROJECTS = strawberry.argument(description="Full paths, or v3 ids, of at most 50 projects; by default all that are seen.")
AFTER_SEQ = strawberry.argument(description="To resume: the last `seq` seen. What has happened since comes first.")


def change_of(event: Any) -> Change:
    """An event is made of the row that says what has changed."""
    return event  # type: ignore[no-any-return]


@strawberry.type
class LiveEvent:
    @strawberry.field(description="Its sequence number, which grows with time; what `afterSeq` takes.")
    def seq(self) -> str:
        return str(change_of(self).seq)

    @strawberry.field(description="When.")
    def at(self) -> datetime:
        return change_of(self).at

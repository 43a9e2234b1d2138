"""Filters of builds, and the statuses they name."""

from typing import Any, ClassVar

import strawberry
from sqlmodel import col

from graph.fields.declarations import sets_only
from graph.types.inputs import DateTimeRange, range_conditions
from storage import tables
from storage.analytics.build_statistics import BuildSelection
from storage.tables import CheckStatus, row_counts
from storage.tables.builds import builds as statements
from storage.tables.issues import issues as issue_statements

BuildStatus = strawberry.enum(CheckStatus, name="BuildStatus", description="Status of a build or of a commit status.")


@strawberry.input(description="Filters builds; all specified fields must match.")
class BuildFilter:
    status: list[BuildStatus] | None = strawberry.field(  # type: ignore[valid-type]
        description="Status is one of these; `scope` in v3.", default=None
    )
    name: list[str] | None = strawberry.field(description="Job name is one of these.", default=None)
    stage: list[str] | None = strawberry.field(description="Stage is one of these.", default=None)
    ref: list[str | None] | None = strawberry.field(
        description="Branch or tag is one of these; a null item means the default branch of the project.", default=None
    )
    latest_attempt_only: bool = strawberry.field(
        description="If true, exclude superseded attempts. The attempts of one build are in its `attempts`.", default=True
    )
    unplayed: bool = strawberry.field(description="If false, exclude builds with the status `MANUAL`.", default=True)
    created: DateTimeRange | None = strawberry.field(description="Created in this time range.", default=None)
    finished: DateTimeRange | None = strawberry.field(description="Finished in this time range.", default=None)
    author_username: list[str] | None = strawberry.field(description="Created by one of these users, for example by a push.", default=None)

    list_attributes: ClassVar[tuple[str, ...]] = ("name", "stage", "ref")
    username_attributes: ClassVar[tuple[str, ...]] = ("author_username",)

    def conditions(self) -> list[Any]:
        row = tables.Build
        among: list[tuple[Any, Any]] = [(row.status, self.status), (row.name, self.name), (row.stage, self.stage)]
        found: list[Any] = [col(key).in_(values) for key, values in among if values is not None]
        if self.ref is not None:
            found.append(statements.has_ref(self.ref))
        if self.author_username is not None:
            found.append(col(row.user_id).in_(issue_statements.ids_of_users(self.author_username)))
        found += range_conditions((row.created_at, self.created), (row.finished_at, self.finished))
        if not self.unplayed:
            found.append(statements.is_check())
        return [*found, statements.is_current()] if self.latest_attempt_only else found

    def counters(self) -> list[Any] | None:
        """The same conditions on the counters of builds; None if they do not give the number of matching builds."""
        if not sets_only(self, ["status", "unplayed"]):
            return None
        checks = [] if self.unplayed else [col(tables.RowCount.state) != tables.CheckStatus.MANUAL]
        return [*row_counts.has_state(self.status), *checks]

    def selection(self) -> BuildSelection:
        """The same for the columnar copy of builds, which never has builds with the status `MANUAL`."""
        created, finished = self.created, self.finished
        return BuildSelection(
            statuses=[str(status) for status in self.status] if self.status is not None else None,
            names=self.name,
            stages=self.stage,
            refs=self.ref,
            latest_attempt_only=self.latest_attempt_only,
            created=(created.since, created.until) if created is not None else (None, None),
            finished=(finished.since, finished.until) if finished is not None else (None, None),
            author_usernames=self.author_username,
        )

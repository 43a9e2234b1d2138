"""Threads of the review of merge requests."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.rules.merge_requests import review_threads, thread_lines
from graph.rules.notes import system_notes
from graph.rules.permissions.policy import Action, can
from graph.types.accounts.users import User
from graph.types.notes import Note
from storage import tables
from storage.tables.merge_requests import review_threads as statements

if TYPE_CHECKING:
    from graph.types.merge_requests.merge_requests import MergeRequest
    from graph.types.projects.projects import Project


@strawberry.type(description="A line of the current diff of a merge request.")
class DiffLine:
    old_path: str = column(description="Path of the file before the change.")
    new_path: str = column(description="Path of the file after the change.")
    old_line: int | None = column(description="Line number before the change; null for an added line.")
    new_line: int | None = column(description="Line number after the change; null for a removed line.")


@strawberry.type(description="A line of the diff that a merge request had when a thread began.")
class DiffPosition:
    base_oid: str | None = column(description="Merge base that the diff began at; null for unrelated histories.")
    start_oid: str | None = column(description="Head of the target branch at that time; null if there was none.")
    head_oid: str = column(description="Head of the source branch that the diff ended at.")
    old_path: str = column(description="Path of the file before the change.")
    new_path: str = column(description="Path of the file after the change.")
    old_line: int | None = column(description="Line number before the change; null for an added line.")
    new_line: int | None = column(description="Line number after the change; null for a removed line.")


@strawberry.type(description="Actions the viewer is allowed to perform on a thread.")
class ReviewThreadAbilities:
    reply: bool = strawberry.field(description="Reply to it.")
    resolve: bool = strawberry.field(description="Resolve it, and open it again.")


@strawberry.input(description="Filters threads; all specified fields must match.")
class ReviewThreadFilter:
    is_resolved: bool | None = strawberry.field(description="Whether they are resolved.", default=None)

    def conditions(self) -> list[Any]:
        resolved_at = col(tables.ReviewThread.resolved_at)
        if self.is_resolved is None:
            return []
        return [resolved_at.is_not(None) if self.is_resolved else resolved_at.is_(None)]


def _as_row(thread: Any) -> tables.ReviewThread:
    return thread  # type: ignore[no-any-return]


@entity(
    tables.ReviewThread,
    description="A thread of the review of a merge request: a note, on a line of the diff or on the whole merge request, and the replies.",
    project_key="project_id",
    action=Action.READ_MERGE_REQUEST,
)
class ReviewThread(Node):
    database_id: int = column(tables.ReviewThread.id, description="Database ID; not exposed by v3.")
    created_at: datetime = column(description="When it began.")
    resolved_at: datetime | None = column(description="When it was resolved; null while it is not.")
    author: User = to_one(tables.ReviewThread.author_id, description="User who started it.")
    resolved_by: User | None = to_one(
        tables.ReviewThread.resolved_by_id, description="User who resolved it; null if it is not resolved or the account was deleted."
    )
    merge_request: Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests.merge_requests")] = to_one(
        tables.ReviewThread.merge_request_id, description="Merge request it belongs to."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.ReviewThread.project_id, description="Project it belongs to."
    )
    excerpt: str | None = column(
        description="Lines of the diff up to the commented one, as a hunk of a unified diff; null for a thread on the whole merge request."
    )
    notes: Connection[Note] = to_many(
        tables.Note.thread_id,
        order_by=Order(tables.Note.id),
        action=Action.READ_NOTE,
        viewer_conditions=lambda arguments, viewer: system_notes.visible_conditions(viewer),
        description="Its notes, oldest first.",
    )

    @computed(tables.ReviewThread.resolved_at, description="Whether it is resolved.")
    def is_resolved(self) -> bool:
        return _as_row(self).resolved_at is not None

    @strawberry.field(description="Line on which it began; null if it is on the whole merge request.")
    def position(self) -> DiffPosition | None:
        return self if _as_row(self).head_oid is not None else None  # type: ignore[return-value]

    @strawberry.field(
        description="Where the line is in the current diff. Null if it was changed or removed, so that the thread is outdated, or if the"
        " thread is on the whole merge request; and, with an error, if the repository cannot be read."
    )
    async def current_line(self, info: Info) -> DiffLine | None:
        return await thread_lines.load_current_line(info.context, _as_row(self))  # type: ignore[return-value]

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> ReviewThreadAbilities:
        context, row = info.context, _as_row(self)
        return ReviewThreadAbilities(
            reply=await can(context, Action.CREATE_NOTE, row), resolve=await review_threads.can_resolve(context, row)
        )


@strawberry.type
class MergeRequestThreadFields:
    """Fields of a merge request about its threads."""

    threads: Connection[ReviewThread] = to_many(
        tables.ReviewThread.merge_request_id,
        order_by=Order(tables.ReviewThread.id),
        filter=ReviewThreadFilter,
        action=Action.READ_NOTE,
        description="Threads of its review, oldest first. Their notes are among `notes` too.",
    )

    @strawberry.field(description="Number of threads that are not resolved.")
    async def unresolved_thread_count(self, info: Info) -> int:
        context = info.context

        async def fetch(ids: list[int]) -> dict[int, int]:
            return dict(map(tuple, await context.tuples(statements.unresolved_counts(ids))))

        return await context.loader("unresolved threads", fetch).get(self.id) or 0  # type: ignore[attr-defined]

"""The activity log of a project."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, connection_field, make_window, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules import web_urls
from graph.rules.events import activities
from graph.rules.permissions.policy import Action, require
from graph.types.accounts.users import User
from graph.types.notes import Note
from storage import tables
from storage.git.refs.ref_names import NULL_ID
from storage.tables import ActivityAction, ActivitySubject

if TYPE_CHECKING:
    from graph.types.projects.projects import Project

ActivityActionEnum = strawberry.enum(ActivityAction, name="ActivityAction", description="What the author of an activity did.")
ActivitySubjectEnum = strawberry.enum(ActivitySubject, name="ActivitySubject", description="What an activity was done to.")

V3_ACTIONS = {ActivityAction.COMMENTED: "commented on", ActivityAction.REOPENED: "opened"}
"""Names of actions in v3 that differ from their own; v3 has no word for reopening."""
V3_TYPES = {
    ActivitySubject.ISSUE: "Issue",
    ActivitySubject.MERGE_REQUEST: "MergeRequest",
    ActivitySubject.MILESTONE: "Milestone",
    ActivitySubject.ISSUE_NOTE: "Note",
    ActivitySubject.MERGE_REQUEST_NOTE: "Note",
    ActivitySubject.COMMIT_COMMENT: "Note",
}
"""Names of the types of targets in v3."""
TARGET_COLUMNS = (tables.Activity.subject, tables.Activity.target_id)


@strawberry.type(description="Author of a pushed commit, as recorded in the commit.")
class ActivityCommitAuthor:
    name: str = strawberry.field(description="Name.")
    email: str = strawberry.field(description="E-mail address.")


@strawberry.type(description="Commit of a push.")
class ActivityCommit:
    oid: strawberry.ID = strawberry.field(description="Full ID.")
    message: str = strawberry.field(description="Message, at most 1,000 characters.")
    committed_at: datetime = strawberry.field(description="Commit date, with the UTC offset that the commit records.")
    author: ActivityCommitAuthor = strawberry.field(description="Author.")


@strawberry.type(description="Push of a branch or a tag.")
class ActivityPush:
    ref: str = strawberry.field(description="Full name, such as `refs/heads/master`.")
    before: str = strawberry.field(description="Commit or annotated tag before the push; forty zeros for a new ref.")
    after: str = strawberry.field(description="Commit or annotated tag after the push; forty zeros for a deleted ref.")
    total_commits_count: int = strawberry.field(description="Number of new commits of a branch.")
    commits: list[ActivityCommit] = strawberry.field(description="Newest commits, at most twenty, the oldest first.")


@entity(
    tables.Activity,
    description="Activity in a project: who did what.",
    unrestricted="Each subject needs a permission of its own, which `nodes` and the list of a project check.",
    filter_nodes=activities.filter_visible,
)
class Activity(Node):
    action: ActivityActionEnum = column(description="What the author did.")  # type: ignore[valid-type]
    subject: ActivitySubjectEnum = column(description="What it was done to.")  # type: ignore[valid-type]
    project_id: int = column(description="v3 ID of the project.")
    author: User = to_one(tables.Activity.author_id, description="User who did it; for a membership, the member.")
    author_id: int = column(description="v3 ID of the author.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Activity.project_id, description="Project in which it happened."
    )
    target_id: int | None = column(
        description="v3 ID of the issue, merge request, milestone, note or comment; null for pushes, members and the project itself."
    )
    created_at: datetime = column(description="When it happened.")

    @computed(tables.Activity.action, tables.Activity.push, description="What the author did, in the words of v3.")
    def action_name(self) -> str:
        row = _as_row(self)
        if row.push is None:
            return V3_ACTIONS.get(row.action, row.action.value)
        if row.push["after"] == NULL_ID:
            return "deleted"
        return "pushed new" if row.push["before"] == NULL_ID else "pushed to"

    @computed(tables.Activity.subject, description="v3 name of the type of the target, such as `Issue`; null without one.")
    def target_type(self) -> str | None:
        return V3_TYPES.get(_as_row(self).subject)

    @computed(
        *TARGET_COLUMNS,
        batch=lambda info, rows: _load_titles(info, rows),
        description="Title of the issue, merge request or milestone; null for others, and if it was deleted.",
    )
    async def target_title(self, info: Info) -> str | None:
        return (await _load_titles(info, [_as_row(self)]))[0]

    @computed(
        *TARGET_COLUMNS,
        batch=lambda info, rows: _load_notes(info, rows),
        description="Note on an issue or a merge request; null for other activities, and if it was deleted.",
    )
    async def note(self, info: Info) -> Note | None:
        return (await _load_notes(info, [_as_row(self)]))[0]  # type: ignore[return-value]

    @computed(
        *TARGET_COLUMNS,
        tables.Activity.project_id,
        batch=lambda info, rows: _load_urls(info, rows),
        description="URL of the page of the issue, merge request, milestone or commit, also for notes on it; null for others, and if the"
        " target was deleted.",
    )
    async def web_url(self, info: Info) -> str | None:
        return (await _load_urls(info, [_as_row(self)]))[0]

    @computed(tables.Activity.push, description="The push; null for other activities.")
    def push(self) -> ActivityPush | None:
        found = _as_row(self).push
        if found is None:
            return None
        commits = [
            ActivityCommit(
                oid=strawberry.ID(each["id"]),
                message=each["message"],
                committed_at=datetime.fromisoformat(each["timestamp"]),
                author=ActivityCommitAuthor(name=each["author_name"], email=each["author_email"]),
            )
            for each in found["commits"]
        ]
        return ActivityPush(**{**found, "commits": commits})


def _as_row(activity: Any) -> tables.Activity:
    return activity  # type: ignore[no-any-return]


async def _load_titles(info: Info, rows: Sequence[tables.Activity]) -> list[str | None]:
    return [getattr(target, "title", None) for target in await activities.load_targets(info.context, rows)]


async def _load_notes(info: Info, rows: Sequence[tables.Activity]) -> list[tables.Note | None]:
    targets = await activities.load_targets(info.context, rows)
    return [target if isinstance(target, tables.Note) else None for target in targets]


async def _load_urls(info: Info, rows: Sequence[tables.Activity]) -> list[str | None]:
    pages = await activities.load_pages(info.context, rows)
    urls = await web_urls.load_project_urls(info.context, [row.project_id for row in rows])
    return [page and f"{url}/{page}" for url, page in zip(urls, pages, strict=True)]


NEWEST_FIRST = Order(tables.Activity.id, descending=True)


async def _resolve_activities(root: Any, info: Info, **arguments: Any) -> Any:
    context, window = info.context, make_window(arguments)
    await require(context, Action.READ_PROJECT, root)

    async def fetch(ids: list[int]) -> dict[int, Any]:
        found = await context.rows_by_id(tables.Project).get_many(ids)
        condition = await activities.visible_conditions(context, [project for project in found.values() if project is not None])
        listing = KeysetListing(tables.Activity, NEWEST_FIRST, (condition,), tables.Activity.project_id)
        return await listing.pages(context, window, ids)

    return await context.loader(("activities", window), fetch).get(root.id)


@strawberry.type
class ProjectActivityFields:
    """Fields of a project about its activities."""

    activities: Connection[Activity] = connection_field(
        _resolve_activities, description="Activities that the viewer may see, newest first: pushes, issues, merge requests, notes, members."
    )

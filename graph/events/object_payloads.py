"""What happens inside a project, told to hooks whose switch is on, as `{object_kind, user, project, object_attributes}` (DECISIONS 30)."""

from dataclasses import asdict, dataclass
from inspect import isawaitable
from typing import Any, Self

from graph.context import Context
from graph.events.payloads import Event, dates, existing, full_path, instant
from graph.rules import accounts
from graph.rules.states import in_progress
from storage import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    name: str
    username: str
    avatar_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The project that it happened in."""

    id: int
    name: str
    description: str | None
    path_with_namespace: str
    visibility_level: int
    default_branch: str | None
    web_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent(Event):
    """`user` is who did it. A subclass adds `object_attributes`."""

    user: Person
    project: Place

    def body(self) -> dict[str, Any]:
        return {"object_kind": self.event_name, **asdict(self)}


async def person(context: Context, user: tables.User) -> Person:
    picture: Any = accounts.avatar_url(context, user)
    return Person(name=user.name, username=user.username, avatar_url=await picture if isawaitable(picture) else picture)


async def place(context: Context, project_id: int) -> Place:
    project: tables.Project = await existing(context, tables.Project, project_id)
    path = await full_path(context, project)
    return Place(
        id=project.id,
        name=project.name,
        description=project.description,
        path_with_namespace=path,
        visibility_level=project.visibility_level,
        default_branch=project.default_branch,
        web_url=f"{context.services.external_url}/{path}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueAttributes:
    id: int
    iid: int
    project_id: int
    title: str
    description: str | None
    state: str
    action: str
    author_id: int
    assignee_id: int | None
    milestone_id: int | None
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueChanged(ObjectEvent):
    """`action` is what was done: `open`, `update`, `close` or `reopen`."""

    event_name = "issue"
    switch = "issues_events"

    object_attributes: IssueAttributes

    @classmethod
    async def of(cls, context: Context, issue: tables.Issue, action: str = "update") -> Self:
        attributes = IssueAttributes(
            **dates(issue),
            id=issue.id,
            iid=issue.iid,
            project_id=issue.project_id,
            title=issue.title,
            description=issue.description,
            state=str(issue.state),
            action=action,
            author_id=issue.author_id,
            assignee_id=issue.assignee_id,
            milestone_id=issue.milestone_id,
        )
        user = await person(context, context.viewer)
        return cls(user=user, project=await place(context, issue.project_id), object_attributes=attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit:
    """The newest commit of a merge request."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequestAttributes:
    """`project_id` and `target_project_id` are the same; `source` is null when the fork that it came from is gone."""

    id: int
    iid: int
    project_id: int
    title: str
    description: str | None
    state: str
    action: str
    source_branch: str
    source_project_id: int
    source: Place | None
    target_branch: str
    target_project_id: int
    target: Place
    merge_status: str
    last_commit: LastCommit | None
    work_in_progress: bool
    merge_commit_sha: str | None
    url: str
    author_id: int
    assignee_id: int | None
    milestone_id: int | None
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequestChanged(ObjectEvent):
    """`action` is what was done: `open`, `update`, `close`, `reopen` or `merge`."""

    event_name = "merge_request"
    switch = "merge_requests_events"

    object_attributes: MergeRequestAttributes

    @classmethod
    async def of(cls, context: Context, merge_request: tables.MergeRequest, action: str = "update") -> Self:
        target = await place(context, merge_request.project_id)
        there = await context.rows_by_id(tables.Project).get(merge_request.source_project_id)
        attributes = MergeRequestAttributes(
            **dates(merge_request),
            id=merge_request.id,
            iid=merge_request.iid,
            project_id=merge_request.project_id,
            title=merge_request.title,
            description=merge_request.description,
            state=str(merge_request.state),
            action=action,
            source_branch=merge_request.source_branch,
            source_project_id=merge_request.source_project_id,
            source=await place(context, there.id) if there is not None else None,
            target_branch=merge_request.target_branch,
            target_project_id=merge_request.project_id,
            target=target,
            merge_status=str(merge_request.merge_status),
            last_commit=LastCommit(id=merge_request.head_oid) if merge_request.head_oid is not None else None,
            work_in_progress=in_progress(merge_request.title),
            merge_commit_sha=merge_request.merge_commit_oid,
            url=f"{target.web_url}/merge_requests/{merge_request.iid}",
            author_id=merge_request.author_id,
            assignee_id=merge_request.assignee_id,
            milestone_id=merge_request.milestone_id,
        )
        return cls(user=await person(context, context.viewer), project=target, object_attributes=attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteAttributes:
    """`noteable_type` is Issue, MergeRequest, Snippet or Commit; a commit has its `commit_id`, the others a `noteable_id`."""

    id: int
    note: str
    noteable_type: str
    noteable_id: int | None
    commit_id: str | None
    project_id: int
    author_id: int
    attachment: str | None
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteEvent(ObjectEvent):
    event_name = "note"
    switch = "note_events"

    object_attributes: NoteAttributes


NOTEABLES = {"Issue": "issue_id", "MergeRequest": "merge_request_id", "Snippet": "snippet_id"}


class NoteWritten(NoteEvent):
    """A note of a person's; those that the service itself writes are not told."""

    __slots__ = ()

    @classmethod
    async def of(cls, context: Context, note: tables.Note) -> Self:
        found = {kind: getattr(note, key, None) for kind, key in NOTEABLES.items()}
        kind, noteable_id = next((kind, key) for kind, key in found.items() if key is not None)
        attributes = NoteAttributes(
            **dates(note),
            id=note.id,
            note=note.body,
            noteable_type=kind,
            noteable_id=noteable_id,
            commit_id=None,
            project_id=note.project_id,
            author_id=note.author_id,
            attachment=note.attachment,
        )
        user = await person(context, context.viewer)
        return cls(user=user, project=await place(context, note.project_id), object_attributes=attributes)


class CommitCommented(NoteEvent):
    __slots__ = ()

    @classmethod
    async def of(cls, context: Context, comment: tables.CommitComment) -> Self:
        written = instant(comment.created_at)
        attributes = NoteAttributes(
            id=comment.id,
            note=comment.note,
            noteable_type="Commit",
            noteable_id=None,
            commit_id=comment.sha,
            project_id=comment.project_id,
            author_id=comment.author_id,
            attachment=None,
            created_at=written,
            updated_at=written,
        )
        user = await person(context, context.viewer)
        return cls(user=user, project=await place(context, comment.project_id), object_attributes=attributes)

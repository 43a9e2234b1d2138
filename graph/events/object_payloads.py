"""Payloads of project events, for hooks with the event's switch (docs/decisions.md 30).

Each is `{object_kind, user, project, object_attributes}`.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

from graph.context import Context
from graph.events import project_hook_payloads
from graph.events.payloads import EventPayload, format_timestamp, full_path, get_existing, timestamps_of
from graph.rules.states import is_work_in_progress
from storage import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonPayload:
    name: str
    username: str
    avatar_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPayload:
    """The project of the event."""

    id: int
    name: str
    description: str | None
    path_with_namespace: str
    visibility_level: int
    default_branch: str | None
    web_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEventPayload(EventPayload):
    """`user` is the user who caused the event. Subclasses add `object_attributes`."""

    user: PersonPayload
    project: ProjectPayload

    @classmethod
    def project_id_of(cls, *subjects: Any) -> int | None:
        subject = subjects[0]
        return subject.id if isinstance(subject, tables.Project) else subject.project_id

    def body(self) -> dict[str, Any]:
        return {"object_kind": self.event_name, **asdict(self)}


async def make_person_payload(context: Context, user: tables.User) -> PersonPayload:
    return PersonPayload(**await project_hook_payloads.person_attributes(context, user))


async def make_project_payload(context: Context, project_id: int) -> ProjectPayload:
    project: tables.Project = await get_existing(context, tables.Project, project_id)
    path = await full_path(context, project)
    return ProjectPayload(
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
class IssueChanged(ObjectEventPayload):
    """`action` is `open`, `update`, `close` or `reopen`."""

    event_name = "issue"
    switch = "issues_events"

    object_attributes: IssueAttributes

    project_hook_body = staticmethod(project_hook_payloads.issue_body)

    @classmethod
    async def of(cls, context: Context, issue: tables.Issue, action: str = "update") -> Self:
        attributes = IssueAttributes(
            **timestamps_of(issue),
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
        user = await make_person_payload(context, context.viewer)
        return cls(user=user, project=await make_project_payload(context, issue.project_id), object_attributes=attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit:
    """The head commit of a merge request."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequestAttributes:
    """`project_id` and `target_project_id` are the same; `source` is null if the source project was deleted."""

    id: int
    iid: int
    project_id: int
    title: str
    description: str | None
    state: str
    action: str
    source_branch: str
    source_project_id: int
    source: ProjectPayload | None
    target_branch: str
    target_project_id: int
    target: ProjectPayload
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
class MergeRequestChanged(ObjectEventPayload):
    """`action` is `open`, `update`, `close`, `reopen` or `merge`."""

    event_name = "merge_request"
    switch = "merge_requests_events"

    object_attributes: MergeRequestAttributes

    project_hook_body = staticmethod(project_hook_payloads.merge_request_body)

    @classmethod
    async def of(cls, context: Context, merge_request: tables.MergeRequest, action: str = "update") -> Self:
        target = await make_project_payload(context, merge_request.project_id)
        source_project = await context.rows_by_id(tables.Project).get(merge_request.source_project_id)
        attributes = MergeRequestAttributes(
            **timestamps_of(merge_request),
            id=merge_request.id,
            iid=merge_request.iid,
            project_id=merge_request.project_id,
            title=merge_request.title,
            description=merge_request.description,
            state=str(merge_request.state),
            action=action,
            source_branch=merge_request.source_branch,
            source_project_id=merge_request.source_project_id,
            source=await make_project_payload(context, source_project.id) if source_project is not None else None,
            target_branch=merge_request.target_branch,
            target_project_id=merge_request.project_id,
            target=target,
            merge_status=str(merge_request.merge_status),
            last_commit=LastCommit(id=merge_request.head_oid) if merge_request.head_oid is not None else None,
            work_in_progress=is_work_in_progress(merge_request.title),
            merge_commit_sha=merge_request.merge_commit_oid,
            url=f"{target.web_url}/merge_requests/{merge_request.iid}",
            author_id=merge_request.author_id,
            assignee_id=merge_request.assignee_id,
            milestone_id=merge_request.milestone_id,
        )
        return cls(user=await make_person_payload(context, context.viewer), project=target, object_attributes=attributes)


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
class NoteEventPayload(ObjectEventPayload):
    event_name = "note"
    switch = "note_events"

    object_attributes: NoteAttributes


NOTEABLE_KEYS = {"Issue": "issue_id", "MergeRequest": "merge_request_id", "Snippet": "snippet_id"}


class NoteWritten(NoteEventPayload):
    """A note that a user wrote; system notes cause no event."""

    __slots__ = ()

    project_hook_body = staticmethod(project_hook_payloads.note_body)

    @classmethod
    async def of(cls, context: Context, note: tables.Note) -> Self:
        noteable_ids = {kind: getattr(note, key, None) for kind, key in NOTEABLE_KEYS.items()}
        kind, noteable_id = next((kind, key) for kind, key in noteable_ids.items() if key is not None)
        attributes = NoteAttributes(
            **timestamps_of(note),
            id=note.id,
            note=note.body,
            noteable_type=kind,
            noteable_id=noteable_id,
            commit_id=None,
            project_id=note.project_id,
            author_id=note.author_id,
            attachment=note.attachment,
        )
        user = await make_person_payload(context, context.viewer)
        return cls(user=user, project=await make_project_payload(context, note.project_id), object_attributes=attributes)


class CommitCommented(NoteEventPayload):
    __slots__ = ()

    project_hook_body = staticmethod(project_hook_payloads.commit_comment_body)

    @classmethod
    async def of(cls, context: Context, comment: tables.CommitComment) -> Self:
        created_at = format_timestamp(comment.created_at)
        attributes = NoteAttributes(
            id=comment.id,
            note=comment.note,
            noteable_type="Commit",
            noteable_id=None,
            commit_id=comment.sha,
            project_id=comment.project_id,
            author_id=comment.author_id,
            attachment=None,
            created_at=created_at,
            updated_at=created_at,
        )
        user = await make_person_payload(context, context.viewer)
        return cls(user=user, project=await make_project_payload(context, comment.project_id), object_attributes=attributes)

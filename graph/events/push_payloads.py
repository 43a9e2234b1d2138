"""Payloads of pushes of branches and tags, sent to hooks with the event's switch (docs/decisions.md 30)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from graph.context import Context
from graph.events.object_payloads import ObjectEventPayload, make_person_payload, make_project_payload
from graph.events.project_hook_payloads import MAX_COMMITS, MAX_MESSAGE_CHARACTERS, push_body
from storage import tables
from storage.git.commits import GitCommit

if TYPE_CHECKING:
    # A circular import otherwise: payloads use rules, and rules publish events.
    from graph.rules.git.commit_index import RefUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedCommitAuthor:
    """The author as recorded in the commit."""

    name: str
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedCommit:
    """`timestamp` is the commit date, with the UTC offset that the commit records."""

    id: str
    message: str
    timestamp: str
    url: str
    author: PushedCommitAuthor


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAttributes:
    """`ref` is the full name, such as `refs/heads/master`.

    `before` and `after` are ids of commits or annotated tags, forty zeros for none. `commits` are the newest of `total_commits_count`, at
    most twenty, the oldest first.
    """

    before: str
    after: str
    ref: str
    commits: list[PushedCommit]
    total_commits_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEventPayload(ObjectEventPayload):
    object_attributes: PushAttributes

    @classmethod
    async def project_hook_body(cls, *arguments: Any) -> dict[str, Any]:
        context, *subjects = arguments
        return await push_body(context, cls.event_name, *subjects)

    @classmethod
    async def of(cls, context: Context, project: tables.Project, ref_update: "RefUpdate") -> Self:
        project_payload = await make_project_payload(context, project.id)
        attributes = PushAttributes(
            **ref_update.update.describe(),
            commits=[_make_commit(commit, project_payload.web_url) for commit in reversed(ref_update.commits[:MAX_COMMITS])],
            total_commits_count=ref_update.total,
        )
        return cls(user=await make_person_payload(context, context.viewer), project=project_payload, object_attributes=attributes)


class BranchPushed(PushEventPayload):
    """A branch was created, moved or deleted, by a push or otherwise."""

    __slots__ = ()
    event_name = "push"
    switch = "push_events"


class TagPushed(PushEventPayload):
    """A tag was created, moved or deleted; the payload has no commits."""

    __slots__ = ()
    event_name = "tag_push"
    switch = "tag_push_events"


def _make_commit(commit: GitCommit, web_url: str) -> PushedCommit:
    return PushedCommit(
        id=commit.oid,
        message=commit.message[:MAX_MESSAGE_CHARACTERS],
        timestamp=commit.committed_at.isoformat(timespec="seconds"),
        url=f"{web_url}/commit/{commit.oid}",
        author=PushedCommitAuthor(name=commit.author_name, email=commit.author_email),
    )

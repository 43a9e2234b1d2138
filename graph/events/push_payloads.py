"""Payloads of pushes of branches and tags, sent to hooks with the event's switch (docs/decisions.md 30)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from graph.context import Context
from graph.events.object_payloads import ObjectEventPayload, make_person_payload, make_project_payload
from graph.events.project_hook_payloads import MAX_COMMITS, commit_attributes, push_body
from storage import tables

if TYPE_CHECKING:
    # A circular import otherwise: payloads use rules, and rules publish events.
    from graph.rules.git.commit_index import RefUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAttributes:
    """`ref` is the full name, such as `refs/heads/master`.

    `before` and `after` are ids of commits or annotated tags, forty zeros for none. `commits` are the newest of `total_commits_count`, at
    most twenty, the oldest first, as `commit_attributes` describes them.
    """

    before: str
    after: str
    ref: str
    commits: list[dict[str, Any]]
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
            commits=[commit_attributes(commit, project_payload.web_url) for commit in reversed(ref_update.commits[:MAX_COMMITS])],
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

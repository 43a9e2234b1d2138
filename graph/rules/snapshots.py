"""Snapshots of rows before a change, with which system notes, hook events and live events compare the changed rows.

A column that nothing reports is in NOT_IN_SNAPSHOT with the reason; a test fails for a column that is in neither. Other objects are
not compared: a note, a member or a key is reported when it is created or deleted, and a push is reported by its refs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from storage import tables
from storage.tables import CheckStatus, IssueState, MergeRequestState, MergeStatus


@dataclass(frozen=True, slots=True)
class IssuableSnapshot:
    """What system notes and hooks report of an issue or a merge request, except its labels.

    `issues.set_labels` returns whether it changed the labels, because comparing them would take a statement more.
    """

    state: IssueState | MergeRequestState
    title: str
    description: str | None
    assignee_id: int | None
    milestone_id: int | None

    def differs_beside_description(self, current: Self) -> bool:
        """Whether anything but the description differs."""
        return (self.state, self.title, self.assignee_id, self.milestone_id) != (
            current.state,
            current.title,
            current.assignee_id,
            current.milestone_id,
        )

    def hook_action(self, current: Self) -> str:
        """The `action` of the hook event for the change from this snapshot to the current one."""
        if current.state == self.state:
            return "update"
        return "close" if current.state in (IssueState.CLOSED, MergeRequestState.CLOSED) else "reopen"


@dataclass(frozen=True, slots=True)
class IssueSnapshot(IssuableSnapshot):
    state: IssueState
    target_branch: ClassVar[None] = None

    @classmethod
    def of(cls, row: tables.Issue) -> "IssueSnapshot":
        return cls(row.state, row.title, row.description, row.assignee_id, row.milestone_id)


@dataclass(frozen=True, slots=True)
class MergeRequestSnapshot(IssuableSnapshot):
    """Also what a list of merge requests shows, for live events."""

    state: MergeRequestState
    target_branch: str
    head_oid: str | None
    has_conflicts: bool
    merge_when_build_succeeds: bool

    @classmethod
    def of(cls, row: tables.MergeRequest) -> "MergeRequestSnapshot":
        has_conflicts = row.merge_status is MergeStatus.CANNOT_BE_MERGED and row.commit_count != 0
        return cls(
            row.state,
            row.title,
            row.description,
            row.assignee_id,
            row.milestone_id,
            row.target_branch,
            row.head_oid,
            has_conflicts,
            row.merge_when_build_succeeds,
        )


@dataclass(frozen=True, slots=True)
class BuildSnapshot:
    """What live events report of a build."""

    status: CheckStatus

    @classmethod
    def of(cls, row: tables.Build) -> "BuildSnapshot":
        return cls(row.status)


@dataclass(frozen=True, slots=True)
class ProjectSnapshot:
    """What hooks report of a project that is not moved to another group."""

    name: str
    path: str

    @classmethod
    def of(cls, row: tables.Project) -> "ProjectSnapshot":
        return cls(row.name, row.path)


SNAPSHOTS: Mapping[type, type] = {
    tables.Issue: IssueSnapshot,
    tables.MergeRequest: MergeRequestSnapshot,
    tables.Build: BuildSnapshot,
    tables.Project: ProjectSnapshot,
}

_FIXED = "set when the row is created"
_TOUCHED = "changes with every change of the row"
_BY_STATE = "changes only with the state"
NOT_IN_SNAPSHOT: Mapping[type, Mapping[str, str]] = {
    tables.Issue: {
        _FIXED: "id project_id iid author_id created_at",
        _TOUCHED: "updated_at",
        _BY_STATE: "closed_at",
    },
    tables.MergeRequest: {
        _FIXED: "id project_id source_project_id source_branch iid author_id created_at",
        _TOUCHED: "updated_at",
        _BY_STATE: "closed_at merged_at merge_commit_oid",
        "changes only with the branches; a move of the head is reported": "base_oid commit_count files additions deletions",
        "`has_conflicts` is what is reported of it, not whether the branches were compared": "merge_status",
        "changes only with `merge_when_build_succeeds` and the state": "merge_params merge_user_id",
    },
    tables.Build: {
        _FIXED: "id project_id pipeline_id sha ref tag name stage stage_index allow_failure run_when user_id commands options tags",
        _TOUCHED: "updated_at",
        "changes only with the status": "attempt current_id created_at started_at finished_at runner_id token_digest sealed_token"
        " sealed_variables",
        "for the queue of runners": "queue lease_until",
        "grows while the build runs; clients read what was appended": "trace_size trace_start trace_generation sealed_trace_end",
        "`buildChanged` reports the status, not details": "coverage description target_url erased_at erased_by_id artifacts_expired_at",
    },
    tables.Project: {
        _FIXED: "id forked_from_id creator_id created_at",
        _TOUCHED: "updated_at last_activity_at",
        "changes only with the path": "path_key",
        "a transfer is an event of its own": "namespace_id",
        "pushes report the refs": "refs_version unborn_branch",
        "system hooks report renames, not settings": "description visibility_level default_branch issues_enabled merge_requests_enabled"
        " builds_enabled wiki_enabled snippets_enabled shared_runners_enabled public_builds archived avatar_url tag_list",
    },
}
"""For each table the columns that nothing reports, by the reason, separated by spaces."""

"""Every lawful change of state, as tables: (state, event) → next state. An event that a state does not list changes nothing."""

from enum import StrEnum

from storage.tables import CheckStatus, IssueState, MergeRequestState, MilestoneState, UserState
from storage.tables.commit_statuses import FINISHED


class IssueEvent(StrEnum):
    CLOSE = "close"
    REOPEN = "reopen"


ISSUE: dict[tuple[IssueState, IssueEvent], IssueState] = {
    (IssueState.OPENED, IssueEvent.CLOSE): IssueState.CLOSED,
    (IssueState.CLOSED, IssueEvent.REOPEN): IssueState.OPENED,
}


class MergeRequestEvent(StrEnum):
    """Merging is no change of this table: it is the accept rule, which moves branches too."""

    CLOSE = "close"
    REOPEN = "reopen"


MERGE_REQUEST: dict[tuple[MergeRequestState, MergeRequestEvent], MergeRequestState] = {
    (MergeRequestState.OPENED, MergeRequestEvent.CLOSE): MergeRequestState.CLOSED,
    (MergeRequestState.REOPENED, MergeRequestEvent.CLOSE): MergeRequestState.CLOSED,
    (MergeRequestState.CLOSED, MergeRequestEvent.REOPEN): MergeRequestState.REOPENED,
}


class MilestoneEvent(StrEnum):
    CLOSE = "close"
    ACTIVATE = "activate"


MILESTONE: dict[tuple[MilestoneState, MilestoneEvent], MilestoneState] = {
    (MilestoneState.ACTIVE, MilestoneEvent.CLOSE): MilestoneState.CLOSED,
    (MilestoneState.CLOSED, MilestoneEvent.ACTIVATE): MilestoneState.ACTIVE,
}


class UserEvent(StrEnum):
    BLOCK = "block"
    UNBLOCK = "unblock"


USER: dict[tuple[UserState, UserEvent], UserState] = {
    (UserState.ACTIVE, UserEvent.BLOCK): UserState.BLOCKED,
    (UserState.BLOCKED, UserEvent.UNBLOCK): UserState.ACTIVE,
}


class BuildAction(StrEnum):
    """Erasing is no change of this table: it takes the trace and the artifact away, and the status stays."""

    RUN = "run"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    RETRY = "retry"


BUILD: dict[tuple[CheckStatus, BuildAction], CheckStatus] = {
    (CheckStatus.PENDING, BuildAction.RUN): CheckStatus.RUNNING,
    (CheckStatus.PENDING, BuildAction.SUCCEED): CheckStatus.SUCCESS,
    (CheckStatus.RUNNING, BuildAction.SUCCEED): CheckStatus.SUCCESS,
    (CheckStatus.PENDING, BuildAction.FAIL): CheckStatus.FAILED,
    (CheckStatus.RUNNING, BuildAction.FAIL): CheckStatus.FAILED,
    (CheckStatus.PENDING, BuildAction.CANCEL): CheckStatus.CANCELED,
    (CheckStatus.RUNNING, BuildAction.CANCEL): CheckStatus.CANCELED,
    **{(status, BuildAction.RETRY): CheckStatus.PENDING for status in FINISHED},
}

BECOMING: dict[CheckStatus, BuildAction] = {
    CheckStatus.RUNNING: BuildAction.RUN,
    CheckStatus.SUCCESS: BuildAction.SUCCEED,
    CheckStatus.FAILED: BuildAction.FAIL,
    CheckStatus.CANCELED: BuildAction.CANCEL,
    CheckStatus.PENDING: BuildAction.RETRY,
}
"""By what a build comes to each status."""


def in_progress(title: str) -> bool:
    """Whether a merge request's title marks it as work in progress (wire facts 5.3)."""
    start = title[:5].upper().removeprefix("[")
    return start.startswith(("WIP:", "WIP ", "WIP]"))

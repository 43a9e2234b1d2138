"""Every allowed state transition, as tables: (state, event) → next state.

An event not listed for a state changes nothing.
"""

from enum import StrEnum

from storage.tables import CheckStatus, IssueState, MergeRequestState, MilestoneState, UserState
from storage.tables.builds.commit_statuses import FINISHED


class IssueTransition(StrEnum):
    CLOSE = "close"
    REOPEN = "reopen"


ISSUE_TRANSITIONS: dict[tuple[IssueState, IssueTransition], IssueState] = {
    (IssueState.OPENED, IssueTransition.CLOSE): IssueState.CLOSED,
    (IssueState.CLOSED, IssueTransition.REOPEN): IssueState.OPENED,
}


class MergeRequestTransition(StrEnum):
    """Merging is not a transition of this table; the accept rule performs it and updates branches."""

    CLOSE = "close"
    REOPEN = "reopen"


MERGE_REQUEST_TRANSITIONS: dict[tuple[MergeRequestState, MergeRequestTransition], MergeRequestState] = {
    (MergeRequestState.OPENED, MergeRequestTransition.CLOSE): MergeRequestState.CLOSED,
    (MergeRequestState.REOPENED, MergeRequestTransition.CLOSE): MergeRequestState.CLOSED,
    (MergeRequestState.CLOSED, MergeRequestTransition.REOPEN): MergeRequestState.REOPENED,
}


class MilestoneTransition(StrEnum):
    CLOSE = "close"
    ACTIVATE = "activate"


MILESTONE_TRANSITIONS: dict[tuple[MilestoneState, MilestoneTransition], MilestoneState] = {
    (MilestoneState.ACTIVE, MilestoneTransition.CLOSE): MilestoneState.CLOSED,
    (MilestoneState.CLOSED, MilestoneTransition.ACTIVATE): MilestoneState.ACTIVE,
}


class UserTransition(StrEnum):
    BLOCK = "block"
    UNBLOCK = "unblock"


USER_TRANSITIONS: dict[tuple[UserState, UserTransition], UserState] = {
    (UserState.ACTIVE, UserTransition.BLOCK): UserState.BLOCKED,
    (UserState.BLOCKED, UserTransition.UNBLOCK): UserState.ACTIVE,
}


class BuildTransition(StrEnum):
    """Erasing is not a transition of this table: it does not change the status."""

    RUN = "run"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    RETRY = "retry"
    PLAY = "play"


BUILD_TRANSITIONS: dict[tuple[CheckStatus, BuildTransition], CheckStatus] = {
    (CheckStatus.PENDING, BuildTransition.RUN): CheckStatus.RUNNING,
    (CheckStatus.PENDING, BuildTransition.SUCCEED): CheckStatus.SUCCESS,
    (CheckStatus.RUNNING, BuildTransition.SUCCEED): CheckStatus.SUCCESS,
    (CheckStatus.PENDING, BuildTransition.FAIL): CheckStatus.FAILED,
    (CheckStatus.RUNNING, BuildTransition.FAIL): CheckStatus.FAILED,
    (CheckStatus.PENDING, BuildTransition.CANCEL): CheckStatus.CANCELED,
    (CheckStatus.RUNNING, BuildTransition.CANCEL): CheckStatus.CANCELED,
    **{(status, BuildTransition.RETRY): CheckStatus.PENDING for status in FINISHED},
    (CheckStatus.MANUAL, BuildTransition.PLAY): CheckStatus.PENDING,
}

TRANSITION_TO_STATUS: dict[CheckStatus, BuildTransition] = {
    CheckStatus.RUNNING: BuildTransition.RUN,
    CheckStatus.SUCCESS: BuildTransition.SUCCEED,
    CheckStatus.FAILED: BuildTransition.FAIL,
    CheckStatus.CANCELED: BuildTransition.CANCEL,
    CheckStatus.PENDING: BuildTransition.RETRY,
}
"""The transition that leads to each status that can be reported; nothing leads to MANUAL."""


def is_work_in_progress(title: str) -> bool:
    """Whether a merge request's title marks it as work in progress (docs/wire-facts.md 5.3)."""
    start = title[:5].upper().removeprefix("[")
    return start.startswith(("WIP:", "WIP ", "WIP]"))

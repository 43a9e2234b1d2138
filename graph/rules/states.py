"""Every lawful change of state, as tables: (state, event) → next state. An event that a state does not list changes nothing."""

from enum import StrEnum

from storage.tables import IssueState, MergeRequestState, MilestoneState, UserState


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


def in_progress(title: str) -> bool:
    """Whether a merge request's title marks it as work in progress (wire facts 5.3)."""
    start = title[:5].upper().removeprefix("[")
    return start.startswith(("WIP:", "WIP ", "WIP]"))

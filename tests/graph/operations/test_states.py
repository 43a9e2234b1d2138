"""State machines: each pair of a state and an event, allowed or not, through the graph."""

from typing import Any

import pytest

from graph.rules import states
from graph.rules.states import BuildTransition, IssueTransition, MergeRequestTransition, MilestoneTransition, UserTransition
from storage import tables
from storage.tables import CheckStatus, IssueState, MergeRequestState, MilestoneState, UserState
from tests.make import DataFactory
from tests.support.api_clients import Ask


def pairs(kinds: Any, events: Any, table: Any) -> list[Any]:
    return [pytest.param(state, event, table.get((state, event), state), id=f"{state}-{event}") for state in kinds for event in events]


@pytest.mark.parametrize(("state", "event", "following"), pairs(IssueState, IssueTransition, states.ISSUE_TRANSITIONS))
async def test_issue(ask: Ask, make: DataFactory, state: IssueState, event: IssueTransition, following: IssueState) -> None:
    project = await make.project(owner=(owner := await make.user()))
    issue = await make.issue(project, state=state)
    query = "mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { issue { state closedAt } userErrors { code } } }"

    named = {"projectPath": str(project.id), "databaseId": issue.id, "stateEvent": event.name}
    shown = (await ask.data(query, owner, input=named))["updateIssue"]["issue"]

    assert shown["state"] == following.name
    assert (shown["closedAt"] is not None) is (following is IssueState.CLOSED)


@pytest.mark.parametrize(
    ("state", "event", "following"), pairs(MergeRequestState, MergeRequestTransition, states.MERGE_REQUEST_TRANSITIONS)
)
async def test_merge_request(
    ask: Ask, make: DataFactory, state: MergeRequestState, event: MergeRequestTransition, following: MergeRequestState
) -> None:
    project = await make.project(owner=(owner := await make.user()))
    row = await make.merge_request(project, state=state)
    query = """mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { mergeRequest { state closedAt }
        userErrors { code } } }"""

    named = {"projectPath": str(project.id), "databaseId": row.id, "stateEvent": event.name}
    shown = (await ask.data(query, owner, input=named))["updateMergeRequest"]["mergeRequest"]

    assert shown["state"] == following.name
    assert (shown["closedAt"] is not None) is (following is MergeRequestState.CLOSED)


@pytest.mark.parametrize(("state", "event", "following"), pairs(MilestoneState, MilestoneTransition, states.MILESTONE_TRANSITIONS))
async def test_milestone(ask: Ask, make: DataFactory, state: MilestoneState, event: MilestoneTransition, following: MilestoneState) -> None:
    project = await make.project(owner=(owner := await make.user()))
    milestone = await make.milestone(project, state=state)
    query = "mutation ($input: UpdateMilestoneInput!) { updateMilestone(input: $input) { milestone { state } userErrors { code } } }"

    named = {"projectPath": str(project.id), "databaseId": milestone.id, "stateEvent": event.name}

    assert (await ask.data(query, owner, input=named))["updateMilestone"]["milestone"] == {"state": following.name}


@pytest.mark.parametrize(("state", "event", "following"), pairs(UserState, UserTransition, states.USER_TRANSITIONS))
async def test_user(ask: Ask, make: DataFactory, state: UserState, event: UserTransition, following: UserState) -> None:
    user, admin = await make.user(state=state), await make.admin()
    query = f"mutation ($id: Int!) {{ {event}User(input: {{databaseId: $id}}) {{ user {{ state }} userErrors {{ code }} }} }}"

    payload = (await ask.data(query, admin, id=user.id))[f"{event}User"]

    is_allowed = (state, event) in states.USER_TRANSITIONS
    assert (payload["user"] is not None) is is_allowed
    stored = await make.fetch(tables.User, user.id)
    assert stored is not None
    assert stored.state is following


@pytest.mark.parametrize(("status", "action", "following"), pairs(CheckStatus, BuildTransition, states.BUILD_TRANSITIONS))
async def test_build(ask: Ask, make: DataFactory, status: CheckStatus, action: BuildTransition, following: CheckStatus) -> None:
    """Cancel and retry are mutations of their own; how it goes on is said by `updateBuild`, and only what follows is taken."""
    project = await make.project(owner=(owner := await make.user()))
    build = await make.build(project, "f" * 40, status=status)
    named: dict[str, Any] = {"projectPath": str(project.id), "databaseId": build.id}
    if action in (BuildTransition.CANCEL, BuildTransition.RETRY, BuildTransition.PLAY):
        query = f"mutation ($input: BuildInput!) {{ {action}Build(input: $input) {{ build {{ status }} userErrors {{ code }} }} }}"
    else:
        query = "mutation ($input: UpdateBuildInput!) { updateBuild(input: $input) { build { status } userErrors { code } } }"
        named["status"] = next(to for to, by in states.TRANSITION_TO_STATUS.items() if by is action).name

    codes = await ask.codes(query, owner, input=named)

    requested = named.get("status")
    if (status, action) in states.BUILD_TRANSITIONS or requested == status.name or action is BuildTransition.CANCEL:
        assert codes == []
    else:
        assert codes == ["FORBIDDEN" if action in (BuildTransition.RETRY, BuildTransition.PLAY) else "NOT_ALLOWED"]
    stored = await make.fetch(tables.Build, build.id)
    assert stored is not None
    assert stored.status is following

"""Changes of state: each pair of a state and an event, lawful or not, through the graph."""

from typing import Any

import pytest

from graph.rules import states
from graph.rules.states import BuildAction, IssueEvent, MergeRequestEvent, MilestoneEvent, UserEvent
from storage import tables
from storage.tables import CheckStatus, IssueState, MergeRequestState, MilestoneState, UserState
from tests.forge import Ask
from tests.make import Make


def pairs(kinds: Any, events: Any, table: Any) -> list[Any]:
    return [pytest.param(state, event, table.get((state, event), state), id=f"{state}-{event}") for state in kinds for event in events]


@pytest.mark.parametrize(("state", "event", "following"), pairs(IssueState, IssueEvent, states.ISSUE))
async def test_issue(ask: Ask, make: Make, state: IssueState, event: IssueEvent, following: IssueState) -> None:
    project = await make.project(owner=(owner := await make.user()))
    issue = await make.issue(project, state=state)
    query = "mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { issue { state closedAt } userErrors { code } } }"

    named = {"projectPath": str(project.id), "databaseId": issue.id, "stateEvent": event.name}
    shown = (await ask.data(query, owner, input=named))["updateIssue"]["issue"]

    assert shown["state"] == following.name
    assert (shown["closedAt"] is not None) is (following is IssueState.CLOSED)


@pytest.mark.parametrize(("state", "event", "following"), pairs(MergeRequestState, MergeRequestEvent, states.MERGE_REQUEST))
async def test_merge_request(
    ask: Ask, make: Make, state: MergeRequestState, event: MergeRequestEvent, following: MergeRequestState
) -> None:
    project = await make.project(owner=(owner := await make.user()))
    row = await make.merge_request(project, state=state)
    query = """mutation ($input: UpdateMergeRequestInput!) { updateMergeRequest(input: $input) { mergeRequest { state closedAt }
        userErrors { code } } }"""

    named = {"projectPath": str(project.id), "databaseId": row.id, "stateEvent": event.name}
    shown = (await ask.data(query, owner, input=named))["updateMergeRequest"]["mergeRequest"]

    assert shown["state"] == following.name
    assert (shown["closedAt"] is not None) is (following is MergeRequestState.CLOSED)


@pytest.mark.parametrize(("state", "event", "following"), pairs(MilestoneState, MilestoneEvent, states.MILESTONE))
async def test_milestone(ask: Ask, make: Make, state: MilestoneState, event: MilestoneEvent, following: MilestoneState) -> None:
    project = await make.project(owner=(owner := await make.user()))
    milestone = await make.milestone(project, state=state)
    query = "mutation ($input: UpdateMilestoneInput!) { updateMilestone(input: $input) { milestone { state } userErrors { code } } }"

    named = {"projectPath": str(project.id), "databaseId": milestone.id, "stateEvent": event.name}

    assert (await ask.data(query, owner, input=named))["updateMilestone"]["milestone"] == {"state": following.name}


@pytest.mark.parametrize(("state", "event", "following"), pairs(UserState, UserEvent, states.USER))
async def test_user(ask: Ask, make: Make, state: UserState, event: UserEvent, following: UserState) -> None:
    user, admin = await make.user(state=state), await make.admin()
    query = f"mutation ($id: Int!) {{ {event}User(input: {{databaseId: $id}}) {{ user {{ state }} userErrors {{ code }} }} }}"

    payload = (await ask.data(query, admin, id=user.id))[f"{event}User"]

    lawful = (state, event) in states.USER
    assert (payload["user"] is not None) is lawful
    kept = await make.fetch(tables.User, user.id)
    assert kept is not None
    assert kept.state is following


@pytest.mark.parametrize(("status", "action", "following"), pairs(CheckStatus, BuildAction, states.BUILD))
async def test_build(ask: Ask, make: Make, status: CheckStatus, action: BuildAction, following: CheckStatus) -> None:
    """Cancel and retry are mutations of their own; how it goes on is said by `updateBuild`, and only what follows is taken."""
    project = await make.project(owner=(owner := await make.user()))
    build = await make.build(project, "f" * 40, status=status)
    named: dict[str, Any] = {"projectPath": str(project.id), "databaseId": build.id}
    if action in (BuildAction.CANCEL, BuildAction.RETRY):
        query = f"mutation ($input: BuildInput!) {{ {action}Build(input: $input) {{ build {{ status }} userErrors {{ code }} }} }}"
    else:
        query = "mutation ($input: UpdateBuildInput!) { updateBuild(input: $input) { build { status } userErrors { code } } }"
        named["status"] = next(to for to, by in states.BECOMING.items() if by is action).name

    codes = await ask.codes(query, owner, input=named)

    asked = named.get("status")
    if (status, action) in states.BUILD or asked == status.name or action is BuildAction.CANCEL:
        assert codes == []
    else:
        assert codes == ["FORBIDDEN" if action is BuildAction.RETRY else "NOT_ALLOWED"]
    kept = await make.fetch(tables.Build, build.id)
    assert kept is not None
    assert kept.status is following

"""Issues through the graph."""

from tests.forge import Ask
from tests.make import Make
from tests.statements import Statements

CREATE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { iid labels } userErrors { field message code } } }"
LIST = """query ($path: String!, $first: Int) { project(path: $path) { issues(first: $first) { totalCount
    nodes { iid title labels author { username } assignee { username } milestone { title } } pageInfo { hasNextPage endCursor } } } }"""


class TestListIssues:
    async def test_costs_the_same_statements_for_one_issue_and_for_thirty(self, ask: Ask, make: Make, statements: Statements) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label, milestone = await make.label(project), await make.milestone(project)
        for _ in range(30):
            await make.issue(project, author=await make.user(), assignee_id=owner.id, milestone_id=milestone.id, labels=[label])

        with statements.counted() as one:
            await ask.data(LIST, owner, path=str(project.id), first=1)
        with statements.counted() as thirty:
            data = await ask.data(LIST, owner, path=str(project.id), first=30)

        assert len(data["project"]["issues"]["nodes"]) == 30
        assert len(thirty) <= len(one)

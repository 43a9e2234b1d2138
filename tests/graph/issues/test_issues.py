"""Issues through the graph."""

from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.statements import StatementRecorder

CREATE = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { iid labels } userErrors { field message code } } }"
LIST = """query ($path: String!, $first: Int) { project(path: $path) { issues(first: $first) { totalCount
    nodes { iid title labels author { username } assignee { username } milestone { title } } pageInfo { hasNextPage endCursor } } } }"""


class TestListIssues:
    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        label, milestone = await make.label(project), await make.milestone(project)
        for _ in range(30):
            await make.issue(project, author=await make.user(), assignee_id=owner.id, milestone_id=milestone.id, labels=[label])

        with statements.record() as one:
            await ask.data(LIST, owner, path=str(project.id), first=1)
        with statements.record() as thirty:
            data = await ask.data(LIST, owner, path=str(project.id), first=30)

        assert len(data["project"]["issues"]["nodes"]) == 30
        assert len(thirty) <= len(one)

"""What the answer of a changed issue shows of other rows: read with the issue, and again only where the change sets something else."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from storage.tables import Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

UPDATE = """mutation ($input: UpdateIssueInput!) { updateIssue(input: $input) { issue {
  title labels author { username state } assignee { username } milestone { title state dueDate createdAt }
} userErrors { code } } }"""
READ = """query ($project: String!, $issue: Int!) { project(path: $project) { issue(databaseId: $issue) {
  title labels author { username state } assignee { username } milestone { title state dueDate createdAt } } } }"""


class Change:
    """Changes an issue that has an author, an assignee, a milestone and two labels."""

    def __init__(self, ask: Ask, make: DataFactory) -> None:
        self._ask, self._make = ask, make

    async def prepare(self) -> "Change":
        make = self._make
        self.owner, self.author, self.assignee, self.other = [await make.user() for _ in range(4)]
        self.project = await make.project(owner=self.owner, visibility=Visibility.PUBLIC)
        self.milestone, self.other_milestone = [await make.milestone(self.project) for _ in range(2)]
        related = {"assignee_id": self.assignee.id, "milestone_id": self.milestone.id}
        labels = [await make.label(self.project, title) for title in ("ux", "bug")]
        self.issue = await make.issue(self.project, author=self.author, labels=labels, **related)
        return self

    async def send(self, **values: Any) -> Any:
        key = {"projectPath": str(self.project.id), "databaseId": self.issue.id}
        return (await self._ask.data(UPDATE, self.owner, input={**key, **values}))["updateIssue"]["issue"]

    async def read(self) -> Any:
        found = await self._ask.data(READ, self.owner, project=str(self.project.id), issue=self.issue.id)
        return found["project"]["issue"]


@pytest.fixture
async def change(planned_ask: Ask, make: DataFactory) -> Change:
    return await Change(planned_ask, make).prepare()


class TestRelatedRows:
    async def test_are_read_with_the_issue(self, change: Change, statements: StatementRecorder) -> None:
        for number in range(2):
            with statements.record() as recorded:
                answer = await change.send(title=f"Title {number}")
            assert answer == await change.read()
        assert answer["labels"] == ["bug", "ux"]
        assert (answer["author"]["username"], answer["assignee"]["username"]) == (change.author.username, change.assignee.username)
        assert answer["milestone"]["title"] == change.milestone.title
        assert [sql.startswith("SELECT projects.") for sql in recorded if "JOIN labels" in sql or "JOIN users" in sql] == [True], recorded

    async def test_that_the_change_sets_are_the_new_ones(self, change: Change) -> None:
        changes: list[dict[str, Any]] = [
            {"assigneeId": change.other.id},
            {"milestoneId": change.other_milestone.id},
            {"labels": ["new"]},
            {"assigneeId": None, "milestoneId": None, "labels": []},
        ]
        for each in changes:
            with capture_logs() as lines:
                answer = await change.send(**each)
            assert answer == await change.read(), each
            # Without a plan that failed, and was replaced by graphql-core.
            assert lines == []
        assert (answer["assignee"], answer["milestone"], answer["labels"]) == (None, None, [])

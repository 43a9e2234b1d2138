"""The demo's open merge requests, each on its own branch."""

from datetime import datetime
from typing import Any, Protocol

from forgefront.demo.demo_content import MERGE_REQUESTS, MergeRequestContent
from storage.git.commit_writer import CommitSignature, write_commit
from storage.git.repositories import Repositories
from storage.git.repository import Repository


class DemoBuilderProtocol(Protocol):
    """Access to the demo that is being built."""

    def clock(self) -> datetime:
        """The time of the next event."""

    async def run_mutation(self, by: str, operation: str, **values: Any) -> Any:
        """Runs a mutation as a user: `await run_mutation("dev", "CreateIssue", title=…)`."""

    def username_of(self, author: str | int) -> str:
        """The username for an account's name, or for the number of an author."""

    async def user_id(self, username: str) -> int: ...

    def fill_placeholders(self, text: str) -> str:
        """The string with the names of the project, its branch and its newest commit filled in."""


async def create_merge_requests(builder: DemoBuilderProtocol, repositories: Repositories, project_id: int, branch: str) -> int:
    """Opens the merge requests of `MERGE_REQUESTS`; returns the v3 id of the first."""
    merge_request_ids = [await _create_merge_request(builder, repositories, project_id, branch, content) for content in MERGE_REQUESTS]
    return merge_request_ids[0]


async def _create_merge_request(
    builder: DemoBuilderProtocol, repositories: Repositories, project_id: int, branch: str, content: MergeRequestContent
) -> int:
    author, path = builder.username_of(content.author), str(project_id)
    signature = CommitSignature(author.title(), f"{author}@example.com", builder.clock())
    files = {name: builder.fill_placeholders(text).encode() for name, text in content.files.items()}

    def write(repository: Repository) -> str:
        return write_commit(repository, repository.resolve(branch), files, content.message, signature)

    oid = await repositories.read(project_id, write)
    await builder.run_mutation(author, "CreateBranch", projectPath=path, name=content.branch, ref=oid)
    created: dict[str, Any] = await builder.run_mutation(
        author,
        "CreateMergeRequest",
        projectPath=path,
        sourceBranch=content.branch,
        targetBranch=branch,
        title=content.title,
        description=builder.fill_placeholders(content.description),
        assigneeId=await builder.user_id(content.assignee) if content.assignee else None,
        labels=list(content.labels),
    )
    for commenter, body in content.notes:
        await builder.run_mutation(
            builder.username_of(commenter), "CreateMergeRequestNote", projectPath=path, mergeRequestDatabaseId=created["id"], body=body
        )
    return int(created["id"])

"""The demo's merge requests: open ones, on branches that are made for them."""

from datetime import datetime
from typing import Any, Protocol

from forgefront.demo_content import PROPOSED, Proposed
from storage.git.merge import Signature
from storage.git.repositories import Repositories
from storage.git.repository import Repository
from storage.git.writing import write_commit


class Teller(Protocol):
    """What is known of the demo so far, and how more is told."""

    def clock(self) -> datetime:
        """When it happens."""

    async def do(self, by: str, operation: str, **values: Any) -> Any:
        """Runs a mutation as a user: `await do("dev", "CreateIssue", title=…)`."""

    def who(self, who: str | int) -> str:
        """The username that is meant by a name, or by the number of an author."""

    async def user_id(self, username: str) -> int: ...

    def filled(self, text: str) -> str:
        """The text with the names of the project, its branch and its newest commit in it."""


async def propose(teller: Teller, repositories: Repositories, project_id: int, branch: str) -> int:
    """Opens the merge requests of `PROPOSED`; gives the v3 id of the first."""
    made = [await _propose(teller, repositories, project_id, branch, proposed) for proposed in PROPOSED]
    return made[0]


async def _propose(teller: Teller, repositories: Repositories, project_id: int, branch: str, proposed: Proposed) -> int:
    author, path = teller.who(proposed.author), str(project_id)
    signature = Signature(author.title(), f"{author}@example.com", teller.clock())
    files = {name: teller.filled(content).encode() for name, content in proposed.files.items()}

    def write(repository: Repository) -> str:
        return write_commit(repository, repository.resolve(branch), files, proposed.message, signature)

    oid = await repositories.read(project_id, write)
    await teller.do(author, "CreateBranch", projectPath=path, name=proposed.branch, ref=oid)
    made: dict[str, Any] = await teller.do(
        author,
        "CreateMergeRequest",
        projectPath=path,
        sourceBranch=proposed.branch,
        targetBranch=branch,
        title=proposed.title,
        description=teller.filled(proposed.description),
        assigneeId=await teller.user_id(proposed.assignee) if proposed.assignee else None,
        labels=list(proposed.labels),
    )
    for who, body in proposed.notes:
        await teller.do(teller.who(who), "CreateMergeRequestNote", projectPath=path, mergeRequestDatabaseId=made["id"], body=body)
    return int(made["id"])

"""Fills an empty data folder with a demo: a real history, its authors, and issues, merge requests and builds around it.

Everything is created through the graph, by the users concerned.
"""

import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from forgefront.backend import Backend
from forgefront.data_folder.data_folder_claim import FolderNotEmpty
from forgefront.demo import demo_content as content
from forgefront.demo.commit_authors import CommitAuthor, group_authors
from forgefront.demo.demo_builds import create_builds
from forgefront.demo.demo_content import IssueContent
from forgefront.demo.demo_history import DemoClock
from forgefront.demo.demo_merge_requests import create_merge_requests
from forgefront.demo.demo_pipeline import push_pipeline
from forgefront.local_client import LocalClient, OperationRejected
from graph.artifact_access import ArtifactAccess
from graph.errors import UserError
from graph.rules import validation
from graph.rules.accounts import accounts
from graph.rules.merge_requests import merge_request_imports
from storage.git.authors import list_authors
from storage.git.importing.repository_import import ProgressCallback
from storage.git.repository import Repository

OPERATIONS_FILE = Path(__file__).with_suffix(".graphql")
ROLES = {
    "root": "administrator",
    "dev": "master of the project, owner of the group demo",
    "reporter": "reporter of the project",
    "outsider": "member of nothing",
}
GROUP = "demo"
MAX_MEMBERS = 8
"""Number of the most active authors who are developers of the project, and so write issues."""
MAX_ISSUES_CLOSED_BY_COMMITS = 5
MAX_DIFFS = 10
"""Number of diffs that are searched for a line to comment on."""
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")


@dataclass(frozen=True, slots=True)
class DemoAccount:
    role: str
    token: str


@dataclass(slots=True)
class Demo:
    """The result. `password` is that of all four accounts."""

    password: str
    accounts: dict[str, DemoAccount] = field(default_factory=dict)
    group_id: int = 0
    project_id: int = 0
    project_path: str = ""
    other_project_id: int = 0
    private_project_id: int = 0
    snippet_id: int = 0
    merge_request_id: int = 0
    build_id: int = 0
    scratch_build_id: int = 0
    pipeline_project_id: int = 0
    runner_token: str = ""
    repository_path: str = ""
    external_url: str = ""

    def as_json(self) -> dict[str, Any]:
        found = {
            "admin_token": self.accounts["root"].token,
            "user_token": self.accounts["dev"].token,
            "reporter_token": self.accounts["reporter"].token,
            "outsider_token": self.accounts["outsider"].token,
            "password": self.password,
            "group_id": self.group_id,
            "project_id": self.project_id,
            "project_path": self.project_path,
            "other_project_id": self.other_project_id,
            "private_project_id": self.private_project_id,
            "snippet_id": self.snippet_id,
            "merge_request_id": self.merge_request_id,
            "build_id": self.build_id,
            "scratch_build_id": self.scratch_build_id,
            "pipeline_project_id": self.pipeline_project_id,
            "runner_token": self.runner_token,
            "repository_path": self.repository_path,
        }
        return {**found, "external_url": self.external_url} if self.external_url else found


@dataclass(slots=True)
class DemoBuilder:
    """Builds the demo with a started backend whose clock is `clock`."""

    backend: Backend
    clock: DemoClock
    repository: Path | None
    name: str
    report_progress: ProgressCallback
    _client: LocalClient = field(init=False)
    _members: list[str] = field(init=False, default_factory=list)
    _newest_commit: dict[str, Any] = field(init=False, default_factory=dict)
    _branch: str = field(init=False, default="master")
    _issue_numbers: dict[str, int] = field(init=False, default_factory=dict)

    async def build(self) -> Demo:
        """Raises FolderNotEmpty for a database with users, OperationRejected for what the graph refuses."""
        self._client = LocalClient(self.backend.graph, OPERATIONS_FILE)
        if (await self._client.run("Users"))["totalCount"]:
            raise FolderNotEmpty("the database already has users; empty it or name another one. Nothing was changed")
        demo = Demo(secrets.token_urlsafe(12), external_url=self.backend.config.external_url)
        await self._create_accounts(demo)
        authors = await self._create_authors()
        demo.group_id = (await self.run_mutation("dev", "CreateGroup", name="Demo", path=GROUP, description="Everything of the demo."))[
            "id"
        ]
        project = await self._create_project(demo)
        await self._add_members(project, authors)
        await self._create_planning(project)
        demo.snippet_id = await self._create_snippet(project)
        demo.merge_request_id = await self._create_merge_requests(demo)
        await self._create_builds(demo)
        await self._create_other_projects(demo)
        await self._create_pipeline(demo)
        demo.repository_path = str(self.backend.repositories.path_of(demo.project_id))
        return demo

    async def run_mutation(self, by: str | None, operation: str, **values: Any) -> Any:
        """Runs a mutation with these input fields, and advances the clock a little."""
        self.clock.advance(timedelta(minutes=7))
        return await self._client.run(operation, by=by, input={key: value for key, value in values.items() if value is not None})

    async def _create_accounts(self, demo: Demo) -> None:
        ids = {}
        for username, role in ROLES.items():
            created = await self.run_mutation(
                None,
                "CreateUser",
                username=username,
                name=username.title(),
                email=f"{username}@example.com",
                password=demo.password,
                admin=True if username == "root" else None,
                confirm=False,
            )
            ids[username] = created["id"]
            demo.accounts[username] = DemoAccount(role, (await self._client.run("Token", by=username))["token"])
        profile = {
            "bio": "Looks after the demo.",
            "messenger": "dev.example",
            "professionalProfile": "dev-example",
            "microblog": "@dev_example",
            "websiteUrl": "https://dev.example.com",
            "provider": "ldapmain",
            "externUid": "uid=dev,ou=people,dc=example,dc=com",
            "twoFactorEnabled": True,
            "themeId": 3,
            "colorSchemeId": 2,
            "currentSignInAt": self.clock().isoformat(),
        }
        await self.run_mutation(None, "UpdateUser", databaseId=ids["dev"], **profile)

    async def _create_authors(self) -> list[CommitAuthor]:
        """Creates a user for every author; returns them, the most active first."""
        if self.repository is None:
            return []
        reserved_addresses = {f"{username}@example.com" for username in ROLES}

        def is_valid_address(address: str) -> bool:
            try:
                return address not in reserved_addresses and bool(accounts.validate_email("email", address))
            except UserError:
                return False

        authors_found = group_authors(list_authors(Repository.open(self.repository)), [*ROLES, GROUP], is_valid_address)
        for number, person in enumerate(authors_found, 1):
            first, *other_emails = person.emails or [f"{person.username}@unknown.example.com"]
            values = {"username": person.username, "name": person.name, "email": first, "confirm": False}
            user = await self._client.run("CreateUser", input=values)
            for address in other_emails:
                await self._client.run("AddEmail", user_id=user["id"], email=address)
            if number % 20 == 0 or number == len(authors_found):
                self.report_progress("users", number, len(authors_found))
        return sorted(authors_found, key=lambda person: -person.commits)

    async def _create_project(self, demo: Demo) -> str:
        created = await self.run_mutation(
            None,
            "CreateProject",
            name=self.name,
            path=self.name,
            groupPath=GROUP,
            repositoryPath=str(self.repository.absolute()) if self.repository else None,
            visibility="PRIVATE",
            description="The history that this demo was filled from." if self.repository else "An empty project.",
            tagList=["demo"],
        )
        demo.project_id, demo.project_path = created["id"], created["path"]
        self._branch = created["branch"] or "master"
        return demo.project_path

    async def _add_members(self, project: str, authors: list[CommitAuthor]) -> None:
        self._members = [person.username for person in authors[:MAX_MEMBERS]]
        levels = {"dev": "MASTER", "reporter": "REPORTER", **dict.fromkeys(self._members, "DEVELOPER")}
        for username, level in levels.items():
            await self.run_mutation("dev", "AddProjectMember", projectPath=project, username=username, accessLevel=level)

    async def _create_planning(self, project: str) -> None:
        for name, color in content.LABELS.items():
            await self.run_mutation("dev", "CreateLabel", projectPath=project, name=name, color=color)
        due = (self.clock() + 2 * content.HISTORY_SPAN).date().isoformat()
        milestone = await self.run_mutation(
            "dev", "CreateMilestone", projectPath=project, title=content.MILESTONE, description=content.MILESTONE_TEXT, dueDate=due
        )
        commits = ((await self._client.run("Commits", by="dev", path=project))["commits"] or {"nodes": []})["nodes"]
        self._newest_commit = commits[0] if commits else {}
        single_parent_commits = [commit for commit in commits if len(commit["parents"]) == 1 and commit["title"].strip()]
        step = content.HISTORY_SPAN / (len(content.ISSUES) + MAX_ISSUES_CLOSED_BY_COMMITS + 1)
        for commit in reversed(single_parent_commits[:MAX_ISSUES_CLOSED_BY_COMMITS]):
            self.clock.advance(step)
            await self._create_issue_closed_by(project, commit)
        for issue in content.ISSUES:
            self.clock.advance(step)
            await self._create_issue(project, issue, milestone["id"])
        await self._create_comments(project, commits, single_parent_commits)

    async def _create_issue(self, project: str, content: IssueContent, milestone_id: int | None = None) -> None:
        author = self.username_of(content.author)
        created = await self.run_mutation(
            author,
            "CreateIssue",
            projectPath=project,
            title=content.title,
            description=self.fill_placeholders(content.description),
            labels=list(content.labels) or None,
        )
        if content.placeholder:
            self._issue_numbers[content.placeholder] = created["iid"]
        changes = {"assigneeId": await self._user_id_of(content.assignee), "milestoneId": milestone_id if content.has_milestone else None}
        if any(changes.values()):
            # A separate update, so that the service adds system notes about assignment and milestone.
            await self.run_mutation("dev", "UpdateIssue", projectPath=project, databaseId=created["id"], **changes)
        for commenter, body in content.notes:
            await self._create_note(project, created["id"], commenter, body)
        if content.is_closed:
            await self._client.run("CloseIssue", by=author, project=project, id=created["id"])

    async def _create_issue_closed_by(self, project: str, commit: dict[str, Any]) -> None:
        """An issue that a commit has closed."""
        author = (commit["author"] or {}).get("username")
        writer = author if author in self._members else "dev"
        _, _, body = _replace_unstorable(commit["message"]).partition("\n")
        title = _replace_unstorable(commit["title"])[: validation.MAX_NAME_LENGTH]
        created = await self.run_mutation(
            "reporter", "CreateIssue", projectPath=project, title=title, description=body.strip()[:10_000] or None
        )
        await self._create_note(project, created["id"], writer, content.CLOSING_NOTE.format(commit=commit["short_oid"]))
        await self._client.run("CloseIssue", by=writer, project=project, id=created["id"])

    async def _create_note(self, project: str, issue_id: int, author: str | int, body: str) -> None:
        self.clock.advance(timedelta(minutes=40))
        await self._client.run(
            "CreateNote", by=self.username_of(author), project=project, issue_id=issue_id, body=self.fill_placeholders(body)
        )

    async def _create_snippet(self, project: str) -> int:
        snippet = content.SNIPPET
        created = await self.run_mutation(
            "dev",
            "CreateSnippet",
            projectPath=project,
            title=snippet.title,
            fileName=snippet.file_name,
            content=self.fill_placeholders(snippet.content),
            visibility="PRIVATE",
        )
        for author, body in snippet.notes:
            await self.run_mutation(
                self.username_of(author), "CreateSnippetNote", projectPath=project, snippetDatabaseId=created["id"], body=body
            )
        snippet_id: int = created["id"]
        return snippet_id

    async def _create_merge_requests(self, demo: Demo) -> int:
        """Creates the merged merge requests of the history, and open ones on their own branches. Returns the first open one's id, or 0."""
        if self.repository is None or not self._newest_commit:
            return 0
        await self._client.run("ImportMergeRequests", path=demo.project_path)
        await merge_request_imports.run_pending(self.backend.graph.services)
        return await create_merge_requests(self, self.backend.repositories, demo.project_id, self._branch)

    async def _create_builds(self, demo: Demo) -> None:
        commits = ((await self._client.run("Commits", by="dev", path=demo.project_path))["commits"] or {"nodes": []})["nodes"]
        access = ArtifactAccess(self.backend.graph.services)
        created = await create_builds(self, access, demo.project_id, self._branch, [commit["oid"] for commit in commits])
        demo.build_id, demo.scratch_build_id = created.build_id, created.scratch_build_id

    async def _create_comments(self, project: str, commits: list[dict[str, Any]], single_parent_commits: list[dict[str, Any]]) -> None:
        for author, text in content.COMMENTS_ON_COMMIT if commits else ():
            await self.run_mutation(
                author, "CreateCommitComment", projectPath=project, rev=commits[0]["oid"], note=self.fill_placeholders(text)
            )
        for commit in single_parent_commits[:MAX_DIFFS]:
            diff = (await self._client.run("Diff", by="dev", path=project, rev=commit["oid"]))["commit"]["diff"] or []
            added_lines = ((entry["path"], first_added_line(entry["diff"])) for entry in diff)
            for path, line in added_lines:
                if line is not None:
                    position = {"path": path, "line": line, "lineType": "NEW"}
                    await self.run_mutation(
                        "reporter", "CreateCommitComment", projectPath=project, rev=commit["oid"], note=content.COMMENT_ON_LINE, **position
                    )
                    return

    async def _create_other_projects(self, demo: Demo) -> None:
        handbook = "handbook" if self.name.lower() != "handbook" else "guide"
        description = "What everybody may read."
        created = await self.run_mutation(
            "dev", "CreateProject", name=handbook, groupPath=GROUP, visibility="PUBLIC", description=description
        )
        demo.other_project_id = created["id"]
        for issue in content.OTHER_ISSUES:
            await self._create_issue(created["path"], issue)
        created = await self.run_mutation(
            "root", "CreateProject", name="vault", visibility="PRIVATE", description="For the administrator alone."
        )
        demo.private_project_id = created["id"]
        for issue in content.PRIVATE_ISSUES:
            await self._create_issue(created["path"], issue)

    async def _create_pipeline(self, demo: Demo) -> None:
        # Its builds run now, so it is created now.
        self.clock.advance(timedelta(days=365 * 100))
        pipeline = await push_pipeline(self, self.backend.repositories, GROUP)
        demo.pipeline_project_id, demo.runner_token = pipeline.project_id, pipeline.runner_token

    def username_of(self, author: str | int) -> str:
        if isinstance(author, str):
            return author
        return self._members[author % len(self._members)] if self._members else "dev"

    async def _user_id_of(self, author: str | int | None) -> int | None:
        return None if author is None else await self.user_id(self.username_of(author))

    async def user_id(self, username: str) -> int:
        found: int = (await self._client.run("UserId", username=username))["id"]
        return found

    def fill_placeholders(self, text: str) -> str:
        commit = self._newest_commit.get("short_oid", "the last commit")
        return text.format(name=self.name, branch=self._branch, commit=commit, **self._issue_numbers)


def _replace_unstorable(text: str) -> str:
    """The string without characters that the graph rejects; commits may contain any."""
    return validation.SURROGATE_PATTERN.sub("\ufffd", text.replace("\0", "\ufffd"))


def first_added_line(diff: str) -> int | None:
    """The number, in the new file, of the first line that a unified diff adds; None if it adds none."""
    number = 0
    for line in diff.splitlines():
        if match := _HUNK.match(line):
            number = int(match[1])
        elif number and line.startswith("+"):
            return number
        elif number and not line.startswith(("-", "\\")):
            number += 1
    return None


@dataclass(frozen=True, slots=True)
class ExistingDemo:
    """The demo that an earlier start created in the folder."""

    project_id: int


async def find_existing_demo(backend: Backend) -> ExistingDemo | None:
    """The demo in this folder; None if it contains something else."""
    try:
        group = await LocalClient(backend.graph, OPERATIONS_FILE).run("Kept", by="dev")
    except OperationRejected:
        return None
    nodes = group["projects"]["nodes"]
    return ExistingDemo(nodes[0]["id"]) if nodes else None

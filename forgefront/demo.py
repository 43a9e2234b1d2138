"""Fills an empty data folder with a forge to look at: a real history, the people who wrote it, and what stands around it.

Everything is done through the graph, as the users whom it is about.
"""

import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from forgefront import demo_content as content
from forgefront.demo_builds import build
from forgefront.demo_content import Written
from forgefront.demo_folder import NotEmpty
from forgefront.demo_history import Clock
from forgefront.demo_merge_requests import propose
from forgefront.demo_pipeline import push
from forgefront.engine import Engine
from forgefront.operator import Forge, Refused
from forgefront.people import Person, people
from graph.artifact_access import ArtifactAccess
from graph.errors import UserError
from graph.rules import accounts, merge_request_imports, naming
from storage.git.authors import authors
from storage.git.importing import Progress
from storage.git.repository import Repository

DOCUMENT = Path(__file__).with_suffix(".graphql")
ROLES = {
    "root": "administrator",
    "dev": "master of the project, owner of the group demo",
    "reporter": "reporter of the project",
    "outsider": "member of nothing",
}
GROUP = "demo"
MEMBERS = 8
"""How many of the busiest authors are developers of the project, and so write issues in it."""
CLOSED_BY_COMMITS = 5
DIFFS = 10
"""How many diffs are looked at to find a line to comment on."""
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")


@dataclass(frozen=True, slots=True)
class Account:
    role: str
    token: str


@dataclass(slots=True)
class Demo:
    """What was made. `password` is that of all four accounts."""

    password: str
    accounts: dict[str, Account] = field(default_factory=dict)
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
class Builder:
    """Builds the demo over a started engine whose clock is `clock`."""

    engine: Engine
    clock: Clock
    repository: Path | None
    name: str
    tell: Progress
    _forge: Forge = field(init=False)
    _members: list[str] = field(init=False, default_factory=list)
    _newest: dict[str, Any] = field(init=False, default_factory=dict)
    _branch: str = field(init=False, default="master")
    _numbers: dict[str, int] = field(init=False, default_factory=dict)

    async def build(self) -> Demo:
        """Raises NotEmpty for a database with users, Refused for what the graph refuses."""
        self._forge = Forge(self.engine.graph, DOCUMENT)
        if (await self._forge.run("Users"))["totalCount"]:
            raise NotEmpty("the database holds users already; empty it or name another one, nothing was changed")
        demo = Demo(secrets.token_urlsafe(12), external_url=self.engine.config.external_url)
        await self._accounts(demo)
        written_by = await self._authors()
        demo.group_id = (await self.do("dev", "CreateGroup", name="Demo", path=GROUP, description="Everything of the demo."))["id"]
        project = await self._project(demo)
        await self._join(project, written_by)
        await self._around(project)
        demo.snippet_id = await self._snippet(project)
        demo.merge_request_id = await self._merge_requests(demo)
        await self._builds(demo)
        await self._others(demo)
        await self._pipeline(demo)
        demo.repository_path = str(self.engine.repositories.path_of(demo.project_id))
        return demo

    async def do(self, by: str | None, operation: str, **values: Any) -> Any:
        """Runs a mutation with these input fields, and lets a little time pass."""
        self.clock.go_on(timedelta(minutes=7))
        return await self._forge.run(operation, by=by, input={key: value for key, value in values.items() if value is not None})

    async def _accounts(self, demo: Demo) -> None:
        ids = {}
        for username, role in ROLES.items():
            made = await self.do(
                None,
                "CreateUser",
                username=username,
                name=username.title(),
                email=f"{username}@example.com",
                password=demo.password,
                admin=True if username == "root" else None,
                confirm=False,
            )
            ids[username] = made["id"]
            demo.accounts[username] = Account(role, (await self._forge.run("Token", by=username))["token"])
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
        await self.do(None, "UpdateUser", databaseId=ids["dev"], **profile)

    async def _authors(self) -> list[Person]:
        """Makes a user of every author; gives them, the busiest first."""
        if self.repository is None:
            return []
        taken = {f"{username}@example.com" for username in ROLES}

        def lawful(address: str) -> bool:
            try:
                return address not in taken and bool(accounts.email("email", address))
            except UserError:
                return False

        found = people(authors(Repository.open(self.repository)), [*ROLES, GROUP], lawful)
        for number, person in enumerate(found, 1):
            first, *more = person.emails or [f"{person.username}@unknown.example.com"]
            values = {"username": person.username, "name": person.name, "email": first, "confirm": False}
            user = await self._forge.run("CreateUser", input=values)
            for address in more:
                await self._forge.run("AddEmail", user_id=user["id"], email=address)
            if number % 20 == 0 or number == len(found):
                self.tell("users", number, len(found))
        return sorted(found, key=lambda person: -person.commits)

    async def _project(self, demo: Demo) -> str:
        made = await self.do(
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
        demo.project_id, demo.project_path = made["id"], made["path"]
        self._branch = made["branch"] or "master"
        return demo.project_path

    async def _join(self, project: str, written_by: list[Person]) -> None:
        self._members = [person.username for person in written_by[:MEMBERS]]
        levels = {"dev": "MASTER", "reporter": "REPORTER", **dict.fromkeys(self._members, "DEVELOPER")}
        for username, level in levels.items():
            await self.do("dev", "AddProjectMember", projectPath=project, username=username, accessLevel=level)

    async def _around(self, project: str) -> None:
        for name, color in content.LABELS.items():
            await self.do("dev", "CreateLabel", projectPath=project, name=name, color=color)
        due = (self.clock() + 2 * content.WEEKS).date().isoformat()
        milestone = await self.do(
            "dev", "CreateMilestone", projectPath=project, title=content.MILESTONE, description=content.MILESTONE_TEXT, dueDate=due
        )
        commits = ((await self._forge.run("Commits", by="dev", path=project))["commits"] or {"nodes": []})["nodes"]
        self._newest = commits[0] if commits else {}
        plain = [commit for commit in commits if len(commit["parents"]) == 1 and commit["title"].strip()]
        step = content.WEEKS / (len(content.ISSUES) + CLOSED_BY_COMMITS + 1)
        for commit in reversed(plain[:CLOSED_BY_COMMITS]):
            self.clock.go_on(step)
            await self._issue_of(project, commit)
        for written in content.ISSUES:
            self.clock.go_on(step)
            await self._issue(project, written, milestone["id"])
        await self._comments(project, commits, plain)

    async def _issue(self, project: str, written: Written, milestone_id: int | None = None) -> None:
        author = self.who(written.author)
        made = await self.do(
            author,
            "CreateIssue",
            projectPath=project,
            title=written.title,
            description=self.filled(written.description),
            labels=list(written.labels) or None,
        )
        if written.known_as:
            self._numbers[written.known_as] = made["iid"]
        plans = {"assigneeId": await self._id_of(written.assignee), "milestoneId": milestone_id if written.planned else None}
        if any(plans.values()):
            # Afterwards, so that the service writes under the issue who was assigned and what was planned.
            await self.do("dev", "UpdateIssue", projectPath=project, databaseId=made["id"], **plans)
        for who, body in written.notes:
            await self._note(project, made["id"], who, body)
        if written.closed:
            await self._forge.run("CloseIssue", by=author, project=project, id=made["id"])

    async def _issue_of(self, project: str, commit: dict[str, Any]) -> None:
        """An issue that a commit has closed."""
        author = (commit["author"] or {}).get("username")
        writer = author if author in self._members else "dev"
        _, _, body = _storable(commit["message"]).partition("\n")
        title = _storable(commit["title"])[: naming.LONGEST_NAME]
        made = await self.do("reporter", "CreateIssue", projectPath=project, title=title, description=body.strip()[:10_000] or None)
        await self._note(project, made["id"], writer, content.DONE.format(commit=commit["short_oid"]))
        await self._forge.run("CloseIssue", by=writer, project=project, id=made["id"])

    async def _note(self, project: str, issue_id: int, who: str | int, body: str) -> None:
        self.clock.go_on(timedelta(minutes=40))
        await self._forge.run("CreateNote", by=self.who(who), project=project, issue_id=issue_id, body=self.filled(body))

    async def _snippet(self, project: str) -> int:
        written = content.SNIPPET
        made = await self.do(
            "dev",
            "CreateSnippet",
            projectPath=project,
            title=written.title,
            fileName=written.file_name,
            content=self.filled(written.content),
            visibility="PRIVATE",
        )
        for who, body in written.notes:
            await self.do(self.who(who), "CreateSnippetNote", projectPath=project, snippetDatabaseId=made["id"], body=body)
        snippet_id: int = made["id"]
        return snippet_id

    async def _merge_requests(self, demo: Demo) -> int:
        """Those that the history tells of, merged, and open ones on branches of their own; gives the first open one's id, or 0."""
        if self.repository is None or not self._newest:
            return 0
        await self._forge.run("ImportMergeRequests", path=demo.project_path)
        await merge_request_imports.run_pending(self.engine.graph.services)
        return await propose(self, self.engine.repositories, demo.project_id, self._branch)

    async def _builds(self, demo: Demo) -> None:
        commits = ((await self._forge.run("Commits", by="dev", path=demo.project_path))["commits"] or {"nodes": []})["nodes"]
        access = ArtifactAccess(self.engine.graph.services)
        built = await build(self, access, demo.project_id, self._branch, [commit["oid"] for commit in commits])
        demo.build_id, demo.scratch_build_id = built.build_id, built.scratch_build_id

    async def _comments(self, project: str, commits: list[dict[str, Any]], plain: list[dict[str, Any]]) -> None:
        for who, text in content.COMMENTS_ON_COMMIT if commits else ():
            await self.do(who, "CreateCommitComment", projectPath=project, rev=commits[0]["oid"], note=self.filled(text))
        for commit in plain[:DIFFS]:
            diff = (await self._forge.run("Diff", by="dev", path=project, rev=commit["oid"]))["commit"]["diff"] or []
            places = ((entry["path"], first_added_line(entry["diff"])) for entry in diff)
            for path, line in places:
                if line is not None:
                    place = {"path": path, "line": line, "lineType": "NEW"}
                    await self.do(
                        "reporter", "CreateCommitComment", projectPath=project, rev=commit["oid"], note=content.COMMENT_ON_LINE, **place
                    )
                    return

    async def _others(self, demo: Demo) -> None:
        handbook = "handbook" if self.name.lower() != "handbook" else "guide"
        description = "What everybody may read."
        made = await self.do("dev", "CreateProject", name=handbook, groupPath=GROUP, visibility="PUBLIC", description=description)
        demo.other_project_id = made["id"]
        for written in content.OTHER_ISSUES:
            await self._issue(made["path"], written)
        made = await self.do("root", "CreateProject", name="vault", visibility="PRIVATE", description="For the administrator alone.")
        demo.private_project_id = made["id"]
        for written in content.PRIVATE_ISSUES:
            await self._issue(made["path"], written)

    async def _pipeline(self, demo: Demo) -> None:
        # Its builds are run now, so it happens now.
        self.clock.go_on(timedelta(days=365 * 100))
        piped = await push(self, self.engine.repositories, GROUP)
        demo.pipeline_project_id, demo.runner_token = piped.project_id, piped.runner_token

    def who(self, who: str | int) -> str:
        if isinstance(who, str):
            return who
        return self._members[who % len(self._members)] if self._members else "dev"

    async def _id_of(self, who: str | int | None) -> int | None:
        return None if who is None else await self.user_id(self.who(who))

    async def user_id(self, username: str) -> int:
        found: int = (await self._forge.run("UserId", username=username))["id"]
        return found

    def filled(self, text: str) -> str:
        commit = self._newest.get("short_oid", "the last commit")
        return text.format(name=self.name, branch=self._branch, commit=commit, **self._numbers)


def _storable(text: str) -> str:
    """The text without what the graph refuses to keep; commits may hold anything."""
    return naming.SURROGATE.sub("\ufffd", text.replace("\0", "\ufffd"))


def first_added_line(diff: str) -> int | None:
    """The number, in the new file, of the first line that a unified diff adds; None when it adds none."""
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
class Kept:
    """The demo that a folder holds from an earlier start."""

    project_id: int


async def kept(engine: Engine) -> Kept | None:
    """The demo in this folder; None when it holds something else."""
    try:
        group = await Forge(engine.graph, DOCUMENT).run("Kept", by="dev")
    except Refused:
        return None
    nodes = group["projects"]["nodes"]
    return Kept(nodes[0]["id"]) if nodes else None

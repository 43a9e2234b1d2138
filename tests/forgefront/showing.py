"""A forge to be looked at: the whole service on a port, with people, projects, builds and merge requests told through the graph."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn

from forgefront.app import App
from forgefront.config import Config
from forgefront.demo import DOCUMENT
from forgefront.operator import Forge
from forgefront.server import listen
from storage.git.merge import Signature
from storage.git.repository import Repository
from storage.git.writing import write_commit

PEOPLE = {"ada": "Ada Lindqvist", "mei": "Mei Tanaka", "tomas": "Tomás Rivera", "priya": "Priya Nair", "jonas": "Jonas Weber"}
JOBS = {
    "compile": ("build", 74),
    "unit": ("test", 212),
    "style": ("test", 9),
    "browser": ("test", 341),
    "contract": ("test", 96),
    "package": ("deploy", 31),
}
ENDS = {"+": "SUCCESS", "-": "FAILED", "x": "CANCELED", "*": "RUNNING", "?": "PENDING"}


@dataclass(frozen=True)
class Push:
    """A commit so many minutes ago. `builds` are names of JOBS, each with the sign of ENDS that tells how it went."""

    title: str
    author: str
    minutes: int
    builds: str = ""


@dataclass(frozen=True)
class Proposal:
    """An open merge request with one commit, on a branch of its own."""

    title: str
    author: str
    minutes: int
    branch: str
    builds: str = ""


@dataclass(frozen=True)
class Shown:
    """A project, its commits from the newest to the oldest, what is proposed and what is to be done."""

    path: str
    description: str
    pushes: tuple[Push, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    issues: tuple[tuple[str, str], ...] = ()


@dataclass
class Showing:
    """The service at `address`, with a token for each of PEOPLE and for `guest`, who is a member of nothing.

    `tips` are the v3 ids of the projects and their newest commits, by their paths; `builds` the v3 ids of builds of these, by their names.
    """

    app: App
    address: str
    tokens: dict[str, str] = field(default_factory=dict)
    tips: dict[str, tuple[str, str]] = field(default_factory=dict)
    builds: dict[str, dict[str, int]] = field(default_factory=dict)
    at: datetime | None = None
    _forge: Forge = field(init=False)

    def __post_init__(self) -> None:
        self._forge = Forge(self.app.graph, DOCUMENT)

    def now(self) -> datetime:
        return self.at or datetime.now(UTC)

    async def do(self, by: str | None, operation: str, **values: Any) -> Any:
        return await self._forge.run(operation, by=by, input={key: value for key, value in values.items() if value is not None})

    async def token(self, username: str) -> str:
        """The token that speaks for somebody now."""
        found: str = (await self._forge.run("Token", by=username))["token"]
        return found

    async def fill(self, projects: Iterable[Shown]) -> None:
        self.at = datetime.now(UTC) - timedelta(days=20)
        for username, name in {**PEOPLE, "guest": "Guest"}.items():
            await self.do(
                None,
                "CreateUser",
                username=username,
                name=name,
                email=f"{username}@example.org",
                admin=username == "ada",
                password=f"{username} signs in",
                confirm=False,
            )
            self.tokens[username] = await self.token(username)
        shown = tuple(projects)
        for group in sorted({project.path.partition("/")[0] for project in shown}):
            await self.do("ada", "CreateGroup", name=group.capitalize(), path=group)
        for project in shown:
            await self._fill(project)
        self.at = None

    async def _fill(self, shown: Shown) -> None:
        group, _, name = shown.path.partition("/")
        self.at = datetime.now(UTC) - timedelta(minutes=60 * 24 * 3)
        made = await self.do(
            "ada", "CreateProject", name=name, path=name, groupPath=group, description=shown.description, visibility="PRIVATE"
        )
        path = str(made["id"])
        for username in ("mei", "tomas", "priya", "jonas"):
            await self.do("ada", "AddProjectMember", projectPath=path, username=username, accessLevel="DEVELOPER")
        for title, author in shown.issues:
            await self.do(author, "CreateIssue", projectPath=path, title=title)
        tip: str | None = None
        written = []
        for number, push in enumerate(reversed(shown.pushes)):
            tip = await self._commit(made["id"], tip, number, push)
            written.append((tip, push))
        if tip is None:
            return
        await self.do("ada", "CreateBranch", projectPath=path, name="main", ref=tip)
        built = [(push, oid, "main") for oid, push in written]
        for number, proposal in enumerate(shown.proposals):
            oid = await self._commit(made["id"], tip, 1000 + number, Push(proposal.title, proposal.author, proposal.minutes))
            self.at = datetime.now(UTC) - timedelta(minutes=proposal.minutes)
            await self.do(proposal.author, "CreateBranch", projectPath=path, name=proposal.branch, ref=oid)
            await self.do(
                proposal.author,
                "CreateMergeRequest",
                projectPath=path,
                sourceBranch=proposal.branch,
                targetBranch="main",
                title=proposal.title,
            )
            built.append((Push(proposal.title, proposal.author, proposal.minutes, proposal.builds), oid, proposal.branch))
        self.tips[shown.path] = path, tip
        for push, oid, ref in sorted(built, key=lambda each: -each[0].minutes):
            made = await self.build(path, oid, ref, push)
            if oid == tip:
                self.builds[shown.path] = made

    async def _commit(self, project_id: int, parent: str | None, number: int, push: Push) -> str:
        when = datetime.now(UTC) - timedelta(minutes=push.minutes)
        signature = Signature(PEOPLE[push.author], f"{push.author}@example.org", when)
        files = {f"file-{number}.txt": push.title.encode()}

        def write(repository: Repository) -> str:
            return write_commit(repository, parent, files, push.title, signature)

        return await self.app.repositories.read(project_id, write)

    async def build(self, path: str, oid: str, ref: str, push: Push) -> dict[str, int]:
        """Tells of the builds of a commit; gives their v3 ids by their names."""
        started = datetime.now(UTC) - timedelta(minutes=push.minutes)
        self.at = started
        made = {}
        for word in push.builds.split():
            name, end = word[:-1], ENDS[word[-1]]
            stage, seconds = JOBS[name]
            running = end == "RUNNING"
            if running:
                started = datetime.now(UTC) - timedelta(seconds=seconds * 0.4)
            found = await self.do(
                push.author,
                "CreateBuild",
                projectPath=path,
                sha=oid,
                ref=ref,
                name=name,
                stage=stage,
                status=end,
                startedAt=None if end == "PENDING" else started.isoformat(),
                finishedAt=None if end in ("PENDING", "RUNNING") else (started + timedelta(seconds=seconds)).isoformat(),
            )
            made[name] = found["id"]
            text = f"$ make {name}\n" + ("".join(f"{line} of 40 done\n" for line in range(1, 18)) if running else "")
            if end == "FAILED":
                text += "test_prices.py:41: expected 11.90, found 11.19\n1 failed, 127 passed\n"
            if end != "PENDING":
                await self.do(push.author, "AppendBuildTrace", projectPath=path, databaseId=found["id"], text=text, offset=0)
            if not running:
                started += timedelta(seconds=seconds)
        return made

    async def finish(self, path: str, build_id: int, status: str) -> None:
        """Has a build be so now, as one that ends."""
        self.at = None
        await self.do("ada", "UpdateBuild", projectPath=path, databaseId=build_id, status=status)

    async def tell(self, path: str, name: str, status: str) -> None:
        """Has a build of the newest commit of `main` be so now; one of this name is made where there is none."""
        project, tip = self.tips[path]
        if name in self.builds[path]:
            await self.finish(project, self.builds[path][name], status)
            return
        self.at = None
        made = await self.do("ada", "CreateBuild", projectPath=project, sha=tip, ref="main", name=name, stage=JOBS[name][0], status=status)
        self.builds[path][name] = made["id"]


@asynccontextmanager
async def showing(data: Path, projects: Iterable[Shown]) -> AsyncIterator[Showing]:
    listener = listen("127.0.0.1", 0)
    config = Config.load(data=data, host="127.0.0.1", port=listener.getsockname()[1])
    shown: list[Showing] = []
    app = App(config, clock=lambda: shown[0].now() if shown else datetime.now(UTC))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn tells nobody when it has started
        await asyncio.sleep(0.02)
    shown.append(Showing(app, config.base_url))
    await shown[0].fill(projects)
    try:
        yield shown[0]
    finally:
        app.leave_off(0)
        server.should_exit = True
        await serving

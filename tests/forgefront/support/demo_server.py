"""The whole service on a port, with people, projects, builds and merge requests created through the graph."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import delete
from sqlmodel import col

from forgefront.app import App
from forgefront.config import Config
from forgefront.demo.demo_builder import OPERATIONS_FILE
from forgefront.local_client import LocalClient
from forgefront.server.listeners import create_listener
from storage.git.commit_writer import CommitSignature, write_commit
from storage.git.repository import Repository
from storage.tables import BranchMove

DEMO_USERS = {"ada": "Ada Lindqvist", "mei": "Mei Tanaka", "tomas": "Tomás Rivera", "priya": "Priya Nair", "jonas": "Jonas Weber"}
JOB_STAGES = {
    "compile": ("build", 74),
    "unit": ("test", 212),
    "style": ("test", 9),
    "browser": ("test", 341),
    "contract": ("test", 96),
    "package": ("deploy", 31),
}
STATUSES = {"+": "SUCCESS", "-": "FAILED", "x": "CANCELED", "*": "RUNNING", "?": "PENDING"}


@dataclass(frozen=True)
class DemoCommit:
    """A commit, by its age in minutes. `builds` are names of JOB_STAGES, each with the sign of STATUSES for its result. `files`: paths and
    contents. `duration_factor`: how long its builds take, as a multiple of the seconds in JOB_STAGES.
    """

    title: str
    author: str
    minutes: int
    builds: str = ""
    files: tuple[tuple[str, str], ...] = ()
    duration_factor: float = 1


@dataclass(frozen=True)
class DemoMergeRequest:
    """An open merge request with one commit, on a branch of its own."""

    title: str
    author: str
    minutes: int
    branch: str
    builds: str = ""
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class DemoProject:
    """A project, its commits from the newest to the oldest, what is proposed and what is to be done."""

    path: str
    description: str
    pushes: tuple[DemoCommit, ...] = ()
    proposals: tuple[DemoMergeRequest, ...] = ()
    issues: tuple[tuple[str, str], ...] = ()


@dataclass
class DemoServer:
    """The service at `address`, with a token for each of PEOPLE and for `guest`, who is a member of nothing.

    `tips` are the v3 ids of the projects and their newest commits, by their paths; `builds` the v3 ids of builds of these, by their names.
    """

    app: App
    address: str
    tokens: dict[str, str] = field(default_factory=dict)
    tips: dict[str, tuple[str, str]] = field(default_factory=dict)
    builds: dict[str, dict[str, int]] = field(default_factory=dict)
    clock_time: datetime | None = None
    _forge: LocalClient = field(init=False)

    def __post_init__(self) -> None:
        self._forge = LocalClient(self.app.graph, OPERATIONS_FILE)

    def now(self) -> datetime:
        return self.clock_time or datetime.now(UTC)

    async def run_as(self, username: str | None, operation: str, /, **values: Any) -> Any:
        return await self._forge.run(operation, by=username, input={key: value for key, value in values.items() if value is not None})

    async def token(self, username: str) -> str:
        """The token that speaks for somebody now."""
        found: str = (await self._forge.run("Token", by=username))["token"]
        return found

    async def create_projects(self, projects: Iterable[DemoProject]) -> None:
        self.clock_time = datetime.now(UTC) - timedelta(days=20)
        for username, name in {**DEMO_USERS, "guest": "Guest"}.items():
            await self.run_as(
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
            await self.run_as("ada", "CreateGroup", name=group.capitalize(), path=group)
        for project in shown:
            await self._create_project(project)
        self.clock_time = None

    async def _create_project(self, demo: DemoProject) -> None:
        group, _, name = demo.path.partition("/")
        self.clock_time = datetime.now(UTC) - timedelta(minutes=60 * 24 * 3)
        made = await self.run_as(
            "ada", "CreateProject", name=name, path=name, groupPath=group, description=demo.description, visibility="PRIVATE"
        )
        path = str(made["id"])
        for username in ("mei", "tomas", "priya", "jonas"):
            await self.run_as("ada", "AddProjectMember", projectPath=path, username=username, accessLevel="DEVELOPER")
        for title, author in demo.issues:
            await self.run_as(author, "CreateIssue", projectPath=path, title=title)
        tip: str | None = None
        pushed = []
        for number, push in enumerate(reversed(demo.pushes)):
            tip = await self._commit(made["id"], tip, number, push)
            pushed.append((tip, push))
        if tip is None:
            return
        await self.run_as("ada", "CreateBranch", projectPath=path, name="main", ref=tip)
        await self._record_moves(made["id"], pushed)
        commits = [(push, oid, "main") for oid, push in pushed]
        for number, proposal in enumerate(demo.proposals):
            commit = DemoCommit(proposal.title, proposal.author, proposal.minutes, files=proposal.files)
            oid = await self._commit(made["id"], tip, 1000 + number, commit)
            self.clock_time = datetime.now(UTC) - timedelta(minutes=proposal.minutes)
            await self.run_as(proposal.author, "CreateBranch", projectPath=path, name=proposal.branch, ref=oid)
            await self.run_as(
                proposal.author,
                "CreateMergeRequest",
                projectPath=path,
                sourceBranch=proposal.branch,
                targetBranch="main",
                title=proposal.title,
            )
            commits.append((DemoCommit(proposal.title, proposal.author, proposal.minutes, proposal.builds), oid, proposal.branch))
        self.tips[demo.path] = path, tip
        for push, oid, ref in sorted(commits, key=lambda each: -each[0].minutes):
            made = await self.create_builds(path, oid, ref, push)
            if oid == tip:
                self.builds[demo.path] = made

    async def _record_moves(self, project_id: int, pushed: Sequence[tuple[str, DemoCommit]]) -> None:
        """Dates the branch `main` as if each commit had been pushed on its own, at its time."""
        async with self.app.graph.services.database.write_session() as session:
            await session.execute(delete(BranchMove).where(col(BranchMove.project_id) == project_id))
            times = [datetime.now(UTC) - timedelta(minutes=push.minutes) for _, push in pushed]
            moves = [
                BranchMove(project_id=project_id, name="main", oid=oid, moved_at=time) for (oid, _), time in zip(pushed, times, strict=True)
            ]
            session.add_all(moves)
            await session.commit()

    async def _commit(self, project_id: int, parent: str | None, number: int, push: DemoCommit) -> str:
        when = datetime.now(UTC) - timedelta(minutes=push.minutes)
        signature = CommitSignature(DEMO_USERS[push.author], f"{push.author}@example.org", when)
        files = {path: text.encode() for path, text in push.files} or {f"file-{number}.txt": push.title.encode()}

        def write(repository: Repository) -> str:
            return write_commit(repository, parent, files, push.title, signature)

        return await self.app.repositories.read(project_id, write)

    async def create_builds(self, path: str, oid: str, ref: str, push: DemoCommit) -> dict[str, int]:
        """Reports the builds of a commit; returns their v3 ids by name."""
        started = datetime.now(UTC) - timedelta(minutes=push.minutes)
        self.clock_time = started
        build_ids = {}
        for word in push.builds.split():
            name, end = word[:-1], STATUSES[word[-1]]
            stage, seconds = JOB_STAGES[name]
            seconds = round(seconds * push.duration_factor)
            running = end == "RUNNING"
            if running:
                started = datetime.now(UTC) - timedelta(seconds=seconds * 0.4)
            found = await self.run_as(
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
            build_ids[name] = found["id"]
            text = f"$ make {name}\n" + ("".join(f"{line} of 40 done\n" for line in range(1, 18)) if running else "")
            if end == "FAILED":
                text += "test_prices.py:41: expected 11.90, found 11.19\n1 failed, 127 passed\n"
            if end != "PENDING":
                await self.run_as(push.author, "AppendBuildTrace", projectPath=path, databaseId=found["id"], text=text, offset=0)
            if not running:
                started += timedelta(seconds=seconds)
        return build_ids

    async def set_build_status(self, path: str, build_id: int, status: str) -> None:
        """Has a build be so now, as one that ends."""
        self.clock_time = None
        await self.run_as("ada", "UpdateBuild", projectPath=path, databaseId=build_id, status=status)

    async def set_status_by_name(self, path: str, name: str, status: str) -> None:
        """Has a build of the newest commit of `main` be so now; one of this name is made where there is none."""
        project, tip = self.tips[path]
        if name in self.builds[path]:
            await self.set_build_status(project, self.builds[path][name], status)
            return
        self.clock_time = None
        made = await self.run_as(
            "ada", "CreateBuild", projectPath=project, sha=tip, ref="main", name=name, stage=JOB_STAGES[name][0], status=status
        )
        self.builds[path][name] = made["id"]


@asynccontextmanager
async def run_demo_server(data: Path, projects: Iterable[DemoProject], *, port: int = 0, **settings: Any) -> AsyncIterator[DemoServer]:
    listener = create_listener("127.0.0.1", port)
    config = Config.load(data=data, host="127.0.0.1", port=listener.getsockname()[1], **settings)
    servers: list[DemoServer] = []
    app = App(config, clock=lambda: servers[0].now() if servers else datetime.now(UTC))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for its start
        await asyncio.sleep(0.02)
    servers.append(DemoServer(app, config.base_url))
    await servers[0].create_projects(projects)
    try:
        yield servers[0]
    finally:
        app.begin_shutdown(0)
        server.should_exit = True
        await serving

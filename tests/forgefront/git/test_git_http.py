"""The real git program against a real server: clone, fetch, push, and refusals with their reasons."""

import asyncio
import contextlib
import gzip
import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pygit2
import pytest
import uvicorn

from forgefront.git_http.endpoint import GitHttpEndpoint
from forgefront.server.http_connection import ConnectionTimeouts, create_connection_class
from forgefront.server.metrics import Metrics
from forgefront.server.middleware import RequestMiddleware
from graph.git_access import GitAccess
from storage import tables
from storage.database.errors import is_unavailable
from storage.git.protocol.transport import Transport
from storage.tables import AccessLevel, UserState, Visibility
from storage.tables.base import rows_of_ids
from storage.tables.settings import BranchProtection
from tests.make import DataFactory, token_of
from tests.support.git.git_history import GIT_ENVIRONMENT, commit_files, make_history
from tests.support.git.git_history import git as local
from tests.support.git.repositories import take_over
from tests.support.servers.child_processes import children_of
from tests.support.servers.fork_server import start_program
from tests.support.waiting import wait_until

ONE_DATABASE = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
"""For what no row has a part in."""


@dataclass
class CommandOutput:
    code: int
    out: str
    err: str


@dataclass
class GitHttpServer:
    """The server under test. `git` runs git in a folder; `url` has the token of a user in it, or that of nobody."""

    app: GitHttpEndpoint
    transport: Transport
    port: int
    make: DataFactory
    folder: Path

    def url(self, project: tables.Project, viewer: tables.User | None = None, *, token: str | None = None) -> str:
        token = token_of(viewer) if viewer else token
        return f"http://{f'me:{token}@' if token else ''}127.0.0.1:{self.port}/{self.path_of[project.id]}.git"

    path_of: dict[int, str]

    async def project(self, **given: object) -> tables.Project:
        group = await self.make.group(members=given.pop("members", None))
        project = await self.make.project(group=group, **given)  # type: ignore[arg-type]
        self.path_of[project.id] = f"{group.path}/{project.path}"
        return project

    async def git(self, *arguments: object, folder: Path | None = None, succeeds: bool | None = True) -> CommandOutput:
        await take_over(self.make.services)
        process = await asyncio.create_subprocess_exec(
            "git", *map(str, arguments), cwd=folder or self.folder, env=GIT_ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), 50)
        # The files of git show the moved refs a moment after the answer.
        await asyncio.wait_for(self.app.close(), 50)
        output = CommandOutput(process.returncode or 0, out.decode("utf-8", "replace").strip(), err.decode("utf-8", "replace"))
        assert succeeds is None or succeeds == (output.code == 0), output.err
        return output

    async def clone(self, project: tables.Project, viewer: tables.User | None, *settings: object) -> Path:
        target = self.folder / f"clone{len(list(self.folder.iterdir()))}"
        await self.git("clone", "-q", *settings, self.url(project, viewer), target)
        return target

    async def commit(self, folder: Path, name: str = "file", *, amend: bool = False) -> str:
        (folder / name).write_text(f"{random.random()}\n")
        repository = pygit2.Repository(str(folder))
        repository.index.add(name)
        repository.index.write()
        tree, message = repository.index.write_tree(), f"Change {name}\n"
        if amend:
            return str(repository.amend_commit(repository.head.target, "HEAD", tree=tree, message=message))
        parents = [] if repository.head_is_unborn else [repository.head.target]
        author = pygit2.Signature(GIT_ENVIRONMENT["GIT_AUTHOR_NAME"], GIT_ENVIRONMENT["GIT_AUTHOR_EMAIL"])
        return str(repository.create_commit("HEAD", author, author, message, tree, parents))

    def repository(self, project: tables.Project) -> Path:
        return self.make.services.repositories.path_of(project.id)

    def refs(self, project: tables.Project) -> dict[str, str]:
        lines = local(self.repository(project), "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return {name: oid for name, _, oid in (line.partition(" ") for line in lines)}

    async def row(self, project: tables.Project) -> tables.Project:
        found = await self.make.fetch(tables.Project, project.id)
        assert found is not None
        return found

    def processes(self) -> list[str]:
        """The git processes that this process, which is the server, has."""
        found: list[str] = []
        level = {os.getpid()}
        while level:
            commands = {pid: command for pid, command in children_of(level).items() if "git" in command and "--git-dir" in command}
            found += commands.values()
            level = set(commands)
        return found

    def leftovers(self, project: tables.Project) -> list[str]:
        """Locks and quarantines of a repository."""
        names = [str(path.relative_to(self.repository(project))) for path in self.repository(project).rglob("*")]
        return [name for name in names if name.endswith(".lock") or "tmp_" in name or "incoming" in name]


def pack_of(folder: Path, revisions: str) -> bytes:
    command = ["git", "pack-objects", "--stdout", "--revs", "-q"]
    return subprocess.run(command, input=revisions.encode(), cwd=folder, capture_output=True, check=True).stdout


EMPTY_PACK = bytes.fromhex("5041434b0000000200000000029d08823bd8a8eab510ad6ac75c823cfd3ed31e")


@pytest.fixture
def settings() -> dict[str, int]:
    """What a test has otherwise in its transport."""
    return {}


@pytest.fixture
async def forge(make: DataFactory, tmp_path: Path, settings: dict[str, int]) -> AsyncIterator[GitHttpServer]:
    """The endpoint alone, behind the server's protocol and middleware; the whole service is tested at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    transport = Transport(**settings)
    git_http = GitHttpEndpoint(GitAccess(make.services), transport)
    times = create_connection_class(ConnectionTimeouts(header=20, idle=30, keep_alive=30))
    app = RequestMiddleware(git_http, Metrics(), is_unavailable)
    server = uvicorn.Server(uvicorn.Config(app, http=times, lifespan="off", interface="asgi3", log_config=None, access_log=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "capture_signals", contextlib.nullcontext)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            assert not task.done(), task
            await asyncio.sleep(0.01)
        work = tmp_path / "work"
        work.mkdir()
        yield GitHttpServer(git_http, transport, listener.getsockname()[1], make, work, {})
        server.should_exit = True
        await task
    listener.close()


@pytest.fixture
async def developer(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def master(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(forge: GitHttpServer, developer: tables.User, master: tables.User) -> tables.Project:
    """With four commits: `master` of two, and `topic`."""
    return await forge.project(history={"commits": 4}, members=[(developer, AccessLevel.DEVELOPER), (master, AccessLevel.MASTER)])


async def protect(make: DataFactory, project: tables.Project, protection: BranchProtection, name: str = "master") -> None:
    if protection is not BranchProtection.NONE:
        await make.save(
            tables.ProtectedBranch(project_id=project.id, name=name, developers_can_push=protection is BranchProtection.PARTIAL)
        )


@ONE_DATABASE
class TestFetch:
    @pytest.mark.parametrize("version", [0, 1, 2])
    async def test_a_clone_has_everything(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User, version: int
    ) -> None:
        target = forge.folder / "all.git"
        await forge.git("-c", f"protocol.version={version}", "clone", "-q", "--mirror", forge.url(project, developer), target)

        assert local(target, "for-each-ref", "--format=%(refname) %(objectname)").splitlines() == [
            f"{name} {oid}" for name, oid in forge.refs(project).items()
        ]
        local(target, "fsck", "--strict")

    async def test_the_default_branch_is_checked_out(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        target = await forge.clone(project, developer)
        assert local(target, "symbolic-ref", "HEAD") == "refs/heads/master"

    async def test_shallow(self, forge: GitHttpServer, developer: tables.User) -> None:
        project = await forge.project(history={"commits": 60}, members=[(developer, AccessLevel.REPORTER)])
        target = await forge.clone(project, developer, "--depth=1")
        assert local(target, "rev-list", "--count", "HEAD") == "1"
        await forge.git("fetch", "-q", "--deepen=3", folder=target)
        assert int(local(target, "rev-list", "--count", "HEAD")) > 1
        await forge.git("fetch", "-q", "--unshallow", folder=target)
        assert local(target, "rev-list", "HEAD") == local(forge.repository(project), "rev-list", "master")

    async def test_partial(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        target = await forge.clone(project, developer, "--filter=blob:none", "--no-checkout")
        assert "?" in local(target, "rev-list", "--objects", "--missing=print", "HEAD")
        await forge.git("checkout", "-q", "master", folder=target)
        assert list(target.iterdir()) != [target / ".git"]

    async def test_fetch_of_new_commits(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        target = await forge.clone(project, developer)
        oid = commit_files(forge.repository(project), {"new": b"new\n"}, forge.refs(project)["refs/heads/master"])
        local(forge.repository(project), "update-ref", "refs/heads/master", oid)
        await forge.git("pull", "-q", "--ff-only", folder=target)
        assert local(target, "rev-parse", "HEAD") == oid
        assert (target / "new").read_text() == "new\n"

    async def test_a_long_ref_advertisement_is_compressed(self, forge: GitHttpServer, developer: tables.User) -> None:
        project = await forge.project(history={"commits": 400}, members=[(developer, AccessLevel.REPORTER)])
        target = await forge.clone(project, developer)
        mine = local(target, "rev-parse", "HEAD")
        for number in range(60):
            mine = commit_files(target / ".git", {"mine": b"%d\n" % number}, mine)
        local(target, "update-ref", "refs/heads/master", mine)
        oid = commit_files(forge.repository(project), {"new": b"new\n"}, forge.refs(project)["refs/heads/master"])
        local(forge.repository(project), "update-ref", "refs/heads/master", oid)
        for version in (2, 0):
            output = await forge.git("-c", f"protocol.version={version}", "fetch", "origin", folder=target)
            assert "fatal" not in output.err
        assert local(target, "rev-parse", "origin/master") == oid

    async def test_an_empty_project(self, forge: GitHttpServer, developer: tables.User) -> None:
        project = await forge.project(members=[(developer, AccessLevel.REPORTER)])
        target = await forge.clone(project, developer)
        assert local(target, "for-each-ref") == ""

    async def test_an_unreachable_object_is_not_served(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        hidden = commit_files(forge.repository(project), {"secret": b"secret\n"})
        local(forge.folder, "init", "-q", "mine")
        output = await forge.git(
            *("-c", "protocol.version=0", "fetch", forge.url(project, developer), hidden), folder=forge.folder / "mine", succeeds=False
        )
        assert "not our ref" in output.err or "unadvertised object" in output.err


class TestFetchPermissions:
    @pytest.mark.parametrize("visibility", list(Visibility))
    async def test_each_visibility(self, forge: GitHttpServer, visibility: Visibility) -> None:
        make = forge.make
        guest, reporter, outsider = await make.user(), await make.user(), await make.user()
        blocked, admin = await make.user(state=UserState.BLOCKED), await make.admin()
        members = [(guest, AccessLevel.GUEST), (reporter, AccessLevel.REPORTER), (blocked, AccessLevel.MASTER)]
        project = await forge.project(history={"commits": 4}, visibility=visibility, members=members)
        private, public = visibility is Visibility.PRIVATE, visibility is Visibility.PUBLIC
        expected = {
            forge.url(project): 200 if public else 401,
            forge.url(project, token="wrong"): 401,
            forge.url(project, blocked): 401,
            forge.url(project, outsider): 404 if private else 200,
            forge.url(project, guest): 403 if private else 200,
            forge.url(project, reporter): 200,
            forge.url(project, admin): 200,
        }
        async with httpx.AsyncClient() as http:
            found = {url: (await http.get(f"{url}/info/refs?service=git-upload-pack")).status_code for url in expected}
            assert found == expected
            body = b"0014command=ls-refs\n0000"
            headers = {"Content-Type": "application/x-git-upload-pack-request", "Git-Protocol": "version=2"}
            found = {url: (await http.post(f"{url}/git-upload-pack", content=body, headers=headers)).status_code for url in expected}
            assert found == expected

    @ONE_DATABASE
    async def test_a_missing_project_looks_like_a_hidden_one(self, forge: GitHttpServer, project: tables.Project) -> None:
        outsider = await forge.make.user()
        async with httpx.AsyncClient() as http:
            for service in ("git-upload-pack", "git-receive-pack"):
                for token in ("", f"me:{token_of(outsider)}@"):
                    answers = []
                    for path in (forge.path_of[project.id], "no/such"):
                        for rest in (f".git/info/refs?service={service}", f"/info/refs?service={service}"):
                            answer = await http.get(f"http://{token}127.0.0.1:{forge.port}/{path}{rest}")
                            headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "date")}
                            headers.pop("location", None)
                            answers.append((rest, answer.status_code, answer.text, headers))
                    assert answers[:2] == answers[2:]

    @ONE_DATABASE
    async def test_credentials(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        address, token = forge.url(project) + "/info/refs?service=git-upload-pack", token_of(developer)
        async with httpx.AsyncClient() as http:
            for headers, status in [
                ({"PRIVATE-TOKEN": token}, 200),
                ({"Authorization": f"Bearer {token}"}, 401),
                ({"Cookie": f"private_token={token}"}, 401),
                ({"Authorization": "Basic"}, 401),
                ({"Authorization": "Basic !!!"}, 401),
                ({"Authorization": "Basic /w=="}, 401),
                ({"Authorization": "Basic OiA="}, 401),
            ]:
                assert (await http.get(address, headers=headers)).status_code == status, headers
            assert (await http.get(address, auth=(token, ""))).status_code == 401
            assert (await http.get(address, auth=("", token))).status_code == 200
            assert (await http.get(f"{address}&private_token={token}")).status_code == 401
            refused = await http.get(address)
        assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert "private token" in refused.text
        assert "no-cache" in refused.headers["Cache-Control"]

    @ONE_DATABASE
    async def test_a_public_project_is_cloned_anonymously(self, forge: GitHttpServer) -> None:
        project = await forge.project(history={"commits": 4}, visibility=Visibility.PUBLIC)
        target = await forge.clone(project, None)
        output = await forge.git("push", "origin", "HEAD:refs/heads/x", folder=target, succeeds=False)
        assert "could not read Username" in output.err

    @ONE_DATABASE
    async def test_git_prints_the_reason(self, forge: GitHttpServer, project: tables.Project) -> None:
        guest = await forge.make.user()
        await forge.make.member(project, guest, AccessLevel.GUEST)
        output = await forge.git("clone", forge.url(project, guest), "x", succeeds=False)
        assert "remote: You are not allowed to read this code." in output.err
        output = await forge.git("clone", forge.url(project, token="wrong"), "x", succeeds=False)
        assert "Authentication failed" in output.err
        assert "remote: Use your private token as the password" in output.err

    @ONE_DATABASE
    async def test_paths_ignore_case_and_the_git_suffix(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User
    ) -> None:
        url = forge.url(project, developer)
        await forge.git("ls-remote", url.removesuffix(".git"))
        await forge.git("ls-remote", url.replace(forge.path_of[project.id], forge.path_of[project.id].upper()))
        await forge.git("-c", f"http.extraHeader=PRIVATE-TOKEN: {token_of(developer)}", "ls-remote", forge.url(project))


class TestPush:
    async def test_the_first_push(self, forge: GitHttpServer, developer: tables.User) -> None:
        project = await forge.project(members=[(developer, AccessLevel.DEVELOPER)])
        before = (await forge.row(project)).last_activity_at
        folder = await forge.clone(project, developer)
        await forge.git("checkout", "-q", "-b", "trunk", folder=folder)
        oid = await forge.commit(folder)
        await forge.git("push", "-q", "origin", "trunk", folder=folder)

        row = await forge.row(project)
        assert forge.refs(project) == {"refs/heads/trunk": oid}
        assert (row.default_branch, row.last_activity_at > before) == ("trunk", True)
        assert local(forge.repository(project), "symbolic-ref", "HEAD") == "refs/heads/trunk"
        rows = await self.protections(forge)
        assert [(each.project_id, each.name, each.developers_can_push) for each in rows] == [(project.id, "trunk", True)]

    async def protections(self, forge: GitHttpServer) -> list[tables.ProtectedBranch]:
        async with forge.make.services.database.read_session() as session:
            return [row for (row,) in await session.read(*rows_of_ids(tables.ProtectedBranch, list(range(1, 20))))]

    @pytest.mark.parametrize("protection", list(BranchProtection))
    async def test_the_first_push_applies_default_branch_protection(
        self, forge: GitHttpServer, developer: tables.User, protection: BranchProtection
    ) -> None:
        async with forge.make.services.database.write_session() as session:
            settings = await session.get(tables.Settings, 1)
            settings.default_branch_protection = int(protection)
            session.add(settings)
            await session.commit()
        project = await forge.project(members=[(developer, AccessLevel.DEVELOPER)])
        folder = await forge.clone(project, developer)
        await forge.commit(folder)
        await forge.git("push", "-q", "origin", "HEAD:refs/heads/master", "HEAD:refs/heads/other", folder=folder)

        rows = await self.protections(forge)
        assert [(each.name, each.developers_can_push) for each in rows] == {
            BranchProtection.NONE: [],
            BranchProtection.PARTIAL: [("master", True)],
            BranchProtection.FULL: [("master", False)],
        }[protection]

    @pytest.mark.parametrize("protection", list(BranchProtection))
    async def test_protection_matrix(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User, master: tables.User, protection: BranchProtection
    ) -> None:
        """Push, force-push and delete, each by a developer and by a master."""
        await protect(forge.make, project, protection)
        developers = {
            BranchProtection.NONE: {"push", "force", "delete"},
            BranchProtection.PARTIAL: {"push"},
            BranchProtection.FULL: set(),
        }[protection]
        for viewer, allowed in ((developer, developers), (master, {"push", "force", "delete"})):
            folder = await forge.clone(project, viewer, "--branch=master")
            for move, arguments in (("push", ["master"]), ("force", ["+master"]), ("delete", [":master"])):
                if move != "delete":
                    await forge.git("reset", "-q", "--hard", "origin/master", folder=folder)
                    await forge.commit(folder, amend=move == "force")
                before = forge.refs(project)
                output = await forge.git("push", "origin", *arguments, folder=folder, succeeds=None)
                moved = forge.refs(project) != before
                assert (output.code == 0, moved) == (move in allowed, move in allowed), (viewer.username, move, output.err)
                if not moved:
                    reason = {"push": "push to", "force": "(force-)?push to", "delete": "delete"}[move]
                    assert re.search(rf"master: You are not allowed to {reason} this protected branch", output.err), output.err
                    assert "[remote rejected]" in output.err
                elif move == "delete":
                    local(forge.repository(project), "update-ref", "refs/heads/master", before["refs/heads/master"])
                assert forge.leftovers(project) == []

    @ONE_DATABASE
    async def test_levels(self, forge: GitHttpServer, project: tables.Project) -> None:
        make = forge.make
        people = {level: await make.user() for level in (AccessLevel.GUEST, AccessLevel.REPORTER)}
        for level, person in people.items():
            await make.member(project, person, level)
        folder = await forge.clone(project, await make.admin())
        await forge.commit(folder)
        await forge.git("push", "-q", "origin", "HEAD:refs/heads/by-admin", folder=folder)
        for person in people.values():
            output = await forge.git("push", forge.url(project, person), "HEAD:refs/heads/x", folder=folder, succeeds=False)
            assert "remote: You are not allowed to push to this project." in output.err
        outsider = await make.user()
        output = await forge.git("push", forge.url(project, outsider), "HEAD:refs/heads/x", folder=folder, succeeds=False)
        assert "not found" in output.err
        assert "refs/heads/x" not in forge.refs(project)

    @ONE_DATABASE
    async def test_an_archived_project(self, forge: GitHttpServer, developer: tables.User) -> None:
        project = await forge.project(history={"commits": 4}, archived=True, members=[(developer, AccessLevel.MASTER)])
        folder = await forge.clone(project, developer)
        await forge.commit(folder)
        output = await forge.git("push", "origin", "HEAD", folder=folder, succeeds=False)
        assert "remote: The project is archived" in output.err

    @ONE_DATABASE
    async def test_one_ref_is_rejected_while_others_move(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User
    ) -> None:
        await protect(forge.make, project, BranchProtection.FULL)
        folder = await forge.clone(project, developer)
        oid = await forge.commit(folder)
        output = await forge.git("push", "origin", "master", "HEAD:refs/heads/new", "HEAD:refs/tags/v9", folder=folder, succeeds=False)
        assert "master: You are not allowed to push" in output.err
        refs = forge.refs(project)
        assert (refs["refs/heads/new"], refs["refs/tags/v9"], refs["refs/heads/master"] == oid) == (oid, oid, False)
        output = await forge.git("push", "--atomic", "origin", "master", "HEAD:refs/heads/newer", folder=folder, succeeds=False)
        assert "refs/heads/newer" not in forge.refs(project)

    @ONE_DATABASE
    async def test_a_refused_push_leaves_no_objects(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        await protect(forge.make, project, BranchProtection.FULL)
        folder = await forge.clone(project, developer)
        oid = await forge.commit(folder, amend=True)
        await forge.git("push", "-f", "origin", "master", folder=folder, succeeds=False)
        with pytest.raises(AssertionError):
            local(forge.repository(project), "cat-file", "-e", oid)

    @ONE_DATABASE
    async def test_tags(self, forge: GitHttpServer, project: tables.Project, developer: tables.User, master: tables.User) -> None:
        folder = await forge.clone(project, developer)
        await forge.git("tag", "-a", "-m", "Nine", "v9", folder=folder)
        await forge.git("push", "-q", "origin", "v9", folder=folder)
        await forge.commit(folder)
        await forge.git("tag", "-f", "v9", folder=folder)
        for arguments in (["-f", "v9"], [":v9"]):
            output = await forge.git("push", "origin", *arguments, folder=folder, succeeds=False)
            assert "remote: refs/tags/v9: You are not allowed to change or delete existing tags." in output.err
        await forge.git("push", "-q", "-f", forge.url(project, master), "v9", folder=folder)
        await forge.git("push", "-q", forge.url(project, master), ":v9", folder=folder)
        assert "refs/tags/v9" not in forge.refs(project)

    async def test_deleting_the_default_branch_chooses_another_and_drops_the_protection(
        self, forge: GitHttpServer, project: tables.Project, master: tables.User
    ) -> None:
        await protect(forge.make, project, BranchProtection.PARTIAL)
        folder = await forge.clone(project, master)
        await forge.git("push", "-q", "origin", ":master", folder=folder)
        assert (await forge.row(project)).default_branch == "topic"
        assert local(forge.repository(project), "symbolic-ref", "HEAD") == "refs/heads/topic"
        assert await self.protections(forge) == []
        await forge.git("push", "-q", "origin", ":topic", folder=folder)
        assert (await forge.row(project)).default_branch is None

    @ONE_DATABASE
    async def test_hostile_names(self, forge: GitHttpServer, project: tables.Project, master: tables.User) -> None:
        folder = await forge.clone(project, master)
        oid = local(folder, "rev-parse", "HEAD")
        before = forge.refs(project)
        for name in ("refs/heads/--output=x", "refs/heads/HEAD", f"refs/heads/{'a' * 40}", f"refs/heads/{'y/' * 150}y", "refs/notes/x"):
            output = await forge.git("push", "origin", f"{oid}:{name}", folder=folder, succeeds=False)
            assert "[remote rejected]" in output.err, output.err
        output = await forge.git("push", "origin", os.fsdecode(oid.encode() + b":refs/heads/\xff"), folder=folder, succeeds=False)
        assert "[remote rejected]" in output.err
        assert forge.refs(project) == before
        good = ["ü", "$(id)", "a;b", "x" * 250, "`id`", "'\"", "%00", "refs/heads/x", "-n/x"[1:]]
        for name in good:
            await forge.git("push", "-q", "origin", f"{oid}:refs/heads/{name}", folder=folder)
        assert {f"refs/heads/{name}" for name in good} < forge.refs(project).keys()

    @ONE_DATABASE
    async def test_broken_objects_are_rejected(self, forge: GitHttpServer, project: tables.Project, master: tables.User) -> None:
        folder = await forge.clone(project, master)
        blob = local(folder, "hash-object", "-w", "--stdin", stdin=b"x")
        raw = b"100644 .git\0" + bytes.fromhex(blob)
        tree = local(folder, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=raw)
        oid = local(folder, "commit-tree", tree, "-m", "Evil")
        output = await forge.git("push", "origin", f"{oid}:refs/heads/evil", folder=folder, succeeds=False)
        assert "hasDotgit" in output.err
        assert forge.leftovers(project) == []

    @pytest.mark.parametrize("settings", [{"max_push_bytes": 1_048_576}])
    @ONE_DATABASE
    async def test_too_large_a_push(self, forge: GitHttpServer, project: tables.Project, master: tables.User) -> None:
        folder = await forge.clone(project, master)
        (folder / "large").write_bytes(random.Random(1).randbytes(3_000_000))
        await forge.git("add", "large", folder=folder)
        await forge.commit(folder)
        output = await forge.git("push", "origin", "HEAD", folder=folder, succeeds=False)
        assert "exceeds maximum allowed size" in output.err
        assert "This push is rejected: it has more than the 1 MB that one push may have" in " ".join(output.err.split())
        assert forge.leftovers(project) == []

    @pytest.mark.parametrize("settings", [{"max_object_bytes": 2_000_000}])
    @ONE_DATABASE
    async def test_too_large_a_file(self, forge: GitHttpServer, project: tables.Project, master: tables.User) -> None:
        """A pack of a few kilobytes, which is unpacked to more than one file may have."""
        folder = await forge.clone(project, master)
        (folder / "large").write_bytes(bytes(20_000_000))
        await forge.git("add", "large", folder=folder)
        await forge.commit(folder)
        output = await forge.git("push", "origin", "HEAD", folder=folder, succeeds=False)
        assert "has 19 MB when it is unpacked, and one may have 2 MB" in output.err
        assert "ask the administrator" in output.err
        assert forge.leftovers(project) == []

    async def test_rights_revoked_during_a_push(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As for a large push, git reads the pack as it comes.
        monkeypatch.setattr("storage.git.protocol.push.MAX_READ_BYTES", 0)
        folder = await forge.clone(project, developer)
        oid = await forge.commit(folder)
        base = local(folder, "rev-parse", "HEAD~1")
        pack = await asyncio.to_thread(pack_of, folder, f"{oid}\n^{base}\n")
        line = f"{'0' * 40} {oid} refs/heads/late\0 report-status".encode()

        async def body() -> AsyncIterator[bytes]:
            yield f"{len(line) + 4:04x}".encode() + line + b"0000" + pack[:20]
            await wait_until(lambda: bool(forge.processes()))
            async with forge.make.services.database.write_session() as session:
                row = await session.get(tables.User, developer.id)
                row.state = UserState.BLOCKED
                session.add(row)
                await session.commit()
            yield pack[20:]

        headers = {"Content-Type": "application/x-git-receive-pack-request"}
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{forge.url(project, developer)}/git-receive-pack", content=body(), headers=headers)
        assert answer.status_code == 200
        assert b"ng refs/heads/late " in answer.content
        assert "refs/heads/late" not in forge.refs(project)
        assert forge.leftovers(project) == []


@ONE_DATABASE
class TestHttpRequests:
    @pytest.mark.parametrize("rest", ["HEAD", "objects/info/packs", "objects/ab/cdef", "info/refs", "info/refs?service=git-upload-archive"])
    async def test_the_dumb_protocol_is_rejected(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User, rest: str
    ) -> None:
        async with httpx.AsyncClient() as http:
            for url in (forge.url(project, developer), f"http://127.0.0.1:{forge.port}/no/such.git"):
                answer = await http.get(f"{url}/{rest}")
                assert (answer.status_code, "smart protocol" in answer.text) == (403, True)

    async def test_methods_and_bodies(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        url = forge.url(project, developer)
        kind = {"Content-Type": "application/x-git-upload-pack-request"}
        push = {"Content-Type": "application/x-git-receive-pack-request"}
        ls_refs = b"0014command=ls-refs\n0000"
        async with httpx.AsyncClient() as http:
            assert (await http.post(f"{url}/info/refs?service=git-upload-pack")).headers["Allow"] == "GET"
            assert (await http.get(f"{url}/git-upload-pack")).headers["Allow"] == "POST"
            assert (await http.post(f"{url}/git-upload-pack", content=ls_refs)).status_code == 415
            for packed, encoding, status in [
                (gzip.compress(ls_refs), "gzip", 200),
                (ls_refs, "identity", 200),
                (ls_refs, "gzip", 400),
                (gzip.compress(ls_refs)[:-9], "gzip", 400),
                (ls_refs, "br", 415),
            ]:
                headers = {**kind, "Content-Encoding": encoding, "Git-Protocol": "version=2"}
                answer = await http.post(f"{url}/git-upload-pack", content=packed, headers=headers)
                assert answer.status_code == status, (encoding, answer.text)
            for body in (b"", b"hello", b"0009hello", b"0012want garbage\n0000", b"0014command=ls-refs\n", b"0010command=no\n0000"):
                for protocol in ("", "version=2"):
                    answer = await http.post(f"{url}/git-upload-pack", content=body, headers={**kind, "Git-Protocol": protocol})
                    assert (answer.status_code == 400) or (protocol and not body), (body, protocol, answer.text)
            for body in (b"hello", b"0009hello0000", b"00", b"0001", b"0040" + b"x" * 60 + b"0000"):
                assert (await http.post(f"{url}/git-receive-pack", content=body, headers=push)).status_code == 400, body
            assert (await http.post(f"{url}/git-receive-pack", content=b"0000", headers=push)).status_code == 200
        await wait_until(lambda: forge.processes() == [])

    async def test_a_bomb_is_not_unpacked_whole(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        bomb = gzip.compress(b"0" * 100_000_000, 9)
        headers = {"Content-Type": "application/x-git-upload-pack-request", "Content-Encoding": "gzip"}
        async with httpx.AsyncClient(timeout=20) as http:
            answer = await http.post(f"{forge.url(project, developer)}/git-upload-pack", content=bomb, headers=headers)
        assert answer.status_code in (200, 400, 413, 500)
        await wait_until(lambda: forge.processes() == [])

    async def test_the_protocol_header_is_data(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        address = f"{forge.url(project, developer)}/info/refs?service=git-upload-pack"
        async with httpx.AsyncClient() as http:
            for value in ("version=2", "version=2:x=y", "version=1", "$(id)", "x" * 5000, "version=99"):
                answer = await http.get(address, headers={"Git-Protocol": value})
                assert answer.status_code == 200
                assert answer.content.startswith(b"001e# service=git-upload-pack\n0000") == (not value.startswith("version=2"))


@ONE_DATABASE
class TestLimits:
    @pytest.mark.parametrize("settings", [{"max_processes": 3}])
    async def test_twenty_clones_at_once(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        turns = forge.transport.fetching
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, turns.running)
                assert len(forge.processes()) <= 3 * 2  # each with its pack-objects
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        url = forge.url(project, developer)
        await asyncio.gather(*(forge.git("clone", "-q", url, forge.folder / f"c{number}") for number in range(20)))
        watching.cancel()
        assert 1 <= most <= 3
        assert (turns.running, turns.waiting) == (0, 0)

    @pytest.mark.parametrize("settings", [{"max_processes": 1}])
    async def test_a_full_queue(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turns = forge.transport.fetching
        monkeypatch.setattr(turns, "_seconds", 0.2)
        async with turns.slot(), httpx.AsyncClient() as http:
            answer = await http.get(f"{forge.url(project, developer)}/info/refs?service=git-upload-pack")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")

    @pytest.mark.parametrize("settings", [{"max_processes": 2}])
    async def test_a_user_leaves_slots_to_others(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = await forge.make.user()
        await forge.make.member(project, other, AccessLevel.DEVELOPER)
        monkeypatch.setattr(forge.transport.fetching, "_seconds", 0.2)
        async with forge.transport.fetching.slot(f"user {developer.id}"), httpx.AsyncClient() as http:
            addresses = [f"{forge.url(project, user)}/info/refs?service=git-upload-pack" for user in (developer, other)]
            assert [(await http.get(address)).status_code for address in addresses] == [503, 200]

    async def test_a_client_killed_in_the_middle_of_a_clone(self, forge: GitHttpServer, large: Path, developer: tables.User) -> None:
        project = await forge.project(members=[(developer, AccessLevel.DEVELOPER)])
        encode_chunk(large, forge.repository(project))
        await take_over(forge.make.services)
        reader, writer = await asyncio.open_connection("127.0.0.1", forge.port)
        tip = forge.refs(project)["refs/heads/master"]
        want = f"0032want {tip}\n00000009done\n".encode()
        basic = httpx.BasicAuth("me", token_of(developer))._auth_header
        path = f"/{forge.path_of[project.id]}.git/git-upload-pack"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic}\r\nContent-Type: application/x-git-upload-pack-request\r\n"
        writer.write(f"{head}Content-Length: {len(want)}\r\n\r\n".encode() + want)
        await reader.read(100_000)
        assert forge.processes() != []
        writer.transport.abort()
        await wait_until(lambda: forge.processes() == [])
        await wait_until(lambda: forge.transport.fetching.running == 0)

    async def test_a_client_killed_in_the_middle_of_a_push(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User
    ) -> None:
        folder = await forge.clone(project, developer)
        (folder / "large").write_bytes(random.Random(1).randbytes(40_000_000))
        await forge.git("config", "core.compression", "0", folder=folder)
        await forge.git("add", "large", folder=folder)
        await forge.commit(folder)
        before = forge.refs(project)
        process = await asyncio.create_subprocess_exec(
            "git", "push", "-q", "origin", "HEAD:refs/heads/half", cwd=folder, env=GIT_ENVIRONMENT, start_new_session=True
        )
        await wait_until(lambda: forge.leftovers(project) != [])
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await wait_until(lambda: forge.processes() == [])
        await wait_until(lambda: forge.transport.pushing.running == 0)
        assert forge.leftovers(project) == []
        assert forge.refs(project) == before
        # The branch is free; the large file need not be sent again to show it.
        await forge.git("reset", "-q", "--hard", "HEAD~1", folder=folder)
        await forge.commit(folder)
        await forge.git("push", "-q", "origin", "HEAD:refs/heads/half", folder=folder)

    async def test_a_received_push_completes_after_a_disconnect(
        self, forge: GitHttpServer, project: tables.Project, developer: tables.User
    ) -> None:
        oid = forge.refs(project)["refs/heads/topic"]
        line = f"{'0' * 40} {oid} refs/heads/alone\0 report-status".encode()
        # A pack without objects: what is pushed is here.
        body = (
            f"{len(line) + 4:04x}".encode()
            + line
            + b"0000"
            + bytes.fromhex("5041434b0000000200000000029d08823bd8a8eab510ad6ac75c823cfd3ed31e")
        )
        _, writer = await asyncio.open_connection("127.0.0.1", forge.port)
        basic = httpx.BasicAuth("me", token_of(developer))._auth_header
        path = f"/{forge.path_of[project.id]}.git/git-receive-pack"
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic}\r\nContent-Type: application/x-git-receive-pack-request\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        await wait_until(lambda: forge.transport.pushing.running == 1)
        writer.transport.abort()
        await wait_until(lambda: forge.refs(project).get("refs/heads/alone") == oid)
        await wait_until(lambda: not forge.app._pushes)

    async def test_pushes_at_once_into_one_repository(self, forge: GitHttpServer, project: tables.Project, developer: tables.User) -> None:
        folders = [await forge.clone(project, developer) for _ in range(4)]
        oids = [await forge.commit(folder) for folder in folders]
        pushes = [
            forge.git("push", "-q", "origin", f"HEAD:refs/heads/b{number}", "HEAD:refs/heads/contested", folder=folder, succeeds=None)
            for number, folder in enumerate(folders)
        ]
        output = await asyncio.gather(*pushes)
        refs = forge.refs(project)
        assert [refs[f"refs/heads/b{number}"] for number in range(4)] == oids
        assert sum(each.code == 0 for each in output) == 1
        assert refs["refs/heads/contested"] in oids


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of about 36 MB that does not compress."""
    path = tmp_path_factory.mktemp("large") / "large.git"
    make_history(path, commits=4)
    numbers = random.Random(7)
    oid = local(path, "rev-parse", "master")
    for _ in range(6):
        files: dict[str | bytes, bytes | tuple[int, bytes]] = {f"f{index}": numbers.randbytes(1_000_000) for index in range(6)}
        oid = commit_files(path, files, oid)
    local(path, "update-ref", "refs/heads/master", oid)
    # Packed without compression, which is the slow part of serving it.
    local(path, "-c", "core.compression=0", "-c", "pack.window=0", "repack", "-a", "-d", "-q")
    return path


def encode_chunk(source: Path, target: Path) -> None:
    """Gives a project these contents, quicker than by an import."""
    shutil.rmtree(target)
    shutil.copytree(source, target)


def resident_kib(pid: int) -> int:
    """Bytes of a process's own memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@ONE_DATABASE
async def test_the_memory_of_the_server_does_not_grow_with_the_pack(large: Path, make: DataFactory, tmp_path: Path) -> None:
    """36 MB are cloned, twice at once, and pushed again, to a server in a process of its own."""
    owner = await make.user()
    source, target = await make.project(owner=owner), await make.project(owner=owner)
    encode_chunk(large, make.services.repositories.path_of(source.id))
    await take_over(make.services)
    environment = {**os.environ, "FORGEFRONT_DATABASE_URL": f"sqlite:///{tmp_path}/forge.db"}
    command = ("forgefront.cli", "serve", "--data", tmp_path, "--port", 0)
    with start_program(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            lines = iter(server.stdout.readline, "")
            port = next(found[1] for line in lines if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
            base = f"http://me:{token_of(owner)}@127.0.0.1:{port}/{owner.username}"

            async def git(*arguments: str) -> None:
                process = await asyncio.create_subprocess_exec("git", *arguments, cwd=tmp_path, env=GIT_ENVIRONMENT)
                assert await asyncio.wait_for(process.wait(), 50) == 0

            await git("ls-remote", "-q", f"{base}/{source.path}.git")
            before = most = resident_kib(server.pid)

            async def sample() -> None:
                nonlocal most
                while True:
                    most = max(most, resident_kib(server.pid))
                    await asyncio.sleep(0.02)

            sampling = asyncio.create_task(sample())
            url = f"{base}/{source.path}.git"
            await asyncio.gather(*(git("clone", "-q", "--bare", url, f"copy{number}") for number in range(2)))
            await git("--git-dir=copy0", "push", "-q", "--all", f"{base}/{target.path}.git")
            sampling.cancel()
        finally:
            server.kill()
    assert most - before < 24 * 1024 * 1024
    assert local(make.services.repositories.path_of(target.id), "rev-parse", "master") == local(large, "rev-parse", "master")

"""The real git and ssh programs against the SSH server; asyncssh sends what no ssh program would send."""

import asyncio
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncssh
import httpx
import pytest

from forgefront.config import Config, ConfigError
from forgefront.ssh import host_keys, ssh_server
from forgefront.ssh.ssh_server import GitSshServer
from forgefront.ssh.ssh_session import GitCommand, parse_command
from graph.git_access import GitAccess, RepositoryGrant
from storage import tables
from storage.git.protocol.push import RefCommand
from storage.git.protocol.transport import GitService, Transport
from storage.secrets import write_once
from storage.tables import AccessLevel, UserState, Visibility
from storage.tables.settings import BranchProtection
from tests.forgefront.commands.test_serve import start_serve
from tests.forgefront.git.test_git_http import ONE_DATABASE, CommandOutput, GitHttpServer, encode_chunk, protect
from tests.forgefront.support.cli_runner import CommandRunner
from tests.make import DataFactory
from tests.support.git.git_history import GIT_ENVIRONMENT, commit_files, make_history
from tests.support.git.git_history import git as local
from tests.support.git.repositories import take_over
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="NOT RUN: ssh (apt install openssh-client)")

HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")
KEYS = {name: asyncssh.generate_private_key("ssh-ed25519") for name in ("developer", "master", "stranger", "other")}


class SshServer(GitHttpServer):
    """The user name in an address is that of the file of the key that ssh shows."""

    counted: list[tuple[str, str]]
    ssh_server: GitSshServer
    environment: dict[str, str]
    clients: list[asyncssh.SSHClientConnection]

    def url(self, project: tables.Project, viewer: tables.User | str | None = None, *, token: str | None = None) -> str:
        name = viewer if isinstance(viewer, str) else viewer.username if viewer else "stranger"
        return f"ssh://{name}@127.0.0.1:{self.port}/{self.path_of[project.id]}.git"

    def bytes_sent(self) -> int:
        """What the running commands have sent to their clients."""
        return sum(session.bytes_out for connection in self.ssh_server.connections for session in connection._sessions)

    async def git(self, *arguments: object, folder: Path | None = None, succeeds: bool | None = True) -> CommandOutput:
        return await self.run_program("git", *arguments, folder=folder, succeeds=succeeds)

    async def ssh(self, name: str, *arguments: object, succeeds: bool | None = False) -> CommandOutput:
        command = [*self.environment["GIT_SSH_COMMAND"].split()[1:], "-p", str(self.port), *map(str, arguments)]
        at = next((number for number, each in enumerate(command) if each == "HOST"), None)
        if at is None:
            command.append(f"{name}@127.0.0.1")
        else:
            command[at] = f"{name}@127.0.0.1"
        return await self.run_program("ssh", *command, succeeds=succeeds)

    async def run_program(self, *command: object, folder: Path | None = None, succeeds: bool | None = True) -> CommandOutput:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=folder or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 50)
        output = CommandOutput(process.returncode or 0, out.decode("utf-8", "replace").strip(), err.decode("utf-8", "replace"))
        assert succeeds is None or succeeds == (output.code == 0), output.err
        return output

    async def add_key(self, user: tables.User, name: str) -> None:
        """The user may come in with this key, as `USERNAME@` and as `NAME@`."""
        key = KEYS[name]
        fingerprint = key.get_fingerprint("md5").removeprefix("MD5:")
        text = key.export_public_key().decode().strip()
        await self.make.save(tables.SshKey(user_id=user.id, title=name, key=f"{text} of {name}", fingerprint=fingerprint))
        self.write_key(user.username, name)

    def write_key(self, file: str, name: str) -> None:
        path = self.folder.parent / "keys" / file
        path.write_bytes(KEYS[name].export_private_key())
        path.chmod(0o600)

    async def connect(self, name: str, **options: object) -> asyncssh.SSHClientConnection:
        connect_options: dict[str, object] = {
            "client_keys": [KEYS[name]],
            "username": "git",
            "known_hosts": None,
            "config": None,
            **options,
        }
        client = await asyncssh.connect("127.0.0.1", self.port, agent_path=None, **connect_options)  # type: ignore[arg-type]
        self.clients.append(client)
        return client

    async def set_user_state(self, user: tables.User, state: UserState) -> None:
        async with self.make.services.database.write_session() as session:
            row = await session.get(tables.User, user.id)
            row.state = state
            session.add(row)
            await session.commit()


@pytest.fixture
def settings() -> dict[str, int]:
    """What a test has otherwise in its transport."""
    return {}


@pytest.fixture
async def forge(make: DataFactory, tmp_path: Path, settings: dict[str, int]) -> AsyncIterator[SshServer]:
    for name in ("work", "keys"):
        (tmp_path / name).mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    counted: list[tuple[str, str]] = []
    transport = Transport(**settings)
    server = GitSshServer(
        GitAccess(make.services),
        transport,
        listener,
        [HOST_KEY],
        count_command=lambda command, outcome, _: counted.append((command, outcome)),
    )
    await server.start()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {HOST_KEY.export_public_key().decode()}")
    (tmp_path / "config").write_text(
        f"IdentityFile {tmp_path}/keys/%r\nIdentitiesOnly yes\nIdentityAgent none\nBatchMode yes\nLogLevel ERROR\n"
        f"UserKnownHostsFile {tmp_path}/known\nStrictHostKeyChecking yes\n"
    )
    forge = SshServer(None, transport, port, make, tmp_path / "work", {})  # type: ignore[arg-type]
    forge.counted, forge.ssh_server, forge.clients = counted, server, []
    forge.environment = {**GIT_ENVIRONMENT, "GIT_SSH_COMMAND": f"ssh -F {tmp_path / 'config'}", "GIT_SSH_VARIANT": "ssh"}
    forge.write_key("stranger", "stranger")
    forge.write_key("git", "developer")
    yield forge
    for client in forge.clients:
        client.abort()
    await server.close()
    assert forge.processes() == []


@pytest.fixture
async def developer(make: DataFactory, forge: SshServer) -> tables.User:
    user = await make.user()
    await forge.add_key(user, "developer")
    return user


@pytest.fixture
async def master(make: DataFactory, forge: SshServer) -> tables.User:
    user = await make.user()
    await forge.add_key(user, "master")
    return user


@pytest.fixture
async def project(forge: SshServer, developer: tables.User, master: tables.User) -> tables.Project:
    """With four commits: `master` of two, and `topic`."""
    return await forge.project(history={"commits": 4}, members=[(developer, AccessLevel.DEVELOPER), (master, AccessLevel.MASTER)])


class TestCommandParsing:
    @pytest.mark.parametrize(
        ("command", "expected"),
        [
            ("git-upload-pack 'ada/app.git'", GitCommand(GitService.UPLOAD, "ada/app")),
            ("git-upload-pack '/ada/app.git'", GitCommand(GitService.UPLOAD, "ada/app")),
            ("git upload-pack /ada/app", GitCommand(GitService.UPLOAD, "ada/app")),
            ("git-receive-pack 'Ada/app.js.git/'", GitCommand(GitService.RECEIVE, "Ada/app.js")),
            ("git-upload-pack '--upload-pack=id/x'", GitCommand(GitService.UPLOAD, "--upload-pack=id/x")),
            ("git-upload-pack '$(id)/`id`;ls'", GitCommand(GitService.UPLOAD, "$(id)/`id`;ls")),
        ],
    )
    def test_understood(self, command: str, expected: GitCommand) -> None:
        assert parse_command(command) == expected

    @pytest.mark.parametrize(
        "command",
        [
            "",
            "ls",
            "git",
            "git-upload-pack",
            "git upload-pack",
            "git-upload-pack 'app.git'",
            "git-upload-pack 'a/b/c.git'",
            "git-upload-pack '../../etc/passwd'",
            "git-upload-pack ''",
            "git-upload-pack 'ada/app.git'; ls",
            "git-upload-pack ada/app.git && ls",
            "git-upload-pack --strict ada/app.git",
            "git-upload-pack 'ada/app.git",
            "git-upload-pack 'ada/a\0pp.git'",
            "git-upload-pack 'ada/app.git'\nls",
            "git-upload-archive 'ada/app.git'",
            "git lfs-authenticate ada/app.git",
            "git-shell -c ls",
            "/usr/bin/git-upload-pack ada/app.git",
            "scp -f x",
            f"git-upload-pack 'ada/{'a' * 5000}'",
        ],
    )
    def test_not_understood(self, command: str) -> None:
        assert parse_command(command) is None


class TestFetch:
    async def test_clone_fetch_and_push(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        before = (await forge.row(project)).last_activity_at
        folder = await forge.clone(project, developer)
        assert local(folder, "rev-parse", "HEAD") == forge.refs(project)["refs/heads/master"]
        oid = await forge.commit(folder)
        await forge.git("push", "-q", "origin", "HEAD:refs/heads/new", folder=folder)
        assert forge.refs(project)["refs/heads/new"] == oid
        # Recorded when the program ends, as over HTTP.
        assert (await forge.row(project)).last_activity_at > before
        there = commit_files(forge.repository(project), {"there": b"there\n"}, oid)
        local(forge.repository(project), "update-ref", "refs/heads/new", there)
        await forge.git("fetch", "-q", folder=folder)
        assert local(folder, "rev-parse", "origin/new") == there
        assert forge.counted == [("git-upload-pack", "done"), ("git-receive-pack", "done"), ("git-upload-pack", "done")]
        assert forge.leftovers(project) == []

    @ONE_DATABASE
    @pytest.mark.parametrize("version", [0, 2])
    async def test_the_protocol_is_the_clients_choice(
        self, forge: SshServer, project: tables.Project, developer: tables.User, version: int
    ) -> None:
        forge.environment["GIT_TRACE_PACKET"] = "1"
        output = await forge.git("-c", f"protocol.version={version}", "clone", "--mirror", forge.url(project, developer), "x.git")
        assert ("< version 2" in output.err) == (version == 2)
        local(forge.folder / "x.git", "fsck", "--strict")

    @ONE_DATABASE
    async def test_shallow_and_partial(self, forge: SshServer, developer: tables.User) -> None:
        project = await forge.project(history={"commits": 60}, members=[(developer, AccessLevel.REPORTER)])
        shallow = await forge.clone(project, developer, "--depth=1")
        assert local(shallow, "rev-list", "--count", "HEAD") == "1"
        await forge.git("fetch", "-q", "--unshallow", folder=shallow)
        assert local(shallow, "rev-list", "HEAD") == local(forge.repository(project), "rev-list", "master")
        partial = await forge.clone(project, developer, "--filter=blob:none", "--no-checkout")
        assert "?" in local(partial, "rev-list", "--objects", "--missing=print", "HEAD")
        await forge.git("checkout", "-q", "master", folder=partial)

    @ONE_DATABASE
    async def test_every_form_of_the_address(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        """Also with any user name, as `git@` by custom."""
        for url in (
            forge.url(project, "git"),
            forge.url(project, "git").removesuffix(".git"),
            forge.url(project, developer).replace(forge.path_of[project.id], forge.path_of[project.id].upper()),
        ):
            assert "refs/heads/master" in (await forge.git("ls-remote", url)).out
        forge.environment["GIT_SSH_COMMAND"] += f" -p {forge.port}"
        assert "refs/heads/master" in (await forge.git("ls-remote", f"git@127.0.0.1:{forge.path_of[project.id]}.git")).out

    @ONE_DATABASE
    @pytest.mark.parametrize("settings", [{"max_processes": 2}])
    async def test_as_many_at_once_as_over_http(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, forge.transport.fetching.running)
                await asyncio.sleep(0.01)

        watching = asyncio.create_task(watch())
        url = forge.url(project, developer)
        await asyncio.gather(*(forge.git("clone", "-q", url, forge.folder / f"c{number}") for number in range(8)))
        watching.cancel()
        assert 1 <= most <= 2

    @ONE_DATABASE
    @pytest.mark.parametrize("settings", [{"max_processes": 1}])
    async def test_a_full_queue(
        self, forge: SshServer, project: tables.Project, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(forge.transport.fetching, "_seconds", 0.2)
        async with forge.transport.fetching.slot():
            output = await forge.git("ls-remote", forge.url(project, developer), succeeds=False)
        assert "ERROR: Too many fetches or pushes are running" in output.err

    @ONE_DATABASE
    @pytest.mark.parametrize("settings", [{"max_processes": 2}])
    async def test_a_user_leaves_slots_to_others(
        self, forge: SshServer, project: tables.Project, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(forge.transport.fetching, "_seconds", 0.2)
        for user_id, succeeds in ((developer.id, False), (developer.id + 1, True)):
            async with forge.transport.fetching.slot(f"user {user_id}"):
                await forge.git("ls-remote", forge.url(project, developer), succeeds=succeeds)


class TestPermissions:
    async def test_permissions_by_access_level(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        make = forge.make
        guest = await make.user()
        await make.member(project, guest, AccessLevel.GUEST)
        await forge.add_key(guest, "other")
        output = await forge.git("ls-remote", forge.url(project, guest), succeeds=False)
        assert "ERROR: You are not allowed to read this code." in output.err
        folder = await forge.clone(project, developer)
        output = await forge.git("push", forge.url(project, guest), "HEAD:refs/heads/x", folder=folder, succeeds=False)
        assert "ERROR: You are not allowed to push to this project." in output.err

    @ONE_DATABASE
    async def test_a_hidden_project_looks_like_a_missing_one(self, forge: SshServer, project: tables.Project) -> None:
        outsider = await forge.make.user()
        await forge.add_key(outsider, "other")
        for service in ("git-upload-pack", "git-receive-pack"):
            there = await forge.ssh(outsider.username, "HOST", f"{service} '{forge.path_of[project.id]}.git'")
            nowhere = await forge.ssh(outsider.username, "HOST", f"{service} 'no/such.git'")
            assert there == nowhere
            assert "ERROR: Project not found." in there.err

    @ONE_DATABASE
    async def test_a_public_project_requires_any_known_key(self, forge: SshServer) -> None:
        project = await forge.project(history={"commits": 4}, visibility=Visibility.PUBLIC)
        await forge.add_key(await forge.make.user("someone"), "other")
        await forge.git("ls-remote", forge.url(project, "someone"))
        output = await forge.git("ls-remote", forge.url(project, "stranger"), succeeds=False)
        assert "Permission denied (publickey)" in output.err

    @ONE_DATABASE
    async def test_an_archived_project(self, forge: SshServer, developer: tables.User) -> None:
        project = await forge.project(history={"commits": 4}, archived=True, members=[(developer, AccessLevel.MASTER)])
        folder = await forge.clone(project, developer)
        output = await forge.git("push", "origin", "HEAD:refs/heads/x", folder=folder, succeeds=False)
        assert "ERROR: The project is archived" in output.err

    async def test_a_blocked_user(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        async with await forge.connect("developer") as connection:
            command = f"git-upload-pack '{forge.path_of[project.id]}.git'"
            assert (await connection.run(command, input="0000")).exit_status == 0
            await forge.set_user_state(developer, UserState.BLOCKED)
            # Without input, since a refusal may come before it could be sent.
            refused = await connection.run(command)
            assert (refused.exit_status, "its owner is blocked" in str(refused.stderr)) == (1, True)
        output = await forge.git("ls-remote", forge.url(project, developer), succeeds=False)
        assert "Permission denied (publickey)" in output.err

    @ONE_DATABASE
    async def test_a_key_that_was_taken_away(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        async with await forge.connect("developer") as connection:
            async with forge.make.services.database.write_session() as session:
                await session.delete(await session.get(tables.SshKey, 1))
                await session.commit()
            refused = await connection.run(f"git-upload-pack '{forge.path_of[project.id]}.git'")
        assert "This key is no longer valid" in str(refused.stderr)

    @ONE_DATABASE
    async def test_the_whole_key_is_compared(self, forge: SshServer, developer: tables.User) -> None:
        async with forge.make.services.database.write_session() as session:
            row = await session.get(tables.SshKey, 1)
            row.key = KEYS["other"].export_public_key().decode()
            session.add(row)
            await session.commit()
        with pytest.raises(asyncssh.PermissionDenied):
            await forge.connect("developer")

    @ONE_DATABASE
    async def test_passwords_and_too_many_keys(self, forge: SshServer, developer: tables.User) -> None:
        with pytest.raises(asyncssh.PermissionDenied):
            await forge.connect("developer", client_keys=None, password="token", username=developer.username)
        with pytest.raises(asyncssh.DisconnectError, match="Too many keys"):
            await forge.connect("developer", client_keys=[*[KEYS["stranger"]] * ssh_server.MAX_KEYS_TRIED, KEYS["developer"]])

    @ONE_DATABASE
    async def test_a_key_is_found_in_one_statement_a_try(self, forge: SshServer, developer: tables.User, statements: object) -> None:
        with statements.assert_at_most(2):  # type: ignore[attr-defined]
            async with await forge.connect("developer", client_keys=[KEYS["developer"]], signature_algs="ssh-ed25519"):
                pass


class TestPush:
    async def test_a_protected_branch_and_why(
        self, forge: SshServer, project: tables.Project, developer: tables.User, master: tables.User
    ) -> None:
        await protect(forge.make, project, BranchProtection.FULL)
        folder = await forge.clone(project, developer)
        oid = await forge.commit(folder)
        output = await forge.git("push", "origin", "master", "HEAD:refs/heads/new", folder=folder, succeeds=False)
        assert "master: You are not allowed to push to this protected branch" in output.err
        assert "[remote rejected]" in output.err
        assert (forge.refs(project)["refs/heads/new"], forge.refs(project)["refs/heads/master"] == oid) == (oid, False)
        await forge.git("push", "-q", forge.url(project, master), "master", folder=folder)
        assert forge.refs(project)["refs/heads/master"] == oid
        assert forge.leftovers(project) == []

    @ONE_DATABASE
    async def test_force_push_to_a_partly_protected_branch(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        await protect(forge.make, project, BranchProtection.PARTIAL)
        folder = await forge.clone(project, developer)
        await forge.commit(folder, amend=True)
        output = await forge.git("push", "-f", "origin", "master", folder=folder, succeeds=False)
        assert "master: You are not allowed to force-push" in output.err

    @ONE_DATABASE
    async def test_a_small_push_reserves_its_refs(
        self, forge: SshServer, project: tables.Project, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So that merges do not overtake it, as over HTTP; a large one reserves nothing."""
        reserved: list[list[str]] = []
        reserve = GitAccess.reserve

        def record(access: GitAccess, grant: RepositoryGrant, updates: list[RefCommand]) -> AbstractAsyncContextManager[None]:
            reserved.append([update.ref for update in updates])
            return reserve(access, grant, updates)

        monkeypatch.setattr(GitAccess, "reserve", record)
        folder = await forge.clone(project, developer)
        await forge.commit(folder)
        await forge.git("push", "-q", "origin", "HEAD:refs/heads/topic2", "HEAD:refs/heads/topic3", folder=folder)
        assert reserved == [["refs/heads/topic2", "refs/heads/topic3"]]
        await forge.git("push", "-q", "origin", ":refs/heads/topic3", folder=folder)
        assert reserved[1:] == [["refs/heads/topic3"]]
        (folder / "large").write_bytes(random.Random(1).randbytes(300_000))
        await forge.git("add", "large", folder=folder)
        await forge.commit(folder)
        await forge.git("push", "-q", "origin", "HEAD:refs/heads/topic2", folder=folder)
        assert len(reserved) == 2

    @ONE_DATABASE
    async def test_nothing_to_push(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        folder = await forge.clone(project, developer)
        output = await forge.git("push", "origin", "master", folder=folder)
        assert "Everything up-to-date" in output.err
        assert forge.counted[-1] == ("git-receive-pack", "done")

    @ONE_DATABASE
    async def test_rights_revoked_during_a_push(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        oid = forge.refs(project)["refs/heads/topic"]
        line = f"{'0' * 40} {oid} refs/heads/late\0 report-status".encode()
        async with await forge.connect("developer") as connection:
            command = f"git-receive-pack '{forge.path_of[project.id]}.git'"
            async with await connection.create_process(command, encoding=None) as process:
                process.stdin.write(f"{len(line) + 4:04x}".encode() + line + b"0000")
                await wait_until(lambda: forge.bytes_sent() > 0)
                await asyncio.sleep(0.3)
                await forge.set_user_state(developer, UserState.BLOCKED)
                process.stdin.write(EMPTY_PACK)
                assert b"ng refs/heads/late " in await process.stdout.read()
        assert "refs/heads/late" not in forge.refs(project)
        assert forge.leftovers(project) == []

    @ONE_DATABASE
    async def test_a_client_killed_in_the_middle_of_a_push(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        folder = await forge.clone(project, developer)
        (folder / "large").write_bytes(random.Random(1).randbytes(30_000_000))
        await forge.git("config", "core.compression", "0", folder=folder)
        await forge.git("add", "large", folder=folder)
        await forge.commit(folder)
        before = forge.refs(project)
        process = await asyncio.create_subprocess_exec(
            *("git", "push", "-q", "origin", "HEAD:refs/heads/half"), cwd=folder, env=forge.environment, start_new_session=True
        )
        await wait_until(lambda: forge.leftovers(project) != [])
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await wait_until(lambda: forge.processes() == [] and forge.transport.pushing.running == 0)
        assert (forge.leftovers(project), forge.refs(project)) == ([], before)
        await wait_until(lambda: forge.counted[-1] == ("git-receive-pack", "gone"))
        # The branch is free; the large file need not be sent again to show it.
        await forge.git("reset", "-q", "--hard", "HEAD~1", folder=folder)
        await forge.commit(folder)
        await forge.git("push", "-q", "origin", "HEAD:refs/heads/half", folder=folder)

    @ONE_DATABASE
    async def test_a_received_push_completes_after_a_disconnect(
        self, forge: SshServer, project: tables.Project, developer: tables.User
    ) -> None:
        oid = forge.refs(project)["refs/heads/topic"]
        before = (await forge.row(project)).last_activity_at
        line = f"{'0' * 40} {oid} refs/heads/alone\0 report-status".encode()
        connection = await forge.connect("developer")
        process = await connection.create_process(f"git-receive-pack '{forge.path_of[project.id]}.git'", encoding=None)
        process.stdin.write(f"{len(line) + 4:04x}".encode() + line + b"0000" + EMPTY_PACK)
        await asyncio.sleep(0.02)
        await wait_until(lambda: forge.transport.pushing.running == 1)
        connection.abort()
        await wait_until(lambda: forge.refs(project).get("refs/heads/alone") == oid)
        await wait_until(lambda: not forge.ssh_server.connections)
        await forge.ssh_server.close()
        async with asyncio.timeout(10):
            while (await forge.row(project)).last_activity_at <= before:  # noqa: ASYNC110 - only the row shows it
                await asyncio.sleep(0.02)


EMPTY_PACK = bytes.fromhex("5041434b0000000200000000029d08823bd8a8eab510ad6ac75c823cfd3ed31e")


@ONE_DATABASE
class TestRejectedRequests:
    async def test_a_shell_request_prints_a_greeting(self, forge: SshServer, developer: tables.User) -> None:
        for arguments in ((), ("-T",)):
            output = await forge.ssh("git", *arguments)
            assert output.code == 1
            assert f"Hi {developer.username}! " in output.err
            assert "no shell access" in output.err
            assert output.out == ""

    async def test_other_commands(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        for command in ("ls", "id; ls", "$(id)", "git-upload-pack", "sh -c id", "scp -f /etc/passwd", "git-upload-archive 'a/b.git'"):
            output = await forge.ssh("git", "HOST", command)
            assert (output.code, output.out) == (1, "")
            assert "ERROR: Only git-upload-pack and git-receive-pack" in output.err
        assert {outcome for _, outcome in forge.counted} == {"refused"}

    async def test_hostile_commands(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        async with await forge.connect("developer") as connection:
            for path in ("--upload-pack=id/x", "$(id)/x", "..", "\udcff/x".encode("utf-8", "replace").decode(), "a/b\\", "x" * 3000 + "/y"):
                output = await connection.run(f"git-upload-pack '{path}'", input="")
                assert output.exit_status == 1, path
                assert str(output.stderr).startswith("ERROR: ")
            nul = await connection.run("git-upload-pack 'a\0b/c'", input="")
            assert nul.exit_status == 1
        connection = await forge.connect("developer")
        with pytest.raises((asyncssh.Error, OSError)):
            await connection.run("x" * 1_000_000, check=True)
        connection.close()
        await forge.git("ls-remote", forge.url(project, developer))

    async def test_forwarding_and_subsystems_are_rejected(self, forge: SshServer, developer: tables.User) -> None:
        async with await forge.connect("developer") as connection:
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.open_connection("127.0.0.1", forge.port)
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.open_unix_connection("/var/run/docker.sock")
            with pytest.raises(asyncssh.ChannelListenError):
                await connection.start_server(lambda *_: None, "127.0.0.1", 0)
            with pytest.raises(asyncssh.ChannelListenError):
                await connection.start_unix_server(lambda *_: None, "/tmp/x")
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.start_sftp_client()
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.create_process(subsystem="netconf")
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.create_process("ls", x11_forwarding=True, x11_display="127.0.0.1:0")
        output = await forge.ssh("git", "-o", "ExitOnForwardFailure=yes", "-N", "-R", "0:127.0.0.1:1")
        assert "remote port forwarding failed" in output.err

    async def test_of_the_environment_the_protocol_alone(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        async with await forge.connect("developer") as connection:
            for name, value, version in (("GIT_PROTOCOL", "version=2", 2), ("GIT_TRACE", "1", 0), ("GIT_PROTOCOL", "x" * 3000, 0)):
                command = f"git-upload-pack '{forge.path_of[project.id]}.git'"
                output = await connection.run(command, env={name: value}, input="0000")
                assert ("version 2" in str(output.stdout), output.stderr) == (version == 2, "")

    async def test_log_events(self, forge: SshServer, developer: tables.User, capsys: pytest.CaptureFixture[str]) -> None:
        await forge.ssh("git")
        text = "".join(capsys.readouterr())
        assert developer.username in text
        assert KEYS["developer"].export_public_key().decode().split()[1] not in text


@ONE_DATABASE
class TestLimits:
    async def test_unauthenticated_connections_are_limited(
        self, forge: SshServer, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ssh_server, "MAX_UNAUTHENTICATED_PER_ADDRESS", 3)
        opened = [await asyncio.open_connection("127.0.0.1", forge.port) for _ in range(3)]
        for reader, _ in opened:
            assert await reader.readline() == b"SSH-2.0-Forgefront\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", forge.port)
        assert await reader.read() == b""
        writer.close()
        monkeypatch.setattr(ssh_server, "MAX_UNAUTHENTICATED_PER_ADDRESS", 100)
        monkeypatch.setattr(ssh_server, "MAX_UNAUTHENTICATED", 3)
        # The oldest has to go, so that who comes can come in.
        async with await forge.connect("developer"):
            assert b"SSH" not in await opened[0][0].read()
        for _, writer in opened:
            writer.close()

    async def test_connections_of_one_user_are_limited(
        self, forge: SshServer, developer: tables.User, master: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ssh_server, "MAX_CONNECTIONS_PER_OWNER", 2)
        opened = [await forge.connect("developer") for _ in range(2)]
        await asyncio.wait_for((await forge.connect("developer")).wait_closed(), 5)
        async with await forge.connect("master") as connection:
            assert (await connection.run()).exit_status == 1
        opened[0].close()
        await opened[0].wait_closed()
        await wait_until(lambda: len(forge.ssh_server.connections) == 1)
        async with await forge.connect("developer"):
            pass

    async def test_login_timeout(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ssh_server, "LOGIN_SECONDS", 0.2)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = GitSshServer(GitAccess(make.services), Transport(), listener, [HOST_KEY])
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await server.close()
        assert not server.connections

    async def test_commands_on_one_connection(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        command = f"git-upload-pack '{forge.path_of[project.id]}.git'"
        async with await forge.connect("developer") as connection:
            processes = [await connection.create_process(command) for _ in range(ssh_server.MAX_SESSIONS)]
            with pytest.raises(asyncssh.ChannelOpenError, match="Too many concurrent commands"):
                await connection.create_process(command)
            for process in processes:
                process.stdin.write("0000")
                await process.wait()
            assert (await connection.run(command, input="0000")).exit_status == 0

    async def test_idle_timeout(
        self, forge: SshServer, project: tables.Project, developer: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ssh_server, "MAX_SILENT_SECONDS", dict.fromkeys(GitService, 0.1))
        monkeypatch.setattr(ssh_server, "IDLE_SECONDS", 0.5)
        async with await forge.connect("developer") as connection:
            for service in GitService:
                process = await connection.create_process(f"{service} '{forge.path_of[project.id]}.git'", encoding=None)
                await wait_until(lambda: forge.bytes_sent() > 0)
                await asyncio.sleep(0.2)
                for line in forge.ssh_server.connections:
                    line.close_if_idle()
                await asyncio.wait_for(process.wait(), 8)
                await wait_until(lambda: forge.processes() == [])
            await asyncio.sleep(0.6)
            for line in list(forge.ssh_server.connections):
                line.close_if_idle()
            await asyncio.wait_for(connection.wait_closed(), 5)
        assert (forge.transport.fetching.running, forge.transport.pushing.running) == (0, 0)

    async def test_a_client_that_does_not_read(self, forge: SshServer, developer: tables.User) -> None:
        """However large its window is, little is buffered for it."""
        project = await forge.project(members=[(developer, AccessLevel.DEVELOPER)])
        encode_chunk(create_large_repository(forge.folder.parent / "large.git", megabytes=12), forge.repository(project))
        await take_over(forge.make.services)
        tip = forge.refs(project)["refs/heads/master"]
        connection = await forge.connect("developer")
        command = f"git-upload-pack '{forge.path_of[project.id]}.git'"
        process = await connection.create_process(command, encoding=None, window=2**31)
        # Nothing was asked for yet: from here on all that is sent stays in buffers.
        connection._transport.pause_reading()  # type: ignore[union-attr]
        process.stdin.write(f"0032want {tip}\n00000009done\n".encode())
        (session,) = (session for line in forge.ssh_server.connections for session in line._sessions)
        await wait_until(lambda: session.bytes_out > 0)
        await asyncio.sleep(1)
        sent = session.bytes_out
        assert sent < 10_000_000
        await asyncio.sleep(0.3)
        assert session.bytes_out == sent
        connection.abort()
        await wait_until(lambda: forge.processes() == [])


@ONE_DATABASE
class TestShutdown:
    async def test_running_commands_complete(self, forge: SshServer, project: tables.Project, developer: tables.User) -> None:
        oid = forge.refs(project)["refs/heads/topic"]
        line = f"{'0' * 40} {oid} refs/heads/last\0 report-status".encode()
        command = f"git-receive-pack '{forge.path_of[project.id]}.git'"
        idle, busy = await forge.connect("developer"), await forge.connect("developer")
        process = await busy.create_process(command, encoding=None)
        process.stdin.write(f"{len(line) + 4:04x}".encode() + line + b"0000")
        await wait_until(lambda: forge.bytes_sent() > 0)
        forge.ssh_server.begin_shutdown(10)
        await asyncio.wait_for(idle.wait_closed(), 5)
        with pytest.raises(OSError):
            await forge.connect("developer")
        with pytest.raises(asyncssh.ChannelOpenError, match="stopping"):
            await busy.create_process(command)
        process.stdin.write(EMPTY_PACK)
        assert b"refs/heads/last" in await process.stdout.read()
        assert (await process.wait()).exit_status == 0
        await asyncio.wait_for(forge.ssh_server.close(), 5)
        assert forge.refs(project)["refs/heads/last"] == oid

    async def test_commands_over_the_grace_period_are_killed(
        self, forge: SshServer, project: tables.Project, developer: tables.User
    ) -> None:
        connection = await forge.connect("developer")
        await connection.create_process(f"git-upload-pack '{forge.path_of[project.id]}.git'", encoding=None)
        await wait_until(lambda: bool(forge.processes()))
        forge.ssh_server.begin_shutdown(0.2)
        await asyncio.wait_for(forge.ssh_server.close(), 5)
        assert forge.processes() == []
        await asyncio.wait_for(connection.wait_closed(), 5)


def create_large_repository(path: Path, *, megabytes: int) -> Path:
    """A repository of this size that does not compress."""
    make_history(path, commits=4)
    numbers = random.Random(7)
    files: dict[str | bytes, bytes | tuple[int, bytes]] = {f"f{index}": numbers.randbytes(1_000_000) for index in range(megabytes)}
    local(path, "update-ref", "refs/heads/master", commit_files(path, files, local(path, "rev-parse", "master")))
    local(path, "-c", "core.compression=0", "-c", "pack.window=0", "repack", "-a", "-d", "-q")
    return path


def resident_kib(pid: int) -> int:
    """Bytes that a process has of its own; the files that libgit2 maps are not among them."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def test_the_whole_service(tmp_path: Path, isolated_environment: None) -> None:
    """`forgefront serve --ssh-port`: a key added over v3; 24 MB pushed and cloned in bounded memory; a stop."""
    data = tmp_path / "data"
    command = CommandRunner(data)
    command("admin", "user", "create", "root", "--email", "root@example.org", "--admin", "--no-password")
    token = command("admin", "token", "show", "root").stdout.strip()
    source = create_large_repository(tmp_path / "large.git", megabytes=24)
    with start_serve(data, "--ssh-port", "0") as (process, output):
        prefix = next(line for line in output.splitlines() if line.startswith("  SSH ")).split()[1]
        base = output.split()[4]
        path = data / host_keys.FILE_NAME
        key = asyncssh.read_private_key(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert f"host key ssh-ed25519 {key.get_fingerprint()}" in output
        with httpx.Client(headers={"PRIVATE-TOKEN": token}, base_url=f"{base}/api/v3") as http:
            public = KEYS["developer"].export_public_key().decode()
            assert http.post("/user/keys", data={"title": "mine", "key": public}).status_code == 201
            url = http.post("/projects", data={"name": "large"}).json()["ssh_url_to_repo"]
        assert url == prefix.replace("NAMESPACE/PROJECT", "root/large")
        identity = tmp_path / "identity"
        identity.write_bytes(KEYS["developer"].export_private_key())
        identity.chmod(0o600)
        options = "-o IdentitiesOnly=yes -o IdentityAgent=none -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no"
        environment = {**GIT_ENVIRONMENT, "GIT_SSH_COMMAND": f"ssh -F none -i {identity} {options}"}

        def run(*arguments: str) -> None:
            subprocess.run(["git", *arguments], cwd=tmp_path, env=environment, check=True, timeout=50, capture_output=True)

        run("ls-remote", url)
        before = resident_kib(process.pid)
        run(f"--git-dir={source}", "push", "-q", url, "master")
        run("clone", "-q", "--bare", url, "copy")
        assert local(tmp_path / "copy", "rev-parse", "master") == local(source, "rev-parse", "master")
        assert resident_kib(process.pid) - before < 14 * 1024 * 1024
        metrics = httpx.get(f"{base}/-/metrics").text
        assert 'forgefront_ssh_commands_total{command="git-upload-pack",outcome="done"} 2.0' in metrics
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


class TestHostKeys:
    def test_concurrent_generation_yields_one_key(self, tmp_path: Path) -> None:
        path = tmp_path / host_keys.FILE_NAME
        (made,) = host_keys.load_host_keys(tmp_path, [])
        first = path.read_bytes()
        write_once(path, HOST_KEY.export_private_key())
        assert host_keys.load_host_keys(tmp_path, []) == [made]
        assert path.read_bytes() == first
        assert [each.name for each in tmp_path.iterdir()] == [path.name]

    def test_own_keys(self, tmp_path: Path) -> None:
        path = tmp_path / "own"
        path.write_bytes(HOST_KEY.export_private_key())
        (found,) = host_keys.load_host_keys(tmp_path, [path])
        assert found.public_data == HOST_KEY.public_data
        for text in (b"", b"nothing", HOST_KEY.export_public_key(), HOST_KEY.export_private_key("pkcs8-pem", passphrase="x")):
            path.write_bytes(text)
            with pytest.raises(ConfigError, match="not a private key without a passphrase"):
                host_keys.load_host_keys(tmp_path, [path])
        with pytest.raises(ConfigError, match="cannot be read"):
            host_keys.load_host_keys(tmp_path, [tmp_path / "none"])


class TestConfig:
    @pytest.mark.parametrize(
        ("address", "prefix"),
        [
            ({}, ""),
            ({"ssh_port": 2222}, "ssh://git@127.0.0.1:2222/"),
            ({"ssh_port": 2222, "external_url": "https://forge.example:8443/x"}, "ssh://git@forge.example:2222/"),
            ({"ssh_port": 22, "external_url": "https://forge.example"}, "git@forge.example:"),
            ({"ssh_port": 2222, "ssh_external_url": "ssh://git@ssh.example"}, "git@ssh.example:"),
            ({"ssh_port": 2222, "ssh_external_url": "ssh://forge@ssh.example:9/"}, "ssh://forge@ssh.example:9/"),
            ({"ssh_port": 2222, "host": "::1"}, "ssh://git@[::1]:2222/"),
        ],
    )
    def test_addresses(self, tmp_path: Path, address: dict[str, object], prefix: str) -> None:
        assert Config.load(data=tmp_path, **address).ssh_prefix == prefix

    @pytest.mark.parametrize("text", ["forge.example", "https://x", "ssh://a:b@c", "ssh://x/path", "ssh://x:99999", "ssh://", "ssh://x y"])
    def test_bad_addresses(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigError, match="ssh_external_url"):
            Config.load(data=tmp_path, ssh_external_url=text)

    def test_files_of_keys(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_SSH_HOST_KEYS", "/a/one, /a/two")
        assert Config.load(data=tmp_path).ssh_host_keys == (Path("/a/one"), Path("/a/two"))


class TestDeployKeys:
    async def test_fetch_from_their_projects_and_never_push(self, forge: SshServer, project: tables.Project, master: tables.User) -> None:
        other = await forge.project(history={"commits": 4}, visibility=Visibility.PUBLIC)
        key = KEYS["other"]
        text, fingerprint = key.export_public_key().decode().strip(), key.get_fingerprint("md5").removeprefix("MD5:")
        deploy_key = tables.DeployKey(project_id=project.id, title="d", key=f"{text} of d", fingerprint=fingerprint)
        await forge.make.save(deploy_key)
        forge.write_key("other", "other")

        await forge.git("clone", forge.url(project, "other"), "copy")
        await forge.git("fetch", "--all", folder=forge.folder / "copy")

        refused = await forge.git("push", "origin", "HEAD:refs/heads/mine", folder=forge.folder / "copy", succeeds=False)
        assert "A deploy key can fetch, but not push." in refused.err
        # It opens no other project, not even a public one.
        for method in ("clone", "ls-remote"):
            missing = await forge.git(method, forge.url(other, "other"), succeeds=False)
            assert "not found" in missing.err.lower()
        assert f"Hi deploy key {deploy_key.id}!" in (await forge.ssh("other")).err
        # Somebody's own key stays theirs.
        await forge.git("push", forge.url(project, master), "HEAD:refs/heads/mine", folder=forge.folder / "copy")
        async with forge.make.services.database.write_session() as session:
            await session.delete(await session.get(tables.DeployKey, deploy_key.id))
            await session.commit()
        gone = await forge.git("fetch", "origin", folder=forge.folder / "copy", succeeds=False)
        assert "Permission denied" in gone.err

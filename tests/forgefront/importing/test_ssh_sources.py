"""Repositories that are cloned over SSH, with the real programs, from an instance that serves it."""

import shutil
import socket
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import asyncssh
import pytest
from sqlalchemy import func, select

from forgefront.backend import Backend
from forgefront.config import Config
from storage import tables
from tests.make import DataFactory, token_of
from tests.support.imports.import_source import import_from, open_backend, serve_source, skip_waiting

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="NOT RUN: ssh (apt install openssh-client)")

PROJECTS = 5


def write_ssh_program(folder: Path, key: asyncssh.SSHKey) -> Path:
    """The program ssh with a key, which writes a line when it starts and when it ends."""
    folder.mkdir()
    (folder / "key").write_bytes(key.export_private_key())
    (folder / "key").chmod(0o600)
    options = (
        f"-i {folder}/key -o IdentitiesOnly=yes -o IdentityAgent=none -o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}/known"
    )
    program, log = folder / "ssh", folder / "log"
    program.write_text(f'#!/bin/sh\necho 1 >> {log}\nssh -F none {options} "$@"\ncode=$?\necho -1 >> {log}\nexit $code\n')
    program.chmod(0o700)
    return program


async def count_refs(backend: Backend) -> dict[int, int]:
    """The number of refs of each project that has some."""
    async with backend.database.read_session() as session:
        statement = select(tables.GitRef.project_id, func.count()).group_by(tables.GitRef.project_id)  # type: ignore[call-overload]
        return dict(map(tuple, await session.execute(statement)))


async def test_repositories_are_cloned_over_ssh_a_few_at_once(
    make: DataFactory, database_url: str, new_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, key = await make.user("root", admin=True), asyncssh.generate_private_key("ssh-ed25519")
    text, fingerprint = key.export_public_key().decode().strip(), key.get_fingerprint("md5").removeprefix("MD5:")
    await make.save(tables.SshKey(user_id=admin.id, title="Laptop", key=text, fingerprint=fingerprint))
    projects = [await make.project(owner=admin, path=f"web{number}", history={"commits": 3}) for number in range(PROJECTS)]
    broken = projects[1]
    folder = make.services.repositories.path_of(broken.id)
    folder.rename(tmp_path / "broken.git")
    program = write_ssh_program(tmp_path / "ssh", key)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(program))
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"ssh://git@127.0.0.1:{listener.getsockname()[1]}"
    config = Config.load(data=tmp_path, database_url=database_url, ssh_external_url=address)
    target = Config.load(data=tmp_path / "target", database_url=new_database())
    async with serve_source(config, ssh_listener=listener) as (url, source), open_backend(target) as backend:
        report = await import_from(url, token_of(admin), backend, keeps_ids=True, uses_ssh=True, sleep=skip_waiting)
        assert report.is_complete
        left = {each.kind: (each.where, each.reason) for each in report.omissions}
        assert left.keys() == {"protected branches", "repositories", "releases"}, report.as_text()
        where, reason = left["repositories"]
        assert (where, "fatal: " in reason, "access rights" in reason) == ("root/web1.git", True, False), reason
        assert (await count_refs(backend)).keys() == {project.id for project in projects if project is not broken}

        # No more than two at once: see `import_from`.
        running = list(accumulate(map(int, (tmp_path / "ssh" / "log").read_text().split())))
        assert (running[-1], max(running)) == (0, 2)
        assert not [path for path in source.paths if ".git/" in path]

        (tmp_path / "broken.git").rename(folder)
        again = await import_from(url, token_of(admin), backend, keeps_ids=True, uses_ssh=True)
        assert (again.omissions, again.count("repositories").unchanged) == ([], PROJECTS - 1)
        refs = await count_refs(backend)
        assert refs.keys() == {project.id for project in projects} and len(set(refs.values())) == 1, refs

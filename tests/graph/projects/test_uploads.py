"""Uploads through the graph: a file is created and deleted with its row."""

import time
from pathlib import Path
from typing import Any

import pytest

from graph.fields.entities import global_id
from graph.rules.projects.uploads import ORPHAN_AGE_SECONDS, remove_orphans
from storage import tables
from storage.database.engine import DatabaseSession
from storage.objects.uploads import new_secret
from storage.tables import Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

FIELDS = "name size contentType isImage alt url markdown author { username } project { path }"
CREATE = f"""mutation ($input: CreateUploadInput!) {{ createUpload(input: $input) {{
    upload {{ {FIELDS} }} userErrors {{ field message code }} }} }}"""
ONE = f"""query ($path: String!, $secret: String!, $name: String!) {{ project(path: $path) {{
    upload(secret: $secret, name: $name) {{ {FIELDS} }} }} }}"""
NODES = "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on Upload { name author { username } } } }"
LIMIT = "query ($path: String!) { project(path: $path) { uploadLimit viewerCan { upload } } }"
DELETE_PROJECT = "mutation ($input: DeleteProjectInput!) { deleteProject(input: $input) { userErrors { code } } }"
DELETE_GROUP = "mutation ($input: DeleteGroupInput!) { deleteGroup(input: $input) { userErrors { code } } }"
DELETE_USER = "mutation ($input: DeleteUserInput!) { deleteUser(input: $input) { userErrors { code } } }"


async def receive_upload(make: DataFactory, content: bytes = b"bytes") -> str:
    incoming = make.services.uploads.receive()
    await incoming.write(content)
    await incoming.finish()
    return incoming.ticket


def input_of(project: tables.Project, ticket: str, name: str = "a.txt") -> dict[str, Any]:
    return {"projectPath": str(project.id), "file": {"ticket": ticket, "name": name}}


def files(make: DataFactory) -> list[str]:
    root: Path = make.services.uploads.root
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


class TestCreateUpload:
    async def test_stores_the_received_file(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user("ada")), path="p")

        payload = (await ask.data(CREATE, owner, input=input_of(project, await receive_upload(make), "dk.PNG")))["createUpload"]

        row = await make.fetch(tables.Upload, 1)
        assert row is not None
        address = f"/uploads/{row.secret}/dk.PNG"
        assert payload == {
            "upload": {
                "name": "dk.PNG",
                "size": 5,
                "contentType": "image/png",
                "isImage": True,
                "alt": "dk",
                "url": address,
                "markdown": f"![dk]({address})",
                "author": {"username": "ada"},
                "project": {"path": "p"},
            },
            "userErrors": [],
        }
        assert files(make) == [f"{project.id}/{row.secret}"]

    @pytest.mark.parametrize("ticket", ["", "../1/x", "0" * 32])
    async def test_an_unknown_ticket_is_rejected(self, ask: Ask, make: DataFactory, ticket: str) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert await ask.codes(CREATE, owner, input=input_of(project, ticket)) == ["INVALID"]

    async def test_a_ticket_is_valid_once(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        ticket = await receive_upload(make)

        assert await ask.codes(CREATE, owner, input=input_of(project, ticket)) == []
        assert await ask.codes(CREATE, owner, input=input_of(project, ticket)) == ["INVALID"]

    async def test_a_file_beyond_the_limit_is_rejected(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.settings(max_attachment_size=1)

        assert await ask.codes(CREATE, owner, input=input_of(project, await receive_upload(make, b"x" * (2**20 + 1)))) == ["TOO_LARGE"]
        assert await make.count(tables.Upload) == 0

    async def test_a_commit_that_fails_leaves_no_file(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        project = await make.project(owner=(owner := await make.user()))
        input = input_of(project, await receive_upload(make))

        async def fail(self: DatabaseSession) -> None:
            raise ConnectionError

        with monkeypatch.context() as patched:
            patched.setattr(DatabaseSession, "commit", fail)
            assert await ask.codes(CREATE, owner, input=input) == ["UNAVAILABLE"]

        assert files(make) == []
        assert await make.count(tables.Upload) == 0


class TestReadUpload:
    async def test_requires_permission_to_see_the_project(self, ask: Ask, make: DataFactory) -> None:
        outsider = await make.user()
        private, public = await make.project(), await make.project(visibility=Visibility.PUBLIC)

        for project, seen in ((private, False), (public, True)):
            upload = await make.upload(project, name="x.tiff")
            names = {"path": str(project.id), "secret": upload.secret, "name": "x.tiff"}
            assert [str(problem.code) for problem in (await ask(ONE, outsider, **names)).errors] == ([] if seen else ["NOT_FOUND"])
            # Its id can be guessed, and would give the secret away.
            assert (await ask.data(NODES, outsider, ids=[global_id("Upload", upload.id)]))["nodes"] == [None]

    async def test_requires_the_full_path(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        upload, other = await make.upload(project), await make.upload(await make.project(owner=owner))
        path = str(project.id)

        assert await ask.codes(ONE, owner, path=path, secret=upload.secret, name="other.txt") == ["NOT_FOUND"]
        assert await ask.codes(ONE, owner, path=path, secret=new_secret(), name=upload.name) == ["NOT_FOUND"]
        assert await ask.codes(ONE, owner, path=path, secret=other.secret, name=other.name) == ["NOT_FOUND"]

    async def test_returns_the_upload_limit(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert (await ask.data(LIMIT, owner, path=str(project.id)))["project"] == {
            "uploadLimit": 10 * 2**20,
            "viewerCan": {"upload": True},
        }

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        viewer = await make.admin()
        ids = [global_id("Upload", (await make.upload(await make.project(), author=await make.user())).id) for _ in range(12)]

        with statements.record() as few:
            await ask.data(NODES, viewer, ids=ids[:2])
        with statements.assert_at_most(len(few)):
            assert None not in (await ask.data(NODES, viewer, ids=ids))["nodes"]


class TestDeletion:
    async def test_deleting_a_project_deletes_its_uploads(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user()
        doomed, other = await make.project(owner=owner), await make.project(owner=owner)
        await make.upload(doomed)
        stored = await make.upload(other)

        await ask.data(DELETE_PROJECT, owner, input={"projectPath": str(doomed.id)})

        assert files(make) == [f"{other.id}/{stored.secret}"]
        assert await make.count(tables.Upload) == 1

    async def test_deleting_a_group_or_user_deletes_their_uploads(self, ask: Ask, make: DataFactory) -> None:
        admin, user = await make.admin(), await make.user()
        group = await make.group(owner=admin)
        await make.upload(await make.project(group=group), author=admin)
        await make.upload(await make.project(owner=user))
        elsewhere = await make.upload(project := await make.project(owner=admin), author=user)

        await ask.data(DELETE_GROUP, admin, input={"groupPath": str(group.id)})
        await ask.data(DELETE_USER, admin, input={"databaseId": user.id})

        assert files(make) == [f"{project.id}/{elsewhere.secret}"]
        row = await make.fetch(tables.Upload, elsewhere.id)
        assert row is not None
        assert row.author_id != user.id

    async def test_a_rejected_deletion_preserves_uploads(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project()
        await make.upload(project)

        assert await ask.codes(DELETE_PROJECT, await make.user(), input={"projectPath": str(project.id)}) == ["NOT_FOUND"]
        assert len(files(make)) == 1


class TestCleanup:
    async def test_deletes_old_files_without_a_row(self, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        project = await make.project()
        upload = await make.upload(project)
        make.services.uploads.store(await receive_upload(make), project.id, new_secret())

        await remove_orphans(make.services)
        assert len(files(make)) == 2
        later = time.time() + ORPHAN_AGE_SECONDS + 1
        monkeypatch.setattr(time, "time", lambda: later)
        await remove_orphans(make.services)
        assert files(make) == [f"{project.id}/{upload.secret}"]

    async def test_an_empty_folder_is_fine(self, make: DataFactory) -> None:
        await remove_orphans(make.services)

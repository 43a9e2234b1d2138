"""Files that texts of imported projects link to."""

from datetime import UTC, datetime
from typing import Any

import pytest

from graph.errors import NotAllowed
from graph.upload_imports import UploadImports
from storage import tables
from storage.tables import ImportKind
from tests.graph.imports.copied_project import know
from tests.graph.imports.support import FINISH, begin
from tests.graph.imports.test_build_files import outcomes, stream
from tests.make import DataFactory
from tests.support.api_clients import Ask

SECRET = "0123456789abcdef" * 2


class TestUploads:
    async def test_keep_their_secrets_and_are_written_once(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user("ada")
        project = await make.project(owner=owner, path="mill")
        running = await begin(ask, await make.admin())
        await know(make, running, ImportKind.PROJECT, {1: project.id})
        await make.settings(max_attachment_size=1)
        files, when = UploadImports(make.services), datetime(2015, 1, 1, tzinfo=UTC)

        async def write(content: bytes, secret: str = SECRET, name: str = "a.png", project_id: str = "1") -> list[Any]:
            settings = {"author_id": None, "created_at": when}
            return outcomes([await files.write_upload(running.id, project_id, secret, name, stream(content, b"!"), **settings)])

        assert await write(b"one") == [("created", [])]
        assert await write(b"one") == [("unchanged", [])]
        assert await write(b"two") == [("updated", [])]
        assert await write(b"x", secret="../../etc/passwd") == [("skipped", ["INVALID"])]
        assert await write(b"x", secret="f" * 32, name="../x") == [("skipped", ["INVALID"])]
        assert await write(b"x", secret="f" * 32, project_id="2") == [("skipped", ["NOT_FOUND"])]
        assert await write(b"x" * 2**20, secret="f" * 32) == [("skipped", ["TOO_LARGE"])]

        async with make.services.uploads.read(project.id, SECRET) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"two!"
        assert list(make.services.uploads.sizes()) == [(project.id, SECRET)]
        assert [path.name for path in make.services.uploads.root.glob(".incoming-*")] == []
        row = await make.fetch(tables.Upload, 1)
        assert row is not None and (row.size, row.created_at) == (4, when)

        await ask.data(FINISH, running.admin, input={"importId": running.id})
        with pytest.raises(NotAllowed):
            await write(b"three", secret="e" * 32)
        assert list(make.services.uploads.sizes()) == [(project.id, SECRET)]

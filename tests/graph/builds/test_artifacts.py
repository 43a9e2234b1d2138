"""Artifacts of builds through the graph: who can upload, what a ticket allows, and files that follow their rows."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from graph.artifact_access import ArtifactAccess
from graph.context import Services
from graph.errors import Conflict, Forbidden, NotAllowed, NotFound, TooLarge, Unauthenticated
from graph.rules.builds import artifacts
from graph.rules.builds.artifacts import sanitize_filename
from storage import tables
from storage.tables import AccessLevel, CheckStatus, UserState
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

CREATE = """mutation ($input: CreateArtifactUploadInput!) { createArtifactUpload(input: $input) {
    upload { url method headers { name value } maxBytes expiresAt } userErrors { field code } } }"""
LIST = """query ($id: String!) { project(path: $id) { builds(first: 100) { nodes {
    artifact { filename size downloadUrl createdAt } } } } }"""
ERASE = "mutation ($input: BuildInput!) { eraseBuild(input: $input) { userErrors { code } } }"
RETRY = "mutation ($input: BuildInput!) { retryBuild(input: $input) { userErrors { code } } }"
DELETE_PROJECT = "mutation ($input: DeleteProjectInput!) { deleteProject(input: $input) { userErrors { code } } }"
SHA = "a" * 40


@pytest.fixture
def access(services: Services) -> ArtifactAccess:
    return ArtifactAccess(services)


async def create_build(make: DataFactory, **columns: Any) -> tuple[tables.User, tables.Build]:
    owner = await make.user()
    return owner, await make.build(await make.project(owner=owner), SHA, **columns)


def artifact_name(build: tables.Build, **more: Any) -> dict[str, Any]:
    return {"projectPath": str(build.project_id), "databaseId": build.id, **more}


async def create_upload_ticket(ask: Ask, viewer: tables.User, build: tables.Build, filename: str = "a.zip") -> str:
    upload = (await ask.data(CREATE, viewer, input=artifact_name(build, filename=filename)))["createArtifactUpload"]["upload"]
    assert upload["url"].startswith(f"{EXTERNAL_URL}/-/artifacts/")
    return str(upload["url"].removeprefix(f"{EXTERNAL_URL}/-/artifacts/"))


async def several(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def send(access: ArtifactAccess, ticket: str, *pieces: bytes) -> None:
    await access.store(await access.authorize_upload(ticket, "test"), several(*pieces), "test")


async def artifact_of(make: DataFactory, build: tables.Build) -> tuple[str, bytes] | None:
    async with make.services.database.read_session() as session:
        rows = await session.read(artifacts.artifacts.of_builds([build.id]))
    return (rows[0][0].filename, await make.services.objects.read(rows[0][0].key)) if rows else None


def files(services: Services) -> int:
    root: Path = services.objects.root  # type: ignore[attr-defined]
    return len([path for path in root.rglob("*") if path.is_file()])


@pytest.mark.parametrize(
    ("filename", "cleaned"),
    [
        ("artifacts.zip", "artifacts.zip"),
        ("../../etc/passwd", "passwd"),
        ("C:\\reports\\a b.txt", "a b.txt"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("Überblick.tar.gz", "Überblick.tar.gz"),
        ("exe\u202egpj.txt", "exegpj.txt"),
        ("", "artifact"),
        ("..", "artifact"),
        (" \u2028/", "artifact"),
        ("ü" * 300 + ".zip", "ü" * 125 + ".zip"),
        ("x" * 300, "x" * 255),
        ("a." + "x" * 300, ("a." + "x" * 300)[:255]),
    ],
)
def test_names_are_cleaned(filename: str, cleaned: str) -> None:
    assert sanitize_filename(filename) == cleaned
    assert len(sanitize_filename(filename).encode()) <= 255


class TestCreateArtifactUpload:
    async def test_returns_an_upload_url(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)

        payload = (await ask.data(CREATE, owner, input=artifact_name(build, filename="a.zip", size=7)))["createArtifactUpload"]

        upload = payload["upload"]
        assert (upload["method"], upload["maxBytes"], payload["userErrors"]) == ("PUT", 5 * 2**30, [])
        assert upload["headers"] == [{"name": "Content-Type", "value": "application/octet-stream"}]
        assert datetime.fromisoformat(upload["expiresAt"]) > datetime.now(UTC) + timedelta(minutes=50)

    async def test_rejects_a_too_large_file_before_the_upload(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)

        assert await ask.codes(CREATE, owner, input=artifact_name(build, filename="a", size=5 * 2**30 + 1)) == ["TOO_LARGE"]
        assert await ask.codes(CREATE, owner, input=artifact_name(build, filename="a", size=-1)) == ["INVALID"]

    async def test_requires_a_developer(self, ask: Ask, make: DataFactory) -> None:
        developer, reporter, outsider = await make.user(), await make.user(), await make.user()
        members = [(developer, AccessLevel.DEVELOPER), (reporter, AccessLevel.REPORTER)]
        build = await make.build(await make.project(members=members), SHA)

        assert await ask.codes(CREATE, developer, input=artifact_name(build, filename="a")) == []
        assert await ask.codes(CREATE, reporter, input=artifact_name(build, filename="a")) == ["FORBIDDEN"]
        assert await ask.codes(CREATE, outsider, input=artifact_name(build, filename="a")) == ["NOT_FOUND"]

    async def test_rejects_an_erased_build(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make, status=CheckStatus.SUCCESS, erased_at=datetime.now(UTC))

        assert await ask.codes(CREATE, owner, input=artifact_name(build, filename="a")) == ["NOT_ALLOWED"]


class TestStoreArtifact:
    async def test_the_file_appears_only_when_complete(self, ask: Ask, make: DataFactory, access: ArtifactAccess) -> None:
        owner, build = await create_build(make)
        permit = await access.authorize_upload(await create_upload_ticket(ask, owner, build, "../a b.zip"), "test")

        async def watched() -> AsyncIterator[bytes]:
            yield b"by"
            assert await artifact_of(make, build) is None
            yield b"tes"

        artifact = await access.store(permit, watched(), "test")

        assert (artifact.filename, artifact.size) == ("a b.zip", 5)
        assert await artifact_of(make, build) == ("a b.zip", b"bytes")

    async def test_replaces_the_earlier_artifact(self, ask: Ask, make: DataFactory, access: ArtifactAccess) -> None:
        owner, build = await create_build(make)
        await send(access, await create_upload_ticket(ask, owner, build), b"old")

        await send(access, await create_upload_ticket(ask, owner, build, "b.zip"), b"new")

        assert await artifact_of(make, build) == ("b.zip", b"new")
        assert files(make.services) == await make.count(tables.Artifact) == 1

    async def test_a_ticket_is_valid_once(self, ask: Ask, make: DataFactory, access: ArtifactAccess) -> None:
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build)
        twice = await access.authorize_upload(ticket, "test")
        await send(access, ticket, b"first")

        with pytest.raises(Conflict):
            await access.authorize_upload(ticket, "test")
        with pytest.raises(Conflict):
            await access.store(twice, several(b"second"), "test")
        assert await artifact_of(make, build) == ("a.zip", b"first")
        assert files(make.services) == 1

    @pytest.mark.parametrize("ticket", ["", "x", "gAAAAA==", "ü"])
    async def test_an_unsigned_ticket_is_rejected(self, access: ArtifactAccess, ticket: str) -> None:
        with pytest.raises(NotFound):
            await access.authorize_upload(ticket, "test")

    async def test_other_encrypted_values_are_not_tickets(self, services: Services, access: ArtifactAccess) -> None:
        for secret in ("glpat", '["another kind", 1]', "[]", "7"):
            with pytest.raises(NotFound):
                await access.authorize_upload(services.cipher.encrypt(secret), "test")

    async def test_a_ticket_expires_after_an_hour(self, ask: Ask, make: DataFactory, services: Services) -> None:
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build)
        later = replace(services, clock=lambda: datetime.now(UTC) + timedelta(minutes=61))

        with pytest.raises(Forbidden):
            await ArtifactAccess(later).authorize_upload(ticket, "test")

    async def test_a_ticket_is_revoked_with_the_users_rights(self, ask: Ask, make: DataFactory, access: ArtifactAccess) -> None:
        developer = await make.user()
        project = await make.project(members=[(developer, AccessLevel.DEVELOPER)])
        build = await make.build(project, SHA)
        permit = await access.authorize_upload(await create_upload_ticket(ask, developer, build), "test")
        developer.state = UserState.BLOCKED
        await make.save(developer)

        with pytest.raises(Unauthenticated):
            await access.store(permit, several(b"x"), "test")
        assert (await artifact_of(make, build), files(make.services)) == (None, 0)

    @pytest.mark.parametrize("change", ["erased", "retried", "removed"])
    async def test_an_upload_to_a_changed_build_is_discarded(
        self, ask: Ask, make: DataFactory, access: ArtifactAccess, change: str
    ) -> None:
        owner, build = await create_build(make, status=CheckStatus.SUCCESS)
        permit = await access.authorize_upload(await create_upload_ticket(ask, owner, build), "test")
        if change == "erased":
            await ask.data(ERASE, owner, input=artifact_name(build))
        elif change == "retried":
            build.attempt += 1
            await make.save(build)
        else:
            await ask.data(DELETE_PROJECT, owner, input={"projectPath": str(build.project_id)})

        with pytest.raises((NotAllowed, Conflict, NotFound)):
            await access.store(permit, several(b"x"), "test")
        assert (await artifact_of(make, build), files(make.services)) == (None, 0)

    async def test_a_too_large_upload_is_discarded(self, ask: Ask, make: DataFactory, services: Services) -> None:
        owner, build = await create_build(make)
        access = ArtifactAccess(replace(services, max_artifact_bytes=4))
        permit = await access.authorize_upload(await create_upload_ticket(ask, owner, build), "test")

        with pytest.raises(TooLarge):
            await access.store(permit, several(b"abc", b"de"), "test")
        assert (await artifact_of(make, build), files(services)) == (None, 0)

    async def test_an_interrupted_upload_preserves_the_earlier_artifact(self, ask: Ask, make: DataFactory, access: ArtifactAccess) -> None:
        owner, build = await create_build(make)
        await send(access, await create_upload_ticket(ask, owner, build), b"old")
        permit = await access.authorize_upload(await create_upload_ticket(ask, owner, build), "test")

        async def broken() -> AsyncIterator[bytes]:
            yield b"ne"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await access.store(permit, broken(), "test")
        assert await artifact_of(make, build) == ("a.zip", b"old")
        assert files(make.services) == 1

    async def test_a_row_that_cannot_be_written_leaves_no_file(
        self, ask: Ask, make: DataFactory, access: ArtifactAccess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner, build = await create_build(make)
        permit = await access.authorize_upload(await create_upload_ticket(ask, owner, build), "test")

        async def fail(*_: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(artifacts, "replace", fail)

        with pytest.raises(ZeroDivisionError):
            await access.store(permit, several(b"x"), "test")
        assert files(make.services) == 0


class TestArtifact:
    async def test_is_shown_with_its_address(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, b"1234567", filename="a.zip")

        (node,) = (await ask.data(LIST, owner, id=str(build.project_id)))["project"]["builds"]["nodes"]

        assert datetime.fromisoformat(node["artifact"].pop("createdAt"))
        url = f"{EXTERNAL_URL}/api/v3/projects/{build.project_id}/builds/{build.id}/artifacts"
        assert node["artifact"] == {"filename": "a.zip", "size": 7, "downloadUrl": url}

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        owner, build = await create_build(make)
        await make.artifact(build)
        project = await make.fetch(tables.Project, build.project_id)
        assert project is not None
        with statements.record() as one:
            await ask.data(LIST, owner, id=str(project.id))
        for _ in range(29):
            await make.artifact(await make.build(project, SHA))
        with statements.record() as thirty:
            data = await ask.data(LIST, owner, id=str(project.id))

        assert len([node for node in data["project"]["builds"]["nodes"] if node["artifact"]]) == 30
        assert len(thirty) == len(one)


class TestRemoval:
    async def test_erasing_a_build_deletes_its_files(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make, status=CheckStatus.SUCCESS)
        await make.trace(build, "a", "b")
        await make.artifact(build)

        await ask.data(ERASE, owner, input=artifact_name(build))

        assert (files(make.services), await make.count(tables.Artifact), await make.count(tables.TracePart)) == (0, 0, 0)

    async def test_deleting_a_project_deletes_its_files(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make, status=CheckStatus.SUCCESS)
        await make.trace(build, "a", "b")
        await make.artifact(build)
        _, other = await create_build(make)
        await make.artifact(other)

        await ask.data(DELETE_PROJECT, owner, input={"projectPath": str(build.project_id)})

        assert files(make.services) == await make.count(tables.Artifact) == 1

    async def test_files_of_an_earlier_attempt_are_deleted_with_it(self, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make, status=CheckStatus.SUCCESS)
        await make.artifact(build)

        await ask.data(RETRY, owner, input=artifact_name(build))

        assert files(make.services) == await make.count(tables.Artifact) == 1

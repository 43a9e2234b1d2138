"""POST /projects/:id/uploads, and the attachment of a note."""

import resource
import signal
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from rest_v3.requests.bodies import MAX_FORM_BODY_BYTES
from storage import tables
from storage.tables import AccessLevel, UserState, Visibility
from tests.make import DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api

BOUNDARY = "frontier"
MULTIPART = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
NOT_GIVEN = {"message": '400 (Bad request) "file" not given'}


def form_part(name: str, content: bytes, file_name: str | None = None) -> bytes:
    disposition = f'form-data; name="{name}"' + (f'; filename="{file_name}"' if file_name is not None else "")
    return f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


async def upload(api: Api, project: tables.Project, viewer: tables.User | None, content: bytes = b"bytes", name: str = "a.txt") -> Any:
    return await api.request("POST", f"/projects/{project.id}/uploads", viewer, files={"file": (name, content)})


def files(make: DataFactory) -> list[str]:
    root = make.services.uploads.root
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()] if root.exists() else []


class TestUpload:
    """POST /projects/:id/uploads"""

    async def test_stores_an_image_and_returns_image_markdown(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await upload(api, project, owner, b"\x89PNG", "dk.png")

        assert response.status_code == 201
        row = await make.fetch(tables.Upload, 1)
        assert row is not None
        assert response.json() == {
            "alt": "dk",
            "url": f"/uploads/{row.secret}/dk.png",
            "is_image": True,
            "markdown": f"![dk](/uploads/{row.secret}/dk.png)",
        }
        assert (row.project_id, row.author_id, row.name, row.size) == (project.id, owner.id, "dk.png", 4)
        with make.services.uploads.open(project.id, row.secret) as file:
            assert file.read() == b"\x89PNG"

    async def test_the_file_name_may_be_in_the_extended_form(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        disposition = b"form-data; name=\"file\"; filename*=utf-8''my%20caf%C3%A9.png"
        body = b"--%s\r\nContent-Disposition: %s\r\n\r\n\x89PNG\r\n" % (BOUNDARY.encode(), disposition) + END

        response = await api.request("POST", f"/projects/{project.id}/uploads", owner, content=body, headers=MULTIPART)

        assert (response.status_code, response.json()["alt"]) == (201, "my_caf_")

    async def test_stores_another_file_and_returns_link_markdown(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        answer = (await upload(api, project, owner, b"", "notes.svg")).json()

        assert (answer["alt"], answer["is_image"]) == ("notes.svg", False)
        assert answer["markdown"] == f"[notes.svg]({answer['url']})"

    @pytest.mark.parametrize(
        ("sent", "stored"),
        [
            ("../../etc/passwd", "passwd"),
            ("C:\\\\My pictures\\\\my cat.JPG", "my_cat.JPG"),
            ("..", "_.."),
            ("x](javascript:alert(1)).png", "x__javascript_alert_1__.png"),
            (f"{'long' * 100}.tar.gz", f"{('long' * 100)[:248]}.tar.gz"[-255:]),
            ("Überblick.pdf", "_berblick.pdf"),
        ],
    )
    async def test_a_name_is_harmless(self, api: Api, make: DataFactory, sent: str, stored: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        body = form_part("file", b"x", sent) + END

        response = await api.request("POST", f"/projects/{project.id}/uploads", owner, content=body, headers=MULTIPART)

        assert response.status_code == 201
        row = await make.fetch(tables.Upload, 1)
        assert row is not None
        if len(sent) < 255:
            assert row.name == stored
        assert len(row.name) <= 255
        assert files(make) == [f"{project.id}/{row.secret}"]

    async def test_two_files_of_one_name_are_two(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        first, second = [(await upload(api, project, owner)).json()["url"] for _ in range(2)]

        assert first != second
        assert len(files(make)) == 2

    async def test_requires_permission_to_see_the_project(self, api: Api, make: DataFactory) -> None:
        guest, outsider, blocked = await make.user(), await make.user(), await make.user(state=UserState.BLOCKED)
        private = await make.project(members=[(guest, AccessLevel.GUEST)])
        public = await make.project(visibility=Visibility.PUBLIC)

        assert (await upload(api, private, guest)).status_code == 201
        assert (await upload(api, public, outsider)).status_code == 201
        assert (await upload(api, public, None)).status_code == 401
        assert (await upload(api, public, blocked)).status_code == 401
        refused = await upload(api, private, outsider)
        assert (refused.status_code, refused.json()) == (404, {"message": "404 Project Not Found"})
        assert len(files(make)) == 2

    async def test_a_credential_may_stand_in_the_form_before_the_file(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        body = form_part("private_token", token_of(owner).encode()) + form_part("file", b"x", "a.txt") + END

        response = await api.request("POST", f"/projects/{project.id}/uploads", content=body, headers=MULTIPART)

        assert response.status_code == 201

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"json": {"file": {"ticket": "0" * 32, "name": "a"}}},
            {"data": {"file": "text"}},
            {"files": {"other": ("a.txt", b"x")}},
            {"content": form_part("file", b"x", "") + END, "headers": MULTIPART},
        ],
    )
    async def test_rejects_a_missing_file(self, api: Api, make: DataFactory, settings: dict[str, Any]) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.request("POST", f"/projects/{project.id}/uploads", owner, **settings)

        assert (response.status_code, response.json()) == (400, NOT_GIVEN)

    async def test_rejects_a_text_in_place_of_the_file(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        body = form_part("file", b"x") + END

        response = await api.request("POST", f"/projects/{project.id}/uploads", owner, content=body, headers=MULTIPART)

        assert (response.status_code, response.json()) == (400, {"message": {"file": ["is not a file"]}})

    @pytest.mark.parametrize(
        "body",
        [
            form_part("file", b"x", "a.txt"),
            form_part("file", b"x", "a.txt")[:-4],
            b"no boundary",
            form_part("a", b"\xff") + END,
        ],
    )
    async def test_rejects_a_form_that_cannot_be_read(self, api: Api, make: DataFactory, body: bytes) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await api.request("POST", f"/projects/{project.id}/uploads", owner, content=body, headers=MULTIPART)

        assert (response.status_code, response.json()) == (400, {"message": "400 Bad Request: the form cannot be read"})
        assert (files(make), await make.count(tables.Upload)) == ([], 0)


class TestLimits:
    @cites("Limits: max_attachment_size counts MB")
    async def test_the_file_size_limit_is_that_of_the_settings(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.settings(max_attachment_size=1)

        assert (await upload(api, project, owner, b"x" * 2**20)).status_code == 201
        response = await upload(api, project, owner, b"x" * (2**20 + 1))

        assert response.status_code == 413
        assert response.json() == {"message": "413 Request Entity Too Large: a file may have at most 1048576 bytes"}
        assert len(files(make)) == 1

    async def test_a_declared_length_is_rejected_before_it_is_read(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.settings(max_attachment_size=1)
        sent = 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal sent
            yield form_part("file", b"", "a.bin")[:-2]
            for _ in range(100):
                sent += 1
                yield b"x" * 65536

        headers = {**MULTIPART, "Content-Length": str(2**40)}
        response = await api.request("POST", f"/projects/{project.id}/uploads", owner, content=body(), headers=headers)

        assert (response.status_code, sent) == (413, 0)

    async def test_other_form_fields_are_bounded(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        much = form_part("padding", b"x" * MAX_FORM_BODY_BYTES)

        for body in (
            much + form_part("file", b"x", "a.txt"),
            form_part("file", b"x", "a.txt") + much,
            form_part("file", b"x", "a.txt") + END + much,
        ):
            response = await api.request("POST", f"/projects/{project.id}/uploads", owner, content=body + END, headers=MULTIPART)
            assert response.status_code == 413
        assert files(make) == []

    async def test_nothing_is_read_without_permission(self, api: Api, make: DataFactory) -> None:
        project = await make.project()
        sent = 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal sent
            yield form_part("file", b"", "a.bin")[:-2]
            for _ in range(100):
                sent += 1
                yield b"x" * 65536

        path = f"/projects/{project.id}/uploads"
        assert (await api.request("POST", path, content=body(), headers=MULTIPART)).status_code == 401
        assert (await api.request("POST", path, await make.user(), content=body(), headers=MULTIPART)).status_code == 404
        assert sent == 0
        assert not make.services.uploads.root.exists()

    async def test_the_memory_does_not_grow_with_the_file(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        await make.settings(max_attachment_size=100)

        async def body() -> AsyncIterator[bytes]:
            yield form_part("file", b"", "a.bin")[:-2]
            for _ in range(48):
                yield b"x" * 2**20
            yield b"\r\n" + END

        tracemalloc.start()
        response = await api.request("POST", f"/projects/{project.id}/uploads", owner, content=body(), headers=MULTIPART)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert response.status_code == 201
        row = await make.fetch(tables.Upload, 1)
        assert row is not None
        assert row.size == 48 * 2**20
        assert most < 12 * 2**20

    async def test_a_full_disk_is_507_and_leaves_nothing(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        with files_of_at_most(2**20):
            response = await upload(api, project, owner, b"x" * 2**21)

        assert (response.status_code, response.json()) == (507, {"message": "507 Insufficient Storage"})
        assert (files(make), await make.count(tables.Upload)) == ([], 0)
        assert (await upload(api, project, owner, b"x" * 2**21)).status_code == 201

    async def test_a_client_disconnect_leaves_nothing(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        messages = iter(
            [
                {"type": "http.request", "body": form_part("file", b"x" * 2**19, "a.bin"), "more_body": True},
                {"type": "http.disconnect"},
            ]
        )
        answers: list[Any] = []

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            answers.append(message)

        headers = [(b"private-token", token_of(owner).encode()), (b"content-type", MULTIPART["Content-Type"].encode())]
        path = f"/api/v3/projects/{project.id}/uploads"
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers, "query_string": b""}
        await api.app(scope, receive, send)

        assert answers == []
        assert files(make) == []


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Simulates a full disk: no file of this process grows beyond this number of bytes."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)


class TestAttachment:
    async def write(self, api: Api, path: str, viewer: tables.User, body: str) -> Any:
        response: httpx.Response = await api.post(path, viewer, body=body)
        assert response.status_code == 201
        return response.json()

    async def test_a_note_shows_the_file_that_it_links_to(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        markdown = (await upload(api, project, owner, name="dk.png")).json()["markdown"]
        second = (await upload(api, project, owner, name="log.txt")).json()["markdown"]
        issue, snippet = await make.issue(project), await make.snippet(project)

        for path in (f"/projects/{project.id}/issues/{issue.id}/notes", f"/projects/{project.id}/snippets/{snippet.id}/notes"):
            note = await self.write(api, path, owner, f"See {markdown} and {second}")
            assert note["attachment"] == "dk.png"
            if "issues" in path:
                assert (await api.get(f"{path}/{note['id']}", owner)).json()["attachment"] == "dk.png"
                assert (await api.put(f"{path}/{note['id']}", owner, body=second)).json()["attachment"] == "log.txt"
                assert (await api.put(f"{path}/{note['id']}", owner, body="Nothing")).json()["attachment"] is None

    async def test_a_file_of_another_project_or_of_none_is_no_attachment(self, api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        other = await make.upload(await make.project(owner=owner))
        own = await make.upload(project)
        path = f"/projects/{project.id}/issues/{(await make.issue(project)).id}/notes"

        for link in (f"{other.secret}/{other.name}", f"{own.secret}/other.txt", f"{'0' * 32}/a.txt"):
            assert (await self.write(api, path, owner, f"[x](/uploads/{link})"))["attachment"] is None
        assert (await self.write(api, path, owner, f"[x](/uploads/{own.secret}/{own.name})"))["attachment"] == own.name

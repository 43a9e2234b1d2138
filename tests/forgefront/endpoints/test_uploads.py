"""GET /NAMESPACE/PROJECT/uploads/SECRET/NAME"""

from collections.abc import AsyncIterator

import httpx
import pytest

from forgefront.endpoints.upload_downloads import PATH_PATTERN, UploadDownloadEndpoint
from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel, UserState, Visibility
from tests.make import DataFactory, token_of


@pytest.fixture
async def client(graph: Graph) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=UploadDownloadEndpoint(graph, graph.services.uploads))
    async with httpx.AsyncClient(transport=transport, base_url="http://forge") as client:
        yield client


def credential(user: tables.User) -> dict[str, str]:
    return {"PRIVATE-TOKEN": token_of(user)}


async def create_upload(make: DataFactory, project: tables.Project, content: bytes = b"bytes", name: str = "a.txt") -> str:
    """The path of a new file."""
    upload = await make.upload(project, content, name=name)
    namespace = await make.fetch(tables.Namespace, project.namespace_id)
    assert namespace is not None
    return f"/{namespace.path}/{project.path}/uploads/{upload.secret}/{name}"


class TestDownload:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("a.png", "image/png"),
            ("a.JPG", "image/jpeg"),
            ("a.gif", "image/gif"),
            ("a.svg", "application/octet-stream"),
            ("a.html", "application/octet-stream"),
            ("png", "application/octet-stream"),
        ],
    )
    async def test_serves_the_file_as_an_inert_attachment(self, client: httpx.AsyncClient, make: DataFactory, name: str, kind: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = await create_upload(make, project, b"<script>", name)

        response = await client.get(path, headers=credential(owner))

        assert (response.status_code, response.content) == (200, b"<script>")
        assert response.headers["Content-Type"] == kind
        assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert "private" in response.headers["Cache-Control"]

    async def test_streams_a_large_file(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        content = bytes(range(256)) * 4096
        path = await create_upload(make, project, content)

        assert (await client.get(path, headers=credential(owner))).content == content

    async def test_head_returns_only_the_length(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        response = await client.head(await create_upload(make, project), headers=credential(owner))

        assert (response.status_code, response.headers["Content-Length"], response.content) == (200, "5", b"")

    async def test_only_get_and_head_are_allowed(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        response = await client.post(await create_upload(make, await make.project()))

        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")

    async def test_requires_permission_to_see_the_project(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        guest, outsider, blocked = await make.user(), await make.user(), await make.user(state=UserState.BLOCKED)
        private = await create_upload(make, await make.project(members=[(guest, AccessLevel.GUEST)]))
        internal = await create_upload(make, await make.project(visibility=Visibility.INTERNAL))

        assert (await client.get(private, headers=credential(guest))).status_code == 200
        assert (await client.get(internal, headers=credential(outsider))).status_code == 200
        refused = await client.get(private, headers=credential(outsider))
        assert (refused.status_code, refused.json()) == (404, {"message": "404 Not Found"})
        assert (await client.get(internal, headers=credential(blocked))).status_code == 401
        assert (await client.get(internal)).json() == {"message": "401 Unauthorized"}

    async def test_a_bearer_is_a_credential_and_a_parameter_is_not(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = await create_upload(make, project)

        assert (await client.get(path, headers={"Authorization": f"Bearer {token_of(owner)}"})).status_code == 200
        assert (await client.get(path, params={"private_token": token_of(owner)})).status_code == 401

    async def test_requires_the_full_path(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        owner = await make.user()
        project, other = await make.project(owner=owner, path="one"), await make.project(owner=owner, path="two")
        path = await create_upload(make, project)
        await create_upload(make, other)

        for wrong in (path[:-1], path.replace("/one/", "/two/"), path.replace(f"/{owner.username}/", "/nobody/")):
            assert (await client.get(wrong, headers=credential(owner))).status_code == 404

    async def test_a_missing_file_is_not_found(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = await create_upload(make, project)
        make.services.uploads.remove_all(project.id)

        assert (await client.get(path, headers=credential(owner))).status_code == 404


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (f"/group/name/uploads/{'0' * 32}/a.txt", True),
        (f"/group/name/uploads/{'0' * 32}/a b", False),
        (f"/group/name/uploads/{'0' * 31}/a.txt", False),
        (f"/group/name/uploads/{'0' * 32}/a/b", False),
        (f"/name/uploads/{'0' * 32}/a.txt", False),
        ("/group/name.git/info/refs", False),
    ],
)
def test_paths_of_uploads(path: str, is_one: bool) -> None:
    assert (PATH_PATTERN.fullmatch(path) is not None) is is_one

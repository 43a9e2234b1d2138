"""Files inside artifacts: `Artifact.entries` and `Artifact.file`, and GET /NAMESPACE/PROJECT/builds/ID/artifacts/file/PATH."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from forgefront.endpoints.artifact_files import ArtifactFileEndpoint
from graph.errors import Code
from graph.operations.execution import Graph
from graph.rules.builds import artifact_files
from tests.graph.builds.test_artifacts import create_build
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.zips import pack_files

LIST = """query ($id: String!, $build: Int!, $path: String!, $first: Int, $after: String, $last: Int, $before: String) {
    project(path: $id) { artifact(buildId: $build) {
      entries(path: $path, first: $first, after: $after, last: $last, before: $before) {
        nodes { name path kind size downloadUrl } totalCount pageInfo { hasNextPage endCursor hasPreviousPage startCursor } } } } }"""
FILE = """query ($id: String!, $build: Int!, $path: String!) { project(path: $id) { artifact(buildId: $build) {
    file(path: $path) { size downloadUrl } } } }"""
IMAGE = b"\x89PNG\r\n\x1a\n"


CONTENT = pack_files({"site/index.html": b"<script>alert(1)</script>", "site/a b.png": IMAGE, "unit.log": b"1 passed\n", "tool": b"\0\1"})


@pytest.fixture
async def app(graph: Graph) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=ArtifactFileEndpoint(graph)), base_url="http://forge") as client:
        yield client


async def test_are_listed_by_folder_and_downloaded(app: httpx.AsyncClient, ask: Ask, make: DataFactory) -> None:
    owner, build = await create_build(make)
    await make.artifact(build, CONTENT)
    about = {"id": str(build.project_id), "build": build.id}

    async def page(**variables: Any) -> Any:
        return (await ask.data(LIST, owner, **about, **{"path": "", **variables}))["project"]["artifact"]["entries"]

    whole = await page()
    shown = [(entry["name"], entry["kind"], entry["size"]) for entry in whole["nodes"]]
    assert shown == [("site", "FOLDER", None), ("tool", "FILE", 2), ("unit.log", "FILE", 9)]
    assert whole["nodes"][0]["downloadUrl"] is None
    first = await page(first=1)
    assert ([each["name"] for each in first["nodes"]], first["totalCount"]) == (["site"], 3)
    second = await page(first=1, after=first["pageInfo"]["endCursor"])
    assert [each["name"] for each in second["nodes"]] == ["tool"]
    assert second["pageInfo"]["hasNextPage"] and second["pageInfo"]["hasPreviousPage"]
    back = await page(last=1, before=second["pageInfo"]["startCursor"])
    assert [each["name"] for each in back["nodes"]] == ["site"]
    assert not back["pageInfo"]["hasPreviousPage"]

    url = (await page(path="site/"))["nodes"][0]["downloadUrl"]
    assert url.startswith(f"{EXTERNAL_URL}/") and url.endswith(f"/builds/{build.id}/artifacts/file/site/a%20b.png")
    headers = {"PRIVATE-TOKEN": token_of(owner)}
    image = await app.get(url.removeprefix(EXTERNAL_URL), headers=headers)
    assert (image.status_code, image.content, image.headers["content-type"]) == (200, IMAGE, "image/png")
    for path, kind, shown in (
        ("site/index.html", "text/plain; charset=utf-8", "inline"),
        ("tool", "application/octet-stream", "attachment"),
    ):
        response = await app.get(f"{url.removeprefix(EXTERNAL_URL).partition('/site/')[0]}/{path}", headers=headers)
        assert (response.status_code, response.headers["content-type"]) == (200, kind)
        assert response.headers["content-disposition"].startswith(shown)
        assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert response.headers["x-content-type-options"] == "nosniff"

    # Who may not see the build, and what is not there.
    address = url.removeprefix(EXTERNAL_URL)
    stranger = await make.user()
    assert (await app.get(address, headers={"PRIVATE-TOKEN": token_of(stranger)})).status_code == 404
    assert (await app.get(address)).status_code in (401, 404)
    assert (await app.get(f"{address}x", headers=headers)).status_code == 404
    assert (await app.get(address.replace(f"/{build.id}/", "/9999999999/"), headers=headers)).status_code == 404
    assert (await app.post(address, headers=headers)).status_code == 405
    assert (await app.head(address, headers=headers)).headers["content-length"] == str(len(IMAGE))
    assert (await ask(LIST, owner, **about, path="none")).errors[0].message == "Folder not found."


async def test_damaged_files_and_archives_are_errors(
    app: httpx.AsyncClient, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, build = await create_build(make)
    await make.artifact(build, CONTENT.replace(b"1 passed", b"2 passed"))
    about = {"id": str(build.project_id), "build": build.id}
    url = (await ask.data(FILE, owner, **about, path="unit.log"))["project"]["artifact"]["file"]["downloadUrl"]
    # The error comes after the last byte, so the connection is closed.
    with pytest.raises(OSError, match="checksum"):
        await app.get(url.removeprefix(EXTERNAL_URL), headers={"PRIVATE-TOKEN": token_of(owner)})

    other = await make.build(await make.project(owner=owner), "b" * 40)
    await make.artifact(other, b"no zip")
    about = {"id": str(other.project_id), "build": other.id}
    expected = "The archive cannot be listed: it is not a zip archive, or its end is missing. Download it as a whole."
    (error,) = (await ask(LIST, owner, **about, path="")).errors
    assert (error.message, error.code) == (expected, Code.BAD_REQUEST)

    monkeypatch.setattr(artifact_files._DirectoryReader.__init__, "__defaults__", (0,))
    (error,) = (await ask(LIST, owner, **about, path="")).errors
    assert error.code == Code.LIMIT_EXCEEDED

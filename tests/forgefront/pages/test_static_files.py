"""The endpoint of static files: what it serves, with which headers, and that nothing else is reachable."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from forgefront.pages import static_folder
from forgefront.pages.static_folder import StaticFolder

POLICY = "default-src 'none'"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], httpx.AsyncClient]:
    """Starts a service of the files that are in the folder now."""
    monkeypatch.setattr(static_folder, "MAX_CACHED_BYTES", 1000)
    monkeypatch.setattr(static_folder, "MAX_COMPRESSED_BYTES", 3000)
    monkeypatch.setattr(static_folder, "BLOCK_BYTES", 700)
    served = tmp_path / "served"
    (served / "deep").mkdir(parents=True)
    (served / "index.html").write_text('<script src="$base/-/x/$version/main.js"></script>')
    (served / "deep" / "main.js").write_text("export const it = `${1}`;")
    (served / "large.txt").write_bytes(b"0123456789" * 200)
    (served / "huge.txt").write_bytes(b"0123456789" * 400)
    (served / "left.pyc").write_bytes(b"")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "it.graphql").write_text("{ it }")

    def start() -> httpx.AsyncClient:
        app = StaticFolder(
            served, base_path="/-/x/", policy=POLICY, values={"base": '/"git'}, subfolders={"operations": tmp_path / "other"}
        )
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge")

    return start


@pytest.fixture
def http(start: Callable[[], httpx.AsyncClient]) -> httpx.AsyncClient:
    return start()


async def version_of(http: httpx.AsyncClient) -> str:
    return (await http.get("/-/x/")).text.split("/")[4]


class TestFiles:
    async def test_serves_by_name_with_type_and_policy(self, http: httpx.AsyncClient) -> None:
        response = await http.get("/-/x/deep/main.js")
        assert response.text == "export const it = `${1}`;"
        assert response.headers["content-type"] == "text/javascript; charset=utf-8"
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["referrer-policy"] == "no-referrer"

    async def test_the_folder_is_its_index_with_values_escaped(self, http: httpx.AsyncClient) -> None:
        assert re.fullmatch(r'<script src="/&quot;git/-/x/[0-9a-f]{16}/main.js"></script>', (await http.get("/-/x/")).text)

    async def test_a_large_file_is_streamed(self, http: httpx.AsyncClient) -> None:
        response = await http.get("/-/x/large.txt", headers={"Accept-Encoding": "identity"})
        assert (response.headers["content-length"], response.content) == ("2000", b"0123456789" * 200)

    async def test_a_matching_etag_is_304(self, http: httpx.AsyncClient) -> None:
        tag = (await http.get("/-/x/large.txt")).headers["etag"]
        for header in (tag, f'"other", W/{tag}', "*"):
            again = await http.get("/-/x/large.txt", headers={"If-None-Match": header})
            assert (again.status_code, again.content) == (304, b"")
        assert (await http.get("/-/x/large.txt", headers={"If-None-Match": '"other"'})).status_code == 200

    async def test_text_is_compressed_for_clients_that_accept_it(self, http: httpx.AsyncClient) -> None:
        plain = await http.get("/-/x/deep/main.js", headers={"Accept-Encoding": "identity"})
        for accepted in ("gzip", "br, GZIP;q=0.5"):
            response = await http.get("/-/x/deep/main.js", headers={"Accept-Encoding": accepted})
            assert (response.headers["content-encoding"], response.text) == ("gzip", plain.text)
            assert response.headers["etag"] != plain.headers["etag"]
            assert response.headers["vary"] == plain.headers["vary"] == "accept-encoding"
            again = await http.get("/-/x/deep/main.js", headers={"Accept-Encoding": accepted, "If-None-Match": response.headers["etag"]})
            assert (again.status_code, again.headers["etag"]) == (304, response.headers["etag"])
        for refused in ("", "gzip;q=0", "br, gzip; q=0.000", "xgzip"):
            response = await http.get("/-/x/deep/main.js", headers={"Accept-Encoding": refused})
            assert "content-encoding" not in response.headers
            assert response.content == plain.content

    async def test_large_text_is_compressed_too_and_huge_text_is_not(self, http: httpx.AsyncClient) -> None:
        large = await http.get("/-/x/large.txt", headers={"Accept-Encoding": "gzip"})
        assert (large.headers["content-encoding"], large.content) == ("gzip", b"0123456789" * 200)
        assert int(large.headers["content-length"]) < 100
        huge = await http.get("/-/x/huge.txt", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in huge.headers
        assert huge.content == b"0123456789" * 400

    async def test_head_and_other_methods(self, http: httpx.AsyncClient) -> None:
        head = await http.head("/-/x/large.txt", headers={"Accept-Encoding": "identity"})
        assert (head.status_code, head.headers["content-length"], head.content) == (200, "2000", b"")
        refused = await http.post("/-/x/large.txt")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")

    async def test_a_subfolder_may_be_elsewhere(self, http: httpx.AsyncClient) -> None:
        assert (await http.get("/-/x/operations/it.graphql")).text == "{ it }"

    @pytest.mark.parametrize(
        "name", ["../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "/etc/passwd", "deep", "left.pyc", "no.js", "%00", ""]
    )
    async def test_no_other_file_is_served(self, name: str, http: httpx.AsyncClient) -> None:
        assert (await http.get(f"/-/x/{await version_of(http)}/{name}")).status_code == 404
        assert not name or (await http.get(f"/-/x/{name}")).status_code == 404


class TestVersions:
    @pytest.mark.parametrize("name", ["deep/main.js", "large.txt", "operations/it.graphql"])
    async def test_files_of_this_version_are_never_requested_again(self, name: str, http: httpx.AsyncClient) -> None:
        response = await http.get(f"/-/x/{await version_of(http)}/{name}")
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.content == (await http.get(f"/-/x/{name}")).content

    @pytest.mark.parametrize("name", ["", "index.html"])
    async def test_html_is_always_revalidated(self, name: str, http: httpx.AsyncClient) -> None:
        assert (await http.get(f"/-/x/{name}")).headers["cache-control"] == "no-cache"
        below = await http.get(f"/-/x/{await version_of(http)}/index.html")
        assert below.headers["cache-control"] == "no-cache"

    async def test_a_file_of_another_version_is_the_present_one_and_revalidated(self, http: httpx.AsyncClient) -> None:
        response = await http.get("/-/x/0123456789abcdef/deep/main.js")
        assert (response.status_code, response.headers["cache-control"]) == (200, "no-cache")

    @pytest.mark.parametrize(
        ("folder", "name", "text"), [("served", "deep/main.js", "1"), ("other", "it.graphql", "{ other }"), ("served", "new.js", "1")]
    )
    async def test_a_changed_file_is_a_new_version(
        self, folder: str, name: str, text: str, start: Callable[[], httpx.AsyncClient], tmp_path: Path
    ) -> None:
        before = await version_of(start())
        assert await version_of(start()) == before
        (tmp_path / folder / name).write_text(text)
        assert await version_of(start()) != before

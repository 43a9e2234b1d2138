"""The pages without a browser: their URLs, the contents of their files, and that their operations are valid."""

import json
import re
import shutil
import subprocess

import httpx
import pytest
from graphql import OperationDefinitionNode, parse, validate

from forgefront import pages
from forgefront.app import App, create_app
from forgefront.config import Config
from graph.operations import limits
from graph.operations.execution import SCHEMA, prepare

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
SHIPPED = sorted(path for folder in (pages.STATIC_FOLDER, pages.OPERATIONS_FOLDER) for path in folder.rglob("*") if path.is_file())
VENDORED = pages.STATIC_FOLDER / "vendor"
"""Libraries, unmodified. The policy keeps them from loading anything and from writing HTML."""
MARKDOWN = pages.STATIC_FOLDER / "markdown.js"
"""The only module that parses HTML."""
OWN = [path for path in SHIPPED if not path.is_relative_to(VENDORED)]
OPERATIONS = sorted(pages.OPERATIONS_FOLDER.rglob("*.graphql"))

OUTSIDE = re.compile(r"""https?:(?://|\\/\\/)[\w.-]+|(?:src|href|url|import|from)\s*[=(]?\s*["'`(]//""")
NAMESPACES = {"http://www.w3.org"}
"""What looks like an address and is the name of a format."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    return create_app(Config.load(data=tmp_path_factory.mktemp("pages"), external_url="https://forge.example.com/git"))


@pytest.fixture
def http(app: App) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge")


RETRY_AFTER = """
const { retryAfter } = await import(process.argv[1]);
const date = new Date(Date.now() + 1_800_500).toUTCString();
const dates = [date, "Fri, 31 Dec 9999 23:59:59 GMT", "Sun, 01 Mar 2015 12:00:00 GMT"];
const values = ["7", " 7 ", "9".repeat(20), ...dates, "soon", "0", "-5", null];
console.log(JSON.stringify(values.map((value) => Math.round(retryAfter({ get: () => value }) / 10))));
"""
"""Prints the tenths of the values that `retry_after.js` parses, in seconds."""

PAGES = """/ /demo/tools /demo/tools/ /demo/.dots-1 /demo/tools/issues /demo/tools/issues/3 /demo/tools/builds/9
/demo/tools/merge_requests/1 /demo/tools/merge_requests/1/changes /demo/tools/builds/9/artifacts /demo/tools/builds/9/artifacts/browse/a/b
/demo/tools/commit/0123456789abcdef /demo/tools/milestones/2 /demo/tools/milestones /demo/tools/labels /demo/tools/snippets/4
/demo/tools/activity /demo/tools/stars /demo/tools/branches /demo/tools/tags /demo/tools/snippets /demo/tools/environments
/demo/tools/settings /demo/tools/settings/hooks /demo/tools/settings/hooks/3
/demo/tools/settings/deploy_keys
/demo/tools/files /demo/tools/files/ /demo/tools/files/src/ /demo/tools/files/src/a.git /demo/tools/files/%3Cb%3E%2F%0A.js
/demo/tools/history/src /demo/tools/new_file /demo/tools/new_file/src/ /demo/tools/edit_file/a /demo/tools/remove_file/a
/demo/tools/tree/main/src /demo/tools/blob/main/src/a.py
/demo/tools/contributors /demo/tools/search /demo/tools/blame/src/a.py /demo/tools/compare /demo/tools/compare/main...topic/one
/demo/tools/dashboard /groups/demo/dashboard /demo/tools/settings/general /demo/tools/fork /-/new_project /groups/demo /u/dev /-/sign_in
/demo/tools/issues/new /demo/tools/merge_requests/new /demo/tools/issues/3/edit /demo/tools/merge_requests/3/edit
/groups/demo/issues /groups/demo/builds /groups/demo/merge_requests /-/issues /-/merge_requests
/-/profile /-/new_group /groups/demo/members /groups/demo/settings
/-/admin /-/admin/ /-/profile/ /-/admin/users/ /groups/demo/ /u/dev/
/-/admin/users /-/admin/users/a.b-c /-/admin/runners /-/admin/hooks /-/admin/hooks/3 /-/admin/settings"""
NO_PAGES = """/demo/tools/info/refs /demo/tools.git /demo/tools.git/info/refs /api/v3/nope /api/v3 /demo/tools/files/%00
/demo/tools.git/files/a /graphql/x /ci/api /users/x /-/pages/%2e%2e/files.py /%00 /demo/to%0als"""
MISSING_PAGES = """/nope/tools/x /demo/tools/issues/x /demo/tools/merge_requests/1/nope /demo/tools/issues/1/changes
/demo/tools/edit_file /demo/tools/remove_file/ /demo/tools/history /demo/tools/filesystem /demo/tools/blame /demo/tools/settings/nope
/demo/tools/settings/members/3 /demo/tools/activity/3 /-/nope /-/admin/nope /-/admin/users/a/b /groups/demo/nope /u/dev/nope /demo"""


class TestAddresses:
    async def test_a_browser_is_shown_the_page(self, http: httpx.AsyncClient) -> None:
        for path in PAGES.split():
            response = await http.get(path, headers={"Accept": BROWSER})
            assert response.status_code == 200, path
            assert response.headers["content-type"] == "text/html; charset=utf-8"
            assert response.headers["vary"] == "accept, accept-encoding"
            assert re.search(r'src="/git/-/pages/[0-9a-f]{16}/main.js"', response.text)

    async def test_the_policy(self, http: httpx.AsyncClient) -> None:
        for path in ("/", "/-/pages/main.js", "/-/pages/operations/wall.graphql"):
            response = await http.get(path, headers={"Accept": BROWSER})
            assert response.headers["content-security-policy"] == (
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types markdown"
            )

    @pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html;q=0.9", "text/html;q=0", "text/html;q=x"])
    async def test_api_clients_get_the_api_response(self, accept: str, http: httpx.AsyncClient) -> None:
        index = await http.get("/", headers={"Accept": accept})
        assert index.json()["name"] == "Forgefront"
        assert index.headers["vary"] == "Accept"
        assert (await http.get("/demo/tools", headers={"Accept": accept})).json() == {"message": "404 Not Found"}

    async def test_nothing_else_is_a_page(self, http: httpx.AsyncClient) -> None:
        for path in NO_PAGES.split():
            response = await http.get(path, headers={"Accept": BROWSER})
            assert "text/html" not in response.headers.get("content-type", ""), path
            assert response.status_code >= 301

    async def test_unknown_ones_below_a_project_are_a_page_that_says_so(self, http: httpx.AsyncClient) -> None:
        for path in MISSING_PAGES.split():
            response = await http.get(path, headers={"Accept": BROWSER})
            assert (response.status_code, response.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
            # Also a browser that has the page from another address.
            again = await http.get(path, headers={"Accept": BROWSER, "If-None-Match": response.headers["etag"]})
            assert again.status_code == 404
            assert (await http.get(path)).json() == {"message": "404 Not Found"}

    async def test_nothing_is_posted_to_a_page(self, http: httpx.AsyncClient) -> None:
        assert (await http.post("/", headers={"Accept": BROWSER})).status_code == 405
        assert (await http.post("/demo/tools", headers={"Accept": BROWSER})).status_code == 404


class TestFiles:
    def test_no_outside_address(self) -> None:
        for path in OWN:
            assert set(OUTSIDE.findall(path.read_text())) <= NAMESPACES, path.name

    async def test_every_file_is_served_and_named_rightly(self, http: httpx.AsyncClient) -> None:
        for path in SHIPPED:
            name = path.relative_to(pages.STATIC_FOLDER if path.is_relative_to(pages.STATIC_FOLDER) else pages.OPERATIONS_FOLDER.parent)
            response = await http.get(f"/-/pages/{name.as_posix()}")
            assert response.status_code == 200, name
            for imported in re.findall(r"""(?:from|import) "(\.[^"]+)";""", response.text):
                assert (path.parent / imported).resolve().is_file(), f"{name} imports {imported}"

    def test_what_the_clock_writes_is_made_by_its_module_alone(self) -> None:
        """Each second the contents of elements with these attributes are replaced."""
        for name in ("data-since", "data-ago"):
            assert [path.name for path in OWN if path.suffix == ".js" and name in path.read_text()] == ["parts.js"], name

    def test_nothing_is_written_as_html(self) -> None:
        for path in OWN:
            if path.suffix == ".js":
                text = path.read_text()
                assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\.style\s*=", text)
                parses = re.search(r"DOMParser|parseFromString|createContextualFragment|setHTML|createPolicy|srcdoc|parseHTML", text)
                assert (parses is not None) is (path == MARKDOWN), path.name
            elif path.suffix == ".html":
                assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", path.read_text())


@pytest.mark.skipif(shutil.which("node") is None, reason="NOT RUN: node (apt install nodejs)")
def test_retry_after_is_a_number_or_a_date() -> None:
    """A stream that waits for NaN milliseconds, or for more than a timer can, would connect again at once."""
    command = ["node", "--input-type=module", "--eval", RETRY_AFTER, str(pages.STATIC_FOLDER / "retry_after.js")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == [1, 1, 360, 180, 360, 0, 0, 0, 0, 0]


class TestOperations:
    def test_are_valid_and_within_the_limits(self) -> None:
        for path in OPERATIONS:
            text = path.read_text()
            document = limits.parse(text)
            assert validate(SCHEMA, document) == [], path.name
            for operation in document.definitions:
                if isinstance(operation, OperationDefinitionNode):
                    assert operation.name is not None
                    prepare(text, operation.name.value)
                    assert limits.measure(document, SCHEMA, operation.name.value).evaluate({})[1] == []

    def test_every_operation_is_used(self) -> None:
        scripts = "".join(path.read_text() for path in SHIPPED if path.suffix == ".js")
        for path in OPERATIONS:
            for operation in parse(path.read_text()).definitions:
                if isinstance(operation, OperationDefinitionNode) and operation.name is not None:
                    assert f'"{operation.name.value}"' in scripts, f"nobody asks {operation.name.value} of {path.name}"

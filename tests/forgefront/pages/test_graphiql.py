"""GraphiQL at /-/graphiql: its files, its examples, and its introspection query."""

import hashlib
import html
import json
import re
import shutil
import subprocess

import httpx
import pytest
from graphql import get_introspection_query, parse
from starlette.types import ASGIApp, Receive, Scope, Send

from forgefront.pages.graphiql import BUILD_FOLDER, EXAMPLES_FILE, GraphiqlApp
from graph.operations import limits
from graph.schema import graphql_schema

SOURCES = BUILD_FOLDER.parent
KINDS = (".css", ".html", ".js", ".json", ".jsx", ".mjs")

REPLACED_FOR_NODE = {
    'import { GraphQLError, getOperationAST } from "graphql";': 'const getOperationAST = () => ({ operation: "subscription" });',
    'import(new URL("../pages/session.js", BASE))': "null",
    'import(new URL("../pages/stream_limits.js", BASE))': "{ allowed: async () => {}, count: () => () => {}, mayStream: () => true }",
    "AGAIN_MS = 2000": "AGAIN_MS = 0",
}
"""What node cannot load without packages and a browser, and what stands for it."""

FOLLOW_BROKEN_STREAM = """
globalThis.document = { currentScript: { src: "http://forge/-/graphiql/graphiql.js" } };
const bodies = ["", "event: complete\\ndata:\\n\\n"];
const sent = [];
globalThis.fetch = async (_, { headers }) => {
  sent.push(headers["Last-Event-ID"] ?? null);
  return new Response(bodies.shift(), { headers: { "Content-Type": "text/event-stream", "Last-Event-ID": "41" } });
};
const { fetcherFor } = await import(`data:text/javascript,${encodeURIComponent(process.argv[1])}`);
const { subscribe } = fetcherFor("token")({ query: "" }, { documentAST: {} });
subscribe({ next() {}, complete: () => console.log(JSON.stringify(sent)), error: (error) => console.log(JSON.stringify(String(error))) });
"""


def asset_names(base_url: str) -> ASGIApp:
    graphiql = GraphiqlApp(base_url)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {}
        await graphiql(scope, receive, send)

    return app


@pytest.fixture
def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(asset_names("https://forge.example.com/git")), base_url="http://forge")


def test_bundle_is_of_these_sources() -> None:
    text = b"".join(path.read_bytes() for kind in KINDS for path in sorted(SOURCES.glob(f"*{kind}")))
    assert (BUILD_FOLDER / "sources.sha256").read_text().strip() == hashlib.sha256(text).hexdigest(), "run scripts/graphiql"


def test_bundled_licences_are_included() -> None:
    text = (BUILD_FOLDER / "LICENSES.txt").read_text()
    for name in ("graphiql", "graphql", "monaco-editor", "react"):
        assert re.search(rf"^{name} \d[\d.]+ \(MIT\)\n\n.*?\n\n", text, re.MULTILINE | re.DOTALL), name


async def test_examples_are_the_dashboard_queries(client: httpx.AsyncClient) -> None:
    page = (await client.get("/-/graphiql")).text
    shown = re.search(r'<pre id="examples" hidden>(.*?)</pre>', page, re.DOTALL)
    assert shown is not None
    assert html.unescape(shown[1]) == EXAMPLES_FILE.read_text()
    assert len(parse(EXAMPLES_FILE.read_text()).definitions) == 13


async def test_every_address_in_the_page_is_its_own(client: httpx.AsyncClient) -> None:
    page = await client.get("/-/graphiql")
    assert "script-src 'self';" in page.headers["Content-Security-Policy"]
    addresses = re.findall(r'(?:src|href)="(/[^"]*)"', page.text)
    assert addresses
    for address in addresses:
        assert address.startswith("/git/-/")
    for name in ("graphiql.js", "graphiql.css", "graphql.worker.js", "json.worker.js", "codicon.ttf", "LICENSES.txt"):
        assert (await client.head(f"/-/graphiql/{name}")).status_code == 200, name


def test_its_introspection_is_within_the_limits() -> None:
    document = limits.parse(get_introspection_query(descriptions=True, schema_description=True))
    assert limits.measure(document, graphql_schema).evaluate({})[1] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="NOT RUN: node (apt install nodejs)")
def test_a_stream_that_breaks_before_its_first_byte_is_resumed_at_its_position() -> None:
    fetcher = (SOURCES / "fetcher.js").read_text()
    for original, replacement in REPLACED_FOR_NODE.items():
        assert original in fetcher
        fetcher = fetcher.replace(original, replacement)
    command = ["node", "--input-type=module", "--eval", FOLLOW_BROKEN_STREAM, fetcher]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert json.loads(printed) == [None, "41"]

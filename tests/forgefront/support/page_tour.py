"""Every page of a service with something to show on each: for the checks of all pages and for the screenshots."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from forgefront import pages
from graph.artifact_access import ArtifactAccess
from storage import tables
from storage.database.clock import now
from storage.tables import CheckStatus
from tests.forgefront.support.browser import BrowserPage
from tests.forgefront.support.demo_server import DemoCommit, DemoMergeRequest, DemoProject, DemoServer
from tests.support.zips import pack_files

PATH = "web/storefront"
README = """# Storefront

The shop that customers see. Prices come from [`src/prices.py`](src/prices.py).

| Command | What it does |
|---|---|
| `make serve` | serves on port 8000 |
| `make test` | runs the tests |

- [x] Delivery dates, see #1
- [ ] Wish lists, asked for by @mei
"""
PRICES = '''"""Prices as customers see them: with the tax of their country, rounded once."""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")
TAX_RATES = {"DE": Decimal("0.19"), "NO": Decimal("0.25"), "SE": Decimal("0.25")}


@dataclass(frozen=True)
class Price:
    """An amount without tax, in the currency of the shop."""

    net: Decimal
    country: str = "DE"

    def gross(self) -> Decimal:
        """The amount with tax, rounded to cents."""
        rate = TAX_RATES.get(self.country, Decimal(0))
        return (self.net * (1 + rate)).quantize(CENT, ROUND_HALF_UP)

    def show(self) -> str:
        # Two digits always, so that columns line up.
        return f"{self.gross():.2f}"
'''
ROUNDED_PRICES = PRICES.replace("rounded once", "rounded after the tax").replace(
    "        return (self.net * (1 + rate)).quantize(CENT, ROUND_HALF_UP)\n",
    "        taxed = self.net * (1 + rate)\n        return taxed.quantize(CENT, ROUND_HALF_UP)\n",
)
FILES = (
    ("README.md", README),
    ("src/prices.py", PRICES),
    ("src/basket.py", "class Basket:\n    items: list[str]\n"),
    ("tests/test_prices.py", "from src.prices import Price\n"),
    ("Makefile", "test:\n\tpytest -q\n"),
)
ALL_PASSED = "compile+ style+ unit+ browser+ package+"
STOREFRONT = DemoProject(
    PATH,
    "The shop that customers see.",
    (
        DemoCommit("Prices are shown with the tax of the buyer's country", "mei", 18, "compile+ style+ unit+ browser- packagex"),
        DemoCommit("Pictures load when they come into view", "tomas", 130, ALL_PASSED),
        DemoCommit("The list of sizes says what is sold out", "priya", 205, ALL_PASSED),
        DemoCommit("Reviews are sorted by how helpful they were", "jonas", 420, "compile+ style- unit+ browser+ packagex"),
        DemoCommit("Search forgives a wrong letter", "mei", 640, ALL_PASSED),
        DemoCommit("One query instead of forty for the front page", "ada", 1500, ALL_PASSED),
        DemoCommit("The footer names the company's address", "priya", 1700, ALL_PASSED, FILES),
    ),
    (
        DemoMergeRequest("Show delivery dates before the basket", "priya", 26, "delivery-dates", "compile+ style+ unit* browser?"),
        DemoMergeRequest(
            "Round prices after the tax, not before", "mei", 13, "tax-rounding", ALL_PASSED, (("src/prices.py", ROUNDED_PRICES),)
        ),
        DemoMergeRequest("WIP: A wish list without an account", "jonas", 900, "wish-list", "compile+ style+ unit-"),
    ),
    (
        ("Prices in Norway are off by one øre", "jonas"),
        ("The search field is not reached by keyboard", "priya"),
        ("Show which sizes come back", "mei"),
    ),
)
ARTIFACT = {
    "coverage/index.html": "<h1>Coverage</h1>\n",
    "coverage/prices.py.html": "<pre>…</pre>\n",
    "unit.log": "test_prices.py ......\n6 passed\n",
}
DESCRIPTION = "The total of #2 differs from the invoice, see !2.\n\n- [x] reproduced\n- [ ] fixed\n\n```python\nprice.gross()\n```\n"
MUTATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("createMilestone", {"title": "Spring sale", "dueDate": "2020-03-01", "description": "What must be done before *March*."}),
    ("createLabel", {"name": "bug", "color": "#d9534f"}),
    ("createLabel", {"name": "urgent", "color": "#ffecdb"}),
    ("updateIssue", {"iid": 1, "description": DESCRIPTION, "labels": ["bug", "urgent"], "assigneeId": 2, "milestoneId": 1}),
    ("createTag", {"name": "v1.0", "ref": "main", "message": "First release", "releaseDescription": "Everything **works**."}),
    ("createSnippet", {"title": "Taxes", "fileName": "taxes.py", "content": "RATE = 0.25\n", "visibility": "INTERNAL"}),
    ("createProjectHook", {"url": "https://hooks.example.org/forge", "pushEvents": True}),
    ("createVariable", {"key": "DEPLOY_TO", "value": "staging"}),
    ("createTrigger", {}),
    ("createNote", {"issueIid": 1, "body": "Seen in `NOK` too, @jonas."}),
    ("createNote", {"mergeRequestIid": 2, "body": "Half up, as the law says."}),
)
"""What the pages show beside what `DemoServer` creates, in project PATH."""
_VIEW = re.compile(r'^  \[(?:`\$\{PROJECT\}(.*)`|"(.*)"|PROJECT), "([a-z_/]+)"\],$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TourStop:
    """A page. `selector` is that of what it has when it is complete."""

    name: str
    path: str
    selector: str = "main h1"
    repeated: str | None = None
    """A selector of parts that are alike: checks that read the whole document keep the first ten of them."""


def list_stops(build: int, running: int, sha: str) -> tuple[TourStop, ...]:
    """Every page. `build` has an artifact, `running` has not ended, `sha` is the newest commit."""
    return (
        TourStop("wall", "/", ".tile"),
        TourStop("dashboard", f"/{PATH}/dashboard", ".figures-table"),
        TourStop("group dashboard", "/groups/web/dashboard", ".figures-table"),
        TourStop("group", "/groups/web", ".tile"),
        TourStop("new group", "/-/new_group", "main form"),
        TourStop("group members", "/groups/web/members", ".entry"),
        TourStop("group settings", "/groups/web/settings", "main form"),
        TourStop("group builds", "/groups/web/builds", ".row"),
        TourStop("group issues", "/groups/web/issues", ".row"),
        TourStop("my merge requests", "/-/merge_requests"),
        TourStop("user", "/u/mei"),
        TourStop("new project", "/-/new_project", "main form"),
        TourStop("project", f"/{PATH}", ".row"),
        TourStop("commits", f"/{PATH}/commits", ".row"),
        TourStop("builds", f"/{PATH}/builds", ".row"),
        TourStop("activity", f"/{PATH}/activity", ".row"),
        TourStop("stars", f"/{PATH}/stars"),
        TourStop("issues", f"/{PATH}/issues", ".row"),
        TourStop("issue", f"/{PATH}/issues/1", ".note, .comment, article"),
        TourStop("new issue", f"/{PATH}/issues/new", "main form"),
        TourStop("edit issue", f"/{PATH}/issues/1/edit", "main form"),
        TourStop("merge requests", f"/{PATH}/merge_requests", ".row"),
        TourStop("new merge request", f"/{PATH}/merge_requests/new", "main form"),
        TourStop("merge request", f"/{PATH}/merge_requests/2"),
        TourStop("merge request commits", f"/{PATH}/merge_requests/2/commits", ".row"),
        TourStop("merge request builds", f"/{PATH}/merge_requests/2/builds"),
        TourStop("merge request changes", f"/{PATH}/merge_requests/2/changes", ".line"),
        TourStop("build", f"/{PATH}/builds/{running}", ".output-line"),
        TourStop("build with an artifact", f"/{PATH}/builds/{build}", ".file"),
        TourStop("artifact", f"/{PATH}/builds/{build}/artifacts", ".file"),
        TourStop("artifact file", f"/{PATH}/builds/{build}/artifacts/browse/unit.log", ".code-line"),
        TourStop("commit", f"/{PATH}/commit/{sha}", ".line"),
        TourStop("milestone", f"/{PATH}/milestones/1"),
        TourStop("snippets", f"/{PATH}/snippets"),
        TourStop("snippet", f"/{PATH}/snippets/1"),
        TourStop("files", f"/{PATH}/files", ".file-change time"),
        TourStop("file", f"/{PATH}/files/src/prices.py", ".syntax-keyword"),
        TourStop("markdown file", f"/{PATH}/files/README.md", ".rendered"),
        TourStop("edit file", f"/{PATH}/edit_file/src/prices.py", "main form"),
        TourStop("remove file", f"/{PATH}/remove_file/src/prices.py", "main form"),
        TourStop("history", f"/{PATH}/history/src/prices.py"),
        TourStop("blame", f"/{PATH}/blame/src/prices.py", ".blame-range"),
        TourStop("search", f"/{PATH}/search?q=price"),
        TourStop("compare", f"/{PATH}/compare?from=main&to=tax-rounding", ".line"),
        TourStop("branches", f"/{PATH}/branches"),
        TourStop("tags", f"/{PATH}/tags"),
        TourStop("contributors", f"/{PATH}/contributors"),
        TourStop("environments", f"/{PATH}/environments", ".entry"),
        TourStop("members", f"/{PATH}/settings", ".entry"),
        *(
            TourStop(f"settings {part}", f"/{PATH}/settings/{part}")
            for part in ("general", "hooks", "hooks/1", "deploy_keys", "variables", "runners", "triggers")
        ),
        TourStop("labels", f"/{PATH}/labels", ".entry, .row"),
        TourStop("milestones", f"/{PATH}/milestones", ".entry, .row"),
        TourStop("profile", "/-/profile", "main form"),
        TourStop("administration", "/-/admin"),
        TourStop("users", "/-/admin/users"),
        TourStop("administered user", "/-/admin/users/mei", "main form"),
        TourStop("system runners", "/-/admin/runners"),
        TourStop("system hooks", "/-/admin/hooks"),
        TourStop("system hook", "/-/admin/hooks/2"),
        TourStop("instance settings", "/-/admin/settings", "main form"),
        TourStop("sign in", "/-/sign_in", "main form"),
        TourStop("not found", f"/{PATH}/nothing"),
    )


OTHER_STOPS = (
    TourStop("graphiql", "/-/graphiql", ".examples li"),
    TourStop("reference", "/-/reference", "#filter:not([hidden])", "section[id]"),
    TourStop("v3", "/api/v3/docs", "h1", "main > details, main section > details"),
)
"""Pages that are documents of their own."""


def views_not_visited(stops: tuple[TourStop, ...]) -> set[str]:
    """The views of the pages that no stop shows, beside `repository/other_addresses`, which only leads to another."""
    text = (pages.STATIC_FOLDER / "main.js").read_text()
    rows = [(project, own, view) for project, own, view in _VIEW.findall(text)]
    assert rows
    visited = {"repository/other_addresses"}
    for stop in stops:
        path = stop.path.partition("?")[0]
        for project, own, view in rows:
            pattern = own or f"/[^/]+/[^/]+{project}"
            if re.fullmatch(pattern.replace("\\\\", "\\").replace("(?<", "(?P<").replace("[^]", "."), path):
                visited.add(view)
                break
    return {view for _, _, view in rows} - visited


async def create_tour(forge: DemoServer) -> tuple[TourStop, ...]:
    """Creates what the pages show, beside STOREFRONT, which `forge` has."""
    project, sha = forge.tips[PATH]
    for name, values in (*MUTATIONS, ("createHook", {"url": "https://hooks.example.org/system"})):
        kind = f"{name[0].upper()}{name[1:]}Input"
        text = f"mutation ($input: {kind}!) {{ {name}(input: $input) {{ userErrors {{ field message }} }} }}"
        data = await run(forge, text, input=values if name == "createHook" else {"projectPath": project, **values})
        assert data[name]["userErrors"] == [], name
    build = forge.builds[PATH]["unit"]
    await _upload_artifact(forge, project, build)
    async with forge.app.graph.services.database.write_session() as session:
        common: dict[str, Any] = {"project_id": int(project), "sha": sha, "ref": "main"}
        session.add(place := tables.Environment(project_id=int(project), name="production", external_url="https://shop.example/"))
        await session.flush()
        session.add(release := tables.Build(**common, name="release", status=CheckStatus.SUCCESS, started_at=now(), finished_at=now()))
        await session.flush()
        session.add(tables.Deployment(**common, environment_id=place.id, build_id=release.id, user_id=1))
        await session.commit()
    text = "query ($path: ID!) { project(path: $path) { builds(first: 1, filter: {status: [RUNNING]}) { nodes { databaseId } } } }"
    found = await run(forge, text.replace("ID!", "String!"), path=project)
    return list_stops(build, found["project"]["builds"]["nodes"][0]["databaseId"], sha)


async def run(forge: DemoServer, text: str, **variables: Any) -> Any:
    """The data of an operation of the administrator."""
    outcome = await forge.app.graph.run_document(text, variables, None, forge.tokens["ada"], request_id="tour")
    assert outcome.errors == [], outcome.errors
    return outcome.data


async def _upload_artifact(forge: DemoServer, project: str, build: int) -> None:
    access = ArtifactAccess(forge.app.graph.services)
    text = "mutation ($input: CreateArtifactUploadInput!) { createArtifactUpload(input: $input) { upload { url } } }"
    data = await run(forge, text, input={"projectPath": project, "databaseId": build, "filename": "reports.zip"})
    grant = await access.authorize_upload(data["createArtifactUpload"]["upload"]["url"].rpartition("/")[2], "tour")

    async def chunks() -> AsyncIterator[bytes]:
        yield pack_files(ARTIFACT)

    await access.store(grant, chunks(), "tour")


async def sign_in(page: BrowserPage, forge: DemoServer, username: str) -> None:
    """As somebody who does it by hand."""
    await page.open(f"{forge.address}/-/sign_in")
    await page.wait_for("document.activeElement?.id === 'field-token'")
    await page.type(forge.tokens[username])
    await page.press("Enter")
    await page.wait_for("document.querySelector('#account a')")

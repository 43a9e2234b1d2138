"""The race is fair only while both sides answer the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from benchmarks import (
    cases,
    chart,
    claims,
    data,
    in_process,
    packages,
    peer,
    peer_app,
    questions,
    servers,
    sides,
    table,
    table_report,
    transfers,
    work_data,
    worked_on,
)
from benchmarks.cases import Case
from benchmarks.load import Ask
from benchmarks.peers import fastapi_app, floor_app, strawberry_app
from forgefront.app import build
from forgefront.config import Config
from storage.database import driver_url
from tests.databases import Postgres

SCALE = 0.04


def make_small(patch: pytest.MonkeyPatch) -> None:
    """What hangs on each project: enough for every question."""
    patch.setattr(data, "ISSUES", 30)
    patch.setattr(worked_on, "COMMITS", 40)
    patch.setattr(work_data, "BUILDS", 210)
    patch.setattr(work_data, "MERGE_REQUESTS", 25)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, data.Data]:
    """A folder with a small database in it, and what is asked of that."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        rows = data.seed(f"sqlite:///{folder / 'forgefront.db'}", SCALE)
        worked_on.give(rows.worked_on, folder / "repositories")
        return folder, rows


@pytest.mark.parametrize("place", range(6), ids=["list", "one", "post", "graphql", "builds", "merge requests"])
async def test_both_sides_answer_the_same(place: int, seeded: tuple[Path, data.Data], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = seeded
    monkeypatch.setattr(peer, "EXTERNAL_URL", servers.EXTERNAL_URL)
    case: Case = cases.cases(rows)[place]
    ours = build(Config.load(data=folder, external_url=servers.EXTERNAL_URL))
    theirs = peer_app.create_app(f"sqlite+aiosqlite:///{folder / 'forgefront.db'}")
    try:
        async with theirs.router.lifespan_context(theirs):
            cases.compare(case, await _answer(ours, case.ours), await _answer(theirs, case.peer))
    finally:
        await ours.stop()


@pytest.fixture(scope="module")
def on_postgresql(seeded: tuple[Path, data.Data], postgres: Postgres) -> Iterator[str]:
    """The URL of a database with the same rows."""
    url = postgres.create()
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        data.seed(url, SCALE)
    yield url
    postgres.drop(url)


PEERS = {"floor": floor_app.create_app, "fastapi": fastapi_app.create_app, "strawberry": strawberry_app.create_app}


class TestTable:
    """Peers and floor answer the questions of the table as the service does."""

    async def test_peers_answer_the_same_on_postgresql(self, seeded: tuple[Path, data.Data], on_postgresql: str) -> None:
        await self._same(*seeded, on_postgresql)

    async def test_peers_answer_the_same_on_sqlite(self, seeded: tuple[Path, data.Data]) -> None:
        await self._same(*seeded, f"sqlite:///{seeded[0] / 'forgefront.db'}")

    async def _same(self, folder: Path, rows: data.Data, url: str) -> None:
        asked = table.known_questions(rows)
        async with in_process.service(folder, url) as ours:
            for name, create_app in PEERS.items():
                theirs = create_app(url if name == "floor" else driver_url(url).render_as_string(hide_password=False))
                async with theirs.router.lifespan_context(theirs):
                    for key, question in asked[name].items():
                        mine = asked["forgefront"][key]
                        content = mine.content(await _answer(ours, mine.ask))
                        questions.compare(key, name, content, question.content(await _answer(theirs, question.ask)))

    @pytest.mark.parametrize("name", ["mercurius", "postgraphile"])
    async def test_peers_on_node_answer_the_same(
        self, name: str, seeded: tuple[Path, data.Data], on_postgresql: str, tmp_path: Path
    ) -> None:
        if not packages.is_installed(name, packages.default_cache()):
            pytest.skip(f"NOT RUN: {name} (scripts/bench join installs it)")
        folder, rows = seeded
        side = next(side for side in sides.SIDES if side.name == name)
        plain = on_postgresql.replace("+asyncpg", "")
        place = sides.Place(folder, plain, tmp_path, packages.default_cache(), pinned=False)
        ours = table.known_questions(rows)["forgefront"]
        with side.start(side, place, print) as server:
            theirs = {
                key: question.content(cases.fetch(server, question.ask)) for key, question in table.known_questions(rows)[name].items()
            }
        async with in_process.service(folder, on_postgresql) as app:
            for key, content in theirs.items():
                questions.compare(key, name, ours[key].content(await _answer(app, ours[key].ask)), content)

    def test_another_answer_is_unfair(self) -> None:
        rows = [{"headCommit": {"builds": [{}] * 5}}] * 20
        with pytest.raises(cases.UnfairError, match="answers otherwise"):
            questions.compare("join", "peer", rows, rows[1:])
        with pytest.raises(cases.UnfairError, match="not twenty"):
            questions.compare("join", "peer", rows[1:], rows[1:])

    def test_prints_a_table_and_draws_a_chart_of_what_ran(self) -> None:
        case = {"per_second": 70.0, "spread": 0.1, "cpu_ms": 14.0, "database_cpu_ms": 1.0, "p50_ms": 400.0, "p99_ms": 900.0}
        ran = {"database": "postgresql", "signs_in": True, "memory_mib": 100.0}
        results = [
            {**ran, "side": "forgefront", "title": "Forgefront", "cases": {"join": {**case, "per_second": 140.0, "cpu_ms": 7.0}}},
            {**ran, "side": "strawberry", "title": "strawberry", "cases": {"join": case}},
            {"database": "postgresql", "side": "mercurius", "title": "mercurius", "signs_in": False, "not_run": "npm is missing"},
        ]
        machine = {"cores": 2, "python": "3.11", "node": "22", "pinned": True, "load_average": {"before": 0.1, "after": 0.2}}
        found = {"machine": machine, "run": {"scale": 1.0, "rounds": 3, "seconds": 5.0, "connections": 32}, "results": results}

        lines = table_report.text(found).splitlines()

        assert any(line.startswith("| mercurius *, PostgreSQL") and "NOT RUN: npm is missing" in line for line in lines)
        assert any(line.startswith("| strawberry, PostgreSQL") and "2.00, 0.50" in line for line in lines)
        drawn = ElementTree.fromstring(chart.svg(found))
        assert [bar.get("fill") for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")][1:] == [chart.OURS, chart.PEER]


async def test_statements_do_not_grow_with_the_rows(seeded: tuple[Path, data.Data]) -> None:
    folder, rows = seeded
    async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
        found = {name: await in_process.statements_of(ours, asks) for name, asks in cases.counted(rows).items()}

    assert len(found) == 3
    for counts in found.values():
        one, many = counts.values()
        assert 0 < one == many


def test_claims_find_the_builds_and_polls_find_none(seeded: tuple[Path, data.Data], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = seeded
    monkeypatch.setattr(claims, "FEW", 40)
    monkeypatch.setattr(claims, "CLAIMS", 5)
    monkeypatch.setattr(claims, "WARMING_SECONDS", 0.1)
    url = f"sqlite:///{folder / 'forgefront.db'}"
    with servers.ours(folder, url, pinned=False) as ours:
        polled = claims.polling(ours, 1.0)
        claimed = claims.claims(ours, rows, url, 1, 0.001)

    assert polled["cores"] >= 0
    assert [row["case"] for row in claimed] == [
        "claim, 400 pending against 40: shared runner",
        "claim, 400 pending against 40: runner of six projects",
    ]
    assert all(row[side]["ms"] > 0 for row in claimed for side in ("many", "few"))


async def _answer(app: Any, ask: Ask) -> Any:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example") as client:
        response = await client.request(ask.method, ask.paths[0], headers=ask.headers, content=ask.body)
    assert response.status_code == ask.status, response.text
    return response.json()


def test_an_unlike_answer_is_unfair() -> None:
    rows = data.Data("token", (1,), ((1, 1),))
    case = cases.cases(rows)[0]
    with pytest.raises(cases.UnfairError, match="the answers differ"):
        cases.compare(case, [{"id": 1}], [{"id": 1, "title": "more"}])


def test_clone_fetch_and_push_are_done_on_both_sides(seeded: tuple[Path, data.Data], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = seeded
    monkeypatch.setattr(transfers, "PUSHED", 3)
    made = transfers.Transfers(rows, folder, 0.01)
    with (
        servers.ours(folder, f"sqlite:///{folder / 'forgefront.db'}", pinned=False) as ours,
        made.sides(ours, pinned=False) as sides,
    ):
        found = transfers.race(made, sides, 1)
        heads = {key: side.heads(folder) for key, side in sides.items()}

    assert [row["case"] for row in found] == ["clone of 100 commits", "fetch of one new commit", "push of 3 commits"]
    assert all(row[side]["ms"] > 0 for row in found for side in ("ours", "peer"))
    assert heads["ours"] == heads["peer"]
    assert {f"refs/heads/push-{number}" for number in range(1, 6)} < heads["ours"].keys()

"""The race is fair only while both sides answer the same."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from benchmarks import (
    budget,
    cases,
    chart,
    claims,
    data,
    goals,
    growth,
    in_process,
    load,
    long_project,
    memory,
    packages,
    pages,
    peer,
    peer_app,
    processes,
    questions,
    race,
    random_queries,
    servers,
    sides,
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
        asked = race.known_questions(rows)
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
        ours = race.known_questions(rows)["forgefront"]
        with side.start(side, place, print) as server:
            theirs = {
                key: question.content(cases.fetch(server, question.ask)) for key, question in race.known_questions(rows)[name].items()
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

    async def test_v3_answers_what_the_graph_does(self, seeded: tuple[Path, data.Data]) -> None:
        folder, rows = seeded
        asked = race.known_questions(rows)
        async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
            for key, question in asked["v3"].items():
                mine = asked["forgefront"][key]
                contents = [each.content(await _answer(ours, each.ask)) for each in (mine, question)]
                questions.compare(key, "v3", *contents)


class TestReports:
    """What is made of measured figures, here of given ones: twice PostGraphile's speed, nine times FastAPI's, and a slow join."""

    ASKED = ("list", "join")
    SPEEDS = {
        "forgefront": (1800.0, 300.0),
        "v3": (1500.0,),
        "floor": (3600.0, 2500.0),
        "postgraphile": (900.0, 900.0),
        "fastapi": (200.0, 60.0),
    }

    @pytest.fixture
    def found(self) -> dict[str, Any]:
        results: list[dict[str, Any]] = [
            {
                "database": "postgresql",
                "side": name,
                "title": self._title(name),
                "signs_in": name != "floor",
                "memory_mib": 230.0,
                "cases": {key: self._case(speed) for key, speed in zip(self.ASKED, speeds, strict=False)},
            }
            for name, speeds in self.SPEEDS.items()
        ]
        gone = {"side": "mercurius", "title": "mercurius", "signs_in": False, "not_run": "npm is missing"}
        results += [{"database": "postgresql", **gone}, {**results[0], "database": "sqlite"}]
        machine = {"cores": 2, "python": "3.11", "node": "22", "pinned": True, "load_average": {"before": 0.1, "after": 0.2}}
        return {"machine": machine, "run": {"scale": 1.0, "rounds": 3, "seconds": 5.0, "connections": 32}, "results": results}

    def _title(self, name: str) -> str:
        return next(side.title for side in sides.SIDES if side.name == name)

    def _case(self, speed: float) -> dict[str, Any]:
        """A server that does nothing else while it is asked."""
        return {"per_second": speed, "spread": 0.1, "cpu_ms": 1000 / speed, "database_cpu_ms": 1.0, "p50_ms": 20.0, "p99_ms": 50.0}

    def test_goals_are_ratios_on_the_same_database(self, found: dict[str, Any]) -> None:
        judged = {(each.database, each.side, each.case, each.goal): (each.found, each.met) for each in goals.judged(found["results"])}

        assert judged["postgresql", "forgefront", "list", "cpu"] == (2.0, True)
        assert judged["postgresql", "forgefront", "join", "cpu"] == (8.33, False)
        assert judged["postgresql", "forgefront", "list", "fastapi"] == (9.0, True)
        assert judged["postgresql", "v3", "list", "fastapi"] == (7.5, False)
        assert judged["postgresql", "forgefront", "list", "postgraphile"] == (2.0, True)
        assert judged["postgresql", "forgefront", "list", "p99"] == (2.5, True)
        assert {goal for database, *_, goal in judged if database == "sqlite"} == {"p99"}
        assert not any(goal == "mercurius" or side == "floor" for _, side, _, goal in judged)
        assert [each.met for each in goals.memory(found["results"])] == [False, False]

    def test_the_table_says_which_goals_are_met(self, found: dict[str, Any]) -> None:
        lines = table_report.text(found).splitlines()

        def line(start: str) -> list[str]:
            return [cell.strip() for cell in next(line for line in lines if line.startswith(f"| {start}")).strip("|").split("|")]

        assert line("mercurius *, PostgreSQL")[1] == "NOT RUN: npm is missing"
        assert line("list 20 issues; POST /graphql, PostgreSQL")[-1] == "yes"
        assert (
            line("20 merge requests + author + head commit + 5 builds; POST /graphql, PostgreSQL")[-1] == "no: cpu, fastapi, postgraphile"
        )
        assert line("FastAPI + SQLModel, PostgreSQL")[1:] == ["200, 5.00", "60, 16.67", "230"]
        assert len({len(line) for line in lines if line.startswith("| ") and "NOT RUN" not in line and "Forgefront's goals" in line}) == 1

    def test_the_chart_has_a_bar_for_each_answer_and_two_sets_of_colours(self, found: dict[str, Any]) -> None:
        drawn = ElementTree.fromstring(chart.svg(found))

        bars = [bar.get("class") for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
        assert bars == ["ground", "ours", "ours", "ours", "floor", "peer", "peer", "ours", "ours", "floor", "peer", "peer"]
        assert "prefers-color-scheme:dark" in chart.svg(found)

    def test_growth_compares_the_ratios_of_two_sizes(self, found: dict[str, Any]) -> None:
        large = copy.deepcopy(found["results"])
        large[0]["cases"]["list"]["cpu_ms"] *= 1.5
        compared = growth.compared(found["results"], large)

        wanted = {"database": "postgresql", "side": "forgefront", "case": "list", "goal": "cpu"}
        assert {**wanted, "small": 2.0, "large": 3.0, "worse": 1.5, "met": False} in compared
        run = {**found["run"], "scales": [0.1, 1.0]}
        assert "3.00" in growth.report({**found, "run": run, "compared": compared})

    def test_pages_count_the_cpu_of_the_database_too(self, found: dict[str, Any]) -> None:
        first, far = ({**self._case(1000.0), "database_cpu_ms": used} for used in (1.0, 2.0))
        rows = [pages.row_of("postgresql", way, {"first": first, "far": far}) for way in ("keyset", "v3")]

        assert [(row["times_cpu"], row.get("met")) for row in rows] == [(1.5, False), (1.5, None)]
        assert "no (at most 1.3)" in pages.report({**found, "run": {**found["run"], "issues": 12_000}, "results": rows})

    def test_processes_gain_against_the_first_row(self, found: dict[str, Any]) -> None:
        rows = [{"processes": count, "memory_mib": 150.0 * count, "cases": {"list": self._case(1000.0 * count)}} for count in (1, 2)]

        assert processes.gain(rows, "list") == [1.0, 2.0]
        assert "2000 (2.00)" in processes.report({**found, "results": rows})

    def test_memory_may_not_grow_with_queries(self, found: dict[str, Any]) -> None:
        row = {"database": "sqlite", "idle_mib": 150.0, "after_load_mib": 200.0, "after_ad_hoc_mib": [210.0, 230.0], "load_requests": 9}

        assert memory.judged(row) == {"idle": True, "load": True, "growth": False}
        run = {**found["run"], "minutes": 3, "ad_hoc": 10_000}
        assert "no: growth" in memory.report({**found, "run": run, "results": [row]})

    def test_rounds_fit_into_the_minutes_there_are(self) -> None:
        for minutes in (8.0, 20.0):
            rounds = budget.fit(minutes, races=44, starts=11)
            assert rounds.cost() * 44 + 11 * budget.START_SECONDS <= minutes * 60
        assert budget.fit(20.0, 44, 11).seconds > budget.fit(8.0, 44, 11).seconds
        with pytest.raises(budget.TooShortError, match="at least"):
            budget.fit(1.0, 44, 11)

    def test_slow_sides_have_longer_rounds(self) -> None:
        assert [budget.stretched(2.0, speed, 32) for speed in (1000.0, 20.0, 0.5, 0.0)] == [2.0, 5.0, 8.0, 8.0]


def test_a_mixed_load_asks_all_questions_in_turn() -> None:
    first, second = Ask("GET", ("/a", "/b"), "token"), Ask("POST", ("/c",), "token", "1", 200, ("1", "2", "3"))

    assert [each[1:] for each in load.in_turn([first, second])] == [
        ("/a", None), ("/c", "1"), ("/b", None), ("/c", "2"), ("/a", None), ("/c", "3")
    ]  # fmt: skip


async def test_random_queries_are_distinct_and_answered(seeded: tuple[Path, data.Data]) -> None:
    folder, rows = seeded
    bodies = [body.decode() for body in random_queries.bodies(rows, range(20))]
    assert len(set(bodies)) == 20
    async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
        for body in bodies[:5]:
            assert await _answer(ours, Ask("POST", ("/graphql",), rows.token, body))


def test_random_queries_may_not_grow_the_memory() -> None:
    row = {"database": "sqlite", "idle_mib": 140.0, "after_random_mib": [180.0] * 7 + [190.0, 200.0, 210.0]}
    assert random_queries.lacking(row) == ["growth"]
    assert random_queries.lacking({**row, "after_random_mib": [221.0] * 10}) == ["size"]


async def test_ad_hoc_queries_are_distinct_and_answered(seeded: tuple[Path, data.Data]) -> None:
    folder, rows = seeded
    bodies = [memory.ad_hoc(rows, number).decode() for number in range(40)]
    assert len(set(bodies)) == 40
    async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
        for body in (bodies[0], bodies[33]):
            assert "errors" not in await _answer(ours, Ask("POST", ("/graphql",), rows.token, body))


def test_the_long_project_is_put_into_a_data_set_once(seeded: tuple[Path, data.Data]) -> None:
    url = f"sqlite:///{seeded[0] / 'forgefront.db'}"

    assert [long_project.put(url, issues=50) for _ in range(2)] == [True, False]


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

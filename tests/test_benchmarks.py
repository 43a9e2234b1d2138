"""The benchmarks compare sides that give the same answers."""

import asyncio
import copy
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from sqlalchemy import func, select

from benchmarks.dataset import build_rows, long_project, open_merge_requests, project_history, seed, statistics_rows
from benchmarks.harness import answers, budget, comparison, in_process, load, runs, servers, sides
from benchmarks.harness.answers import fetch
from benchmarks.harness.load import LoadRequest
from benchmarks.harness.mixed_load import run_mixed_load
from benchmarks.peers import fastapi_app, floor_app, floor_merge, floor_v3_app, node_packages, pygit2_app, strawberry_app
from benchmarks.reports import chart, table_report
from benchmarks.suites import (
    build_starts,
    build_traces,
    builds,
    claims,
    goals,
    growth,
    memory,
    pages,
    processes,
    questions,
    random_queries,
    repository_reads,
    shadow,
    starts,
    statistics,
    transfers,
    trigger_cost,
    write_questions,
    writes,
)
from storage import tables
from storage.database.engine import Database, driver_url
from tests.support.database.databases import PostgresServer
from tests.support.servers.fork_server import ForkedProcess

SCALE = 0.04


def shrink_data_set(patch: pytest.MonkeyPatch) -> None:
    """The rows of each project: enough for every query."""
    patch.setattr(seed, "ISSUES", 30)
    patch.setattr(project_history, "COMMITS", 40)
    patch.setattr(build_rows, "BUILDS", 210)
    patch.setattr(build_rows, "MERGE_REQUESTS", 25)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, seed.Dataset]:
    """A folder with a small database, and the queries of it."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        shrink_data_set(patch)
        rows = seed.seed(f"sqlite:///{folder / 'forgefront.db'}", SCALE)
        project_history.copy_to_projects(rows.history_projects, folder / "repositories")
        return folder, rows


@pytest.fixture(scope="module")
def on_postgresql(seeded: tuple[Path, seed.Dataset], postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database with the same rows."""
    url = postgres.create_database()
    with pytest.MonkeyPatch.context() as patch:
        shrink_data_set(patch)
        seed.seed(url, SCALE)
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="module")
def service(seeded: tuple[Path, seed.Dataset]) -> Iterator[servers.MeasuredServer]:
    """The service with these rows, on SQLite."""
    folder, _ = seeded
    with run_service(folder) as ours:
        yield ours


def run_service(folder: Path, **options: Any) -> AbstractContextManager[servers.MeasuredServer]:
    """It plans operations when they come: preparing all of them takes longer than the tests."""
    settings = {"FORGEFRONT_WARM_UP": "false"}
    return servers.run_service(folder, f"sqlite:///{folder / 'forgefront.db'}", pinned=False, settings=settings, **options)


def fork_service(command: list[str], **settings: Any) -> ForkedProcess:
    """Starts the service without a new interpreter; that of `service` has one."""
    return ForkedProcess(["forgefront.cli", *command[1:]], **settings)


def copy_database(source: Path, target: Path) -> None:
    """By SQLite, since a process that opens and closes the file itself loses its locks on it (https://sqlite.org/howtocorrupt.html)."""
    with closing(sqlite3.connect(source)) as opened, closing(sqlite3.connect(target)) as copy:
        opened.backup(copy)


async def count_written(url: str) -> Counter[str]:
    """The rows of the tables that a note or an issue is written to."""
    database = Database(url)
    try:
        async with database.read_session() as session:
            written = (tables.Issue, tables.Note, tables.Activity, tables.Change)
            return Counter({each.__tablename__: await session.scalar(select(func.count()).select_from(each)) or 0 for each in written})
    finally:
        await database.close()


FLOORS = {"floor": floor_app.create_app, "floor_v3": floor_v3_app.create_app}
PEERS = {**FLOORS, "fastapi": fastapi_app.create_app, "strawberry": strawberry_app.create_app}


class TestTable:
    """Peers and floor answer the questions of the table as the service does."""

    async def test_peers_answer_the_same_on_postgresql(self, seeded: tuple[Path, seed.Dataset], on_postgresql: str) -> None:
        await self.assert_same_answers(*seeded, on_postgresql)

    async def test_peers_answer_the_same_on_sqlite(self, seeded: tuple[Path, seed.Dataset]) -> None:
        await self.assert_same_answers(*seeded, f"sqlite:///{seeded[0] / 'forgefront.db'}")

    async def assert_same_answers(self, folder: Path, rows: seed.Dataset, url: str) -> None:
        known_questions = comparison.questions_by_side(rows)
        async with in_process.service(folder, url) as ours:
            for name, create_app in PEERS.items():
                theirs = create_app(url if name in FLOORS else driver_url(url).render_as_string(hide_password=False))
                async with theirs.router.lifespan_context(theirs):
                    for key, question in known_questions[name].items():
                        mine = known_questions["forgefront"][key]
                        content = mine.content(await send_request(ours, mine.request))
                        questions.compare_contents(key, name, content, question.content(await send_request(theirs, question.request)))

    @pytest.mark.parametrize("name", ["mercurius", "postgraphile"])
    async def test_peers_on_node_answer_the_same(
        self, name: str, seeded: tuple[Path, seed.Dataset], on_postgresql: str, tmp_path: Path
    ) -> None:
        if not node_packages.is_installed(name, node_packages.default_cache()):
            pytest.skip(f"NOT RUN: {name} (scripts/bench join installs it)")
        # Before the test that writes: these peers have milliseconds only, which the rows of the data set have too.
        folder, rows = seeded
        side = next(side for side in sides.SIDES if side.name == name)
        plain = on_postgresql.replace("+asyncpg", "")
        workplace = sides.SideEnvironment(folder, plain, tmp_path, node_packages.default_cache(), pinned=False)
        ours = comparison.questions_by_side(rows)["forgefront"]
        with side.start(side, workplace, print) as server:
            theirs = {
                key: question.content(answers.fetch(server, question.request))
                for key, question in comparison.questions_by_side(rows)[name].items()
            }
        async with in_process.service(folder, on_postgresql) as app:
            for key, content in theirs.items():
                questions.compare_contents(key, name, ours[key].content(await send_request(app, ours[key].request)), content)

    async def test_floors_write_the_same(self, seeded: tuple[Path, seed.Dataset], on_postgresql: str, tmp_path: Path) -> None:
        (folder, rows), changed = seeded, tmp_path / "forgefront.db"
        copy_database(folder / "forgefront.db", changed)
        of_v3 = write_questions.v3_questions(rows)
        asked = (write_questions.graph_questions(rows), of_v3, write_questions.floor_questions(rows), of_v3)
        for url in (f"sqlite:///{changed}", on_postgresql):
            async with in_process.service(folder, url) as ours, run_floors(url) as floors:
                for key in (each for each in write_questions.TITLES if each != writes.ACCEPT):
                    contents, written = [], []
                    for side, app in zip(asked, (ours, ours, *floors.values()), strict=True):
                        if key in side:
                            before = await count_written(url)
                            contents.append(side[key].content(await send_request(app, side[key].requests[0])))
                            written.append((await count_written(url)) - before)
                    assert all(content == contents[-1] for content in contents), (key, contents)
                    assert len(contents[-1]) >= 2
                    assert all(rows == written[-1] for rows in written), (key, written)

    async def test_the_floor_of_v3_answers_it_whole(
        self, seeded: tuple[Path, seed.Dataset], on_postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bodies and the headers of pages, except for what differs between two rows that are written."""
        (folder, rows), changed = seeded, tmp_path / "forgefront.db"
        copy_database(folder / "forgefront.db", changed)
        monkeypatch.setenv("FORGEFRONT_EXTERNAL_URL", servers.EXTERNAL_URL)
        reads, changes = questions.v3_questions(rows), write_questions.v3_questions(rows)
        requests = [reads["list"].request, reads["one"].request, *(changes[key].requests[0] for key in ("note", "create", "update"))]
        second_page = replace(requests[0], paths=(f"{requests[0].paths[0]}?page=2",))
        for url in (f"sqlite:///{changed}", on_postgresql):
            async with in_process.service(folder, url) as ours, run_floors(url) as floors:
                for request in (*requests, second_page):
                    mine, theirs = [await respond(app, request) for app in (ours, floors["floor_v3"])]
                    names = [
                        name
                        for name in mine.headers
                        if name == "link" or name.startswith(("x-page", "x-total", "x-per", "x-next", "x-prev"))
                    ]
                    assert {name: mine.headers[name] for name in names} == {name: theirs.headers.get(name) for name in names}
                    assert (len(names) == 7) is (request.paths[0].split("?")[0] == requests[0].paths[0] and request.method == "GET")
                    assert without_identity(request, mine.json()) == without_identity(request, theirs.json())

    async def test_the_floors_merge_the_same(
        self, seeded: tuple[Path, seed.Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, rows = seeded
        copy_database(folder / "forgefront.db", tmp_path / "forgefront.db")
        shutil.copytree(folder / "repositories", tmp_path / "repositories")
        monkeypatch.setenv(floor_merge.REPOSITORIES_VARIABLE, str(tmp_path / "repositories"))
        floor_merge._open.cache_clear()
        url, project = f"sqlite:///{tmp_path / 'forgefront.db'}", rows.history_projects[0]
        found = await asyncio.to_thread(open_merge_requests.create_open_merge_requests, url, tmp_path / "repositories", [project], 4)
        asked = write_questions.accept_questions(rows, project, found[project])
        async with in_process.service(tmp_path, url) as ours, run_floors(url) as floors:
            answered = {side: await send_request(floors.get(side, ours), question.requests[0]) for side, question in asked.items()}
        contents = [asked[side].content(answer) for side, answer in answered.items()]
        assert contents[0]["state"] == "merged" and contents[1:] == contents[:-1]
        whole = [{**answered[side], "id": 0, "iid": 0, "source_branch": "", "target_branch": ""} for side in ("v3", "floor_v3")]
        assert whole[0] == whole[1]

    def test_another_answer_is_unfair(self) -> None:
        rows = [{"headCommit": {"builds": [{}] * 5}}] * 20
        with pytest.raises(answers.UnfairError, match="has another answer"):
            questions.compare_contents("join", "peer", rows, rows[1:])
        with pytest.raises(answers.UnfairError, match="not twenty"):
            questions.compare_contents("join", "peer", rows[1:], rows[1:])

    async def test_v3_answers_match_the_graph(self, seeded: tuple[Path, seed.Dataset]) -> None:
        folder, rows = seeded
        known_questions = comparison.questions_by_side(rows)
        async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
            for key, question in known_questions["v3"].items():
                mine = known_questions["forgefront"][key]
                contents = [each.content(await send_request(ours, each.request)) for each in (mine, question)]
                questions.compare_contents(key, "v3", *contents)


class TestMixedLoad:
    """Reads and writes on the same connections, of which the reads are timed."""

    async def test_one_request_in_ten_writes(self, seeded: tuple[Path, seed.Dataset], service: servers.MeasuredServer) -> None:
        folder, data = seeded
        question = write_questions.graph_questions(data)["mixed"]
        assert question.reads is not None
        database = f"sqlite:///{folder / 'forgefront.db'}"
        for seconds in (0.5, 8.0):
            before = (await count_written(database))["notes"]
            try:
                found = await asyncio.to_thread(run_mixed_load, service, question.requests, question.reads, seconds, 4)
            except load.NoAnswersError:
                continue
            # The kernel counts hundredths, of which a busy machine may leave the server less than one in the first time.
            if found.cpu_ms > 0:
                break

        written = (await count_written(database))["notes"] - before
        assert found.requests // 10 - 4 <= written <= found.requests // 10 + 4
        assert found.per_second > 1
        assert 0 < found.p50_ms <= found.p99_ms
        assert found.cpu_ms > 0

    @pytest.mark.parametrize("token", ["", "wrong"])
    def test_an_answer_that_is_an_error_ends_it(
        self, seeded: tuple[Path, seed.Dataset], service: servers.MeasuredServer, token: str
    ) -> None:
        _, data = seeded
        requests = [replace(each, token=token) for each in write_questions.v3_questions(data)["mixed"].requests]
        with pytest.raises(load.BadAnswersError, match="401 Unauthorized"):
            run_mixed_load(service, requests, 9, 5.0, 2)


class TestReports:
    """What is made of measured figures, here of given ones: twice PostGraphile's speed, nine times FastAPI's, and a slow join."""

    ASKED = ("list", "join")
    SPEEDS = {
        "forgefront": (1800.0, 300.0),
        "v3": (1500.0,),
        "floor": (1900.0, 2500.0),
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
        missing_side = {"side": "mercurius", "title": "mercurius", "signs_in": False, "not_run": "npm is missing"}
        results += [{"database": "postgresql", **missing_side}, {**results[0], "database": "sqlite"}]
        machine = {"cores": 2, "python": "3.11", "node": "22", "pinned": True, "load_average": {"before": 0.1, "after": 0.2}}
        return {"machine": machine, "run": {"scale": 1.0, "rounds": 3, "seconds": 5.0, "connections": 32}, "results": results}

    def _title(self, name: str) -> str:
        return next(side.title for side in sides.SIDES if side.name == name)

    def _case(self, speed: float) -> dict[str, Any]:
        """A server without other load."""
        return {"per_second": speed, "spread": 0.1, "cpu_ms": 1000 / speed, "database_cpu_ms": 1.0, "p50_ms": 20.0, "p99_ms": 50.0}

    def test_goals_are_ratios_on_the_same_database(self, found: dict[str, Any]) -> None:
        results = {
            (each.database, each.side, each.case, each.goal): (each.found, each.is_met) for each in goals.evaluate_goals(found["results"])
        }

        assert results["postgresql", "forgefront", "list", "cpu"] == (1.06, True)
        assert results["postgresql", "forgefront", "join", "cpu"] == (8.33, False)
        assert results["postgresql", "forgefront", "list", "fastapi"] == (9.0, True)
        assert results["postgresql", "v3", "list", "fastapi"] == (7.5, False)
        assert results["postgresql", "forgefront", "list", "postgraphile"] == (2.0, True)
        assert results["postgresql", "forgefront", "list", "p99"] == (2.5, True)
        assert {goal for database, *_, goal in results if database == "sqlite"} == {"p99"}
        assert not any(goal == "mercurius" or side == "floor" for _, side, _, goal in results)
        assert [each.is_met for each in goals.evaluate_memory(found["results"])] == [False, False]

    def test_the_table_shows_which_goals_are_met(self, found: dict[str, Any]) -> None:
        lines = table_report.render_report(found).splitlines()

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
        drawn = ElementTree.fromstring(chart.render_svg(found))

        bars = [bar.get("class") for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
        assert bars == ["ground", "ours", "ours", "ours", "floor", "peer", "peer", "ours", "ours", "floor", "peer", "peer"]
        assert "prefers-color-scheme:dark" in chart.render_svg(found)

    def test_growth_compares_the_ratios_of_two_sizes(self, found: dict[str, Any]) -> None:
        large = copy.deepcopy(found["results"])
        large[0]["cases"]["list"]["cpu_ms"] *= 1.5
        compared = growth.compare_scales(found["results"], large)

        goal = {"database": "postgresql", "side": "forgefront", "case": "list", "goal": "cpu"}
        assert {**goal, "small": 1.06, "large": 1.58, "worse": 1.49, "met": False} in compared
        run = {**found["run"], "scales": [0.1, 1.0]}
        assert "1.58" in growth.render_report({**found, "run": run, "compared": compared})

    def test_pages_count_the_cpu_of_the_database_too(self, found: dict[str, Any]) -> None:
        first, far = ({**self._case(1000.0), "database_cpu_ms": used} for used in (1.0, 2.0))
        rows = [pages.create_row("postgresql", mode, {"first": first, "far": far}) for mode in ("keyset", "v3")]

        assert [(row["times_cpu"], row.get("met")) for row in rows] == [(1.5, False), (1.5, None)]
        assert "no (at most 1.3)" in pages.render_report({**found, "run": {**found["run"], "issues": 12_000}, "results": rows})

    def test_writes_are_compared_with_the_floor(self, found: dict[str, Any]) -> None:
        case = found["results"][0]["cases"]["list"]
        slow = {**case, "cpu_ms": case["cpu_ms"] * 2.5, "per_second": case["per_second"] / 2}
        assert writes.evaluate_case("create", slow, case)["met"] is False
        assert writes.evaluate_case("create", case, slow)["met"] is True
        assert writes.evaluate_case("mixed", slow, case)["met"] is False
        rows = [{"database": "sqlite", "side": side, "cases": {"create": case}} for side in writes.SIDES]
        assert "create an issue; REST v3, SQLite" in writes.render_report({**found, "results": rows})

    def test_processes_gain_against_the_first_row(self, found: dict[str, Any]) -> None:
        rows = [{"processes": count, "memory_mib": 150.0 * count, "cases": {"list": self._case(1000.0 * count)}} for count in (1, 2)]

        assert processes.compute_gain(rows, "list") == [1.0, 2.0]
        assert "2000 (2.00)" in processes.render_report({**found, "results": rows})

    def test_shadow_adds_the_difference_of_the_medians(self, found: dict[str, Any]) -> None:
        times = {"direct": [0.001, 0.002, 0.009], "proxied": [0.002, 0.0045, 0.005]}
        rows = [shadow.create_row("list", True, times, 0.006), shadow.create_row("one", False, {**times, "proxied": [0.0025]}, 0.001)]

        assert (rows[0]["added_ms"], rows[0]["cpu_ms"], rows[1]["added_ms"]) == (2.5, 2.0, 0.5)
        report = shadow.render_report({**found, "run": {"rounds": 1, "requests": 3}, "results": rows})
        assert "+2.50 |           no" in report
        assert "+0.50 |          yes" in report

    def test_memory_growth_with_queries_fails_the_goal(self, found: dict[str, Any]) -> None:
        row = {"database": "sqlite", "idle_mib": 150.0, "after_load_mib": 200.0, "after_ad_hoc_mib": [210.0, 230.0], "load_requests": 9}

        assert memory.evaluate_memory(row) == {"idle": True, "load": True, "growth": False}
        run = {**found["run"], "minutes": 3, "ad_hoc": 10_000}
        assert "no: growth" in memory.render_report({**found, "run": run, "results": [row]})

    def test_rounds_fit_into_the_minutes_there_are(self) -> None:
        for minutes in (8.0, 20.0):
            rounds = budget.fit_rounds(minutes, pairs=44, starts=11)
            assert rounds.cost() * 44 + 11 * budget.START_SECONDS <= minutes * 60
        assert budget.fit_rounds(20.0, 44, 11).seconds > budget.fit_rounds(8.0, 44, 11).seconds
        with pytest.raises(budget.TooShortError, match="at least"):
            budget.fit_rounds(1.0, 44, 11)

    def test_slow_sides_have_longer_rounds(self) -> None:
        assert [budget.stretch_round(2.0, speed, 32) for speed in (1000.0, 20.0, 0.5, 0.0)] == [2.0, 5.0, 8.0, 8.0]


def test_a_mixed_load_asks_all_queries_in_turn() -> None:
    first, second = LoadRequest("GET", ("/a", "/b"), "token"), LoadRequest("POST", ("/c",), "token", "1", 200, ("1", "2", "3"))

    assert [each[1:] for each in load.interleave([first, second])] == [
        ("/a", None), ("/c", "1"), ("/b", None), ("/c", "2"), ("/a", None), ("/c", "3")
    ]  # fmt: skip


async def test_random_queries_are_distinct_and_answered(seeded: tuple[Path, seed.Dataset]) -> None:
    folder, rows = seeded
    bodies = [body.decode() for body in random_queries.create_bodies(rows, range(20))]
    assert len(set(bodies)) == 20
    async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
        for body in bodies[:5]:
            assert await send_request(ours, LoadRequest("POST", ("/graphql",), rows.token, body))


def test_random_queries_do_not_grow_memory() -> None:
    row = {"database": "sqlite", "idle_mib": 140.0, "after_random_mib": [180.0] * 7 + [190.0, 200.0, 210.0]}
    assert random_queries.unmet_goals(row) == ["growth"]
    assert random_queries.unmet_goals({**row, "after_random_mib": [221.0] * 10}) == ["size"]


async def test_ad_hoc_queries_are_distinct_and_answered(seeded: tuple[Path, seed.Dataset]) -> None:
    folder, rows = seeded
    bodies = [memory.ad_hoc_body(rows, number).decode() for number in range(40)]
    assert len(set(bodies)) == 40
    async with in_process.service(folder, f"sqlite:///{folder / 'forgefront.db'}") as ours:
        for body in (bodies[0], bodies[33]):
            assert "errors" not in await send_request(ours, LoadRequest("POST", ("/graphql",), rows.token, body))


def test_the_long_project_is_put_into_a_data_set_once(seeded: tuple[Path, seed.Dataset]) -> None:
    url = f"sqlite:///{seeded[0] / 'forgefront.db'}"

    assert [long_project.insert_long_project(url, issues=50) for _ in range(2)] == [True, False]


def test_claims_find_the_builds_and_polls_find_none(
    seeded: tuple[Path, seed.Dataset], service: servers.MeasuredServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = seeded
    monkeypatch.setattr(claims, "FEW_PENDING", 40)
    monkeypatch.setattr(claims, "CLAIMS", 5)
    monkeypatch.setattr(claims, "WARMUP_SECONDS", 0.1)
    url = f"sqlite:///{folder / 'forgefront.db'}"
    polled = claims.measure_polling(service, 1.0)
    claimed = claims.measure_claims(service, rows, url, 1, 400)

    assert polled["cores"] >= 0
    assert [row["case"] for row in claimed] == ["shared runner", "runner of six projects"]
    assert all(row[side]["ms"] > 0 for row in claimed for side in ("many", "few"))


def test_pushes_start_builds_and_readers_receive_whole_traces(
    seeded: tuple[Path, seed.Dataset], service: servers.MeasuredServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = seeded
    monkeypatch.setattr(build_starts, "WARMUP_PUSHES", 1)
    monkeypatch.setattr(build_traces, "READERS", 3)
    url = f"sqlite:///{folder / 'forgefront.db'}"
    starts = build_starts.measure_starts(service, folder, url, rows, 2, 20)
    traces = build_traces.measure_traces(service, url, rows, 1, 3)

    for key in ("none", "many"):
        assert 0 < starts[key]["from_commit"]["p50_ms"] <= starts[key]["from_push"]["p50_ms"]
    assert traces["tail"]["missing"] == 0
    assert (traces["trace"]["bytes"], traces["trace"]["page_total_bytes"]) == (10**6, 10**6)
    assert (traces["trace"]["whole_readers"], traces["trace"]["is_same"]) == (3, True)
    row = {"database": "sqlite", "workers": 1, "starts": starts, "traces": traces}
    run = {"pushes": 2, "pending": 20, "runners": 8, "readers": 3, "scale": SCALE}
    report = builds.render_report({"results": [row], "run": run, "machine": runs.machine(False, 0.0)})
    assert "| SQLite, 1 process, 20 pending " in report and "1,000 lines" in report


async def send_request(app: Any, ask: LoadRequest) -> Any:
    return (await respond(app, ask)).json()


async def respond(app: Any, ask: LoadRequest) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example") as client:
        response = await client.request(ask.method, ask.paths[0], headers=ask.headers, content=ask.body)
    assert response.status_code == ask.status, response.text
    return response


@asynccontextmanager
async def run_floors(url: str) -> AsyncIterator[dict[str, Any]]:
    """The floors on a database, by the names of their sides."""
    async with AsyncExitStack() as stack:
        floors = {name: create_app(url) for name, create_app in FLOORS.items()}
        for app in floors.values():
            await stack.enter_async_context(app.router.lifespan_context(app))
        yield floors


def without_identity(ask: LoadRequest, answer: Any) -> Any:
    """The answer to a request that writes, without its ids and timestamps."""
    if ask.method == "GET":
        return answer
    times = {name: None for name in ("created_at", "updated_at") if name in answer and not (name == "created_at" and ask.method == "PUT")}
    return {**answer, **times, **({"id": None, "iid": None} if ask.method == "POST" else {})}


class TestStarts:
    def test_dashboards_of_projects_are_requested(self) -> None:
        requests = starts.dashboard_requests(7, "token")

        assert "D08_LeadTime" in requests
        assert all('"p": "7"' in (request.body or "") for request in requests.values())

    @pytest.mark.parametrize(("first_ms", "is_met"), [(41.0, False), (39.0, True)])
    def test_goals_are_those_of_the_medians(self, first_ms: float, is_met: bool) -> None:
        times = {"version": 0.1, "health": 1.3, "cpu": 1.0, "ready": 2.0, "ready_cpu": 2.0}
        one = {**times, "starting_ms": 7.0, "slowest_ms": 51.0, "idle_ms": 3.0, "first": {"D01": 4.0}, "warm": {"D01": 1.0}}
        slow = {**one, "first": {"D01": 4.0, "D02": first_ms}, "warm": {"D01": 1.0, "D02": 20.0}}

        row = starts.summarize_starts([slow, slow], 4.9)
        report = starts.render_report(
            {"results": [{"database": "sqlite", **row}], "run": {"rounds": 2}, "machine": runs.machine(False, 0.0)}
        )

        assert row["met"] == {
            "version": True,
            "health": False,
            "starting_ms": True,
            "slowest_ms": False,
            "first": is_met,
            "planning": True,
        }
        answers = ["yes", "no", "-", "yes", "no", "yes" if is_met else "no", "yes"]
        assert [line.split("|")[-2].strip() for line in report.splitlines()[2:9]] == answers


class TestRepositories:
    """A service of their own, which reads the repositories when it starts."""

    async def test_both_sides_do_the_same(self, seeded: tuple[Path, seed.Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
        folder, rows = seeded
        monkeypatch.setattr(transfers, "COMMITS_PER_PUSH", 3)
        # After the one for warming up, which has the sides in the other order.
        for name in ("FETCHES", "LARGE_PUSHES", "SMALL_PUSHES"):
            monkeypatch.setattr(transfers, name, 1)
        monkeypatch.setattr(repository_reads, "CHANGED_FILES", 12)
        monkeypatch.setattr(repository_reads, "COMPARED_COMMITS", 3)
        made = transfers.Transfers(rows, folder, 100)
        project = rows.projects[1]
        with (
            repository_reads.import_history(folder, project, partial(repository_reads.create_history, commits=60)) as repository,
            run_service(folder, start=fork_service) as ours,
        ):
            with made.sides(ours, pinned=False) as sides:
                found = transfers.compare_transfers(made, sides, 1)
                heads = {key: side.heads(folder) for key, side in sides.items()}
            monkeypatch.setenv(pygit2_app.REPOSITORY_VARIABLE, str(repository))
            peer = pygit2_app.create_app()
            for case in repository_reads.create_cases(repository, project):
                content = case.content(fetch(ours, LoadRequest("GET", (case.ours,), rows.token)))
                assert content, case.name
                assert content == case.content(await send_request(peer, LoadRequest("GET", (case.peer,), ""))), case.name

        cases = ["clone of 100 commits", "fetch of one new commit", "push of 3 commits", "push of one commit"]
        assert [row["case"] for row in found] == cases
        assert all(row[side]["ms"] > 0 for row in found for side in ("ours", "peer"))
        assert heads["ours"] == heads["peer"]
        assert {f"refs/heads/push-{number}" for number in range(1, 5)} < heads["ours"].keys()

    def test_transfers_are_a_table(self) -> None:
        times = {"ours": {"ms": 13.0, "cpu_ms": 2.0}, "peer": {"ms": 10.0, "cpu_ms": 1.0}, "times_ms": 1.3, "times_cpu": 2.0}
        results = [{"database": "sqlite", "case": "a push", **times, "goal": 1.3, "met": True}]
        found = {"results": results, "run": {"rounds": 1}, "machine": runs.machine(False, 0.0)}
        line = transfers.render_report(found).splitlines()[2]
        assert [cell.strip() for cell in line.split("|")[1:-1]] == [
            "a push, SQLite",
            "13 (2)",
            "10 (1)",
            "1.30 (2.00)",
            "yes (at most 1.3)",
        ]

    def test_reads_are_a_table(self) -> None:
        latencies = {"ours": {"ms": 2.6, "cpu_ms": 2.0}, "peer": {"ms": 2.0, "cpu_ms": 1.0}}
        results = [{"database": "sqlite", "case": "a read", **latencies, "times": 1.3, "goal": 1.3, "met": True}]
        found = {"results": results, "run": {"commits": 60, "rounds": 1}, "machine": runs.machine(False, 0.0)}
        line = repository_reads.render_report(found).splitlines()[2]
        assert [cell.strip() for cell in line.split("|")[1:-1]] == [
            "a read, SQLite",
            "2.60 (2.00)",
            "2.00 (1.00)",
            "1.30 (at most 1.3)",
            "yes",
        ]


class TestStatistics:
    """The data, goals and report of `statistics`."""

    BUILDS, MERGE_REQUESTS = 400, 40
    MS = {"ms": 300.0, "duckdb_ms": 200.0, "cpu_ms": 310.0, "duckdb_cpu_ms": 190.0, "row_store_ms": None, "builds": 400, "rows": 40}

    async def test_data_is_complete_on_postgresql(self, on_postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trigger_cost, "ROWS", 50)
        await self.check_data(on_postgresql)

    async def test_data_is_complete_on_sqlite(
        self, seeded: tuple[Path, seed.Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trigger_cost, "ROWS", 50)
        shutil.copy(seeded[0] / "forgefront.db", tmp_path / "forgefront.db")
        await self.check_data(f"sqlite:///{tmp_path / 'forgefront.db'}")

    async def check_data(self, url: str) -> None:
        database = Database(url)
        try:
            schema, log = "SELECT count(*) FROM pg_indexes WHERE tablename = 'builds'", "SELECT count(*) FROM build_changes"
            if database.dialect == "sqlite":
                schema = "SELECT count(*) FROM sqlite_master WHERE tbl_name = 'builds'"
            async with database.read_session() as session:
                before = [await session.fetch(each, ()) for each in (schema, log)]
            projects = await asyncio.to_thread(statistics_rows.fill, url, self.BUILDS, self.MERGE_REQUESTS)

            async with database.read_session() as session:
                assert [await session.fetch(each, ()) for each in (schema, log)] == before
                for table, rows in (("builds", self.BUILDS), ("merge_requests", self.MERGE_REQUESTS), ("commits", self.MERGE_REQUESTS)):
                    where = f"project_id BETWEEN {projects.first} AND {projects.last}"
                    assert (await session.fetch(f"SELECT count(*) FROM {table} WHERE {where}", ()))[0][0] == rows
            logged = await asyncio.to_thread(trigger_cost.measure_triggers, url, projects, 1)
            assert set(logged) == {"insert", "update", "delete"}
        finally:
            await database.close()

    def found(self, builds: int, ms: float) -> dict[str, Any]:
        row = {
            "database": "sqlite",
            "questions": {key: {**self.MS, "ms": 31.0} for key in ("largest", "other")} | {"all": {**self.MS, "ms": ms}},
            "flaky": dict.fromkeys(statistics.FLAKY_QUERIES, ms),
            "flaky_row_store": dict.fromkeys(statistics.FLAKY_QUERIES, 600.0),
            "others": dict.fromkeys(statistics.OTHER_QUERIES, 12.0),
            "meanwhile": {"without_p50_ms": 2.0, "without_p99_ms": 9.0, "with_p50_ms": 3.0, "with_p99_ms": 14.0, "statistics": 7},
            "rebuild": {"builds": builds, "bytes": 10**7, "seconds": 61.0},
            "triggers": {"insert": 1.0, "update": 2.0, "delete": 3.0},
        }
        machine = {"cores": 2, "python": "3.11", "pinned": False, "load_average": {"before": 0.1, "after": 0.2}}
        return {"machine": machine, "run": {"builds": builds, "merge_requests": 10, "rounds": 3}, "results": [row]}

    @pytest.mark.parametrize(("builds", "ms", "is_met"), [(500_000, 300.0, True), (500_000, 301.0, False), (5_000_000, 500.0, True)])
    def test_goals_depend_on_the_number_of_builds(self, builds: int, ms: float, is_met: bool) -> None:
        found = self.found(builds, ms)

        met = statistics.evaluate_row(found["results"][0], builds)

        is_flaky_met = ms <= 300.0
        assert met == {"all": is_met, "largest": False, "other": False, "flaky": is_flaky_met, "meanwhile": True, "rebuild": False}
        report = statistics.render_report(found)
        assert ("at most 1.5 times DuckDB" if builds == 500_000 else "at most 500 ms") in report
        assert "no (at most 30 ms)" in report

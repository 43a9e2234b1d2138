"""The thirteen dashboard queries over the week of `tests/support/week_fixture.py`.

Each expected answer was computed by hand from the tables of that module.
"""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphql import OperationDefinitionNode, parse, print_ast

import graph as package
from graph.context import Services
from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel, CheckStatus, IssueState
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder, requires_planner
from tests.support.servers.streams import next_event, subscribed
from tests.support.week_fixture import COMMITS, NOW, WeekData, at, create_week

QUESTIONS = {
    node.name.value: print_ast(node)
    for node in parse((Path(package.__file__).parent / "documents" / "dashboards" / "dashboards.graphql").read_text()).definitions
    if isinstance(node, OperationDefinitionNode) and node.name
}
MAX_STATEMENTS = 8
"""SQL statements for one question, whatever the number of rows, when it is asked again: who asks is known for a moment, and so is that a
branch is where the index has it."""

Row = dict[str, Any]


@pytest.fixture
async def week(make: DataFactory, tmp_path: Path) -> WeekData:
    return await create_week(make, tmp_path / "story.git")


@pytest.fixture
def graph(services: Services) -> Graph:
    """At the end of the story."""
    return Graph(replace(services, clock=lambda: NOW))


@pytest.fixture
def question(ask: Ask, statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks one of them, in few statements, and without any git process."""

    async def question(name: str, viewer: tables.User, **variables: Any) -> Row:
        def refuse(*_: Any, **__: Any) -> Any:
            raise AssertionError("a question of a dashboard started a process")

        with monkeypatch.context() as patched:
            patched.setattr(subprocess, "Popen", refuse)
            patched.setattr(asyncio, "create_subprocess_exec", refuse)
            first = await ask.data(QUESTIONS[name], viewer, **variables)
            with statements.assert_at_most(MAX_STATEMENTS):
                answer = await ask.data(QUESTIONS[name], viewer, **variables)
            assert answer == first or name == "D07_Backlog"
            return answer

    return question


def parse_moment(text: str) -> str:
    """In the graph's format."""
    return at(text).strftime("%Y-%m-%dT%H:%M:%S.000000Z")


def short_commit(story: WeekData, name: str) -> str:
    return story.oids[name][:8]


def change_of(build: tables.Build) -> tables.Change:
    """That it ran until then."""
    return tables.Change(
        kind=tables.ChangeKind.BUILD,
        project_id=build.project_id,
        build_id=build.id,
        ref=build.ref,
        old_state="running",
        new_state=build.status.value,
    )


TIME_RANGE = {"since": parse_moment("21 00:00"), "until": parse_moment("28 00:00")}


def test_there_are_thirteen_dashboard_queries() -> None:
    assert [name[:3] for name in QUESTIONS] == [f"D{number:02}" for number in range(1, 14)]


class TestD01Wall:
    async def test_each_project_with_builds_and_its_default_branch(self, question: Any, week: WeekData) -> None:
        answer = (await question("D01_Wall", week.ann, g="acme"))["group"]["projects"]

        web = {"name": "Web", "path": "web"}
        assert answer["totalCount"] == 2
        assert {row["path"]: row["branch"] for row in answer["nodes"]}["api"] is None
        (row,) = [row for row in answer["nodes"] if row["path"] == "web"]
        assert row == {
            **web,
            "branch": {
                "name": "master",
                "target": {
                    "shortOid": short_commit(week, "m7"),
                    "title": "Explain the cache",
                    "authorName": "Cid",
                    "author": None,
                    "committedAt": parse_moment("28 09:00"),
                    "rollup": {
                        "state": "CANCELED",
                        "counts": {"total": 1, "failed": 0, "running": 0},
                        "durationSeconds": None,
                        "failing": [],
                    },
                },
            },
        }

    async def test_shows_no_project_that_the_viewer_does_not_see(self, question: Any, make: DataFactory, week: WeekData) -> None:
        eve = await make.user("eve")
        await make.member(week.web, eve, AccessLevel.REPORTER)

        answer = (await question("D01_Wall", eve, g="acme"))["group"]["projects"]

        assert answer["totalCount"] == 1
        assert [row["path"] for row in answer["nodes"]] == ["web"]


class TestD02RedMergeRequests:
    async def test_failed_heads_with_the_end_of_the_trace(self, question: Any, week: WeekData) -> None:
        answer = await question("D02_RedMergeRequests", week.ann, p="acme/web")

        assert answer["project"]["mergeRequests"] == {
            "totalCount": 1,
            "nodes": [
                {
                    "iid": 3,
                    "title": "Topic",
                    "updatedAt": parse_moment("28 11:00"),
                    "assignee": {"username": "ann"},
                    "author": {"username": "bob"},
                    "blockers": ["BUILD_FAILED"],
                    "headCommit": {
                        "shortOid": short_commit(week, "t1"),
                        "rollup": {
                            "finishedAt": parse_moment("28 10:04"),
                            "failing": [
                                {
                                    "name": "unit",
                                    "stage": "test",
                                    "status": "FAILED",
                                    "trace": {"lines": ["compiling", "1 of 2 failed", "words are slow"]},
                                },
                                {"name": "ci/outside", "status": "FAILED", "targetUrl": "https://ci.example/7"},
                            ],
                        },
                    },
                }
            ],
        }


class TestD03WhoBrokeIt:
    async def test_a_red_branch_leads_to_the_merge_request_behind_it(self, question: Any, week: WeekData) -> None:
        answer = await question("D03_WhoBrokeIt", week.ann, p="acme/web", b="stable")

        assert answer["project"]["branch"]["health"] == {
            "state": "FAILED",
            "since": parse_moment("26 12:05"),
            "lastGreen": {"shortOid": short_commit(week, "m2"), "committedAt": parse_moment("21 09:00")},
            "firstBad": {
                "shortOid": short_commit(week, "sm"),
                "title": "Merge branch 'backport'",
                "author": {"username": "bob"},
                "mergeRequests": {"nodes": [{"iid": 5, "title": "Backport", "author": {"username": "bob"}}]},
            },
            "suspects": {
                "totalCount": 2,
                "nodes": [
                    {"shortOid": short_commit(week, "sm"), "title": "Merge branch 'backport'", "authorName": "Bob"},
                    {"shortOid": short_commit(week, "s1"), "title": "Prepare a release", "authorName": "Cid"},
                ],
            },
            "failing": {
                "nodes": [
                    {
                        "name": "unit",
                        "stage": "test",
                        "finishedAt": parse_moment("26 12:05"),
                        "restPath": f"/api/v3/projects/{week.web.id}/builds/{week.builds['sm', 'unit'].id}",
                    }
                ]
            },
        }

    async def test_a_revert_makes_it_green_again(self, question: Any, week: WeekData) -> None:
        answer = await question("D03_WhoBrokeIt", week.ann, p="acme/web", b="master")

        assert answer["project"]["branch"]["health"] == {
            "state": "SUCCESS",
            "since": parse_moment("27 01:42"),
            "lastGreen": {"shortOid": short_commit(week, "m6"), "committedAt": parse_moment("27 01:30")},
            "firstBad": None,
            "suspects": {"totalCount": 0, "nodes": []},
            "failing": {"nodes": []},
        }


class TestD04Flaky:
    async def test_a_job_that_failed_and_succeeded_on_the_same_commit(self, question: Any, week: WeekData) -> None:
        answer = (await question("D04_Flaky", week.ann, p="acme/web", since=parse_moment("19 00:00")))["project"]["flakyBuilds"]

        # Runs of `unit` that ended well or badly: m1, m2, p2, m3 twice, q1 twice, sm, m5, m6, t1.
        assert answer == {
            "totalCount": 1,
            "nodes": [
                {
                    "name": "unit",
                    "stage": "test",
                    "flips": 2,
                    "runs": 11,
                    "rate": pytest.approx(2 / 11),
                    "wastedSeconds": 300.0 + 600.0,
                    "blockedMergeRequests": 1,
                    "lastCommit": {
                        "shortOid": short_commit(week, "q1"),
                        "builds": {
                            "nodes": [
                                {"name": "unit", "attempt": 1, "status": "FAILED", "durationSeconds": 600.0},
                                {"name": "unit", "attempt": 2, "status": "SUCCESS", "durationSeconds": 540.0},
                            ]
                        },
                    },
                }
            ],
        }

    async def test_counts_nothing_from_before(self, question: Any, week: WeekData) -> None:
        answer = await question("D04_Flaky", week.ann, p="acme/web", since=parse_moment("28 00:00"))

        assert answer["project"]["flakyBuilds"] == {"totalCount": 0, "nodes": []}


class TestD05DurationTrend:
    async def test_days_of_helsinki_around_the_change_of_clocks(self, question: Any, week: WeekData) -> None:
        answer = await question("D05_DurationTrend", week.ann, p="acme/web", since=parse_moment("19 00:00"))

        def row(day: str, name: str, total: int, failed: int, duration: Row | None, queued: float) -> Row:
            counts = {"total": total, "failed": failed}
            return {"bucketStart": parse_moment(day), "name": name, "counts": counts, "duration": duration, "queued": {"p95": queued}}

        def same(seconds: float) -> Row:
            return {"p50": seconds, "p95": seconds, "max": seconds}

        # A day begins at 22:00 UTC the evening before, and from the 28th on at 21:00.
        assert answer["project"]["buildStats"] == {
            "truncated": False,
            "rows": [
                row("19 22:00", "unit", 1, 0, same(600.0), 60.0),
                row("20 22:00", "unit", 1, 0, same(1200.0), 60.0),
                row("23 22:00", "lint", 1, 1, same(60.0), 60.0),
                row("23 22:00", "unit", 1, 0, same(600.0), 60.0),
                row("26 22:00", "unit", 2, 1, {"p50": 600.0, "p95": 1800.0, "max": 1800.0}, 60.0),
                row("27 21:00", "unit", 1, 0, None, 240.0),
            ],
        }

    @pytest.mark.parametrize("variables", [{}, {"ref": None}])
    async def test_is_about_the_default_branch_of_the_project(
        self, question: Any, make: DataFactory, week: WeekData, variables: dict[str, None]
    ) -> None:
        week.web.default_branch = "stable"
        await make.save(week.web)

        answer = await question("D05_DurationTrend", week.ann, p="acme/web", since=parse_moment("19 00:00"), **variables)

        rows = answer["project"]["buildStats"]["rows"]
        assert [(row["bucketStart"], row["name"], row["counts"]["total"]) for row in rows] == [(parse_moment("25 22:00"), "unit", 1)]

    async def test_is_about_the_branch_that_is_named(self, question: Any, week: WeekData) -> None:
        answer = await question("D05_DurationTrend", week.ann, p="acme/web", since=parse_moment("19 00:00"), ref="numbers")

        rows = answer["project"]["buildStats"]["rows"]
        assert [(row["bucketStart"], row["name"], row["counts"]["total"]) for row in rows] == [(parse_moment("22 22:00"), "unit", 1)]


class TestD06IsMasterGreen:
    async def test_one_segment_for_each_change_of_colour(self, question: Any, week: WeekData) -> None:
        span = {"since": parse_moment("24 00:00"), "until": parse_moment("28 12:00")}

        answer = await question("D06_IsMasterGreen", week.ann, p="acme/web", r=span)

        commits = {name: (title, author) for name, _, _, author, _, _, title in COMMITS}

        def segment(state: str, begin: str, end: str, name: str) -> Row:
            title, author = commits[name]
            return {
                "state": state,
                "startedAt": parse_moment(begin),
                "endedAt": parse_moment(end),
                "seconds": (at(end) - at(begin)).total_seconds(),
                "commit": {"shortOid": short_commit(week, name), "title": title, "authorName": author},
            }

        assert answer["project"]["branch"]["timeline"] == [
            segment("SUCCESS", "24 00:00", "24 10:00", "m2"),
            segment("NONE", "24 10:00", "24 10:01", "m3"),
            segment("PENDING", "24 10:01", "24 10:02", "m3"),
            segment("RUNNING", "24 10:02", "24 10:07", "m3"),
            segment("FAILED", "24 10:07", "24 10:10", "m3"),
            # Again, by a retry.
            segment("RUNNING", "24 10:10", "24 10:21", "m3"),
            segment("SUCCESS", "24 10:21", "25 10:00", "m3"),
            # m4 has no checks, and m5 none in its first minute.
            segment("NONE", "25 10:00", "26 21:31", "m4"),
            segment("PENDING", "26 21:31", "26 21:32", "m5"),
            segment("RUNNING", "26 21:32", "26 22:02", "m5"),
            segment("FAILED", "26 22:02", "27 01:30", "m5"),
            segment("NONE", "27 01:30", "27 01:31", "m6"),
            segment("PENDING", "27 01:31", "27 01:32", "m6"),
            segment("RUNNING", "27 01:32", "27 01:42", "m6"),
            segment("SUCCESS", "27 01:42", "28 09:00", "m6"),
            segment("NONE", "28 09:00", "28 09:01", "m7"),
            segment("PENDING", "28 09:01", "28 09:05", "m7"),
            segment("CANCELED", "28 09:05", "28 12:00", "m7"),
        ]


class TestD07Backlog:
    async def test_pending_and_running_builds(self, question: Any, week: WeekData) -> None:
        answer = await question("D07_Backlog", week.ann, g="acme")

        def row(project: str, stage: str, status: str, total: int, queued: Row, duration: Row | None) -> Row:
            expected = {"project": f"acme/{project}", "stage": stage, "status": status}
            return {**expected, "counts": {"total": total}, "queued": queued, "duration": duration}

        assert answer["group"]["buildStats"] == {
            "rows": [
                row("api", "test", "PENDING", 1, {"p50": 3600.0, "max": 3600.0}, None),
                row("web", "deploy", "PENDING", 1, {"p50": 8940.0, "max": 8940.0}, None),
                row("web", "test", "RUNNING", 2, {"p50": 60.0, "max": 180.0}, {"max": 8760.0}),
            ]
        }
        assert answer["rateLimit"].keys() == {"cost", "remaining", "resetAt"}
        assert 0 < answer["rateLimit"]["cost"] <= answer["rateLimit"]["remaining"]


class TestD08LeadTime:
    async def test_lead_time_and_failures_of_merged_requests(self, question: Any, week: WeekData) -> None:
        answer = (await question("D08_LeadTime", week.ann, p="acme/web", r=TIME_RANGE))["project"]

        # From the first commit to the merge: 52, 38.5 and 1 hours; `cache` was merged while its build was red, and retried later.
        assert answer["mergeRequestStats"] == [
            {"bucketStart": parse_moment("21 00:00"), "merged": 3, "redAtMerge": 1, "leadTime": {"p50": 138_600.0, "p90": 187_200.0}}
        ]

        def row(number: int, title: str, when: str, diff: tuple[int, int] | None, lead: tuple[Any, ...], commit: tuple[Any, ...]) -> Row:
            steps = ("firstCommitToOpen", "openToFirstResponse", "openToMerge", "mergeToGreen", "total")
            return {
                "iid": number,
                "title": title,
                "mergedAt": parse_moment(when),
                "diffStat": {"additions": diff[0], "deletions": diff[1]} if diff else None,
                "leadTime": dict(zip(steps, lead, strict=True)),
                "mergeCommit": {"shortOid": short_commit(week, commit[0]), "rollup": {"state": commit[1], "durationSeconds": commit[2]}},
            }

        assert answer["mergeRequests"]["nodes"] == [
            row(2, "Cache", "26 21:30", (10, 0), (3600.0, None, 135_000.0, None, 138_600.0), ("m5", "FAILED", 1800.0)),
            row(5, "Backport", "26 12:00", None, (1800.0, None, 1800.0, None, 3600.0), ("sm", "FAILED", 180.0)),
            row(1, "Numbers", "24 10:00", (3, 1), (90_000.0, 7200.0, 97_200.0, 1260.0, 187_200.0), ("m3", "SUCCESS", 660.0)),
        ]


class TestD09PeopleAndBuilds:
    async def test_builds_by_author_and_open_work(self, question: Any, week: WeekData) -> None:
        answer = (await question("D09_PeopleAndBuilds", week.ann, g="acme", since=parse_moment("26 00:00")))["group"]

        def row(author: str | None, total: int, failed: int, success: int, rate: Any, retried: int) -> Row:
            counts = {"total": total, "failed": failed, "success": success}
            return {"author": author, "counts": counts, "successRate": rate, "retried": retried}

        rows = {each["author"]: each for each in answer["byAuthor"]["rows"]}
        assert rows == {
            # m5 and m6 ended so, s2 runs, of w1 one is green, one runs, one waits, and one waits in `api`.
            "ann": row("ann", 7, 1, 2, pytest.approx(2 / 3), 0),
            # The second attempt on q1, sm, t1.
            "bob": row("bob", 3, 2, 1, pytest.approx(1 / 3), 1),
            # m7 was canceled, which says nothing of success.
            None: row(None, 1, 0, 0, None, 0),
        }
        assert len(answer["byAuthor"]["rows"]) == 3
        assert answer["openMine"] == {
            "totalCount": 2,
            "nodes": [
                {"author": {"username": "ann"}, "assignee": None, "createdAt": parse_moment("28 10:40")},
                {"author": {"username": "bob"}, "assignee": {"username": "ann"}, "createdAt": parse_moment("28 10:10")},
            ],
        }


class TestD10CommitPage:
    @requires_planner
    async def test_a_commit_with_everything_related(self, question: Any, week: WeekData) -> None:
        answer = (await question("D10_CommitPage", week.ann, p="acme/web", rev=week.oids["m3"]))["project"]["commit"]

        build = {"stage": "test", "user": {"username": "ann"}}
        download = f"http://forge.example/api/v3/projects/{week.web.id}/builds/{week.builds['m3', 'unit'].id}/artifacts"
        artifact = {"filename": "report.zip", "size": 5, "downloadUrl": download}
        assert answer == {
            "oid": week.oids["m3"],
            "title": "Merge branch 'numbers'",
            "authoredAt": parse_moment("24 10:00"),
            "author": {"username": "ann"},
            "commentCount": 2,
            "rollup": {
                "state": "SUCCESS",
                "counts": {"total": 2, "failed": 1, "success": 1, "running": 0, "pending": 0, "canceled": 0},
                "coverage": 83.5,
            },
            "builds": {
                "nodes": [
                    {"name": "unit", "status": "SUCCESS", "attempt": 2, "durationSeconds": 600.0, "artifact": artifact, **build},
                    {"name": "lint", "status": "FAILED", "attempt": 1, "durationSeconds": 60.0, "artifact": None, **build},
                ]
            },
            "mergeRequests": {
                "nodes": [
                    {
                        "iid": 1,
                        "title": "Numbers",
                        "state": "MERGED",
                        "mergedAt": parse_moment("24 10:00"),
                        "targetBranch": "master",
                        "closesIssues": {"nodes": [{"iid": 1, "title": "Numbers are not read", "state": "CLOSED"}]},
                    }
                ]
            },
        }


class TestD11WaitingToMerge:
    async def test_merge_blockers(self, question: Any, week: WeekData) -> None:
        answer = await question("D11_WaitingToMerge", week.ann, g="acme")

        assert answer["group"]["mergeRequests"] == {
            "totalCount": 1,
            "nodes": [
                {
                    "iid": 4,
                    "title": "Wait",
                    "project": {"path": "web"},
                    "blockers": ["BUILD_RUNNING"],
                    "headCommit": {
                        "rollup": {
                            "state": "RUNNING",
                            "counts": {"total": 3, "success": 1, "running": 1, "pending": 1, "failed": 0},
                            "startedAt": parse_moment("28 10:32"),
                        },
                        "builds": {
                            "nodes": [
                                {"name": "deploy", "stage": "deploy", "queuedSeconds": 8940.0, "startedAt": None},
                                {"name": "unit", "stage": "test", "queuedSeconds": 180.0, "startedAt": parse_moment("28 10:34")},
                            ]
                        },
                    },
                }
            ],
        }


class TestD12MilestoneReady:
    @requires_planner
    async def test_open_issues_of_the_milestone(self, question: Any, week: WeekData) -> None:
        answer = (await question("D12_MilestoneReady", week.ann, p="acme/web", m="1.0"))["project"]

        red = {"headCommit": {"rollup": {"state": "FAILED"}}}
        assert answer == {
            "milestone": {
                "title": "1.0",
                "dueDate": "2016-04-01",
                "open": {
                    "totalCount": 1,
                    "nodes": [
                        {
                            "iid": 2,
                            "title": "Words are slow",
                            "assignee": {"username": "bob"},
                            "mergeRequests": {"nodes": [{"iid": 3, "state": "OPENED", **red}]},
                        }
                    ],
                },
                "closed": {"totalCount": 1},
                "unmerged": {"totalCount": 1, "nodes": [{"iid": 3, **red}]},
            },
            "branch": {"health": {"state": "SUCCESS", "firstBad": None}},
        }


class TestD13LiveWall:
    async def test_events_since_a_sequence_number(self, graph: Graph, make: DataFactory, week: WeekData) -> None:
        build = week.builds["m6", "unit"]
        other = week.builds["t1", "unit"]
        for each in (other, build):
            await make.save(change_of(each))

        async with subscribed(graph, week.ann, QUESTIONS["D13_LiveWall"], ps=["acme/web"], after="0") as stream:
            data = await next_event(stream)

        assert data | {"seq": None} == {
            "seq": None,
            "from": "RUNNING",
            "to": "SUCCESS",
            "build": {
                "id": data["build"]["id"],
                "name": "unit",
                "status": "SUCCESS",
                "project": {"path": "web"},
                "commit": {"shortOid": short_commit(week, "m6"), "rollup": {"state": "SUCCESS"}},
            },
        }

    @pytest.mark.parametrize(
        ("variables", "commit"), [({}, "sm"), ({"ref": None}, "sm"), ({"ref": "topic"}, "t1"), ({"ref": "master"}, "m6")]
    )
    async def test_is_about_the_default_branch_unless_one_is_named(
        self, graph: Graph, make: DataFactory, week: WeekData, variables: dict[str, Any], commit: str
    ) -> None:
        week.web.default_branch = "stable"
        await make.save(week.web)
        for name in ("m6", "t1", "sm"):
            await make.save(change_of(week.builds[name, "unit"]))

        async with subscribed(graph, week.ann, QUESTIONS["D13_LiveWall"], ps=["acme/web"], after="0", **variables) as stream:
            data = await next_event(stream)

        assert data["build"]["commit"]["shortOid"] == short_commit(week, commit)

    async def test_streams_changes_of_the_default_branch(self, graph: Graph, make: DataFactory, week: WeekData) -> None:
        week.web.default_branch = "stable"
        await make.save(week.web)

        async with subscribed(graph, week.ann, QUESTIONS["D13_LiveWall"], ps=["acme/web"]) as stream:
            for name in ("m6", "sm"):
                await make.save(change_of(week.builds[name, "unit"]))
            await graph.services.broadcaster.catch_up(graph.services.database)
            data = await next_event(stream)

        assert data["build"]["commit"]["shortOid"] == short_commit(week, "sm")


class TestCost:
    @requires_planner
    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, make: DataFactory, week: WeekData, statements: StatementRecorder, tmp_path: Path
    ) -> None:
        variables: dict[str, Any] = {
            "g": "acme", "p": "acme/web", "b": "stable", "since": parse_moment("19 00:00"), "r": TIME_RANGE, "rev": week.oids["t1"],
            "m": "1.0",
        }  # fmt: skip
        queries = {name: text for name, text in QUESTIONS.items() if not name.startswith("D13")}

        async def costs() -> dict[str, int]:
            found = {}
            for name, text in queries.items():
                names = {part.split(":")[0].strip(" ($") for part in text.split("{")[0].split("(", 1)[1].split(",")}
                declared = {key: value for key, value in variables.items() if key in names}
                await ask.data(text, week.ann, **declared)
                with statements.assert_at_most(MAX_STATEMENTS) as seen:
                    await ask.data(text, week.ann, **declared)
                found[name] = len(seen)
            return found

        milestone = 1

        async def more(number: int) -> None:
            project = await make.project(group=week.group, source=tmp_path / "story.git", builds_enabled=True)
            await make.indexed(project)
            for place in (project, week.web):
                branch = f"more{number}"
                row = await make.merge_request(
                    place, author=await make.user(), title=f"More {number}", source_branch=branch, head_oid=week.oids["t1"],
                    commit_count=1, milestone_id=milestone if place is week.web else None, merge_when_build_succeeds=True,
                    created_at=at("22 08:00"),
                )  # fmt: skip
                await make.save(tables.MergeRequestCommit(merge_request_id=row.id, position=0, oid=week.oids["t1"]))
                issue = await make.issue(place, milestone_id=milestone if place is week.web else None, assignee_id=week.bob.id)
                await make.save(tables.Closing(merge_request_id=row.id, in_description=True, project_id=place.id, iid=issue.iid))
                for status in (CheckStatus.FAILED, CheckStatus.SUCCESS, CheckStatus.RUNNING):
                    for name in (f"job{number}", "unit"):
                        build = await make.build(
                            place, week.oids["t1"], name=name, ref="topic", status=status, user_id=week.bob.id, created_at=at("28 10:05")
                        )
                        await make.artifact(build)

        await more(0)
        before = await costs()
        for number in range(1, 6):
            await more(number)
        # More than a page of them.
        of_milestone: Any = {"project_id": week.web.id, "author_id": week.ann.id, "milestone_id": milestone}
        for state, numbers in ((IssueState.OPENED, range(100, 125)), (IssueState.CLOSED, range(125, 128))):
            await make.save(*(tables.Issue(iid=iid, title=str(iid), state=state, **of_milestone) for iid in numbers))
        after = await costs()

        assert {name: count for name, count in after.items() if count > before[name]} == {}

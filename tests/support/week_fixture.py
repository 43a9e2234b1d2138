"""A week of one project as rows: the data of the dashboard queries' tests.

    master   m1 -- m2 ------------- m3 -- m4 -- m5 -- m6 -- m7
                   |\\             /  |         /      |\\
    numbers (!1)   | p1 -- p2 ----   |        /       | t1     topic (!3)
    cache (!2)     |                  q1 -----         w1      wait (!4)
    stable         |\\ -- s1 -- sm -- s2
    backport (!5)     b1 -----/

The first parent of a merge is the branch that was merged into. All timestamps are of March 2016 in UTC; on Sunday the 27th at 01:00 the
clocks of Helsinki went from 03:00 to 04:00. NOW is Monday the 28th at 13:00.
"""

import subprocess
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import delete

from storage import tables
from storage.tables import AccessLevel, CheckStatus, IssueState, MergeRequestState
from tests.make import DataFactory
from tests.support.git.git_history import build_once


def at(text: str) -> datetime:
    """`at("24 10:02")` is the 24th of March 2016, 10:02 UTC."""
    return datetime.strptime(f"2016-03-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


NOW = at("28 13:00")

COMMITS = [
    # name, branch, parents, author, written, committed, title
    ("m1", "master", [], "Ann", "20 08:00", "20 08:00", "Begin"),
    ("m2", "master", ["m1"], "Ann", "21 09:00", "21 09:00", "Add the parser"),
    ("p1", "numbers", ["m2"], "Bob", "22 06:00", "22 06:00", "Parse numbers"),
    ("p2", "numbers", ["p1"], "Bob", "23 06:00", "23 06:00", "Parse words"),
    ("m3", "master", ["m2", "p2"], "Ann", "24 10:00", "24 10:00", "Merge branch 'numbers'"),
    ("q1", "cache", ["m3"], "Bob", "25 07:00", "25 07:00", "Cache pages"),
    ("m4", "master", ["m3"], "Cid", "25 10:00", "25 10:00", "Tidy up"),
    ("s1", "stable", ["m2"], "Cid", "26 10:00", "26 10:00", "Prepare a release"),
    ("b1", "backport", ["m2"], "Bob", "26 11:00", "26 11:00", "Backport words"),
    ("sm", "stable", ["s1", "b1"], "Bob", "26 12:00", "26 12:00", "Merge branch 'backport'"),
    ("m5", "master", ["m4", "q1"], "Ann", "26 21:30", "26 21:30", "Merge branch 'cache'"),
    ("m6", "master", ["m5"], "Ann", "27 01:30", "27 01:30", "Revert the cache"),
    ("m7", "master", ["m6"], "Cid", "28 09:00", "28 09:00", "Explain the cache"),
    ("t1", "topic", ["m6"], "Bob", "28 10:00", "28 10:00", "Faster words"),
    ("w1", "wait", ["m6"], "Ann", "28 10:30", "28 10:30", "Slower words"),
    ("s2", "stable", ["sm"], "Ann", "28 12:00", "28 12:00", "Try again"),
]

S, F, C, R, P = CheckStatus.SUCCESS, CheckStatus.FAILED, CheckStatus.CANCELED, CheckStatus.RUNNING, CheckStatus.PENDING

BUILDS = [
    # commit, branch, job, by, status, made, began, ended
    ("m1", "master", "unit", "ann", S, "20 08:01", "20 08:02", "20 08:12"),
    ("m2", "master", "unit", "ann", S, "21 09:01", "21 09:02", "21 09:22"),
    ("p2", "numbers", "unit", "bob", S, "23 06:01", "23 06:02", "23 06:07"),
    ("m3", "master", "lint", "ann", F, "24 10:01", "24 10:02", "24 10:03"),
    ("m3", "master", "unit", "ann", (F, S), ("24 10:01", "24 10:10"), ("24 10:02", "24 10:11"), ("24 10:07", "24 10:21")),
    ("q1", "cache", "unit", "bob", (F, S), ("25 07:01", "27 09:50"), ("25 07:02", "27 09:51"), ("25 07:12", "27 10:00")),
    ("sm", "stable", "unit", "bob", F, "26 12:01", "26 12:02", "26 12:05"),
    ("m5", "master", "unit", "ann", F, "26 21:31", "26 21:32", "26 22:02"),
    ("m6", "master", "unit", "ann", S, "27 01:31", "27 01:32", "27 01:42"),
    ("m7", "master", "unit", None, C, "28 09:01", None, "28 09:05"),
    ("t1", "topic", "unit", "bob", F, "28 10:01", "28 10:02", "28 10:04"),
    ("w1", "wait", "lint", "ann", S, "28 10:31", "28 10:32", "28 10:33"),
    ("w1", "wait", "unit", "ann", R, "28 10:31", "28 10:34", None),
    ("w1", "wait", "deploy", "ann", P, "28 10:31", None, None),
    ("s2", "stable", "unit", "ann", R, "28 12:01", "28 12:02", None),
]


@dataclass
class WeekData:
    """`oids` are the ids of the commits by their names, `builds` the newest attempts by commit and job."""

    ann: tables.User
    bob: tables.User
    group: tables.Namespace
    web: tables.Project
    api: tables.Project
    oids: dict[str, str]
    builds: dict[tuple[str, str], tables.Build] = field(default_factory=dict)
    merge_requests: dict[int, tables.MergeRequest] = field(default_factory=dict)


def create_repository(path: Path) -> dict[str, str]:
    """Creates a bare repository with COMMITS; returns their ids by name."""
    subprocess.run(["git", "init", "-q", "--bare", "--template=", "-b", "master", str(path)], check=True)
    marks = {row[0]: number for number, row in enumerate(COMMITS, 1)}
    parts = []
    for name, branch, parents, person, written, committed, title in COMMITS:
        who = f"{person} <{person.lower()}@example.org>"
        moments = (f"{int(at(text).timestamp())} +0000" for text in (written, committed))
        parts += [f"commit refs/heads/{branch}\nmark :{marks[name]}\n"]
        parts += [f"{role} {who} {moment}\n" for role, moment in zip(("author", "committer"), moments, strict=True)]
        parts += [f"data {len(title)}\n{title}\n"]
        parts += [f"{word} :{marks[parent]}\n" for word, parent in zip(("from", "merge"), parents, strict=False)]
        parts += [f"M 100644 inline {name}.txt\ndata {len(name)}\n{name}\n\n"]
    script = path / "marks"
    subprocess.run(
        ["git", "-C", str(path), "fast-import", "--quiet", f"--export-marks={script}"], input="".join(parts).encode(), check=True
    )
    oids = dict(line.split() for line in script.read_text().splitlines())
    script.unlink()
    return {name: oids[f":{mark}"] for name, mark in marks.items()}


async def create_week(make: DataFactory, folder: Path) -> WeekData:
    """Inserts everything into the database of `make`."""
    ann, bob = await make.user("ann"), await make.user("bob")
    group = await make.group(owner=ann, path="acme", name="Acme")
    oids = build_once(create_repository, make.folder, folder)
    members = [(bob, AccessLevel.DEVELOPER)]
    web = await make.project(group=group, source=folder, members=members, path="web", name="Web", builds_enabled=True, public_builds=True)
    api = await make.project(group=group, path="api", name="Api", members=members, builds_enabled=True)
    await make.project(group=group, path="quiet", builds_enabled=False)
    await make.indexed(web)
    story = WeekData(ann, bob, group, web, api, oids)
    await _create_branch_moves(make, story)
    await _create_builds(make, story)
    await _create_issues_and_merge_requests(make, story)
    return story


async def _create_branch_moves(make: DataFactory, story: WeekData) -> None:
    """As if each commit had been pushed separately, at the time at which it was made."""
    async with make.services.database.write_session() as session:
        await session.execute(delete(tables.BranchMove))
        await session.commit()
    await make.save(
        *(
            tables.BranchMove(project_id=story.web.id, name=branch, oid=story.oids[name], moved_at=at(committed))
            for name, branch, _, _, _, committed, _ in COMMITS
        )
    )


async def _create_builds(make: DataFactory, story: WeekData) -> None:
    people = {"ann": story.ann.id, "bob": story.bob.id, None: None}
    for commit, branch, job, by, statuses, made, began, ended in BUILDS:
        stage = "deploy" if job == "deploy" else "test"
        sha = story.oids[commit]
        common: dict[str, Any] = {"name": job, "stage": stage, "ref": branch, "user_id": people[by], "allow_failure": job == "lint"}
        spans = list(zip(*((each if isinstance(statuses, tuple) else (each,)) for each in (statuses, made, began, ended)), strict=True))
        *earlier, newest = [
            {"attempt": number, "status": status, "created_at": at(c), "updated_at": at(c), "started_at": at(s) if s else None,
             "finished_at": at(f) if f else None}
            for number, (status, c, s, f) in enumerate(spans, 1)
        ]  # fmt: skip
        newest_build = story.builds[commit, job] = await make.build(story.web, sha, **common, **newest)
        for attempt in earlier:
            await make.build(story.web, sha, current_id=newest_build.id, **common, **attempt)
    unit = story.builds["m3", "unit"]
    unit.coverage = 83.5
    await make.save(unit)
    await make.artifact(unit, b"12345", filename="report.zip")
    await make.trace(story.builds["t1", "unit"], "compiling\n", "1 of 2 failed\n", "words are slow\n")
    await make.commit_status(
        story.web, story.oids["t1"], name="ci/outside", status=F, ref="topic", target_url="https://ci.example/7", created_at=at("28 10:03"),
        finished_at=at("28 10:03"),
    )  # fmt: skip
    await make.build(story.api, "a" * 40, name="unit", stage="test", ref="master", user_id=story.ann.id, created_at=at("28 12:00"))


async def _create_issues_and_merge_requests(make: DataFactory, story: WeekData) -> None:
    web, ann, bob, oids = story.web, story.ann, story.bob, story.oids
    merged, opened = MergeRequestState.MERGED, MergeRequestState.OPENED
    milestone = await make.milestone(web, title="1.0", due_date=date(2016, 4, 1))
    closed = await make.issue(web, title="Numbers are not read", author=ann, state=IssueState.CLOSED, milestone_id=milestone.id)
    slow = await make.issue(web, title="Words are slow", author=ann, assignee_id=bob.id, milestone_id=milestone.id)
    merge_requests = [
        # title, by, branch, into, state, opened, changed, merged, head, the commits (newest first), the merge commit, further columns
        ("Numbers", bob, "numbers", "master", merged, "23 07:00", "24 10:00", "24 10:00", ["p2", "p1"], "m3",
         {"additions": 3, "deletions": 1, "files": 2}),
        ("Cache", bob, "cache", "master", merged, "25 08:00", "26 21:30", "26 21:30", ["q1"], "m5",
         {"additions": 10, "deletions": 0, "files": 1}),
        ("Topic", bob, "topic", "master", opened, "28 10:10", "28 11:00", None, ["t1"], None,
         {"assignee_id": ann.id, "milestone_id": milestone.id}),
        ("Wait", ann, "wait", "master", opened, "28 10:40", "28 10:50", None, ["w1"], None,
         {"merge_when_build_succeeds": True, "merge_user_id": ann.id}),
        ("Backport", bob, "backport", "stable", merged, "26 11:30", "26 12:00", "26 12:00", ["b1"], "sm", {}),
        ("Nonsense", ann, "nonsense", "master", MergeRequestState.CLOSED, "22 12:00", "24 12:00", None, [], None,
         {"closed_at": at("24 12:00")}),
    ]  # fmt: skip
    for title, by, source, target, state, begun, changed, done, commit_names, merge_commit, columns in merge_requests:
        row = await make.merge_request(
            web, author=by, title=title, source_branch=source, target_branch=target, state=state, created_at=at(begun),
            updated_at=at(changed), merged_at=at(done) if done else None, head_oid=oids[commit_names[0]] if commit_names else None,
            commit_count=len(commit_names), merge_commit_oid=oids[merge_commit] if merge_commit else None,
            **{"merge_status": tables.MergeStatus.CAN_BE_MERGED, **columns},
        )  # fmt: skip
        story.merge_requests[row.iid] = row
        await make.save(
            *(tables.MergeRequestCommit(merge_request_id=row.id, position=n, oid=oids[name]) for n, name in enumerate(commit_names))
        )
    numbers, topic = story.merge_requests[1], story.merge_requests[3]
    await make.save(
        tables.Closing(merge_request_id=numbers.id, in_description=True, project_id=web.id, iid=closed.iid),
        tables.Closing(merge_request_id=topic.id, in_description=False, project_id=web.id, iid=slow.iid),
    )
    await make.note(numbers, author=ann, created_at=at("23 09:00"))
    await make.commit_comment(web, oids["m3"], author=ann)
    await make.commit_comment(web, oids["m3"], author=bob)

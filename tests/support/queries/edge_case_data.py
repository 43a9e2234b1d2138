"""Data beyond the fixture week: projects of every kind, hidden ones among them, with ties, nulls and duplicates.

Generated queries run on it (tests/support/queries/query_generator.py): each kind of object exists several times, below several parents.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import select, text

from storage import tables
from storage.database.engine import Database
from storage.secrets import digest_token
from storage.tables import (
    AccessLevel,
    CheckStatus,
    DeliveryState,
    IssueState,
    LineType,
    MergeRequestState,
    MilestoneState,
    UserState,
    Visibility,
)
from tests.make import DataFactory, ssh_key
from tests.support.week_fixture import NOW, WeekData, at, create_week

TIED_AT = at("24 12:00")
"""The creation time of several objects, which differ only in their ids."""


@dataclass
class EdgeCaseData:
    """`viewers` by their role in the project `acme/web`."""

    week: WeekData
    viewers: dict[str, tables.User]
    projects: list[tables.Project]


async def create_edge_cases(make: DataFactory, folder: Path) -> EdgeCaseData:
    """Inserts everything into the database of `make`."""
    week = await create_week(make, folder)
    ann, bob = week.ann, week.bob
    cid, eve, blocked_user, root = (
        await make.user("cid", can_create_group=False, bio="", website_url="https://cid.example"),
        await make.user("eve", bio="Strange.", extern_uid="cn=eve", provider="ldap"),
        await make.user("gone", state=UserState.BLOCKED, confirmed=False),
        await make.user("root", admin=True, current_sign_in_at=NOW),
    )
    inner_group = await make.group(members=[(bob, AccessLevel.MASTER), (cid, AccessLevel.REPORTER)], path="inner", name="Inner")
    open_, hidden, shut = (
        await make.project(owner=eve, visibility=Visibility.PUBLIC, path="open", name="Open", tag_list=["a", "b"], builds_enabled=True),
        await make.project(owner=eve, path="hidden", name="Hidden", builds_enabled=True, forked_from_id=week.web.id),
        await make.project(owner=bob, path="shut", name="Shut", archived=True, description="Over.", visibility=Visibility.INTERNAL),
    )
    source = make.services.repositories.path_of(week.web.id)
    fork = await make.project(
        group=inner_group, path="fork", name="Web", source=source, visibility=Visibility.INTERNAL, public_builds=False,
        issues_enabled=False,
        forked_from_id=week.web.id, members=[(eve, AccessLevel.GUEST)],
    )  # fmt: skip
    await make.indexed(fork)
    await make.save(tables.ProjectMember(project_id=week.web.id, user_id=cid.id, access_level=int(AccessLevel.GUEST)))
    projects = [week.web, week.api, open_, hidden, shut, fork]
    people = [ann, bob, cid, eve, blocked_user]
    work = EdgeCaseWriter(make, people, week)
    for project, much in zip(projects, (12, 5, 6, 3, 2, 4), strict=True):
        await work.fill(project, much, source=fork if project is week.web else project)
    await _create_instance_rows(make, week, people)
    return EdgeCaseData(week, {"owner": ann, "member": bob, "guest": cid, "stranger": eve, "admin": root}, projects)


@dataclass
class EdgeCaseWriter:
    make: DataFactory
    people: list[tables.User]
    week: WeekData
    numbers: Any = field(default_factory=lambda: count(0))

    def person(self) -> tables.User:
        return self.people[next(self.numbers) % len(self.people)]

    async def fill(self, project: tables.Project, much: int, *, source: tables.Project) -> None:
        save, key = self.make.save, project.id
        labels = [
            tables.Label(project_id=key, title=title, color="#428BCA", description=None if n % 2 else f"{title}.", template=n == 0)
            for n, title in enumerate(("bug", "Slow", "later", "über")[: 2 + much // 3])
        ]
        milestones = [
            tables.Milestone(
                project_id=key, iid=20 + n, title=f"{n}.5", due_date=None if n % 2 else date(2016, 4, 1), description="" if n else "Soon.",
                state=MilestoneState.CLOSED if n == 1 else MilestoneState.ACTIVE, created_at=TIED_AT, updated_at=TIED_AT,
            )
            for n in range(1 + much // 3)
        ]  # fmt: skip
        runner = tables.Runner(description=f"of {project.path}", token_digest=f"runner {key}", tags=["a", "b"] if much % 2 else [])
        sealed = [self.make.services.cipher.encrypt(f"value {n}") for n in range(much // 3)]
        variables = [tables.Variable(project_id=key, key=f"KEY_{n}", sealed_value=value, size=7) for n, value in enumerate(sealed)]
        triggers = [
            tables.Trigger(
                project_id=key, token_digest=digest_token(f"{key} {n}"), sealed_token=self.make.services.cipher.encrypt(f"{key} {n}"),
                last_used_at=NOW if n else None,
            )
            for n in range(much // 3)
        ]  # fmt: skip
        await save(*labels, *milestones, *variables, *triggers, runner)
        issues = [self._issue(key, n, milestones) for n in range(much)]
        requests = [self._merge_request(key, n, milestones, source) for n in range(much - 1)]
        snippets = [
            tables.Snippet(
                project_id=key, author_id=self.person().id, title=f"Snippet {n}", file_name="a.rb", content="puts 1\n" * n,
                visibility_level=n % 3, expires_at=NOW + timedelta(days=n) if n % 2 else None, created_at=TIED_AT, updated_at=TIED_AT,
            )
            for n in range(1 + much // 3)
        ]  # fmt: skip
        await save(*issues, *requests, *snippets, tables.RunnerProject(runner_id=runner.id, project_id=key))
        oids = list(self.week.oids.values()) if project is self.week.web or source is not project else ["b" * 40]
        links: list[Any] = []
        for n, issue in enumerate(issues):
            links += [tables.IssueLabel(issue_id=issue.id, label_id=label.id) for label in labels[: n % (len(labels) + 1)]]
            links += [self._note(key, m, issue_id=issue.id) for m in range(n % 4)]
        for n, request in enumerate(requests):
            links += [tables.MergeRequestLabel(merge_request_id=request.id, label_id=label.id) for label in labels[n % 3 :]]
            links += [self._note(key, m, merge_request_id=request.id) for m in range((n + 1) % 3)]
            links += [tables.MergeRequestCommit(merge_request_id=request.id, position=0, oid=request.head_oid)] if request.head_oid else []
            links.append(tables.Closing(merge_request_id=request.id, in_description=n % 2 == 0, project_id=key, iid=issues[n].iid))
        links += [self._note(key, m, snippet_id=snippet.id) for snippet in snippets for m in range(2)]
        links += list(self._checks(project, oids, runner))
        await save(*links)

    def _issue(self, project_id: int, n: int, milestones: list[tables.Milestone]) -> tables.Issue:
        closed = n % 3 == 1
        return tables.Issue(
            project_id=project_id, iid=10 + n, author_id=self.person().id, assignee_id=self.person().id if n % 2 else None,
            milestone_id=milestones[n % len(milestones)].id if n % 3 else None, title=("Words", "Numbers & signs", "Ünicode „“")[n % 3],
            description=None if n % 4 == 0 else "" if n % 4 == 1 else 'It is "slow"\n\tand\\or \x7f wrong 🙂',
            state=IssueState.CLOSED if closed else IssueState.OPENED,
            closed_at=at("25 12:00") if closed else None, created_at=TIED_AT if n % 5 else at("20 12:00"),
            updated_at=TIED_AT + timedelta(days=n // 4),
        )  # fmt: skip

    def _merge_request(self, project_id: int, n: int, milestones: list[tables.Milestone], source: tables.Project) -> tables.MergeRequest:
        state = tuple(MergeRequestState)[n % 4]
        return tables.MergeRequest(
            project_id=project_id, source_project_id=source.id if n % 3 else project_id, iid=10 + n, author_id=self.person().id,
            assignee_id=self.person().id if n % 3 else None, milestone_id=milestones[0].id if n % 2 else None,
            title=f"{'WIP: ' * (n % 2)}Change {n}",
            description=None if n % 2 else f"Closes #{n}", state=state, source_branch=("topic", "wait", f"side{n}")[n % 3],
            target_branch=("stable", "cache", "wait", "topic")[n // 3 % 4],
            merge_status=tuple(tables.MergeStatus)[n % 3], head_oid=self.week.oids[("t1", "w1", "q1")[n % 3]] if n % 4 else None,
            merged_at=at("25 12:00") if state is MergeRequestState.MERGED else None, merge_user_id=self.person().id if n % 3 == 0 else None,
            closed_at=at("26 12:00") if state is MergeRequestState.CLOSED else None, merge_when_build_succeeds=n % 5 == 0,
            created_at=TIED_AT, updated_at=TIED_AT + timedelta(hours=n // 2), files=n if n % 2 else None, additions=n if n % 2 else None,
            deletions=0 if n % 2 else None,
        )  # fmt: skip

    def _note(self, project_id: int, m: int, **parent: int) -> tables.Note:
        return tables.Note(
            project_id=project_id, author_id=self.person().id, body=f"Note {m}", attachment=None if m else "a/b.txt", system=m == 2,
            upvote=m == 1,
            downvote=m == 3, created_at=TIED_AT + timedelta(hours=m // 2), updated_at=TIED_AT, **parent,
        )  # fmt: skip

    def _checks(self, project: tables.Project, oids: list[str], runner: tables.Runner) -> Iterable[Any]:
        statuses = tuple(CheckStatus)
        for n in range(8):
            begun, ended = statuses[n % 5] is not CheckStatus.PENDING, statuses[n % 5] not in (CheckStatus.PENDING, CheckStatus.RUNNING)
            common: dict[str, Any] = {
                "project_id": project.id, "sha": oids[n % len(oids)], "name": ("unit", "lint")[n % 2], "status": statuses[n % 5],
                "ref": ("master", "topic")[n % 2],
                "created_at": TIED_AT, "started_at": TIED_AT if begun else None,
                "finished_at": TIED_AT + timedelta(seconds=n + 0.5) if ended else None,
                "allow_failure": n % 3 == 0, "description": None if n % 2 else "Fine",
                "target_url": None if n % 2 else "https://ci.example/1",
            }  # fmt: skip
            yield tables.Build(
                **common, updated_at=TIED_AT, user_id=self.person().id if n % 3 else None, runner_id=runner.id if n % 2 else None,
                coverage=n * 10.25 if n % 2 else None,
                tag=n == 5, erased_at=NOW if n == 6 else None, erased_by_id=self.people[0].id if n == 6 else None, stage=("test",
                "deploy")[n // 4],
            )  # fmt: skip
            yield tables.CommitStatus(**{**common, "ref": None if n % 3 else "master"}, author_id=self.person().id if n % 2 else None)
            yield tables.CommitComment(
                project_id=project.id, sha=oids[n % len(oids)], author_id=self.person().id, note=f"Comment {n}",
                path="m1.txt" if n % 2 else None,
                line=n if n % 2 else None, line_type=tuple(LineType)[n % 2] if n % 2 else None, created_at=TIED_AT,
            )  # fmt: skip
            if n < 3:
                yield tables.Pipeline(
                    project_id=project.id, sha=oids[n % len(oids)], ref=("master", "topic", "wait")[n], before_sha=None if n else oids[0],
                    created_at=TIED_AT,
                    user_id=None if n == 1 else self.person().id, error="Line 1 is wrong." if n == 2 else None, skipped=n == 1, jobs=None,
                )  # fmt: skip


async def _create_instance_rows(make: DataFactory, story: WeekData, people: list[tables.User]) -> None:
    """Inserts what belongs to users and to the instance."""
    hooks = [tables.Hook(url=f"https://hooks.invalid/{n}", tag_push_events=n == 1, disabled_at=NOW if n == 2 else None) for n in range(3)]
    hooks.append(tables.Hook(url="https://hooks.invalid/project", project_id=story.web.id, build_events=True))
    event = tables.Event(name="project_create", payload={"b": 1, "a": ["ü", None, 1.5, True]}, created_at=TIED_AT)
    shared = tables.Runner(description="shared", token_digest="shared", shared=True, tags=["x"], contacted_at=NOW, name="r", version="1")
    await make.save(*hooks, event, shared)
    await make.save(
        *(
            tables.Delivery(
                event_id=event.id, hook_id=hooks[(0, 1, 3)[n % 3]].id,
                webhook_id=f"w{n}", event_name=event.name, state=tuple(DeliveryState)[n % 3],
                attempts=n,
                response_code=500 if n % 3 == 2 else None, error="HTTP 500" if n % 3 == 2 else None, created_at=TIED_AT,
                delivered_at=TIED_AT if n % 3 == 1 else None,
            )
            for n in range(7)
        ),
        *(tables.SshKey(user_id=person.id, title=f"Key {n}", key=ssh_key(n), fingerprint=f"f{n}{m}") for n,
        person in enumerate(people) for m in range(n % 3)),
        *(tables.Email(user_id=person.id, email=f"{person.username}{m}@example.net") for n,
        person in enumerate(people) for m in range(n % 3)),
        tables.ProtectedBranch(project_id=story.web.id, name="master", developers_can_push=True),
        tables.ProtectedBranch(project_id=story.web.id, name="stable"),
        *(tables.DeployKey(project_id=story.web.id, title=f"Key {n}", key=ssh_key(90 + n), fingerprint=f"d{n}") for n in range(2)),
        *(tables.ProjectStar(project_id=story.web.id, user_id=person.id) for person in people[:3]),
    )  # fmt: skip
    pipelines = await _ids(make.services.database, tables.Pipeline, tables.Pipeline.project_id == story.web.id)
    async with make.services.database.write_session() as session:
        await session.execute(
            text("UPDATE builds SET pipeline_id = :pipeline WHERE project_id = :project AND name = 'lint'"),
            {"pipeline": pipelines[0], "project": story.web.id},
        )
        await session.commit()
    await make.upload(story.web, b"\x89PNG\r\n", author=story.ann, name="a.png", created_at=TIED_AT)


async def _ids(database: Database, table: Any, *conditions: Any) -> list[int]:
    async with database.read_session() as session:
        return list((await session.scalars(select(table.id).where(*conditions).order_by(table.id))).all())

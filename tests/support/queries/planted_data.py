"""Data in which every protected row has a unique value, and the table of who may read which value.

`plant` returns a unique value. All results are searched for these values (`PlantedData.leaks`), so a field that shows a row to a
viewer who may not see it is found on any path. The table of rights is written down here, from the interface document and
tests/support/queries/permission_matrix.py, independently of the product's policy.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import select, text

from graph.context import Context
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.issues import issue_closing
from storage import tables
from storage.git import merge_preview
from storage.git.commits import GitCommit
from storage.git.importing.repository_import import import_repository
from storage.secrets import digest_token
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory, ssh_key
from tests.support.process_folders import create_process_folder
from tests.support.week_fixture import NOW
from tests.support.zips import pack_files

PLANTED_WORD = re.compile(r"zq\d{4}qz")
SHOWN_ADDRESS = re.compile(r'"email":"zq\d{4}qz@example\.net"')
"""The primary address of a user, which `User.email` shows on objects that the viewer sees. No other field shows it to others."""
BUILD_TOKEN_FORMAT = "fb-{}-" + "x" * 20
TRACKING_FEATURES = ("issues_enabled", "merge_requests_enabled")


@dataclass(frozen=True)
class ReadRight:
    """Who may read something of a project: members from `least` on; with `shared`, everyone who sees an internal or public project, if
    `switch` is on; no one if all `features` are off."""

    min_level: AccessLevel
    includes_public: bool = True
    features: tuple[str, ...] = ()
    switch: str | None = None


READ_RIGHTS = {
    "project": ReadRight(AccessLevel.GUEST),
    "issue": ReadRight(AccessLevel.GUEST, features=("issues_enabled",)),
    "merge request": ReadRight(AccessLevel.GUEST, features=("merge_requests_enabled",)),
    "snippet": ReadRight(AccessLevel.GUEST, features=("snippets_enabled",)),
    "private snippet": ReadRight(AccessLevel.GUEST, includes_public=False, features=("snippets_enabled",)),
    "label": ReadRight(AccessLevel.GUEST, features=TRACKING_FEATURES),
    "milestone": ReadRight(AccessLevel.GUEST, features=TRACKING_FEATURES),
    "code": ReadRight(AccessLevel.REPORTER),
    "check": ReadRight(AccessLevel.REPORTER),
    "build": ReadRight(AccessLevel.REPORTER, features=("builds_enabled",), switch="public_builds"),
    "upload": ReadRight(AccessLevel.MASTER, includes_public=False),
    "runner": ReadRight(AccessLevel.MASTER, includes_public=False),
    "hook": ReadRight(AccessLevel.MASTER, includes_public=False),
    "deploy key": ReadRight(AccessLevel.MASTER, includes_public=False),
    "trigger": ReadRight(AccessLevel.MASTER, includes_public=False, features=("builds_enabled",)),
    "variable": ReadRight(AccessLevel.MASTER, includes_public=False, features=("builds_enabled",)),
}
SHARED_RIGHTS = {"proposed": ("code", "merge request")}
"""Values that several rights allow to read: who sees a merge request sees its commits and changes, as does anyone who may read code."""
CHANGES_OF_PRIVATE_COLUMNS = (
    "password_hash = 'x', blocked_by_directory = NOT blocked_by_directory, confirmed = NOT confirmed, theme_id = theme_id + 1,"
    " color_scheme_id = color_scheme_id + 1, can_create_group = NOT can_create_group, projects_limit = 0,"
    " two_factor_enabled = NOT two_factor_enabled, current_sign_in_at = created_at"
)
"""Of the columns of users that only the user and administrators read, those that hold no words."""


@dataclass
class PlantedData:
    """`viewers` by role: a guest and a reporter are members of all projects, the outsider and the forker of none but the forker's own fork.
    `build` is one that a runner has, and `build_token` its token."""

    make: DataFactory
    viewers: dict[str, tables.User]
    projects: dict[str, tables.Project] = field(default_factory=dict)
    words: dict[str, tuple[str, Callable[[tables.User], bool]]] = field(default_factory=dict)
    """Each planted value → what it is, and who may read it."""
    levels: dict[tuple[int, int], AccessLevel] = field(default_factory=dict)
    """(user id, project id) → the level there."""
    build: tables.Build | None = None
    build_words: set[str] = field(default_factory=set)
    """The values that the token of the build may read."""

    def plant(self, what: str, may_read: Callable[[tables.User], bool]) -> str:
        word = f"zq{len(self.words):04d}qz"
        self.words[word] = what, may_read
        return word

    def plant_for(self, project: tables.Project, noun: str, what: str = "") -> str:
        """A value for something of a project, readable with the right for the noun there, or one of its rights."""
        nouns = SHARED_RIGHTS.get(noun, (noun,))
        # What a fork proposes to a public project is readable there by everybody.
        proposed = noun == "proposed" and project.forked_from_id is not None
        what = f"{noun} {what} of {project.name}"
        return self.plant(what, lambda viewer: proposed or any(self.may_read(viewer, each, project) for each in nouns))

    def may_read(self, viewer: tables.User, noun: str, project: tables.Project) -> bool:
        right = READ_RIGHTS[noun]
        if right.features and not any(getattr(project, feature) for feature in right.features):
            return False
        if viewer.admin or self.levels.get((viewer.id, project.id), 0) >= right.min_level:
            return True
        is_shared = right.includes_public and project.visibility_level >= Visibility.INTERNAL
        return is_shared and (right.switch is None or bool(getattr(project, right.switch)))

    async def change_hidden(self, viewer: tables.User) -> None:
        """Changes to what this viewer may not read, and for which there is no unique value: states, numbers, and counts.

        The combined state of checks is not protected with builds: it stays visible to a viewer who may see checks.
        """
        make, owner = self.make, self.viewers["owner"]
        statements: list[tuple[str, int]] = []
        if not viewer.admin and viewer.id != owner.id:
            statements.append((f"UPDATE users SET {CHANGES_OF_PRIVATE_COLUMNS} WHERE id = :id", owner.id))
        for project in self.projects.values():

            def hides(noun: str, project: tables.Project = project) -> bool:
                return not self.may_read(viewer, noun, project)

            if hides("build"):
                changes = "coverage = 12.5, name = name || 'x', erased_at = created_at, trace_size = 0, user_id = NULL"
                if hides("check"):
                    changes += ", status = CASE status WHEN 'failed' THEN 'success' ELSE 'failed' END, allow_failure = NOT allow_failure"
                statements.append((f"UPDATE builds SET {changes} WHERE project_id = :id", project.id))
                statements.append(("DELETE FROM artifacts WHERE project_id = :id", project.id))
                await make.environment(project)
                statements.append(("UPDATE environments SET stopped_at = created_at WHERE project_id = :id", project.id))
                statements.append(("UPDATE pipelines SET error = NULL, skipped = NOT skipped WHERE project_id = :id", project.id))
            if hides("check"):
                statements.append(("UPDATE commit_statuses SET status = 'success' WHERE project_id = :id", project.id))
            if hides("code"):
                for name in ("master", "topic"):
                    await make.commit_comment(project, await _commit_id(self, project, name), author=owner)
                await make.save(tables.Release(project_id=project.id, tag="v2", description=""))
            if hides("issue"):
                issue = await make.issue(project, author=owner)
                await make.note(issue, author=owner)
                statements.append(("UPDATE issues SET state = 'closed' WHERE project_id = :id", project.id))
            if hides("merge request"):
                await make.note(request := await make.merge_request(project, author=owner), author=owner)
                await make.thread(request, author=owner)
                statements.append(("UPDATE review_threads SET resolved_at = created_at WHERE project_id = :id", project.id))
                statements.append(("UPDATE merge_requests SET state = 'closed', files = 7 WHERE project_id = :id", project.id))
            if hides("snippet"):
                await make.snippet(project, author=owner)
            if hides("private snippet"):
                await make.snippet(project, author=owner, visibility_level=0)
            if hides("label"):
                await make.label(project)
            if hides("milestone"):
                await make.milestone(project)
            if hides("runner"):
                await make.runner(project)
            if hides("hook"):
                await make.save(tables.Hook(project_id=project.id, url="https://hooks.invalid/"))
            if hides("deploy key"):
                await make.save(tables.DeployKey(project_id=project.id, title="hidden", key=ssh_key(3), fingerprint="h"))
            if hides("trigger"):
                await make.trigger(project)
            if hides("variable"):
                await make.variable(project)
            if hides("project"):
                await make.save(tables.ProjectStar(project_id=project.id, user_id=self.viewers["stranger"].id))
                await make.member(project, self.viewers["stranger"], AccessLevel.DEVELOPER)
                statements.append(("UPDATE projects SET archived = NOT archived WHERE id = :id", project.id))
        async with make.services.database.write_session() as session:
            for statement, key in statements:
                await session.execute(text(statement), {"id": key})
            await session.commit()

    def leaks(self, answer: str, viewer: tables.User | None) -> list[str]:
        """The values in a response that this viewer, or None for the token of the build, may not read."""
        found = sorted(set(PLANTED_WORD.findall(SHOWN_ADDRESS.sub("", answer))))
        if viewer is None:
            return [self.words[word][0] for word in found if word not in self.build_words]
        return [self.words[word][0] for word in found if not self.words[word][1](viewer)]


async def create_planted_data(make: DataFactory) -> PlantedData:
    """Inserts everything into the database of `make`."""
    viewers = {name: await make.user(name) for name in ("owner", "guest", "reporter", "outsider", "forker", "stranger")}
    viewers["admin"] = await make.admin()
    world = PlantedData(make, viewers)
    await _plant_users(world)
    members = [(viewers["guest"], AccessLevel.GUEST), (viewers["reporter"], AccessLevel.REPORTER)]
    kinds: dict[str, dict[str, Any]] = {
        "private": {},
        "open": {"visibility": Visibility.PUBLIC},
        "switched off": {
            "visibility": Visibility.PUBLIC,
            **dict.fromkeys(("issues_enabled", "merge_requests_enabled", "snippets_enabled", "builds_enabled"), False),
        },
        "closed builds": {"visibility": Visibility.INTERNAL, "public_builds": False},
        "archived": {"archived": True},
    }
    for number, (name, columns) in enumerate(kinds.items()):
        # The name of a group reveals that it is not empty.
        group = await make.group(path=f"group{number}", name="G", members=[(viewers["admin"], AccessLevel.GUEST)])
        project = await _plant_project(world, name, members, group=group, **columns)
        group.name, group.description = (
            world.plant_for(project, "project", "group"),
            world.plant_for(project, "project", "description of the group"),
        )
        await make.save(group)
    source = {"forked_from_id": world.projects["open"].id}
    await _plant_project(world, "private fork", [], owner=viewers["forker"], **source)
    for project in world.projects.values():
        await _plant_project_contents(world, project)
    await _plant_fork_merge_request(world)
    await _plant_closing_references(world)
    await _plant_running_build(world)
    return world


async def _plant_users(world: PlantedData) -> None:
    make, owner = world.make, world.viewers["owner"]

    def own(viewer: tables.User) -> bool:
        return viewer.admin or viewer.id == owner.id

    owner.extern_uid, owner.provider = world.plant("id in a directory", own), world.plant("directory", own)
    owner.email = f"{world.plant('primary address', own)}@example.net"
    await make.save(
        owner,
        tables.SshKey(user_id=owner.id, title=world.plant("SSH key", own), key=ssh_key(1), fingerprint="f"),
        tables.Email(user_id=owner.id, email=f"{world.plant('secondary address', own)}@example.net"),
        hook := tables.Hook(url=f"https://hooks.invalid/{world.plant('hook', lambda viewer: viewer.admin)}"),
        event := tables.Event(name="project_create", payload={"a": world.plant("event", lambda viewer: viewer.admin)}, created_at=NOW),
    )
    error = world.plant("delivery", lambda viewer: viewer.admin)
    await make.save(tables.Delivery(event_id=event.id, hook_id=hook.id, webhook_id="w", event_name=event.name, error=error, created_at=NOW))


async def _plant_project(world: PlantedData, name: str, members: list[tuple[tables.User, AccessLevel]], **columns: Any) -> tables.Project:
    make = world.make
    project = await make.project(members=members, name=name, **columns)
    world.projects[name] = project
    world.levels |= {(user.id, project.id): level for user, level in members}
    if (owner := columns.get("owner")) is not None:
        world.levels[owner.id, project.id] = AccessLevel.OWNER
    project.description = world.plant_for(project, "project", "description")
    project.path = world.plant_for(project, "project", "path")
    project.path_key = project.path
    project.default_branch = "master"
    await make.save(project)
    folder = make.services.repositories.path_of(project.id)
    shutil.rmtree(folder)
    shutil.copytree(_plant_repository(world, project), folder)
    await make.indexed(project)
    return project


def _plant_repository(world: PlantedData, project: tables.Project) -> Path:
    """A repository with two commits on master, and one more on the branch of a merge request. It is to be copied."""
    code, proposed = (lambda what: world.plant_for(project, "code", what)), (lambda what: world.plant_for(project, "proposed", what))
    parts = []
    for number, (branch, plant) in enumerate((("master", code), ("master", code), ("topic", proposed)), 1):
        title, author, file, content = plant("message"), plant("author"), plant("path"), plant("file")
        parts.append(f"commit refs/heads/{branch}\nmark :{number}\nauthor {author} <{author}@example.org> {1456000000 + number} +0000\n")
        parts.append(f"committer {author} <{author}@example.org> {1456000000 + number} +0000\ndata {len(title)}\n{title}\n")
        parts += [f"from :{number - 1}\n"] if number > 1 else []
        parts.append(f"M 100644 inline {file}\ndata {len(content)}\n{content}\n\n")
    parts.append(f"reset refs/heads/{code('branch')}\nfrom :1\n\nreset refs/tags/{code('tag')}\nfrom :1\n\n")
    return _import_stream("".join(parts))


@cache
def _import_stream(stream: str) -> Path:
    """The imported repository of a stream of `git fast-import`, made once: the values of all tests are the same."""
    folder = create_process_folder("planted")
    source, imported = folder / "source.git", folder / "imported.git"
    subprocess.run(["git", "init", "-q", "--bare", "--template=", "-b", "master", str(source)], check=True)
    subprocess.run(["git", "-C", str(source), "fast-import", "--quiet"], input=stream.encode(), check=True)
    import_repository(source, imported)
    return imported


async def _plant_project_contents(world: PlantedData, project: tables.Project) -> None:
    make, key, owner = world.make, project.id, world.viewers["owner"]
    own = {"author": owner}
    head, topic = [await _commit_id(world, project, ref) for ref in ("master", "topic")]
    await make.runner(project, description=world.plant_for(project, "runner"))
    hook = tables.Hook(project_id=key, url=f"https://hooks.invalid/{world.plant_for(project, 'hook', 'of a project')}")
    event = tables.Event(project_id=key, name="push", payload={"a": world.plant_for(project, "hook", "event")}, created_at=NOW)
    title = world.plant_for(project, "deploy key", "title")
    await make.save(hook, event, tables.DeployKey(project_id=key, title=title, key=ssh_key(2), fingerprint="g"))
    delivery = tables.Delivery(event_id=event.id, hook_id=hook.id, webhook_id="w", event_name=event.name, created_at=NOW)
    delivery.error = world.plant_for(project, "hook", "delivery")
    await make.save(delivery)
    await make.variable(project, "TOKEN", world.plant_for(project, "variable"))
    planted_token = make.services.cipher.encrypt(world.plant_for(project, "trigger"))
    await make.save(tables.Trigger(project_id=key, token_digest=f"planted in {key}", sealed_token=planted_token))
    label = await make.label(project, world.plant_for(project, "label"), description=world.plant_for(project, "label", "description"))
    milestone = await make.milestone(
        project, title=world.plant_for(project, "milestone"), description=world.plant_for(project, "milestone", "text")
    )
    issue = await make.issue(
        project, labels=[label], milestone_id=milestone.id, title=world.plant_for(project, "issue", "title"),
        description=world.plant_for(project, "issue"), assignee_id=owner.id, **own,
    )  # fmt: skip
    request = await make.merge_request(
        project, labels=[label], milestone_id=milestone.id, title=world.plant_for(project, "merge request", "title"), source_branch="topic",
        description=world.plant_for(project, "merge request"), head_oid=topic, base_oid=head, commit_count=1, **own,
    )  # fmt: skip
    snippet = await make.snippet(
        project, title=world.plant_for(project, "snippet"), content=world.plant_for(project, "snippet", "content"), **own
    )
    hidden = await make.snippet(
        project, title=world.plant_for(project, "private snippet"),
        content=world.plant_for(project, "private snippet", "content"), visibility_level=0, **own,
    )  # fmt: skip
    for thing, noun in ((issue, "issue"), (request, "merge request"), (snippet, "snippet"), (hidden, "private snippet")):
        await make.note(thing, body=world.plant_for(project, noun, "note"), **own)
    excerpt, path = world.plant_for(project, "merge request", "excerpt"), world.plant_for(project, "merge request", "path of a thread")
    line = {"base_oid": head, "head_oid": topic, "old_path": path, "new_path": path, "new_line": 1, "excerpt": excerpt}
    thread = await make.thread(request, **own, **line)
    await make.note(request, body=world.plant_for(project, "merge request", "reply"), thread_id=thread.id, **own)
    await make.upload(project, name=f"{world.plant_for(project, 'upload')}.txt", **own)
    await make.save(
        tables.MergeRequestCommit(merge_request_id=request.id, position=0, oid=topic),
        tables.Closing(merge_request_id=request.id, in_description=True, project_id=key, iid=issue.iid),
    )
    for sha, ref in ((head, "master"), (topic, "topic")):
        pipeline = tables.Pipeline(project_id=key, sha=sha, ref=ref, error=world.plant_for(project, "build", "pipeline"), created_at=NOW)
        await make.save(pipeline)
        for number, status in enumerate((CheckStatus.FAILED, CheckStatus.SUCCESS)):
            build = await make.build(
                project, sha, ref=ref, name=world.plant_for(project, "build", "name"), stage=world.plant_for(project, "build", "stage"),
                status=status, description=world.plant_for(project, "build", "description"),
                pipeline_id=pipeline.id if number else None, user_id=owner.id,
            )  # fmt: skip
            await make.trace(build, world.plant_for(project, "build", "trace") + "\n")
            packed = pack_files({"report.txt": "", world.plant_for(project, "build", "artifact"): ""})
            await make.artifact(build, packed, filename=f"{world.plant_for(project, 'build', 'artifact')}.zip")
        await make.commit_status(
            project, sha, name=world.plant_for(project, "check", "name"), description=world.plant_for(project, "check"),
            status=CheckStatus.FAILED, author_id=owner.id,
        )  # fmt: skip
        await make.commit_comment(project, sha, author=owner, note=world.plant_for(project, "code", "comment"))
    environment = await make.environment(
        project, name=world.plant_for(project, "build", "environment"),
        external_url=f"https://{world.plant_for(project, 'build', 'deployed')}.example.org/",
    )  # fmt: skip
    ref = world.plant_for(project, "build", "ref of a deployment")
    await make.save(
        tables.Deployment(project_id=key, environment_id=environment.id, user_id=owner.id, sha=head, ref=ref, created_at=NOW),
        tables.Release(project_id=key, tag="v1", description=world.plant_for(project, "code", "release")),
        tables.ProjectStar(project_id=key, user_id=owner.id),
    )


async def _commit_id(world: PlantedData, project: tables.Project, name: str) -> str:
    found = await world.make.services.repositories.read(project.id, lambda repository: repository.resolve(name))
    assert found is not None
    return found


async def _plant_fork_merge_request(world: PlantedData) -> None:
    """The private fork proposes its branch to the open project: its text is readable there, the fork's checks are not."""
    target, fork = world.projects["open"], world.projects["private fork"]
    head, repositories = await _commit_id(world, fork, "topic"), world.make.services.repositories
    # Only the proposed commit is on a branch of the target's.
    await repositories.read(target.id, lambda repository: merge_preview.fetch_commit(repository, repositories.path_of(fork.id), head))
    row = await world.make.merge_request(
        target, author=world.viewers["forker"], title=world.plant_for(target, "merge request", "of a fork"), source_project_id=fork.id,
        source_branch="topic", head_oid=head, base_oid=await _commit_id(world, fork, "master"), commit_count=1,
    )  # fmt: skip
    await world.make.save(tables.MergeRequestCommit(merge_request_id=row.id, position=0, oid=head))


async def _plant_closing_references(world: PlantedData) -> None:
    """A commit and a merge request of the private project close an issue of the open one."""
    make, owner = world.make, world.viewers["admin"]
    private, target = world.projects["private"], world.projects["open"]
    group = await make.fetch(tables.Namespace, target.namespace_id)
    assert group is not None
    issues = [await make.issue(target, author=world.viewers["owner"]) for _ in range(2)]
    first, second = (f"Fixes {group.path}/{target.path}#{issue.iid}" for issue in issues)
    request = await make.merge_request(private, description=second, author=owner)
    async with session_for(make.services.database, writing=True) as session:
        context = Context(make.services, session, owner, "test")
        commit = GitCommit("c" * 40, (), first, "A", "a@example.org", NOW, "C", "c@example.org", NOW)
        await issue_closing.close_after_push(context, private, [commit])
        await issue_closing.record_closings(context, [(request, ())])
        await issue_closing.close_after_merge(context, request)
        await commit_and_notify(context)


async def _plant_running_build(world: PlantedData) -> None:
    """A runner has a build of the private project, and with it the token of the build."""
    make, project = world.make, world.projects["private"]
    head = await _commit_id(world, project, "master")
    before = set(world.words)
    async with make.services.database.read_session() as session:
        of_head = select(tables.Pipeline).where(tables.Pipeline.project_id == project.id, tables.Pipeline.sha == head)
        pipeline = (await session.scalars(of_head)).first()
    assert pipeline is not None
    build = await make.build(
        project, head, name=world.plant_for(project, "build", "that runs"), status=CheckStatus.RUNNING, pipeline_id=pipeline.id,
        runner_id=(await make.runner(project)).id, user_id=world.viewers["owner"].id,
    )  # fmt: skip
    build.token_digest, build.lease_until = digest_token(BUILD_TOKEN_FORMAT.format(build.id)), NOW.replace(year=2100)
    await make.save(build)
    world.build = build
    # The build, and the project whose code it fetches.
    code = {word for word, (what, _) in world.words.items() if what in ("code message of private", "code author of private")}
    named = {word for word, (what, _) in world.words.items() if what.startswith("project ") and what.endswith(" of private")}
    named |= {word for word, (what, _) in world.words.items() if what == "build pipeline of private"}
    world.build_words = (set(world.words) - before) | code | named

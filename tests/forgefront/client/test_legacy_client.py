"""python-gitlab 1.2.0 with API version 3 against the whole service over HTTP, under both profiles."""

import asyncio
import contextlib
import io
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import gitlab
import pytest
import uvicorn

from forgefront.app import create_app
from forgefront.config import Config
from storage import tables
from tests.make import DataFactory, ssh_key, token_of
from tests.support.database.database_selection import ALL_DATABASES_VARIABLE
from tests.support.npm import CACHE_FOLDER

CLIENTS = Path(__file__).parents[1] / "legacy_clients"

Serve = Callable[[str], Awaitable[str]]


@pytest.fixture
async def serve(database_url: str, tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts the service under a profile, over the data that `make` builds; gives its address."""
    stack = AsyncExitStack()

    async def start(profile: str) -> str:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = Config.load(data=tmp_path, database_url=database_url, external_url=address, v3_profile=profile)
        app = create_app(config)
        stack.push_async_callback(app.stop)
        await app.start()
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))

        async def stop() -> None:
            server.should_exit = True
            await serving

        stack.push_async_callback(stop)
        return address

    async with stack:
        yield start


@pytest.fixture
async def admin(make: DataFactory) -> tables.User:
    return await make.admin()


@pytest.fixture
async def project(make: DataFactory, admin: tables.User) -> tables.Project:
    """A project of the administrator's with three pages of issues, and as many commits."""
    project = await make.project(owner=admin, history={"commits": 45})
    for number in range(45):
        await make.issue(project, title=f"Issue {number}", author=admin)
    return project


def client(address: str, user: tables.User) -> Any:
    return gitlab.Gitlab(address, private_token=token_of(user), api_version="3")


async def run_client(work: Callable[[], Any]) -> Any:
    """What blocking work gives; its connections are those of a client that is not in this process."""
    return await asyncio.to_thread(work)


@pytest.mark.parametrize("profile", ["document", "gitlab-8.5"])
async def test_reads_under_either_profile(serve: Serve, admin: tables.User, project: tables.Project, profile: str) -> None:
    address = await serve(profile)

    def work() -> None:
        forge = client(address, admin)
        forge.auth()
        assert forge.user.username == admin.username
        issues = forge.project_issues.list(project_id=project.id, all=True)
        assert [issue.title for issue in issues] == [f"Issue {number}" for number in reversed(range(45))]
        assert len(forge.project_issues.list(project_id=project.id, page=3, per_page=20)) == 5
        one = forge.project_issues.get(issues[0].id, project_id=project.id)
        assert (one.title, one.author.username) == ("Issue 44", admin.username)
        commits = forge.project_commits.list(project_id=project.id, all=True)
        if profile == "gitlab-8.5":
            # Without headers the client knows no next page.
            assert len(commits) == 20
            commits += [each for page in (1, 2) for each in forge.project_commits.list(project_id=project.id, page=page)]
        # Some of the 45 lie on branches of their own.
        assert len({commit.id for commit in commits}) == len(commits) > 40
        assert forge.project_commits.get(commits[0].id, project_id=project.id).title == commits[0].title

    await run_client(work)


@pytest.mark.parametrize("profile", ["document", "gitlab-8.5"])
async def test_posts_commit_statuses_under_either_profile(serve: Serve, admin: tables.User, project: tables.Project, profile: str) -> None:
    address = await serve(profile)

    def work() -> None:
        forge = client(address, admin)
        (head, *_) = forge.project_commits.list(project_id=project.id, per_page=1)
        of_commit = {"project_id": project.id, "commit_id": head.id}
        status = forge.project_commit_statuses.create(
            {"state": "running", "context": "ci/unit", "target_url": "http://ci.example/1"}, **of_commit
        )
        assert (status.name, status.status, status.sha, status.author["username"]) == ("ci/unit", "running", head.id, admin.username)
        again = forge.project_commit_statuses.create({"state": "success", "name": "ci/unit"}, **of_commit)
        forge.project_commit_statuses.create({"state": "failed", "name": "ci/unit", "ref": "master"}, **of_commit)
        assert (again.id, again.status, again.target_url) == (status.id, "success", "http://ci.example/1")
        listed = forge.project_commit_statuses.list(ref_name="master", **of_commit)
        assert [(each.name, each.status) for each in listed] == [("ci/unit", "failed")]
        assert forge.project_commits.get(head.id, project_id=project.id).status == "failed"

    await run_client(work)


async def test_reports_an_invalid_token(serve: Serve, admin: tables.User) -> None:
    address = await serve("document")

    def work() -> None:
        with pytest.raises(gitlab.GitlabAuthenticationError):
            gitlab.Gitlab(address, private_token="wrong", api_version="3").auth()

    await run_client(work)


async def test_writes_under_the_profile_of_its_time(serve: Serve, make: DataFactory, admin: tables.User, project: tables.Project) -> None:
    address, person = await serve("gitlab-8.5"), await make.user("bob")
    in_project = {"project_id": project.id}

    def issues_and_what_is_around_them() -> None:
        forge = client(address, admin)
        label = forge.project_labels.create({"name": "bug", "color": "#FF0000"}, **in_project)
        assert [each.name for each in forge.project_labels.list(**in_project)] == [label.name] == ["bug"]
        milestone = forge.project_milestones.create({"title": "1.0", "due_date": "2016-03-01"}, **in_project)
        issue = forge.project_issues.create({"title": "New", "labels": ["bug", "more"], "milestone_id": milestone.id}, **in_project)
        assert (issue.title, issue.labels, issue.milestone.title) == ("New", ["bug", "more"], "1.0")
        issue.title = "Newer"
        issue.state_event = "close"
        issue.save()
        again = forge.project_issues.get(issue.id, **in_project)
        assert (again.title, again.state, again.labels) == ("Newer", "closed", ["bug", "more"])
        note = forge.project_issue_notes.create({"body": "Done"}, issue_id=issue.id, **in_project)
        assert (note.body, note.author.username) == ("Done", admin.username)
        milestone.state_event = "close"
        milestone.save()
        assert forge.project_milestones.get(milestone.id, **in_project).state == "closed"
        label.delete()
        assert [each.name for each in forge.project_labels.list(**in_project)] == ["more"]

    def groups_and_members() -> None:
        forge = client(address, admin)
        group = forge.groups.create({"name": "Tools", "path": "tools"})
        assert [each.path for each in forge.groups.list()] == ["tools"]
        member = forge.group_members.create({"user_id": person.id, "access_level": 30}, group_id=group.id)
        assert (member.username, member.access_level) == ("bob", 30)
        member.access_level = 40
        member.save()
        assert forge.group_members.get(person.id, group_id=group.id).access_level == 40
        group.transfer_project(project.id)
        (moved,) = forge.group_projects.list(group_id=group.id)
        assert (moved.path_with_namespace, moved.namespace.path) == (f"tools/{project.path}", "tools")
        assert not hasattr(moved, "owner")
        assert [each.id for each in forge.groups.get("tools").projects.list()] == [project.id]
        member.delete()
        assert [each.username for each in forge.group_members.list(group_id=group.id)] == [admin.username]
        with pytest.raises(gitlab.GitlabCreateError, match="path"):
            forge.groups.create({"name": "Others", "path": "tools"})

    def administration() -> None:
        forge = client(address, admin)
        forge.auth()
        key = forge.user.keys.create({"title": "mine", "key": ssh_key(1)})
        assert [each.title for each in forge.user.keys.list()] == [key.title] == ["mine"]
        key.delete()
        hook = forge.hooks.create({"url": "https://hooks.example/told"})
        assert [each.id for each in forge.hooks.list()] == [hook.id]
        hook.delete()
        ada = {"email": "ada@example.org", "username": "ada", "name": "Ada", "password": "12345678", "confirm": False}
        person = forge.users.create(ada)
        assert (person.username, person.email) == ("ada", "ada@example.org")
        person.block()
        person.block()
        person.unblock()
        person.delete()
        settings = forge.settings.get()
        assert (settings.default_projects_limit, settings.domain_whitelist) == (10, [])
        settings.default_projects_limit = 5
        settings.restricted_signup_domains = ["example.org"]
        settings.default_project_visibility = gitlab.VISIBILITY_INTERNAL
        settings.gravatar_enabled = False
        settings.save()
        saved = forge.settings.get()
        assert (saved.default_projects_limit, saved.restricted_signup_domains) == (5, ["example.org"])
        assert (saved.default_project_visibility, saved.gravatar_enabled) == (10, False)

    await run_client(issues_and_what_is_around_them)
    await run_client(groups_and_members)
    await run_client(administration)


async def test_cannot_create_issues_under_the_document(serve: Serve, admin: tables.User, project: tables.Project) -> None:
    """Why there is a profile: the client takes the document's 200 for a failure."""
    address = await serve("document")

    def work() -> None:
        forge = client(address, admin)
        with pytest.raises(gitlab.GitlabCreateError):
            forge.project_issues.create({"title": "New"}, project_id=project.id)
        assert forge.project_issues.list(project_id=project.id)[0].title == "New"

    await run_client(work)


@pytest.mark.parametrize("profile", ["document", "gitlab-8.5"])
async def test_administrates_a_project_under_either_profile(
    serve: Serve, make: DataFactory, admin: tables.User, project: tables.Project, profile: str
) -> None:
    address, person, in_project = await serve(profile), await make.user("bob"), {"project_id": project.id}

    def work() -> None:
        forge = client(address, admin)
        member = forge.project_members.create({"user_id": person.id, "access_level": 30}, **in_project)
        member.access_level = 20
        member.save()
        assert forge.project_members.get(person.id, **in_project).access_level == 20
        assert [each.username for each in forge.project_members.list(query="bo", **in_project)] == ["bob"]
        member.delete()
        forge.project_members.delete(person.id, **in_project)
        assert forge.project_members.list(**in_project) == []

        hook = forge.project_hooks.create({"url": "http://hooks.invalid/", "build_events": True, "token": "t"}, **in_project)
        hook.push_events = False
        hook.save()
        (listed,) = forge.project_hooks.list(**in_project)
        assert (listed.build_events, listed.push_events, listed.enable_ssl_verification) == (True, False, True)
        hook.delete()
        with pytest.raises(gitlab.GitlabGetError):
            forge.project_hooks.get(hook.id, **in_project)

        key = forge.project_keys.create({"title": "server", "key": ssh_key(7)}, **in_project)
        assert [each.title for each in forge.project_keys.list(**in_project)] == ["server"]
        key.delete()
        assert forge.project_keys.list(**in_project) == []

        values = {"title": "T", "file_name": "a.rb", "code": "puts 1", "visibility_level": 10}
        snippet = forge.project_snippets.create(values, **in_project)
        snippet.code = "puts 2"
        snippet.save()
        assert (snippet.content(), snippet.author.username) == (b"puts 2", admin.username)
        snippet.delete()
        assert forge.project_snippets.list(**in_project) == []

    await run_client(work)


@pytest.mark.parametrize("profile", ["document", "gitlab-8.5"])
async def test_changes_a_repository_under_either_profile(serve: Serve, admin: tables.User, project: tables.Project, profile: str) -> None:
    address, in_project = await serve(profile), {"project_id": project.id}

    def work() -> None:
        forge = client(address, admin)
        branch = forge.project_branches.create({"branch_name": "fix/one", "ref": "master"}, **in_project)
        branch.protect()
        assert [(each.name, each.protected) for each in forge.project_branches.list(**in_project)][:2] == [
            ("fix/one", True),
            ("master", False),
        ]
        branch.unprotect()
        assert not forge.project_branches.get("fix/one", **in_project).protected
        written = {"file_path": "docs/new.md", "branch_name": "fix/one", "content": "Hello", "commit_message": "Add it"}
        forge.project_files.create(written, **in_project)
        shown = forge.project_files.get(file_path="docs/new.md", ref="fix/one", **in_project)
        assert (shown.decode(), shown.file_name) == (b"Hello", "new.md")
        shown.content, shown.encoding, shown.branch_name, shown.commit_message = "Hello again", "text", "fix/one", "Change it"
        shown.save()
        tag = forge.project_tags.create({"tag_name": "v9", "ref": "fix/one", "message": "Nine"}, **in_project)
        tag.set_release_description("Notes")
        assert forge.project_tags.list(**in_project)[0].release.description == "Notes"
        repository = gitlab.v3.objects.Project(forge, {"id": project.id, "path": project.path})
        assert repository.repository_blob("v9", "docs/new.md") == b"Hello again"
        assert [entry["name"] for entry in repository.repository_tree("docs", "v9")] == ["new.md"]
        compared = repository.repository_compare("master", "v9")
        assert [commit["title"] for commit in compared["commits"]] == ["Add it", "Change it"]
        assert sum(each["commits"] for each in repository.repository_contributors()) > 30
        with tarfile.open(fileobj=io.BytesIO(repository.repository_archive("v9"))) as archive:
            assert any(name.endswith("/docs/new.md") for name in archive.getnames())
        forge.project_tags.delete("v9", **in_project)
        branch.delete()
        assert "fix/one" not in [each.name for each in forge.project_branches.list(**in_project)]

    await run_client(work)


@pytest.fixture(scope="session")
def old_client() -> Path:
    """The folder of python-gitlab 0.12.2, installed once into a cache of the user; the suite's environment has its dependencies."""
    source = CLIENTS / "python-gitlab-0.12"
    target = CACHE_FOLDER / source.name
    if not target.exists():
        CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE_FOLDER) as making:
            options = ["--quiet", "--no-deps", "--require-hashes", "--target", f"{making}/packages"]
            command = [sys.executable, "-m", "pip", "install", *options, "--requirement", str(source / "requirements.txt")]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            if done.returncode:
                pytest.skip(f"NOT RUN: the script with python-gitlab 0.12.2 (pip failed: {done.stderr})")
            # Another process of the same run may have been faster.
            with contextlib.suppress(OSError):
                Path(making, "packages").rename(target)
    return target


SCRIPT_RUNS = [
    ("sqlite", "0.12.2", "document"),
    ("sqlite", "1.2.0", "gitlab-8.5"),
    ("postgresql", "0.12.2", "gitlab-8.5"),
    ("postgresql", "1.2.0", "document"),
]
"""All pairs of a database, a version and a profile."""
if os.environ.get(ALL_DATABASES_VARIABLE):
    SCRIPT_RUNS = list(product(("sqlite", "postgresql"), ("0.12.2", "1.2.0"), ("document", "gitlab-8.5")))


class TestScript:
    @pytest.mark.parametrize(("dialect", "version", "profile"), SCRIPT_RUNS, indirect=["dialect"])
    async def test_from_a_new_project_to_its_removal(
        self, serve: Serve, admin: tables.User, request: pytest.FixtureRequest, profile: str, version: str
    ) -> None:
        address = await serve(profile)
        folder = request.getfixturevalue("old_client") if version == "0.12.2" else ""
        command = [sys.executable, "-W", "ignore", str(CLIENTS / "legacy_script.py"), address, token_of(admin), ssh_key(1)]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout) == (0, f"done with python-gitlab {version}\n"), done.stderr

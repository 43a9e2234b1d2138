"""The demo: contents of the filled folder, rejected folders, and the users it creates."""

import asyncio
import fcntl
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from forgefront.backend import Backend
from forgefront.config import Config, ConfigError
from forgefront.data_folder import data_folder_claim
from forgefront.data_folder.data_folder_claim import UNFINISHED_DEMO, FolderNotEmpty, claim_folder
from forgefront.data_folder.data_folder_lock import DataFolderLock
from forgefront.demo import demo_builder, demo_history
from forgefront.demo.commit_authors import group_authors
from forgefront.demo.demo_builder import Demo, DemoAccount, DemoBuilder
from storage.git.authors import list_authors
from storage.git.repository import Repository
from tests.forgefront.support.cli_runner import CommandRunner
from tests.support.git.git_history import commit_to_branch, git, make_history, write_commit

pytestmark = pytest.mark.usefixtures("isolated_environment")

KEYS = {
    "admin_token",
    "user_token",
    "reporter_token",
    "outsider_token",
    "password",
    "group_id",
    "project_id",
    "project_path",
    "other_project_id",
    "private_project_id",
    "snippet_id",
    "merge_request_id",
    "build_id",
    "scratch_build_id",
    "pipeline_project_id",
    "runner_token",
    "repository_path",
}


class DemoData:
    """A folder that `forgefront demo --json` filled from the repository `source`."""

    def __init__(self, data: Path, source: Path) -> None:
        self.source = source
        self.data = data
        result = CommandRunner(data)("demo", "--repository", source, "--json")
        self.summary: dict[str, Any] = json.loads(result.stdout)
        self.said = result.stderr

    def ask(self, query: str, username: str = "admin_token", **variables: str) -> Any:
        """The data that a caller with this token is given; None where there was an error. `$project` is the demo's own."""
        if "$project" in query:
            variables.setdefault("project", str(self.summary["project_id"]))
        head = ", ".join(f"${name}: String!" for name in variables)
        text = f"query({head}) {query}" if head else query

        async def work() -> Any:
            engine = Backend(Config.load(data=self.data))
            await engine.start()
            try:
                outcome = await engine.graph.run_document(text, variables, None, self.summary[username], request_id="test")
            finally:
                await engine.stop()
            return None if outcome.errors else outcome.data

        return asyncio.run(work())


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_history(tmp_path_factory.mktemp("history") / "Great Tools.git", commits=60, authors=12).path


@pytest.fixture(scope="session")
def preserved_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FORGEFRONT_DATABASE_URL", raising=False)
        yield


@pytest.fixture(scope="session")
def demo_data(tmp_path_factory: pytest.TempPathFactory, source: Path, preserved_environment: None) -> DemoData:
    """Filled once; tests only look."""
    return DemoData(tmp_path_factory.mktemp("demo") / "data", source)


class TestDemoData:
    def test_prints_url_and_credentials(self, demo_data: DemoData) -> None:
        assert set(demo_data.summary) == KEYS
        assert len({demo_data.summary[key] for key in demo_data.summary if key.endswith("_token")}) == 5
        assert demo_data.summary["project_path"] == "demo/Great-Tools"

    def test_reports_progress(self, demo_data: DemoData) -> None:
        assert "users: 12 of 12" in demo_data.said
        assert "receiving objects: " in demo_data.said

    def test_history_is_whole(self, demo_data: DemoData) -> None:
        made, source = Repository.open(Path(demo_data.summary["repository_path"])), Repository.open(demo_data.source)
        own = {"supported-versions", "dark-theme"}
        assert [branch for branch in made.branches() if branch.name not in own] == source.branches()
        assert made.tags() == source.tags()
        project = demo_data.ask("{ project(path: $project) { defaultBranch commits(first: 3) { nodes { oid author { username } } } } }")
        assert project["project"]["defaultBranch"] == "master"
        nodes = project["project"]["commits"]["nodes"]
        assert [node["oid"] for node in nodes] == git(demo_data.source, "log", "--format=%H", "-3", "master").split()
        assert all(node["author"] for node in nodes)

    def test_every_author_is_a_user(self, demo_data: DemoData) -> None:
        found = demo_data.ask("{ users(first: 100) { nodes { username name email } } }")["users"]["nodes"]
        emails = {user["email"] for user in found}
        assert set(git(demo_data.source, "log", "--all", "--format=%ae").split()) <= emails
        assert {"root", "dev", "reporter", "outsider", "author-0"} <= {user["username"] for user in found}

    @pytest.mark.parametrize(
        ("who", "level"),
        [("admin_token", "OWNER"), ("user_token", "OWNER"), ("reporter_token", "REPORTER"), ("outsider_token", None)],
    )
    def test_project_visibility(self, demo_data: DemoData, who: str, level: str | None) -> None:
        found = demo_data.ask("{ project(path: $project) { viewerAccessLevel visibility } }", who)
        assert found == ({"project": {"viewerAccessLevel": level, "visibility": "PRIVATE"}} if level else None)

    def test_dev_is_master_and_owns_the_group(self, demo_data: DemoData) -> None:
        members = "members(first: 1) { nodes { user { username } accessLevel } }"
        group = 'group(path: "demo") { databaseId viewerAccessLevel }'
        found = demo_data.ask(f"{{ project(path: $project) {{ {members} }} {group} }}", "user_token")
        assert found["project"]["members"]["nodes"] == [{"user": {"username": "dev"}, "accessLevel": "MASTER"}]
        assert found["group"] == {"databaseId": demo_data.summary["group_id"], "viewerAccessLevel": "OWNER"}

    def test_other_projects(self, demo_data: DemoData) -> None:
        query = "{ project(path: $project) { visibility issues { totalCount } } }"
        found = demo_data.ask(query, "outsider_token", project=str(demo_data.summary["other_project_id"]))
        assert found == {"project": {"visibility": "PUBLIC", "issues": {"totalCount": 2}}}
        private = str(demo_data.summary["private_project_id"])
        assert demo_data.ask(query, "user_token", project=private) is None
        assert demo_data.ask(query, project=private) == {"project": {"visibility": "PRIVATE", "issues": {"totalCount": 1}}}

    def test_creates_issues_labels_and_milestones(self, demo_data: DemoData) -> None:
        issues = (
            "issues(first: 50) { nodes { state title createdAt labels milestone { title } assignee { username } notes { totalCount } } }"
        )
        found = demo_data.ask(f"{{ project(path: $project) {{ {issues} }} }}", "reporter_token")
        nodes = found["project"]["issues"]["nodes"]
        assert {node["state"] for node in nodes} == {"OPENED", "CLOSED"}
        assert {label for node in nodes for label in node["labels"]} == set(demo_builder.content.LABELS)
        assert {node["milestone"]["title"] for node in nodes if node["milestone"]} == {demo_builder.content.MILESTONE}
        assert any(node["assignee"] for node in nodes)
        assert sum(node["notes"]["totalCount"] for node in nodes) > 10
        # Dated by the history, whose last commit is of 2014.
        assert {node["createdAt"][:4] for node in nodes} == {"2014"}

    def test_commits_have_comments(self, demo_data: DemoData) -> None:
        query = "{ project(path: $project) { commits(first: 20) { nodes { comments(first: 5) { nodes { path line note } } } } } }"
        nodes = demo_data.ask(query)["project"]["commits"]["nodes"]
        comments = [comment for node in nodes for comment in node["comments"]["nodes"]]
        assert len([comment for comment in comments if comment["line"] is None]) == 2
        assert len([comment for comment in comments if comment["line"] is not None]) == 1

    def test_creates_votes_and_system_notes(self, demo_data: DemoData) -> None:
        issues = "issues(first: 50) { nodes { upvotes notes(first: 50) { nodes { system body } } } }"
        nodes = demo_data.ask(f"{{ project(path: $project) {{ {issues} }} }}")["project"]["issues"]["nodes"]
        assert sorted(node["upvotes"] for node in nodes)[-2:] == [1, 2]
        first_words = {note["body"].partition(" ")[0] for node in nodes for note in node["notes"]["nodes"] if note["system"]}
        assert {"Status", "Reassigned", "Milestone"} <= first_words

    def test_snippet(self, demo_data: DemoData) -> None:
        snippet = "title fileName content visibility author { username } notes(first: 5) { nodes { author { username } body } }"
        query = f"{{ project(path: $project) {{ snippet(databaseId: {demo_data.summary['snippet_id']}) {{ {snippet} }} }} }}"
        found = demo_data.ask(query, "reporter_token")["project"]["snippet"]
        assert (found["fileName"], found["visibility"], found["author"]) == ("authors.sh", "PRIVATE", {"username": "dev"})
        assert "{" not in found["title"] + found["content"]
        assert {note["author"]["username"] for note in found["notes"]["nodes"]} == {"dev", "reporter"}

    def test_merge_requests_stand_open_on_branches_of_their_own(self, demo_data: DemoData) -> None:
        fields = (
            "title state mergeStatus workInProgress author { username } commits { totalCount } closesIssues { nodes { title } } upvotes"
        )
        one = f"mergeRequest(databaseId: {demo_data.summary['merge_request_id']}) {{ {fields} }}"
        query = f"{{ project(path: $project) {{ {one} mergeRequests(filter: {{state: [OPENED]}}) {{ totalCount }} }} }}"
        found = demo_data.ask(query, "user_token")["project"]
        assert found["mergeRequests"]["totalCount"] == 2
        assert found["mergeRequest"] == {
            "title": "Say which versions are supported",
            "state": "OPENED",
            "mergeStatus": "CAN_BE_MERGED",
            "workInProgress": False,
            "author": {"username": "dev"},
            "commits": {"totalCount": 1},
            "closesIssues": {"nodes": [{"title": "Say in the README which versions are supported"}]},
            "upvotes": 1,
        }

    @pytest.mark.parametrize("key", ["build_id", "scratch_build_id"])
    def test_builds_have_ended_and_left_files(self, demo_data: DemoData, key: str) -> None:
        fields = "name status artifact { filename size } trace(last: 1) { lines } commit { rollup { state } }"
        found = demo_data.ask(f"{{ project(path: $project) {{ build(databaseId: {demo_data.summary[key]}) {{ {fields} }} }} }}")["project"][
            "build"
        ]
        assert (found["status"], found["commit"]["rollup"]["state"]) == ("SUCCESS", "SUCCESS")
        assert found["artifact"]["filename"].endswith(".zip") and found["artifact"]["size"] > 0
        assert found["trace"]["lines"] != []

    def test_pipeline_was_run(self, demo_data: DemoData) -> None:
        query = (
            "{ project(path: $project) { builds { nodes { name stage status coverage artifact { filename } runner { description } } } } }"
        )
        builds = demo_data.ask(query, "user_token", project=str(demo_data.summary["pipeline_project_id"]))["project"]["builds"]["nodes"]
        assert {build["name"]: (build["stage"], build["status"]) for build in builds} == {
            "compile": ("build", "SUCCESS"),
            "unit": ("test", "SUCCESS"),
            "style": ("test", "SUCCESS"),
            "package": ("deploy", "SUCCESS"),
        }
        assert {build["coverage"] for build in builds} == {None, 92.5}
        assert {build["artifact"]["filename"] for build in builds if build["artifact"]} == {"hello.zip", "package.zip"}
        assert {build["runner"]["description"] for build in builds} == {"The demo's own"}

    def test_accounts_sign_in(self, demo_data: DemoData) -> None:
        sign_in = 'mutation($password: String!) { signIn(input: {login: "dev", password: $password}) { user { username } } }'

        async def work() -> Any:
            engine = Backend(Config.load(data=demo_data.data))
            await engine.start()
            try:
                return await engine.graph.run_document(sign_in, {"password": demo_data.summary["password"]}, None, None, request_id="test")
            finally:
                await engine.stop()

        assert asyncio.run(work()).data == {"signIn": {"user": {"username": "dev"}}}

    def test_is_whole(self, demo_data: DemoData) -> None:
        assert CommandRunner(demo_data.data).json("check", "--full")["problems"] == []


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_unusual_history_on_postgresql(tmp_path: Path, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"tree %b\n%bauthor %b 1400000000 +0000\ncommitter %b 1400000000 +0000\n\n%b"
    git(tmp_path, "init", "-q", "--bare", "strange")
    source = tmp_path / "strange"
    tree, parent = git(source, "mktree").encode(), b""
    for person, message in [
        (b"Jane <jane@x.org>", b"Begin"),
        (b"Jane \xff\xfe <jane@x.org>", b"Bytes \xff\x00 of no encoding\n\n\xed\xa0\x80 half a pair"),
        (b" <>", b""),
        (b"=1+1 <root@example.com>", b"x" * 3000),
        (b"\xe5\xb1\xb1 <A@B.C>", b"#1 <script>alert(1)</script> %s {name}\n"),
    ]:
        last = write_commit(source, raw % (tree, parent, person, person, message))
        parent = f"parent {last}\n".encode()
    # HEAD names a branch that is not there.
    git(source, "update-ref", "refs/heads/other", last)
    commit_to_branch(source, "doors", {"door.txt": b"a door\n"}, start="other", message="Add a door")
    message = "Merge pull request #12 from ada/doors\n\nA door"
    merge = git(source, "commit-tree", "doors^{tree}", "-p", "other", "-p", "doors", "-m", message)
    git(source, "update-ref", "refs/heads/other", merge)
    git(source, "branch", "-D", "doors")

    monkeypatch.setenv("FORGEFRONT_DATABASE_URL", new_database())
    filled = DemoData(tmp_path / "data", source)
    assert (filled.summary["project_id"], filled.summary["project_path"]) == (1, "demo/strange")
    assert CommandRunner(tmp_path / "data").json("check")["problems"] == []
    users = CommandRunner(tmp_path / "data").json("admin", "user", "list")
    assert {user["email"] for user in users} >= {"jane@x.org", "a@b.c", "root@example.com"}
    # The folder alone does not show it: the database has users already.
    again = CommandRunner(tmp_path / "other")("demo", "--repository", source, code=1)
    assert "the database already has users" in again.stderr
    assert not (tmp_path / "other").exists()

    fields = "iid title sourceBranch author { email } mergedAt mergeCommit { oid }"
    requests = f"project(path: $project) {{ mergeRequests(filter: {{state: [MERGED]}}) {{ nodes {{ {fields} }} }} }}"
    found = filled.ask(f"{{ viewer {{ username }} {requests} }}")
    assert found["viewer"] == {"username": "root"}
    (merged,) = found["project"]["mergeRequests"]["nodes"]
    assert (merged["iid"], merged["title"], merged["sourceBranch"]) == (12, "A door", "doors")
    assert merged["author"] == {"email": "author@example.org"}
    assert merged["mergeCommit"] == {"oid": merge}


def test_accounts_are_printed_for_people(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = {name: DemoAccount(role, f"token-of-{name}") for name, role in demo_builder.ROLES.items()}
    demo = Demo("the-password", accounts, project_id=7, project_path="demo/source")
    monkeypatch.setattr("forgefront.commands.demo.fill_folder", lambda config, source: demo)
    output = CommandRunner(tmp_path / "data")("demo", "--repository", source).stdout
    assert "the project demo/source (id 7)" in output
    assert "the password of all accounts is the-password" in output
    assert all(re.search(f"^  {name} +token-of-{name}  {role}$", output, re.MULTILINE) for name, role in demo_builder.ROLES.items())


class TestDataFolder:
    def test_rejects_a_folder_that_is_not_empty(self, cli: CommandRunner, source: Path) -> None:
        before = {path: path.stat().st_mtime_ns for path in cli.data.rglob("*")}
        result = cli("demo", "--repository", source, code=1)
        assert "is not empty" in result.stderr
        assert "Nothing was changed" in result.stderr
        assert {path: path.stat().st_mtime_ns for path in cli.data.rglob("*")} == before

    def test_rejects_a_folder_with_a_stray_file(self, tmp_path: Path, source: Path) -> None:
        (tmp_path / "letter").write_text("Dear")
        assert "(it contains letter)" in CommandRunner(tmp_path)("demo", "--repository", source, code=1).stderr

    def test_failure_leaves_the_folder_unchanged(self, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fails(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(DemoBuilder, "_add_members", fails)
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "forgefront.toml").write_text("port = 1\n")
        assert CommandRunner(tmp_path / "data")("demo", "--repository", source, code=130).stderr.endswith("interrupted\n")
        assert [path.name for path in (tmp_path / "data").iterdir()] == ["forgefront.toml"]
        CommandRunner(tmp_path / "new")("demo", "--repository", source, code=130)
        assert not (tmp_path / "new").exists()

    def test_two_concurrent_merges(self, tmp_path: Path) -> None:
        config = Config.load(data=tmp_path / "data")
        with claim_folder(config):
            (tmp_path / "data" / "forgefront.db").touch()
            with pytest.raises(FolderNotEmpty, match="another process"), claim_folder(config):
                pass
            assert (tmp_path / "data" / "forgefront.db").exists()

    @pytest.mark.parametrize("is_running", [True, False])
    def test_that_another_process_fills_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_running: bool) -> None:
        """The other one begins after the folder was found to be empty, and has ended when it is locked, or runs on."""
        config, others = Config.load(data=tmp_path), ExitStack()
        require_fillable = data_folder_claim._require_fillable

        def fill(*arguments: Any) -> None:
            require_fillable(*arguments)
            monkeypatch.undo()
            if is_running:
                others.enter_context(claim_folder(config))
            else:
                with claim_folder(config):
                    pass
            (tmp_path / "forgefront.db").touch()

        monkeypatch.setattr(data_folder_claim, "_require_fillable", fill)
        with others:
            with pytest.raises(FolderNotEmpty, match="another process"), claim_folder(config):
                pass
            assert (tmp_path / "forgefront.db").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["forgefront.db"]

    def test_whose_marker_is_removed_before_it_is_locked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config, lock = Config.load(data=tmp_path), fcntl.flock
        (tmp_path / UNFINISHED_DEMO).touch()

        def end_other(*arguments: Any) -> None:
            monkeypatch.undo()
            (tmp_path / UNFINISHED_DEMO).unlink()
            (tmp_path / "forgefront.db").touch()
            lock(*arguments)

        monkeypatch.setattr(fcntl, "flock", end_other)
        with pytest.raises(FolderNotEmpty, match="another process has just filled"), claim_folder(config):
            pass
        assert [path.name for path in tmp_path.iterdir()] == ["forgefront.db"]

    def test_interrupted_demo_is_not_used(self, cli: CommandRunner, source: Path) -> None:
        (cli.data / UNFINISHED_DEMO).touch()
        result = cli("admin", "user", "list", code=2)
        assert "contains a demo whose creation was interrupted; run `forgefront demo` again, which starts over, or delete" in result.stderr
        # What was made there since is not removed while it is used.
        lock = DataFolderLock(cli.data)
        lock.acquire()
        try:
            assert "another process uses" in cli("demo", "--repository", source, code=1).stderr
        finally:
            lock.release()
        (cli.data / UNFINISHED_DEMO).unlink()
        assert [user["username"] for user in cli.json("admin", "user", "list")] == ["root"]

    def test_that_is_filled_before_the_service_has_locked_it(self, tmp_path: Path) -> None:
        async def work() -> None:
            backend = Backend(Config.load(data=tmp_path))
            (tmp_path / UNFINISHED_DEMO).touch()
            try:
                with pytest.raises(ConfigError, match="contains a demo"):
                    await backend.start()
            finally:
                await backend.stop()

        asyncio.run(work())
        assert not (tmp_path / "forgefront.db").exists()

    def test_without_a_history(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        CommandRunner(tmp_path / "data")("demo", "--repository", tmp_path, code=2)
        monkeypatch.setattr("forgefront.commands.demo.CHECKOUT_FOLDER", tmp_path)
        result = CommandRunner(tmp_path / "data")("demo", code=1)
        assert "is not a git checkout; name a repository with --repository PATH" in result.stderr
        git(tmp_path, "init", "-q")
        assert "has no commit yet" in CommandRunner(tmp_path / "data")("demo", code=1).stderr
        assert not (tmp_path / "data").exists()


class TestAuthors:
    @staticmethod
    def made(*entries: tuple[str, str, int], taken: tuple[str, ...] = ()) -> list[tuple[str, str, list[str]]]:
        found = group_authors(entries, taken, lambda address: "@" in address and "." in address.rpartition("@")[2])
        return [(person.username, person.name, person.emails) for person in found]

    def test_addresses_of_one_name_belong_together(self) -> None:
        entries = [("Jane Doe", "jane@home.org", 1), ("Bob", "bob@x.org", 1), ("jane doe", "Jane@Work.org", 5)]
        assert self.made(*entries) == [("jane-doe", "jane doe", ["jane@work.org", "jane@home.org"]), ("bob", "Bob", ["bob@x.org"])]

    def test_names_of_one_address_belong_together(self) -> None:
        entries = [("jd", "jane@x.org", 1), ("Jane", "jane@y.org", 1), ("Jane", "JANE@x.org", 2)]
        assert self.made(*entries) == [("jane", "Jane", ["jane@x.org", "jane@y.org"])]

    def test_usernames_are_valid_and_unique(self) -> None:
        entries = [
            ("Root", "a@x.org", 1),
            ("admin", "b@x.org", 1),
            ("Ünï Çode", "c@x.org", 1),
            ("山田太郎", "taro@x.org", 1),
            ("山田", "12+yamada@users.noreply.github.com", 1),
            ("42", "42@x.org", 1),
            ("Uni Code", "d@x.org", 1),
            ("-.-", "e@x.org", 1),
            ("x" * 300, "f@x.org", 1),
        ]
        usernames = [username for username, _, _ in self.made(*entries, taken=("root",))]
        assert usernames == ["root-2", "admin-2", "uni-code", "taro", "yamada", "author", "uni-code-2", "e", "x" * 40]

    def test_invalid_emails_are_excluded(self) -> None:
        assert self.made(("Jane", "jane@host.(none)", 1), ("Jane", "nothing", 1)) == [("jane", "Jane", ["jane@host.(none)"])]
        assert self.made(("Jane", "nothing", 1), ("", "", 1)) == [("jane", "Jane", []), ("unknown-author", "Unknown author", [])]

    def test_entries_without_a_name(self) -> None:
        assert self.made(("", "ann@x.org", 1), ("  ", "ann@x.org", 1)) == [("ann", "ann", ["ann@x.org"])]

    def test_authors_of_a_history(self, source: Path) -> None:
        found = list_authors(Repository.open(source))
        assert sum(count for _, _, count in found) == 60
        assert {email for _, email, _ in found} == set(git(source, "log", "--all", "--format=%ae").split())

    def test_authors_of_nothing(self, tmp_path: Path) -> None:
        assert list_authors(Repository.create(tmp_path / "empty.git")) == []


class TestHelpers:
    @pytest.mark.parametrize(
        ("diff", "line"),
        [
            ("--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n one\n+two\n three\n", 2),
            ("--- a/f\n+++ b/f\n@@ -5 +5,2 @@ def f():\n-x\n+y\n", 5),
            ("--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n one\n-two\n\\ No newline at end of file\n", None),
            ("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+++ x\n", 1),
            ("", None),
        ],
    )
    def test_first_added_line(self, diff: str, line: int | None) -> None:
        assert demo_builder.first_added_line(diff) == line

    @pytest.mark.parametrize(
        ("folder", "name"), [("Linux.git", "Linux"), ("a b", "a-b"), (".hidden", "hidden"), ("…", "project"), ("x.atom", "project")]
    )
    def test_name_of(self, tmp_path: Path, folder: str, name: str) -> None:
        assert demo_history.project_name_of(tmp_path / folder) == name

    def test_clock_of_a_detached_history(self, source: Path, tmp_path: Path) -> None:
        git(source.parent, "clone", "-q", str(source), str(tmp_path / "clone"))
        git(tmp_path / "clone", "checkout", "-q", "--detach", "v1")
        git(tmp_path / "clone", "branch", "-D", "master")
        assert demo_history.has_history(tmp_path / "clone")
        assert list_authors(Repository.open(tmp_path / "clone"))
        assert demo_history.create_clock(tmp_path / "clone")().year == 2014

"""HTML of descriptions, notes, releases and files: references by the viewer's rights, in a constant number of statements."""

import re
from pathlib import Path
from typing import Any

import pytest

from graph.rules.markdown import texts
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import commit_files, git

ISSUE = "query ($path: String!) { project(path: $path) { issue(iid: 1) { descriptionHtml notes(first: 100) { nodes { bodyHtml } } } } }"
PROJECT = """query ($path: String!) { project(path: $path) {
    mergeRequest(iid: 1) { descriptionHtml }
    milestone(iid: 1) { descriptionHtml }
    readme: blob(path: "README.md") { html }
    other: blob(path: "a.txt") { html } } }"""


def links(html: str) -> list[tuple[str, str]]:
    """(URL without that of the instance, title) of the links in HTML."""
    found = re.findall(r'<a href="([^"]*)"(?: title="([^"]*)")?', html)
    return [(url.removeprefix(EXTERNAL_URL), title) for url, title in found]


PREVIEW = "query ($path: String!, $text: String!) { project(path: $path) { markdownHtml(text: $text) issue(iid: 1) { descriptionHtml } } }"


class TestPreview:
    async def test_is_what_the_text_will_be(self, ask: Ask, make: DataFactory) -> None:
        ada = await make.user("ada")
        mill = await make.project(owner=ada, path="mill", visibility=Visibility.INTERNAL)
        text = "See #1, @ada and <script>alert(1)</script>\n\n- [x] **done**"
        await make.issue(mill, title="It leaks", description=text)
        found = (await ask.data(PREVIEW, await make.user(), path=str(mill.id), text=text))["project"]
        assert found["markdownHtml"] == found["issue"]["descriptionHtml"]
        assert links(found["markdownHtml"]) == [("/ada/mill/issues/1", "It leaks (opened)"), ("/u/ada", "Ada")]


class TestReferences:
    async def test_link_what_the_viewer_may_see(self, ask: Ask, make: DataFactory) -> None:
        ada, bob = await make.user("ada"), await make.user("bob", name="Bob B.")
        mill = await make.project(owner=ada, path="mill", visibility=Visibility.INTERNAL, history={"commits": 3})
        secret = await make.project(owner=ada, path="secret")
        await make.issue(secret, title="Hidden")
        oid = await make.services.repositories.read(mill.id, lambda repository: repository.resolve("master"))
        await make.indexed(mill)
        text = f"#1 !1 !2 @bob @nobody {oid[:10]} 0123456789 ada/secret#1"
        issue = await make.issue(mill, title="It leaks", description=text)
        await make.merge_request(mill, title="A fix")
        await make.build(mill, sha=oid, status=CheckStatus.FAILED)
        await make.note(issue, body=f"again ada/mill#1\n\n![i](/uploads/{'0' * 32}/a.png)")

        async def read(viewer: tables.User) -> Any:
            return (await ask.data(ISSUE, viewer, path=str(mill.id)))["project"]["issue"]

        seen = [
            ("/ada/mill/issues/1", "It leaks (opened)"),
            ("/ada/mill/merge_requests/1", "A fix (opened)"),
            ("/u/bob", "Bob B."),
        ]
        found = links((await read(ada))["descriptionHtml"])
        assert found[:3] == seen
        assert found[3][0] == f"/ada/mill/commit/{oid}"
        assert found[3][1].endswith(" (failed)"), "the state of a commit is shown on hover"
        assert found[4:] == [("/ada/secret/issues/1", "Hidden (opened)")]
        as_bob = await read(bob)
        assert links(as_bob["descriptionHtml"]) == found[:4]
        (note,) = as_bob["notes"]["nodes"]
        assert links(note["bodyHtml"]) == seen[:1]
        assert f'<img src="{EXTERNAL_URL}/ada/mill/uploads/{"0" * 32}/a.png" alt="i">' in note["bodyHtml"]

    async def test_to_users_ignore_case_and_link_the_name_of_the_account(self, ask: Ask, make: DataFactory) -> None:
        ada = await make.user("Ada", name="Ada L.")
        mill = await make.project(owner=ada, path="mill")
        await make.issue(mill, description="@ada, @ADA, @Ada and @adam")
        found = links((await ask.data(ISSUE, ada, path=str(mill.id)))["project"]["issue"]["descriptionHtml"])
        assert found == [("/u/Ada", "Ada L.")] * 3

    async def test_to_users_whose_names_differ_only_in_case_prefer_the_exact_one(self, ask: Ask, make: DataFactory) -> None:
        ada = await make.user("ada", name="First")
        # As a table that was filled before names were unique ignoring case has it, without a personal namespace.
        await make.save(tables.User(username="Ada", name="Second", email="second@example.org"))
        await make.issue(await make.project(owner=ada, path="mill"), description="@Ada @ada @ADA")
        found = links((await ask.data(ISSUE, ada, path="ada/mill"))["project"]["issue"]["descriptionHtml"])
        assert found == [("/u/Ada", "Second"), ("/u/ada", "First"), ("/u/ada", "First")]
        for username, name in (("ada", "First"), ("Ada", "Second"), ("ADA", "First")):
            data = await ask.data("query ($name: String!) { user(username: $name) { name } }", ada, name=username)
            assert data["user"]["name"] == name

    async def test_follow_the_features_and_levels_of_the_project(self, ask: Ask, make: DataFactory) -> None:
        ada, guest = await make.user("ada"), await make.user("guest")
        mill = await make.project(owner=ada, path="mill", members=[(guest, AccessLevel.GUEST)], history={"commits": 3})
        oid = await make.services.repositories.read(mill.id, lambda repository: repository.resolve("master"))
        await make.indexed(mill)
        await make.issue(mill, description=f"#1 {oid}")
        for viewer, count in ((ada, 2), (guest, 1)):
            data = await ask.data(ISSUE, viewer, path=str(mill.id))
            assert len(links(data["project"]["issue"]["descriptionHtml"])) == count


class TestStatements:
    async def test_do_not_depend_on_the_number_of_texts(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        ada = await make.user("ada")
        mill = await make.project(owner=ada, path="mill")
        await make.merge_request(mill)
        issue = await make.issue(mill, description="#1 !1 @ada abcdef0123")
        await make.note(issue, body="#1")
        with statements.record() as few:
            await ask.data(ISSUE, ada, path=str(mill.id))
        for number in range(30):
            await make.note(issue, body=f"#{number} !{number} @ada @user{number} abcdef{number:04} ada/mill#1")
        with statements.record() as many:
            await ask.data(ISSUE, ada, path=str(mill.id))
        assert len(many) <= len(few) + 8
        for number in range(30):
            await make.note(issue, body=f"#{number} !{number} @ada @user{number} abcdef{number:04} ada/mill#1")
        with statements.assert_at_most(len(many)):
            await ask.data(ISSUE, ada, path=str(mill.id))

    async def test_what_one_operation_renders_is_bounded(self, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(texts, "MAX_OPERATION_CHARACTERS", 25)
        ada = await make.user("ada")
        issue = await make.issue(await make.project(owner=ada, path="mill"))
        for number in range(3):
            await make.note(issue, body=f"**number {number}**")
        data = await ask.data(ISSUE, ada, path=str(issue.project_id))
        found = [note["bodyHtml"].strip() for note in data["project"]["issue"]["notes"]["nodes"]]
        assert sorted(html[:5] for html in found) == ["<p><s", "<p><s", "<pre>"]


class TestFields:
    async def test_of_a_project(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        ada = await make.user("ada")
        git(tmp_path, "init", "-q", "--bare", "-b", "master", "source.git")
        oid = commit_files(tmp_path / "source.git", {"README.md": b"# Mill\n\n[a](a.txt) #1", "a.txt": b"*a*"})
        git(tmp_path / "source.git", "update-ref", "refs/heads/master", oid)
        mill = await make.project(owner=ada, path="mill", source=tmp_path / "source.git")
        await make.issue(mill, title="It leaks")
        await make.merge_request(mill, description="**" + "long " * 1000 + "x**")
        await make.milestone(mill, title="1.0", description="*soon*")
        found = (await ask.data(PROJECT, ada, path=str(mill.id)))["project"]
        assert found["mergeRequest"]["descriptionHtml"].startswith("<p><strong>long")
        assert found["milestone"]["descriptionHtml"].strip() == "<p><em>soon</em></p>"
        assert links(found["readme"]["html"]) == [("/ada/mill/files/a.txt?ref=master", ""), ("/ada/mill/issues/1", "It leaks (opened)")]
        assert found["other"]["html"] is None

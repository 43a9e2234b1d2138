"""Files of merge requests that the viewer has viewed, through the graph."""

from pathlib import Path
from typing import Any

from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.git.git_history import build_once, commit_files, git

MARK = """mutation ($input: MarkFileViewedInput!) { markFileViewed(input: $input) {
    mergeRequest { viewedPaths } userErrors { field code } } }"""
VIEWED = "query ($path: String!) { project(path: $path) { mergeRequests { nodes { viewedPaths } } } }"
FILES = {"kept.txt": b"1\n", "gone.txt": b"1\n", "a.txt": b"1\n"}


def create_history(path: Path) -> str:
    """A base, and two heads on it, of which the second changes `a.txt` again; returns the three commits."""
    git(path.parent, "init", "-q", "--bare", "-b", "master", str(path))
    base = commit_files(path, FILES)
    changed = {"kept.txt": b"1\n", "a.txt": b"2\n"}
    head = commit_files(path, changed, base)
    later = commit_files(path, {**changed, "a.txt": b"3\n"}, head)
    git(path, "update-ref", "refs/heads/master", base)
    git(path, "update-ref", "refs/heads/topic", later)
    return f"{base} {head} {later}"


class TestMarkFileViewed:
    async def test_ends_with_the_file_and_is_seen_by_its_viewer_only(
        self, ask: Ask, make: DataFactory, histories: Path, tmp_path: Path
    ) -> None:
        base, head, later = build_once(create_history, histories, path := tmp_path / "source.git").split()
        project = await make.project(owner=(owner := await make.user()), source=path)
        other = await make.user()
        await make.member(project, other, tables.AccessLevel.REPORTER)
        request = await make.merge_request(project, source_branch="topic", base_oid=base, head_oid=head)

        async def mark(path: str, oid: str = head, viewed: bool = True) -> Any:
            input = {"projectPath": str(project.id), "databaseId": request.id, "path": path, "headOid": oid, "viewed": viewed}
            payload = (await ask.data(MARK, owner, input=input))["markFileViewed"]
            errors = [(error["field"], error["code"]) for error in payload["userErrors"]]
            return errors or payload["mergeRequest"]["viewedPaths"]

        async def viewed(viewer: tables.User) -> Any:
            found = await ask.data(VIEWED, viewer, path=str(project.id))
            return [each["viewedPaths"] for each in found["project"]["mergeRequests"]["nodes"]]

        assert await mark("a.txt") == ["a.txt"]
        assert await mark("gone.txt") == ["a.txt", "gone.txt"]
        assert await mark("a.txt") == ["a.txt", "gone.txt"]
        for wrong in ("kept.txt", "absent", "", "../a.txt", "/a.txt"):
            assert await mark(wrong) == [("path", "INVALID")]
        assert await mark("a.txt", base) == [("headOid", "CONFLICT")]
        assert (await viewed(owner), await viewed(other)) == ([["a.txt", "gone.txt"]], [[]])
        request.head_oid = later
        await make.save(request)
        assert await viewed(owner) == [["gone.txt"]]
        assert await mark("gone.txt", later, viewed=False) == []

    async def test_statements_do_not_depend_on_the_number_of_merge_requests(
        self, ask: Ask, make: DataFactory, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        counts = []
        for _ in range(2):
            for number in range(3):
                await make.merge_request(project, head_oid=f"{number}" * 40)
            with statements.record() as recorded:
                await ask.data(VIEWED, owner, path=str(project.id))
            counts.append(len(recorded))
        assert counts[0] == counts[1]

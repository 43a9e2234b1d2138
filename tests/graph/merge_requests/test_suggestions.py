"""Suggestions in notes on lines of merge requests, through the graph."""

import threading
from pathlib import Path
from typing import Any

import pytest

from graph.rules.markdown import rendering, texts
from storage import tables
from storage.git.diffs.diff_lines import ChangedRange, LineSpan, follow_line, replace_lines
from storage.tables import AccessLevel
from tests.graph.merge_requests.test_review_threads import NUMBERS, create_history
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.git.git_history import build_once

SUGGESTIONS = (
    "query ($path: String!) { project(path: $path) { mergeRequest(iid: 1) { notes(first: 20) { nodes { suggestions { index } } } } } }"
)
NOTES = """query ($path: String!) { project(path: $path) { mergeRequest(iid: 1) { headCommit { oid } notes { nodes { id bodyHtml
    suggestions { index path oldText newText firstLine lastLine appliedOid viewerCanApply } } } }
    blob(ref: "topic", path: "a.txt") { text } } }"""
CREATE = (
    "mutation ($input: CreateThreadInput!) { createThread(input: $input) { thread { notes { nodes { id } } } userErrors { message } } }"
)
APPLY = """mutation ($input: ApplySuggestionInput!) { applySuggestion(input: $input) {
    note { suggestions { appliedOid } } userErrors { field code } } }"""
BODY = "Louder:\n```suggestion\nTEN\n```\nor shorter:\n~~~suggestion:-1+1\n~~~\nbut not\n```suggestions\nx\n```"


class TestApplySuggestion:
    async def test_commits_the_change_unless_the_lines_changed(self, ask: Ask, make: DataFactory, histories: Path, tmp_path: Path) -> None:
        base, _, head = build_once(create_history, histories, path := tmp_path / "source.git").split()
        project = await make.project(owner=(owner := await make.user()), source=path)
        await make.member(project, reporter := await make.user(), AccessLevel.REPORTER)
        request = await make.merge_request(project, source_branch="topic", base_oid=base, head_oid=head)
        position = {"headOid": head, "path": "a.txt", "newLine": 12}
        input = {"projectPath": str(project.id), "databaseId": request.id, "body": BODY, "position": position}
        created = await ask.data(CREATE, owner, input=input)
        note_id = created["createThread"]["thread"]["notes"]["nodes"][0]["id"]

        async def read(viewer: tables.User) -> Any:
            return (await ask.data(NOTES, viewer, path=str(project.id)))["project"]

        async def apply(viewer: tables.User, index: int) -> Any:
            outcome = await ask(APPLY, viewer, input={"id": note_id, "index": index})
            if outcome.errors:
                return outcome.errors[0].code
            payload = (outcome.data or {})["applySuggestion"]
            return [error["code"] for error in payload["userErrors"]] or payload["note"]["suggestions"]

        (note,) = (await read(owner))["mergeRequest"]["notes"]["nodes"]
        common = {"path": "a.txt", "appliedOid": None, "viewerCanApply": True}
        assert note["suggestions"] == [
            {"index": 0, "oldText": "ten", "newText": "TEN\n", "firstLine": 12, "lastLine": 12, **common},
            {"index": 1, "oldText": "9\nten\n11", "newText": "", "firstLine": 11, "lastLine": 13, **common},
        ]
        assert '<code data-suggestion="0">TEN\n</code>' in note["bodyHtml"]
        assert '<code data-suggestion="1">' in note["bodyHtml"]
        assert [each["viewerCanApply"] for each in (await read(reporter))["mergeRequest"]["notes"]["nodes"][0]["suggestions"]] == [
            False
        ] * 2
        assert (await apply(reporter, 0), await apply(owner, 2), await apply(owner, -1)) == ("FORBIDDEN", "NOT_FOUND", "NOT_FOUND")

        applied = await apply(owner, 0)
        found = await read(owner)
        assert applied[0]["appliedOid"] == found["mergeRequest"]["headCommit"]["oid"] != head
        assert found["blob"]["text"].splitlines()[:13] == ["0", "0", *(line.strip() for line in NUMBERS[:9]), "TEN", "11"]
        suggestions = found["mergeRequest"]["notes"]["nodes"][0]["suggestions"]
        assert [(each["firstLine"], each["viewerCanApply"]) for each in suggestions] == [(None, False)] * 2
        assert suggestions[1]["oldText"] == "9\nten\n11"
        assert (await apply(owner, 0), await apply(owner, 1)) == (["CONFLICT"], ["CONFLICT"])

    async def test_an_edited_note_keeps_the_commit_at_its_suggestion(
        self, ask: Ask, make: DataFactory, histories: Path, tmp_path: Path, dialect: str
    ) -> None:
        base, _, head = build_once(create_history, histories, path := tmp_path / "source.git").split()
        project = await make.project(owner=(owner := await make.user()), source=path)
        request = await make.merge_request(project, source_branch="topic", base_oid=base, head_oid=head)
        line = {"base_oid": base, "head_oid": head, "old_path": "a.txt", "new_path": "a.txt", "new_line": 12, "excerpt": ""}
        first, second, third = (f"```suggestion\n{text}\n```\n" for text in ("TEN", "zehn", "dix"))
        note = await make.note(request, thread_id=(await make.thread(request, **line)).id, body=first + second, author=owner)
        for position, oid in enumerate(("a" * 40, "b" * 40)):
            await make.save(tables.AppliedSuggestion(note_id=note.id, position=position, author_id=owner.id, commit_oid=oid))

        async def edit(body: str) -> list[tuple[str, str | None]]:
            update = "mutation ($input: UpdateNoteInput!) { updateNote(input: $input) { userErrors { code } } }"
            input = {"projectPath": str(project.id), "databaseId": note.id, "body": body}
            assert (await ask.data(update, owner, input=input))["updateNote"] == {"userErrors": []}
            notes = (await ask.data(NOTES, owner, path=str(project.id)))["project"]["mergeRequest"]["notes"]["nodes"]
            return [(each["newText"], each["appliedOid"]) for shown in notes for each in shown["suggestions"]]

        assert await edit(third + first + second) == [("dix\n", None), ("TEN\n", "a" * 40), ("zehn\n", "b" * 40)]
        assert await edit(second + first) == [("zehn\n", "b" * 40), ("TEN\n", "a" * 40)]
        assert await edit(third + first) == [("dix\n", None), ("TEN\n", "a" * 40)]
        assert await edit("Nothing") == []
        assert await make.count(tables.AppliedSuggestion) == 0

    async def test_is_for_open_merge_requests(self, ask: Ask, make: DataFactory, histories: Path, tmp_path: Path) -> None:
        base, _, head = build_once(create_history, histories, path := tmp_path / "source.git").split()
        project = await make.project(owner=(owner := await make.user()), source=path)
        closed = {"state": tables.MergeRequestState.CLOSED, "base_oid": base, "head_oid": head}
        request = await make.merge_request(project, source_branch="topic", **closed)
        line = {"base_oid": base, "head_oid": head, "old_path": "a.txt", "new_path": "a.txt", "new_line": 12, "excerpt": ""}
        note = await make.note(request, thread_id=(await make.thread(request, **line)).id, body=BODY)
        (_, found) = (await ask.data(NOTES, owner, path=str(project.id)))["project"]["mergeRequest"]["notes"]["nodes"]
        assert [each["viewerCanApply"] for each in found["suggestions"]] == [False, False]
        payload = (await ask.data(APPLY, owner, input={"id": found["id"], "index": 0}))["applySuggestion"]
        assert (note.id, payload["userErrors"][0]["code"]) == (note.id, "NOT_ALLOWED")


class TestLongNotes:
    """What it costs to find the suggestions of notes."""

    async def read(self, bodies: list[str], ask: Ask, make: DataFactory, histories: Path, tmp_path: Path) -> list[int]:
        """The number of suggestions of each note, and of the note about the commits."""
        base, _, head = build_once(create_history, histories, path := tmp_path / "source.git").split()
        project = await make.project(owner=(owner := await make.user()), source=path)
        request = await make.merge_request(project, source_branch="topic", base_oid=base, head_oid=head)
        line = {"base_oid": base, "head_oid": head, "old_path": "a.txt", "new_path": "a.txt", "new_line": 12, "excerpt": ""}
        thread = await make.thread(request, **line)
        for body in bodies:
            await make.note(request, thread_id=thread.id, body=body)
        found = (await ask.data(SUGGESTIONS, owner, path=str(project.id)))["project"]["mergeRequest"]["notes"]["nodes"]
        return sorted(len(note["suggestions"]) for note in found)

    async def test_are_parsed_in_one_thread_and_only_if_they_have_such_a_fence(
        self, ask: Ask, make: DataFactory, histories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parsed: list[tuple[int, str]] = []
        parse = rendering.parse
        monkeypatch.setattr(rendering, "parse", lambda text: parsed.append((threading.get_ident(), text)) or parse(text))
        short = [f"{BODY} {number}" for number in range(2)]
        long = [f"{BODY}\n\n{'- a ' * 500}{number}" for number in range(3)]
        others = ["suggestion\n\n" + "- a\n" * 500, "```\nsuggestion\n", "plain"]

        assert await self.read([*short, *long, *others], ask, make, histories, tmp_path) == [0] * 4 + [2] * 5

        assert {text for _, text in parsed} == {*short, *long, others[1]}
        (thread,) = {thread for thread, _ in parsed}
        assert thread != threading.get_ident()

    async def test_are_bounded_for_one_operation(
        self, ask: Ask, make: DataFactory, histories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(texts, "MAX_OPERATION_CHARACTERS", 3 * len(BODY) - 1)
        bodies = [BODY.replace("TEN", letter * 3) for letter in "abcd"]
        assert await self.read(bodies, ask, make, histories, tmp_path) == [0, 0, 0, 2, 2]

    @pytest.mark.parametrize(
        "text",
        [
            "```suggestion\nx",
            "~~~suggestion:-1+0\nx\n~~~",
            "- ````` suggestion\n  x\n  `````",
            "> ```\t suggestion\n> x",
            "a\r\n~~~~\u00a0suggestion\r\nx",
        ],
    )
    def test_may_have_suggestions_is_true_of_all_that_have_some(self, text: str) -> None:
        assert rendering.may_have_suggestions(text)
        assert len(rendering.find_suggestions(text)) == 1
        assert not rendering.may_have_suggestions(text.replace("sugg", "dig"))


@pytest.mark.parametrize(
    ("data", "lines", "text", "expected"),
    [
        (b"a\nb\nc\n", (2, 2), "x\ny\n", b"a\nx\ny\nc\n"),
        (b"a\nb\nc\n", (1, 2), "", b"c\n"),
        (b"a\nb", (2, 2), "x\n", b"a\nx"),
        (b"a\r\nb\r\n", (1, 1), "x\n", b"x\r\nb\r\n"),
        (b"a\nb\n", (1, 1), "\n", b"\nb\n"),
        (b"\xff\n\x00\n", (2, 2), "\u00e9\n", b"\xff\n\xc3\xa9\n"),
        (b"a\n", (2, 2), "x\n", None),
        (b"", (1, 1), "x\n", None),
    ],
)
def test_replaced_lines(data: bytes, lines: tuple[int, int], text: str, expected: bytes | None) -> None:
    assert replace_lines(data, LineSpan(*lines), text) == expected


def test_followed_lines() -> None:
    changes = [ChangedRange(2, 0, 3), ChangedRange(5, 2, 1), ChangedRange(9, 1, 0)]
    assert [follow_line(changes, line) for line in range(1, 12)] == [1, 2, 6, 7, None, None, 9, 10, None, 11, 12]

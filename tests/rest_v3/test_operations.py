"""Operations: read, prepared with the fragments they use, and turned into plans."""

from pathlib import Path
from typing import Any

import pytest

from rest_v3.operations import BadOperationError, Operations
from rest_v3.reshape import milliseconds, plan, plan_of_entry
from tests.rest_v3.fake_graph import prepare
from tests.rest_v3.rows import SOURCE


def operations(source: str = SOURCE) -> Operations:
    return Operations((source,), prepare)


class TestReading:
    def test_an_operation_comes_with_only_the_fragments_it_uses(self) -> None:
        assert operations().uses("ProjectIssues") == {"issue", "person"}
        assert operations().uses("ProjectCommit") == frozenset()
        assert "unused" not in operations().source("ProjectIssues")

    def test_fragments_may_stand_in_another_file(self, tmp_path: Path) -> None:
        (tmp_path / "users.graphql").write_text("fragment person on User { username }")
        (tmp_path / "people.graphql").write_text("query Me { viewer { ...person } }")
        read = Operations.read(tmp_path, prepare)
        assert read.names == {"Me"}
        assert read.fragment_names == {"person"}
        assert set(read.get("Me").selected["viewer"].below) == {"username"}

    def test_an_operation_is_prepared_once(self) -> None:
        asked: list[str] = []

        def counting(source: str, name: str) -> Any:
            asked.append(name)
            return prepare(source, name)

        read = Operations((SOURCE,), counting)
        assert read.get("User") is read.get("User")
        assert asked == ["User"]

    @pytest.mark.parametrize(
        ("source", "name", "reason"),
        [
            ("query A { viewer { id } }", "B", "no .graphql file has an operation B"),
            ("query A { viewer { ...gone } }", "A", "no .graphql file has a fragment gone"),
            ("query A { viewer { id } } query A { viewer { id } }", "A", "two definitions of A"),
            ("query Viewer { viewer { id } }", "Viewer", "two definitions of Viewer"),
            ("{ viewer { id } }", "A", "only named operations"),
            (
                'mutation A { updateIssue(input: {projectPath: "1", databaseId: 1}) { issue { iid } } }',
                "A",
                "does not ask for userErrors",
            ),
        ],
    )
    def test_says_at_start_what_is_wrong(self, source: str, name: str, reason: str) -> None:
        with pytest.raises(BadOperationError, match=reason):
            operations(source).get(name)

    def test_what_the_schema_does_not_have_ends_the_start(self) -> None:
        with pytest.raises(ValueError, match="nothing"):
            operations("query A { viewer { nothing } }").get("A")


class TestDescription:
    def test_variables(self) -> None:
        found = operations().get("ProjectIssues").variables
        assert {name: (variable.required, variable.is_list) for name, variable in found.items()} == {
            "id": (True, False),
            "state": (False, True),
            "labels": (False, True),
            "iid": (False, True),
            "first": (True, False),
            "offset": (True, False),
        }
        assert [name for name, variable in found.items() if variable.enum is not None] == ["state"]

    def test_the_variable_that_fills_a_field(self) -> None:
        filled = operations().get("UpdateIssue").fields
        assert (filled["dueDate"], filled["projectPath"], filled["title"]) == ("due_date", "id", "title")

    def test_an_operation_with_pages(self) -> None:
        assert operations().get("ProjectIssues").pages
        assert not operations().get("ProjectIssue").pages

    def test_what_may_be_absent(self) -> None:
        source = """
        query A($with: Boolean!) {
          project(path: "1") {
            noteable(databaseId: 101) {
              state
              ... on Noteable { id: databaseId }
              ... on Issue { title state }
              number: databaseId @include(if: $with)
            }
          }
        }
        """
        below = operations(source).get("A").selected["project"].below["noteable"].below
        assert {key: part.always for key, part in below.items()} == {
            "state": True,
            "id": True,
            "title": False,
            "number": False,
        }


class TestPlan:
    def selected(self, selection: str) -> Any:
        source = f'query A {{ project(path: "1") {{ {selection} }} }}'
        return operations(source).get("A").selected["project"]

    def test_nothing_to_change_is_no_plan(self) -> None:
        assert plan(self.selected("issue(databaseId: 1) { title labels author { username } }")) is None

    def test_enums_and_times_wherever_they_stand(self) -> None:
        change = plan(
            self.selected(
                "issue(databaseId: 1) { state history made: createdAt closedAt title "
                "watchers { nodes { username } } other: watchers { people: totalCount } }"
            )
        )
        assert change is not None
        given = {
            "issue": {
                "state": "OPENED",
                "history": ["OPENED", "CLOSED"],
                "made": "2016-01-19T08:40:25.934999Z",
                "closedAt": None,
                "title": "OPENED",
                "watchers": {"nodes": [{"username": "ada"}]},
                "other": {"people": 3},
            }
        }
        before = repr(given)
        assert change(given) == {
            "issue": {
                "state": "opened",
                "history": ["opened", "closed"],
                "made": "2016-01-19T08:40:25.934Z",
                "closedAt": None,
                "title": "OPENED",
                "watchers": [{"username": "ada"}],
                "other": 3,
            }
        }
        assert repr(given) == before, "an answer may share its parts; none is altered"

    def test_keys_keep_their_order(self) -> None:
        change = plan(self.selected("issue(databaseId: 1) { title state iid }"))
        assert change is not None
        assert list(change({"issue": {"title": "a", "state": "CLOSED", "iid": 1}})["issue"]) == ["title", "state", "iid"]

    def test_what_a_condition_leaves_out_stays_out(self) -> None:
        change = plan(self.selected("noteable(databaseId: 1) { ... on Issue { state createdAt } databaseId }"))
        assert change is not None
        assert change({"noteable": {"databaseId": 1}}) == {"noteable": {"databaseId": 1}}
        assert change({"noteable": None}) == {"noteable": None}

    def test_the_entries_of_a_page(self) -> None:
        change = plan_of_entry(self.selected("issues { totalCount nodes { state } }").below["issues"])
        assert change is not None
        assert change({"state": "CLOSED"}) == {"state": "closed"}


@pytest.mark.parametrize(
    ("time", "short"),
    [
        ("2016-01-19T08:40:25.934999Z", "2016-01-19T08:40:25.934Z"),
        ("2016-01-19T08:40:25.000000Z", "2016-01-19T08:40:25.000Z"),
        ("2015-12-24T16:51:14.000000+01:00", "2015-12-24T16:51:14.000+01:00"),
        ("2015-12-24T16:51:14.123456-09:30", "2015-12-24T16:51:14.123-09:30"),
    ],
)
def test_milliseconds(time: str, short: str) -> None:
    assert milliseconds(time) == short

"""Operations: parsed, prepared with the fragments they use, and compiled into plans."""

from pathlib import Path
from typing import Any

import pytest
from graphql import DocumentNode

from rest_v3.operations import BadOperationError, OperationRegistry
from rest_v3.reshape import plan_entry_transform, plan_transform, truncate_to_milliseconds
from tests.rest_v3.support.fake_graph import fragment_names, prepare
from tests.rest_v3.support.sample_routes import SAMPLE_OPERATIONS


def operations(source: str = SAMPLE_OPERATIONS) -> OperationRegistry:
    return OperationRegistry((source,), prepare)


class TestReading:
    def test_an_operation_comes_with_only_the_fragments_it_uses(self) -> None:
        assert fragment_names(operations().document("ProjectIssues")) == {"issue", "person"}
        assert fragment_names(operations().document("ProjectCommit")) == set()

    def test_fragments_may_stand_in_another_file(self, tmp_path: Path) -> None:
        (tmp_path / "users.graphql").write_text("fragment person on User { username }")
        (tmp_path / "people.graphql").write_text("query Me { viewer { ...person } }")
        read = OperationRegistry.read(tmp_path, prepare)
        assert read.names == {"Me"}
        assert set(read.get("Me").root_fields["viewer"].subfields) == {"username"}

    def test_an_operation_is_prepared_once(self) -> None:
        requested: list[str] = []

        def counting(document: DocumentNode) -> Any:
            requested.append(prepare(document).name)
            return prepare(document)

        read = OperationRegistry((SAMPLE_OPERATIONS,), counting)
        assert read.get("User") is read.get("User")
        assert requested == ["User"]

    @pytest.mark.parametrize(
        ("source", "name", "reason"),
        [
            ("query A { viewer { id } }", "B", "no .graphql file defines the operation B"),
            ("query A { viewer { ...gone } }", "A", "no .graphql file defines the fragment gone"),
            ("query A { viewer { id } } query A { viewer { id } }", "A", "duplicate definition of A"),
            ("query Viewer { viewer { id } }", "Viewer", "duplicate definition of Viewer"),
            ("{ viewer { id } }", "A", "only named operations"),
            (
                'mutation A { updateIssue(input: {projectPath: "1", databaseId: 1}) { issue { iid } } }',
                "A",
                "does not select userErrors",
            ),
        ],
    )
    def test_errors_fail_the_start(self, source: str, name: str, reason: str) -> None:
        with pytest.raises(BadOperationError, match=reason):
            operations(source).get(name)

    def test_unknown_fields_fail_the_start(self) -> None:
        with pytest.raises(ValueError, match="nothing"):
            operations("query A { viewer { nothing } }").get("A")


class TestDescription:
    def test_variables(self) -> None:
        found = operations().get("ProjectIssues").variables
        assert {name: (variable.is_required, variable.is_list) for name, variable in found.items()} == {
            "id": (True, False),
            "state": (False, True),
            "labels": (False, True),
            "iid": (False, True),
            "first": (True, False),
            "offset": (True, False),
        }
        assert [name for name, variable in found.items() if variable.enum is not None] == ["state"]

    def test_the_variable_that_fills_a_field(self) -> None:
        filled = operations().get("UpdateIssue").variables_by_input_field
        assert (filled["dueDate"], filled["projectPath"], filled["title"]) == ("due_date", "id", "title")

    def test_an_operation_with_pages(self) -> None:
        assert operations().get("ProjectIssues").is_paginated
        assert not operations().get("ProjectIssue").is_paginated

    def test_nullable_fields(self) -> None:
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
        below = operations(source).get("A").root_fields["project"].subfields["noteable"].subfields
        assert {key: part.is_always_present for key, part in below.items()} == {
            "state": True,
            "id": True,
            "title": False,
            "number": False,
        }


class TestPlan:
    def selected(self, selection: str) -> Any:
        source = f'query A {{ project(path: "1") {{ {selection} }} }}'
        return operations(source).get("A").root_fields["project"]

    def test_no_conversion_needs_no_plan(self) -> None:
        assert plan_transform(self.selected("issue(databaseId: 1) { title labels author { username } }")) is None

    def test_enums_and_times_wherever_they_stand(self) -> None:
        change = plan_transform(
            self.selected(
                "issue(databaseId: 1) { state history made: createdAt closedAt title "
                "watchers { nodes { username } } other: watchers { people: totalCount } }"
            )
        )
        assert change is not None
        values = {
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
        before = repr(values)
        assert change(values) == {
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
        assert repr(values) == before, "an answer may share its parts; none is altered"

    def test_keys_keep_their_order(self) -> None:
        change = plan_transform(self.selected("issue(databaseId: 1) { title state iid }"))
        assert change is not None
        assert list(change({"issue": {"title": "a", "state": "CLOSED", "iid": 1}})["issue"]) == ["title", "state", "iid"]

    def test_skipped_fields_stay_absent(self) -> None:
        change = plan_transform(self.selected("noteable(databaseId: 1) { ... on Issue { state createdAt } databaseId }"))
        assert change is not None
        assert change({"noteable": {"databaseId": 1}}) == {"noteable": {"databaseId": 1}}
        assert change({"noteable": None}) == {"noteable": None}

    def test_the_entries_of_a_page(self) -> None:
        change = plan_entry_transform(self.selected("issues { totalCount nodes { state } }").subfields["issues"])
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
    assert truncate_to_milliseconds(time) == short

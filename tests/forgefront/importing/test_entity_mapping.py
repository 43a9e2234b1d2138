"""Entities of the interface document, of servers of that time and of v4 become the same inputs."""

from typing import Any

import pytest

from forgefront.importing import content_mapping, entity_mapping
from forgefront.importing.entity_fields import InvalidEntity, SourceEntity

TIME = "2016-01-19T08:40:25.934Z"
WRITTEN_TIME = "2016-01-19T08:40:25.934000Z"


class TestUsers:
    def test_have_the_fields_of_each_version(self) -> None:
        common = {"id": 3, "username": "ann", "name": "Ann", "email": "a@b.c", "state": "active", "created_at": TIME, "is_admin": False}
        document = {**common, "messenger": "m", "professional_profile": "p", "microblog": "t", "extern_uid": "cn=ann", "provider": "ldap"}
        legacy = {**common, "skype": "m", "linkedin": "p", "twitter": "t", "identities": [{"provider": "ldap", "extern_uid": "cn=ann"}]}
        expected = {
            "sourceId": "3",
            "namespaceId": "7",
            "username": "ann",
            "name": "Ann",
            "email": "a@b.c",
            "state": "ACTIVE",
            "admin": False,
            "messenger": "m",
            "professionalProfile": "p",
            "microblog": "t",
            "externUid": "cn=ann",
            "provider": "ldap",
            "createdAt": WRITTEN_TIME,
            "privateToken": "abc",
        }
        for fields in (document, legacy):
            assert entity_mapping.map_user(SourceEntity(fields), namespace_id=7, private_token="abc") == expected
        v4 = {**legacy, "state": "ldap_blocked", "confirmed_at": None, "identities": []}
        mapped = entity_mapping.map_user(SourceEntity(v4))
        assert (mapped["state"], mapped["blockedByDirectory"], mapped["confirmed"]) == ("BLOCKED", True, False)
        assert "externUid" not in mapped
        # An administrator decides about an external user, not the directory.
        external = entity_mapping.map_user(SourceEntity({**v4, "external": True}))
        assert external["state"] == "BLOCKED" and "blockedByDirectory" not in external


class TestProjects:
    def test_have_the_fields_of_each_version(self) -> None:
        common = {"id": 3, "name": "Web", "path": "web", "namespace": {"id": 5}, "created_at": TIME, "description": None}
        for given in ({"visibility_level": 1}, {"visibility_level": 10}, {"visibility": "internal"}):
            mapped = entity_mapping.map_project(SourceEntity({**common, **given, "jobs_enabled": False, "topics": ["a"]}))
            assert mapped == {
                "sourceId": "3",
                "namespaceId": "5",
                "name": "Web",
                "path": "web",
                "visibility": "INTERNAL",
                "buildsEnabled": False,
                "tagList": ["a"],
                "createdAt": WRITTEN_TIME,
            }
        with pytest.raises(InvalidEntity, match="visibility"):
            entity_mapping.map_project(SourceEntity(common))

    def test_protected_branches_of_both_versions(self) -> None:
        v3 = SourceEntity({"name": "master", "protected": True, "developers_can_push": True})
        v4 = SourceEntity({"name": "master", "push_access_levels": [{"access_level": 40}, {"access_level": 30}]})
        for branch in (v3, v4):
            assert entity_mapping.map_protected_branch("3", branch) == {"projectId": "3", "name": "master", "developersCanPush": True}
        masters = SourceEntity({"name": "master", "push_access_levels": [{"access_level": 40}]})
        assert not entity_mapping.map_protected_branch("3", masters)["developersCanPush"]


class TestIssuesAndMergeRequests:
    def test_states_and_references(self) -> None:
        issue: dict[str, Any] = {"id": 8, "iid": 2, "title": "T", "created_at": TIME, "updated_at": "2016-01-20T09:00:00+01:00"}
        issue |= {"state": "reopened", "author": {"id": 3}, "assignee": None, "labels": ["a", {"name": "b"}], "milestone": {"id": 4}}
        mapped = content_mapping.map_issue("1", SourceEntity(issue))
        assert (mapped["state"], mapped["authorId"], mapped["assigneeId"], mapped["milestoneId"]) == ("OPENED", "3", None, "4")
        assert (mapped["labels"], mapped["updatedAt"], mapped["closedAt"]) == (["a", "b"], "2016-01-20T08:00:00.000000Z", None)
        request = {**issue, "state": "merged", "source_branch": "a", "target_branch": "b", "source_project_id": 1, "sha": None}
        mapped = content_mapping.map_merge_request("1", SourceEntity(request), ["f" * 40, "e" * 40])
        assert (mapped["state"], mapped["headOid"], mapped["commitOids"]) == ("MERGED", "f" * 40, ["f" * 40, "e" * 40])
        assert mapped["mergedAt"] == mapped["updatedAt"]

    def test_what_is_wrong_is_named(self) -> None:
        valid = {"id": 8, "iid": 2, "title": "T", "created_at": TIME, "state": "opened"}
        for change, reason in (
            ({"id": -1}, "id"),
            ({"id": "8"}, "id"),
            ({"id": 2**40}, "id"),
            ({"id": True}, "id"),
            ({"iid": None}, "iid"),
            ({"title": " "}, "title"),
            ({"title": ["x"]}, "title"),
            ({"created_at": "yesterday"}, "created_at"),
            ({"created_at": "0001-01-01T00:00:00+14:00"}, "created_at"),
            ({"state": "odd"}, "state"),
        ):
            with pytest.raises(InvalidEntity, match=reason):
                content_mapping.map_issue("1", SourceEntity({**valid, **change}))
        odd = content_mapping.map_issue("1", SourceEntity({**valid, "title": "a\0b\ud800", "author": 7, "labels": "x"}))
        assert (odd["title"], odd["authorId"], odd["labels"]) == ("ab?", None, [])


class TestBuilds:
    def test_statuses_of_both_versions(self) -> None:
        build = {"id": 9, "name": "unit", "ref": "master", "created_at": TIME, "commit": {"id": "a" * 40}, "coverage": "98.5"}
        for status, expected in (("success", "SUCCESS"), ("created", "PENDING"), ("canceled", "CANCELED")):
            mapped = content_mapping.map_build("1", SourceEntity({**build, "status": status}))
            assert (mapped["status"], mapped["sha"], mapped["stage"], mapped["coverage"]) == (expected, "a" * 40, "test", 98.5)
        with pytest.raises(InvalidEntity, match="manual"):
            content_mapping.map_build("1", SourceEntity({**build, "status": "manual"}))
        with pytest.raises(InvalidEntity, match="commit"):
            content_mapping.map_build("1", SourceEntity({**build, "status": "success", "commit": None}))

"""When `updated_at` moves: with every change of an object, and with nothing else (docs/wire-facts.md 2.3)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Api

MOMENT = datetime(2016, 1, 4, 15, 31, 46, 176000, tzinfo=UTC)


async def make_row(make: DataFactory, kind: str) -> tuple[Any, str, tables.User]:
    """A row that was last changed at MOMENT, the path below which v3 updates it, and a user who may."""
    owner = await make.user(admin=True)
    project = await make.project(owner=owner, name="Name", description="Text", tag_list=["a"], updated_at=MOMENT)
    base = f"/projects/{project.id}"
    if kind == "project":
        return project, base, owner
    if kind == "settings":
        await make.settings(sign_in_text="Text", restricted_visibility_levels=[1], updated_at=MOMENT)
        return tables.Settings(id=1), "/application/settings", owner
    label = await make.label(project, "bug", color="#FF0000", updated_at=MOMENT)
    if kind == "label":
        return label, f"{base}/labels", owner
    if kind == "milestone":
        milestone = await make.milestone(project, title="Name", description="Text", updated_at=MOMENT)
        return milestone, f"{base}/milestones/{milestone.id}", owner
    if kind == "snippet":
        snippet = await make.snippet(project, title="Name", content="Text", updated_at=MOMENT)
        return snippet, f"{base}/snippets/{snippet.id}", owner
    if kind == "issue":
        issue = await make.issue(project, title="Name", description="Text", labels=[label], updated_at=MOMENT)
        return issue, f"{base}/issues/{issue.id}", owner
    merge_request = await make.merge_request(project, title="Name", description="Text", labels=[label], updated_at=MOMENT)
    return merge_request, f"{base}/merge_requests/{merge_request.id}", owner


CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "issue": ({"title": " Name ", "description": "Text", "labels": "bug", "assignee_id": 0, "state_event": "reopen"}, {"labels": "bug,x"}),
    "merge_request": ({"title": "Name", "description": "Text", "labels": "bug", "state_event": "reopen"}, {"labels": "x"}),
    "milestone": ({"title": "Name", "description": "Text", "state_event": "activate"}, {"due_date": "2016-02-29"}),
    "label": ({"name": "bug", "new_name": "bug", "color": "#FF0000"}, {"name": "bug", "new_name": "defect"}),
    "snippet": ({"title": "Name", "code": "Text"}, {"code": "Other"}),
    "project": ({"name": "Name", "description": "Text", "builds_enabled": "true"}, {"builds_enabled": "false"}),
    "settings": ({"sign_in_text": "Text", "restricted_visibility_levels": "1"}, {"restricted_visibility_levels": "1,2"}),
}


@pytest.mark.parametrize("kind", CASES)
async def test_updates_that_change_nothing_keep_the_time(api: Api, make: DataFactory, kind: str) -> None:
    row, path, user = await make_row(make, kind)
    equal, other = CASES[kind]

    async def update(**fields: Any) -> datetime:
        assert (await api.put(path, user, **fields)).status_code == 200
        return (await make.fetch(type(row), row.id)).updated_at  # type: ignore[union-attr, no-any-return]

    assert await update(**equal) == MOMENT
    assert await update(**other) > MOMENT

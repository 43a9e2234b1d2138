"""Paths with the ids that an imported instance had."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import rest_v3
from forgefront.config import Config, ConfigError
from forgefront.old_ids import read_old_ids
from graph.operations.execution import Graph
from rest_v3.old_ids import KINDS, OldIds, kinds_of
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from storage import tables
from tests.make import EXTERNAL_URL, DataFactory, ssh_key, token_of
from tests.support.api_clients import route_operations

PATHS_WITHOUT_IDS = ("branch", "sha", "tag_name", "token", "key", "query")


def read(tmp_path: Path, text: str) -> OldIds:
    path = tmp_path / "ids.tsv"
    path.write_text(text)
    return OldIds.read(path)


class TestTables:
    def test_have_a_kind_for_every_id_in_a_path(self) -> None:
        for route in (*ROUTES, *EXTRA_ROUTES):
            for name, kind in zip(route.path_names, kinds_of(route.path), strict=True):
                assert (kind is None) is (name in PATHS_WITHOUT_IDS), f"{route.call}: {name}"
        assert {kind for route in (*ROUTES, *EXTRA_ROUTES) for kind in kinds_of(route.path) if kind} == KINDS

    def test_that_cannot_be_used_fail_the_start_with_the_line(self, tmp_path: Path) -> None:
        path = tmp_path / "ids.tsv"
        for text, message in (
            ("project\t1\t2\nproject 1 2\n", ":2: must be a kind"), ("issue\t1\tx\n", ":1: must be a kind"),
            ("issue\t1\t2\n\n# comment\nissue\t1\t3\n", ":4: issue 1 has two new IDs"),
        ):  # fmt: skip
            path.write_text(text)
            with pytest.raises(ConfigError, match=message):
                read_old_ids(Config.load(data=tmp_path, v3_old_ids=path))
        with pytest.raises(ConfigError, match=r"FORGEFRONT_V3_OLD_IDS: .*cannot be read"):
            read_old_ids(Config.load(data=tmp_path, v3_old_ids=tmp_path / "nothing"))
        assert read_old_ids(Config.load(data=tmp_path)) is None

    def test_may_begin_with_a_heading(self, tmp_path: Path) -> None:
        ids = read(tmp_path, "kind\told\tnew\nproject\t1\t2\n")
        assert ids.translate("/projects/:id", ["1"]) == ["2"]


class TestPaths:
    async def test_name_the_objects_that_had_the_ids(self, graph: Graph, make: DataFactory, tmp_path: Path) -> None:
        owner = await make.user()
        first, second = [await make.project(owner=owner) for _ in range(2)]
        issue = await make.issue(second, author=owner)
        note = await make.note(issue)
        key = tables.DeployKey(project_id=second.id, title="k", key=ssh_key(1), fingerprint="f")
        await make.save(key)
        lines = [
            ("project", first.id, second.id), ("issue", 900, issue.id), ("note", 901, note.id), ("user", 902, owner.id),
            ("deploy_key", f"{first.id}/903", key.id), ("label", 1, 2),
        ]  # fmt: skip
        old_ids = read(tmp_path, "".join("\t".join(map(str, line)) + "\n" for line in lines))
        app: Any = rest_v3.create_app(graph, external_url=EXTERNAL_URL, operations=route_operations(), old_ids=old_ids)
        transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/api/v3", app=app)]))
        async with httpx.AsyncClient(
            transport=transport, base_url=f"{EXTERNAL_URL}/api/v3", headers={"PRIVATE-TOKEN": token_of(owner)}
        ) as client:

            async def read_id(path: str) -> Any:
                return (await client.get(path)).json().get("id")

            assert await read_id(f"/projects/{first.id}") == second.id
            assert await read_id(f"/projects/{second.id}") == second.id
            for project in (first.id, second.id, f"{owner.username}%2F{second.path}"):
                assert await read_id(f"/projects/{project}/issues/900") == issue.id
                assert await read_id(f"/projects/{project}/issues/{issue.id}/notes/901") == note.id
            assert await read_id(f"/projects/{first.id}/keys/903") == key.id
            assert await read_id("/users/902") == owner.id
            assert (await client.get(f"/projects/{first.id}/issues/904")).status_code == 404
            listed = await client.get(f"/projects/{first.id}/issues", params={"per_page": 1})
            assert listed.json()[0]["project_id"] == second.id
            assert f"/projects/{first.id}/issues?" in listed.headers["link"]

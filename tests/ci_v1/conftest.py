"""Fixtures of the runner protocol: its application over the graph of the suite, and a runner of 2016."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

import ci_v1
from graph.artifact_access import ArtifactAccess
from graph.operations.execution import Graph
from storage import tables
from tests.ci_v1.shapes import check_shape
from tests.make import EXTERNAL_URL, DataFactory

INFO = {"name": "gitlab-ci-multi-runner", "version": "1.0.4", "revision": "014aa8c", "platform": "linux", "architecture": "amd64"}


@dataclass
class LegacyRunner:
    """What gitlab-runner 1.0 sends: JSON, the token in it, every path with `.json` but those of artifacts."""

    client: httpx.AsyncClient
    token: str
    build: dict[str, Any] = field(default_factory=dict)

    async def claim(self) -> httpx.Response:
        response = await self.client.post("builds/register.json", json={"token": self.token, "info": INFO})
        if response.status_code == 201:
            self.build = check_shape("BuildDetails", response.json())
        return response

    async def update(self, build_id: int | None = None, **said: Any) -> httpx.Response:
        number = self.build["id"] if build_id is None else build_id
        return await self.client.put(f"builds/{number}.json", json={"token": self.token, "info": INFO, **said})

    async def upload_artifact(self, content: bytes, name: str = "artifacts.zip") -> httpx.Response:
        response = await self.client.post(self.artifacts_path, headers=self.build_token_headers, files={"file": (name, content)})
        if response.status_code == 201:
            check_shape("BuildDetails", response.json())
        return response

    @property
    def artifacts_path(self) -> str:
        return f"builds/{self.build['id']}/artifacts"

    @property
    def build_token_headers(self) -> dict[str, str]:
        return {"BUILD-TOKEN": self.build["token"]}


@pytest.fixture
async def ci(graph: Graph) -> AsyncIterator[httpx.AsyncClient]:
    app: Any = ci_v1.create_app(graph, ArtifactAccess(graph.services), external_url=EXTERNAL_URL)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{EXTERNAL_URL}/ci/api/v1/") as client:
        yield client


@pytest.fixture
async def project(make: DataFactory) -> tables.Project:
    return await make.project(owner=await make.user("ada"), path="engine", name="Engine")


@pytest.fixture
async def runner(make: DataFactory, ci: httpx.AsyncClient) -> LegacyRunner:
    return LegacyRunner(ci, make.runner_token(await make.runner(description="Old runner")))


@pytest.fixture
async def runner_with_build(make: DataFactory, project: tables.Project, runner: LegacyRunner) -> LegacyRunner:
    """The runner with a build."""
    await make.pending_build(project, name="compile", commands="make\nmake check")
    assert (await runner.claim()).status_code == 201
    return runner

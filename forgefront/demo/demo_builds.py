"""The demo's builds: results of an external build system for the newest commits, with traces and artifacts."""

import io
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from forgefront.demo.demo_merge_requests import DemoBuilderProtocol
from graph.artifact_access import ArtifactAccess

MAX_COMMITS = 4
"""Number of the newest commits that have builds."""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job of each run. `statuses` are its results, newest commit first; `artifact` is the file of a successful one, with its content."""

    name: str
    stage: str
    seconds: int
    output: str
    statuses: tuple[str, ...]
    failure_output: str = ""
    coverage: float | None = None
    artifact: tuple[str, str] | None = None


JOBS = (
    DemoJob(
        "compile",
        "build",
        74,
        "$ make\ncc -O2 -c main.c\ncc -O2 -c parts.c\ncc -o app main.o parts.o\nok\n",
        ("SUCCESS", "SUCCESS", "SUCCESS", "SUCCESS"),
        artifact=("app.zip", "the program\n"),
    ),
    DemoJob(
        "unit",
        "test",
        212,
        "$ make test\n128 tests\n",
        ("SUCCESS", "FAILED", "SUCCESS", "SUCCESS"),
        failure_output="FAILED test_parts.c:41: expected 3, found 2\n1 failed, 127 passed\n",
        coverage=87.5,
        artifact=("report.zip", "128 passed\n"),
    ),
    DemoJob("style", "test", 9, "$ make style\nno complaints\n", ("SUCCESS", "SUCCESS", "SUCCESS", "CANCELED")),
)


@dataclass(slots=True)
class DemoBuilds:
    """The v3 ids of two successful builds with artifacts: one to look at, and one to experiment with."""

    build_id: int = 0
    scratch_build_id: int = 0


async def create_builds(builder: DemoBuilderProtocol, access: ArtifactAccess, project_id: int, branch: str, oids: list[str]) -> DemoBuilds:
    """Creates the builds of these commits, newest first, for at most MAX_COMMITS of them."""
    build_ids: list[int] = []
    for age, oid in reversed(list(enumerate(oids[:MAX_COMMITS]))):
        for job in JOBS:
            build_id = await _create_build(builder, access, project_id, branch, oid, job, job.statuses[age])
            if build_id is not None:
                build_ids.append(build_id)
    return DemoBuilds(build_ids[-1], build_ids[0]) if build_ids else DemoBuilds()


async def _create_build(
    builder: DemoBuilderProtocol, access: ArtifactAccess, project_id: int, branch: str, oid: str, job: DemoJob, status: str
) -> int | None:
    """Returns the id of a build with an artifact."""
    path, started = str(project_id), builder.clock()
    created: dict[str, Any] = await builder.run_mutation(
        "dev",
        "CreateBuild",
        projectPath=path,
        sha=oid,
        ref=branch,
        name=job.name,
        stage=job.stage,
        status="RUNNING",
        startedAt=started.isoformat(),
    )
    output = job.output + (job.failure_output if status == "FAILED" else "")
    await builder.run_mutation("dev", "AppendBuildTrace", projectPath=path, databaseId=created["id"], text=output, offset=0)
    artifact = job.artifact if status == "SUCCESS" else None
    if artifact is not None:
        upload = await builder.run_mutation("dev", "CreateArtifactUpload", projectPath=path, databaseId=created["id"], filename=artifact[0])
        grant = await access.authorize_upload(upload["url"].rpartition("/")[2], "demo")
        await access.store(grant, _create_zip(artifact[0].replace(".zip", ".txt"), artifact[1]), "demo")
    finished = started + timedelta(seconds=job.seconds)
    coverage = job.coverage if status == "SUCCESS" else None
    await builder.run_mutation(
        "dev", "UpdateBuild", projectPath=path, databaseId=created["id"], status=status, finishedAt=finished.isoformat(), coverage=coverage
    )
    return int(created["id"]) if artifact is not None else None


async def _create_zip(name: str, text: str) -> AsyncIterator[bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), text)
    yield buffer.getvalue()

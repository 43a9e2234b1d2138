"""The demo's builds: what a build system outside said of the newest commits, with what it printed and the files that it left."""

import io
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from forgefront.demo_merge_requests import Teller
from graph.artifact_access import ArtifactAccess

RUNS = 4
"""How many of the newest commits have builds."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of each run. `ends` are its outcomes on the newest commit, the one before, and so on; `left` is what a good one leaves."""

    name: str
    stage: str
    seconds: int
    printed: str
    ends: tuple[str, ...]
    complaint: str = ""
    coverage: float | None = None
    left: tuple[str, str] | None = None


JOBS = (
    Job(
        "compile",
        "build",
        74,
        "$ make\ncc -O2 -c main.c\ncc -O2 -c parts.c\ncc -o app main.o parts.o\nok\n",
        ("SUCCESS", "SUCCESS", "SUCCESS", "SUCCESS"),
        left=("app.zip", "the program\n"),
    ),
    Job(
        "unit",
        "test",
        212,
        "$ make test\n128 tests\n",
        ("SUCCESS", "FAILED", "SUCCESS", "SUCCESS"),
        complaint="FAILED test_parts.c:41: expected 3, found 2\n1 failed, 127 passed\n",
        coverage=87.5,
        left=("report.zip", "128 passed\n"),
    ),
    Job("style", "test", 9, "$ make style\nno complaints\n", ("SUCCESS", "SUCCESS", "SUCCESS", "CANCELED")),
)


@dataclass(slots=True)
class Built:
    """The v3 ids of two builds that have ended well and have files: one to look at, and one to try things on."""

    build_id: int = 0
    scratch_build_id: int = 0


async def build(teller: Teller, access: ArtifactAccess, project_id: int, branch: str, oids: list[str]) -> Built:
    """Tells of the builds of these commits, newest first; at most RUNS of them."""
    made: list[int] = []
    for age, oid in reversed(list(enumerate(oids[:RUNS]))):
        for job in JOBS:
            found = await _run(teller, access, project_id, branch, oid, job, job.ends[age])
            if found is not None:
                made.append(found)
    return Built(made[-1], made[0]) if made else Built()


async def _run(teller: Teller, access: ArtifactAccess, project_id: int, branch: str, oid: str, job: Job, end: str) -> int | None:
    """Gives the id of a build that left a file."""
    path, started = str(project_id), teller.clock()
    made: dict[str, Any] = await teller.do(
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
    printed = job.printed + (job.complaint if end == "FAILED" else "")
    await teller.do("dev", "AppendBuildTrace", projectPath=path, databaseId=made["id"], text=printed, offset=0)
    left = job.left if end == "SUCCESS" else None
    if left is not None:
        upload = await teller.do("dev", "CreateArtifactUpload", projectPath=path, databaseId=made["id"], filename=left[0])
        permit = await access.admit(upload["url"].rpartition("/")[2], "demo")
        await access.keep(permit, _zip(left[0].replace(".zip", ".txt"), left[1]), "demo")
    finished = started + timedelta(seconds=job.seconds)
    coverage = job.coverage if end == "SUCCESS" else None
    await teller.do(
        "dev", "UpdateBuild", projectPath=path, databaseId=made["id"], status=end, finishedAt=finished.isoformat(), coverage=coverage
    )
    return int(made["id"]) if left is not None else None


async def _zip(name: str, text: str) -> AsyncIterator[bytes]:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), text)
    yield whole.getvalue()

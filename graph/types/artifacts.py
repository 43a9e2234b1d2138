"""Artifacts: the files that builds leave."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.declare import Node, column, computed, entity
from graph.mutations import mutation
from graph.rules import artifacts
from graph.rules.policy import Action
from graph.scalars import BigInt
from graph.types.inputs import InProject, given, value_or
from graph.types.traces import find_written
from storage import tables


@entity(
    tables.Artifact,
    description="The file that a build left; who may see the build may fetch it.",
    action=Action.READ_BUILD,
    project_key="project_id",
)
class Artifact(Node):
    filename: str = column(description="What it is called: one name, without folders.")
    size: BigInt = column(description="Its length in bytes.")
    created_at: datetime = column(description="When it was there as a whole.")

    @computed(tables.Artifact.project_id, tables.Artifact.build_id, description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/builds/{row.build_id}/artifacts"

    @strawberry.field(description="Where it is fetched, with a private token; parts of it by Range.")
    def download_url(self, info: Info) -> str:
        row: Any = self
        return artifacts.address(info.context, row)

    @strawberry.field(description="Names its bytes to the doors of this service, within one operation; it opens nothing by itself.")
    def stream(self, info: Info) -> str:
        row: Any = self
        return artifacts.offer(info.context, row)


@strawberry.type
class BuildArtifact:
    """The part of a build that is about its artifact."""

    @strawberry.field(description="The file that it left, once all of it is there; null without one.")
    async def artifact(self, info: Info) -> Artifact | None:
        row: Any = self
        return await artifacts.of_builds(info.context).get(row.id)  # type: ignore[no-any-return]


@strawberry.type
class ProjectArtifacts:
    """The part of a project that is about what its builds left."""

    @strawberry.field(description="The file that a build of the project left; null without one.")
    async def artifact(
        self,
        info: Info,
        build_id: Annotated[int, strawberry.argument(description="The v3 id of the build, or that of an attempt that was superseded.")],
    ) -> Artifact | None:
        project: Any = self
        return await artifacts.found(info.context, project, build_id)  # type: ignore[return-value]


@strawberry.type(description="A header of a request.")
class RequestHeader:
    name: str = strawberry.field(description="Its name.")
    value: str = strawberry.field(description="What it says.")


@strawberry.type(description="Where to send the file of a build: one request, without a token.")
class ArtifactUpload:
    url: str = strawberry.field(description="The address. Whoever has it may send the file, once.")
    method: str = strawberry.field(description="The method of the request: `PUT`, with the bytes of the file as its body.")
    headers: list[RequestHeader] = strawberry.field(description="What the request says beside.")
    max_bytes: BigInt = strawberry.field(description="The most bytes that are taken.")
    expires_at: datetime = strawberry.field(description="When it must have begun.")


@strawberry.input(description="The file that a build leaves.")
class CreateArtifactUploadInput(InProject):
    filename: str = strawberry.field(description="What the file is called; folders before it are left out.")
    size: BigInt | None = given("Its length in bytes, to hear now that it is too large.")


@mutation(
    entity="upload",
    returns=ArtifactUpload,
    entity_description="Where to send it.",
    description="Gives an address to send the file of a build to, in place of what it has; developers may. "
    "It is seen once all of it is there.",
)
async def create_artifact_upload(info: Info, input: CreateArtifactUploadInput) -> ArtifactUpload:
    build = await find_written(info.context, input)
    upload = await artifacts.grant(info.context, build, input.filename, value_or(input.size, None))
    headers = [RequestHeader(name="Content-Type", value="application/octet-stream")]
    return ArtifactUpload(url=upload.url, method="PUT", headers=headers, max_bytes=BigInt(upload.max_bytes), expires_at=upload.expires_at)


@strawberry.type
class ArtifactMutations:
    create_artifact_upload = create_artifact_upload

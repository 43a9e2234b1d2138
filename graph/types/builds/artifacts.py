"""Artifacts of builds."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column, computed
from graph.fields.entities import Node, entity
from graph.fields.mutations import mutation
from graph.fields.scalars import BigInt
from graph.rules.builds import artifacts
from graph.rules.permissions.policy import Action
from graph.types.builds.artifact_files import ArtifactFileFields
from graph.types.builds.traces import find_writable_build
from graph.types.inputs import ProjectResourceInput, get_or, optional
from storage import tables


@entity(
    tables.Artifact,
    description="Artifact file of a build; available to everyone who can see the build.",
    action=Action.READ_BUILD,
    project_key="project_id",
)
class Artifact(ArtifactFileFields, Node):
    filename: str = column(description="File name, without directories.")
    size: BigInt = column(description="Size in bytes.")
    created_at: datetime = column(description="When the upload completed.")
    expires_at: datetime | None = column(
        description="When it is deleted, by `artifacts: expire_in` of the CI file; null if never. See `keepArtifacts`."
    )

    @computed(tables.Artifact.project_id, tables.Artifact.build_id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/builds/{row.build_id}/artifacts"

    @strawberry.field(description="URL of the file; requires a private token and supports Range requests.")
    def download_url(self, info: Info) -> str:
        row: Any = self
        return artifacts.build_download_url(info.context, row)

    @strawberry.field(description="Internal reference to the contents, valid within one operation; grants no access.")
    def stream(self, info: Info) -> str:
        row: Any = self
        return artifacts.offer_download(info.context, row)


@strawberry.type
class BuildArtifactFields:
    """Fields of a build about its artifact."""

    @computed(
        tables.Build.id,
        batch=lambda info, rows: artifacts.load_artifacts(info.context, [row.id for row in rows]),
        description="Artifact of the build; null if there is none or its upload has not completed.",
    )
    async def artifact(self, info: Info) -> Artifact | None:
        row: Any = self
        return (await artifacts.load_artifacts(info.context, [row.id]))[0]  # type: ignore[return-value]


@strawberry.type
class ProjectArtifactFields:
    """Fields of a project about artifacts of its builds."""

    @strawberry.field(description="Artifact of a build of the project; null if there is none.")
    async def artifact(
        self,
        info: Info,
        build_id: Annotated[int, strawberry.argument(description="v3 ID of the build, or of a superseded attempt.")],
    ) -> Artifact | None:
        project: Any = self
        return await artifacts.find_artifact(info.context, project, build_id)  # type: ignore[return-value]


@strawberry.type(description="HTTP header of a request.")
class RequestHeader:
    name: str = strawberry.field(description="Name of the header.")
    value: str = strawberry.field(description="Value of the header.")


@strawberry.type(description="Upload URL for the artifact of a build; accepts one request without a token.")
class ArtifactUpload:
    url: str = strawberry.field(description="URL of the upload. Anyone who has it can upload the file once.")
    method: str = strawberry.field(description="HTTP method of the upload: `PUT`, with the contents of the file as the body.")
    headers: list[RequestHeader] = strawberry.field(description="Headers to send with the upload.")
    max_bytes: BigInt = strawberry.field(description="Maximum size of the file in bytes.")
    expires_at: datetime = strawberry.field(description="When the URL expires; the upload must start before this time.")


@strawberry.input(description="Input of `createArtifactUpload`.")
class CreateArtifactUploadInput(ProjectResourceInput):
    filename: str = strawberry.field(description="File name; leading directories are removed.")
    size: BigInt | None = optional("Size in bytes; a file that is too large is rejected before the upload.")


@mutation(
    entity="upload",
    returns=ArtifactUpload,
    runner=True,
    entity_description="Where to upload the file.",
    description="Creates a URL to upload the artifact of a build, which replaces the current one. Requires the developer role. The"
    " artifact is visible after the upload completed.",
)
async def create_artifact_upload(info: Info, input: CreateArtifactUploadInput) -> ArtifactUpload:
    build = await find_writable_build(info.context, input)
    upload = await artifacts.create_upload_target(info.context, build, input.filename, get_or(input.size, None))
    headers = [RequestHeader(name="Content-Type", value="application/octet-stream")]
    return ArtifactUpload(url=upload.url, method="PUT", headers=headers, max_bytes=BigInt(upload.max_bytes), expires_at=upload.expires_at)


@strawberry.type
class ArtifactMutations:
    create_artifact_upload = create_artifact_upload

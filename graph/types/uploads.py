"""Uploads: files attached to what people write."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.declare import Node, column, entity, to_one
from graph.mutations import mutation
from graph.rules import finding, uploads
from graph.rules.policy import Action, require
from graph.scalars import BigInt
from graph.types.users import User
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects import Project


@entity(
    tables.Upload,
    description="A file attached to what somebody wrote. Who sees the project and knows the address may fetch it; as a node only its"
    " author and masters of the project find it.",
    project_key="project_id",
    action=Action.FIND_UPLOAD,
)
class Upload(Node):
    database_id: int = column(tables.Upload.id, description="Its number in the database; v3 does not show it.")
    project_id: int = column(description="The v3 id of the project.")
    name: str = column(description="The name of the file, of letters, digits, `_`, `-`, `+` and `.`.")
    size: BigInt = column(description="Its length in bytes.")
    created_at: datetime = column(description="When it was uploaded.")
    author: User = to_one(tables.Upload.author_id, description="Who uploaded it.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Upload.project_id, description="Where it belongs."
    )

    @strawberry.field(description="The kind of a picture, as `image/png`; `application/octet-stream` for every other file.")
    def content_type(self) -> str:
        return uploads.content_type(_row(self))

    @strawberry.field(description="Whether it is a picture that a page may show.")
    def is_image(self) -> bool:
        return uploads.is_image(_row(self))

    @strawberry.field(description="The text of a link to it.")
    def alt(self) -> str:
        return uploads.alt(_row(self))

    @strawberry.field(description="Where it is found below the project's page: `/uploads/SECRET/NAME`.")
    def url(self) -> str:
        return uploads.address(_row(self))

    @strawberry.field(description="What to write into a text so that it links to the file, or shows the picture.")
    def markdown(self) -> str:
        mark = "!" if uploads.is_image(_row(self)) else ""
        return f"{mark}[{uploads.alt(_row(self))}]({uploads.address(_row(self))})"


def _row(upload: Any) -> tables.Upload:
    return upload  # type: ignore[no-any-return]


@strawberry.type
class ProjectUploads:
    """The part of a project that is about the files attached in it."""

    @strawberry.field(description="The most bytes that a file to upload may have.")
    async def upload_limit(self, info: Info) -> BigInt:
        return BigInt(await uploads.limit(info.context))

    @strawberry.field(description="A file attached in the project, by the two last segments of its address.")
    async def upload(
        self,
        info: Info,
        secret: Annotated[str, strawberry.argument(description="The secret in the address: 32 hex digits.")],
        name: Annotated[str, strawberry.argument(description="The name of the file.")],
    ) -> Upload | None:
        project: Any = self
        await require(info.context, Action.READ_PROJECT, project)
        return await uploads.found(info.context, project, secret, name)  # type: ignore[return-value]


@strawberry.input(description="A file that the server received, through `POST /api/v3/projects/:id/uploads`, and that nothing owns yet.")
class ReceivedFile:
    ticket: str = strawberry.field(description="What the server calls it.")
    name: str = strawberry.field(description="What its sender calls it.")


@strawberry.input(description="A file to attach.")
class CreateUploadInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    file: ReceivedFile = strawberry.field(description="The file.")


@mutation(
    entity="upload",
    returns=Upload,
    entity_description="The upload.",
    description="Keeps a received file with a project; whoever sees the project may. Link to it from a text to attach it there.",
)
async def create_upload(info: Info, input: CreateUploadInput) -> tables.Upload:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.CREATE_UPLOAD, project)
    return await uploads.keep(context, project, input.file.ticket, input.file.name)


@strawberry.type
class UploadMutations:
    create_upload = create_upload
